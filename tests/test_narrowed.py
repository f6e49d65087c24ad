"""What is said of one place is what is said of it when the whole file is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbfix.analysis.regions import Regions
from gbfix.editor.actions import actions_at
from gbfix.engine import propose
from gbfix.settings import Settings
from gbfix.source.text import SourceFile

FIXTURES = Path(__file__).parents[1] / "fixtures"
COUNTED = """import torch
from torch import nn

class Layer(nn.Module):
    def forward(self, x: torch.Tensor):
        n = x.sum().item()
        return x * n

{mark}def shift(x: torch.Tensor):
    return x.roll(x.sum())

class Other(nn.Module):
    def forward(self, x: torch.Tensor):
        return {call}(x)
"""
# `warm` sets attributes around the call, but nothing that is compiled calls it.
APART = """import torch
from torch import nn

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor):
        h = self.lin(x)
        if h.abs().max() > 1:
            h = self.lin(h)
        return h

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def warm(self, x: torch.Tensor):
        self.size = x.shape
        self.last = self.inner(x)

    def forward(self, x: torch.Tensor):
        self.last = self.inner(x)
        return self.last
"""
TEXTS = {
    **{
        name: (FIXTURES / name / "before.py").read_text(encoding="utf-8")
        for name in ("cond_lost_store", "while_lost_store")
    },
    "counted": COUNTED.format(mark="", call="shift"),
    "counted outside": COUNTED.format(mark="", call="torch.relu"),
    "counted, disabled": COUNTED.format(mark="@torch.compiler.disable\n", call="shift"),
    "stores apart": APART,
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_place_is_told_of_as_in_the_whole(name: str) -> None:
    source = SourceFile(Path("model.py"), TEXTS[name])
    _, proposals = propose([source], Settings())
    assert proposals
    for line in {p.finding.line for p in proposals}:
        place = actions_at(source, Settings(), (line, None))
        whole = [p for p in proposals if p.finding in place.findings]
        assert len(whole) == len(place.findings) > 0
        offered = {(f, o.transform, edits) for f in whole for o, edits in f.fixes}
        assert len(place.actions) == len(offered)


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("cond_lost_store", "lost-store"),
        ("counted", "breaks-others"),
        ("counted outside", None),
        ("counted, disabled", None),
        ("stores apart", None),
    ],
)
def test_a_refusal_for_the_sake_of_others_is_found(name: str, refused: str | None) -> None:
    source = SourceFile(Path("model.py"), TEXTS[name])
    _, proposals = propose([source], Settings())
    said = {
        refusal.code
        for p in proposals
        for finding in actions_at(source, Settings(), (p.finding.line, None)).findings
        for refusal in finding.refusals
    }
    assert (refused in said) if refused else said.isdisjoint({"lost-store", "breaks-others"})


def test_a_question_about_callers_does_not_look_at_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []
    reached = Regions.reached

    def recorded(self: Regions, wanted: frozenset[object] | None = None) -> object:
        asked.append(wanted)
        return reached(self, wanted)  # type: ignore[arg-type]

    monkeypatch.setattr(Regions, "reached", recorded)
    place = actions_at(SourceFile(Path("model.py"), APART), Settings(), (11, None))
    assert [action.transform for action in place.actions][:1] == ["cond"]
    assert asked and None not in asked
