"""What a function does is told once, however many ways lead to it."""

from pathlib import Path

from gbfix.analysis.effects import function_effects
from gbfix.analysis.facts import Facts
from gbfix.analysis.module_files import parse_module
from gbfix.analysis.project import Project
from gbfix.source.text import SourceFile

START = """import elsewhere

def f0(x):
    if x.sum() > 0:
        x.add_(1)
    return elsewhere.work(x)
"""
STEP = """
def f{after}(x):
    f{before}(x)
    return f{before}(x)
"""
DEPTH = 12


def test_many_ways_lead_to_one_effect(tmp_path: Path) -> None:
    text = START + "".join(STEP.format(before=n, after=n + 1) for n in range(DEPTH))
    module = parse_module(SourceFile.decode(tmp_path / "m.py", text.encode()))
    facts = Facts(Project([module]))
    *_, last = module.functions()
    found = function_effects(last, facts)
    assert found is not None
    through = ": ".join(f"f{n}" for n in reversed(range(DEPTH)))
    assert list(found.unknown.values()) == [f"{through}: elsewhere.work"]
    assert len(found.conditions) == 1
    assert len(found.mutated) == 2  # in each of the two calls
