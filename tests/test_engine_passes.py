"""Passes go on until nothing changes; a fix that never comes to rest costs its file, no more."""

from pathlib import Path

import pytest

from gbfix import engine, looking
from gbfix.analysis.break_site import BreakSite
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.settings import Settings
from gbfix.source.text import Edit, SourceFile

PRINTING = "import torch\n\n@torch.compile\ndef f(x):\n    print(x)\n    return x\n"


def _restless(site: BreakSite, context: Context) -> Fix:
    at = context.view.start(site.statement)
    return Fix("restless", Safety.SAFE, "never at rest", (Edit(at, at, "pass\n    "),))


def test_a_fix_that_never_rests_leaves_its_file_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "GBF201"
    broken = Transform("restless", (code,), "never rests", "", _restless, rank=0)
    monkeypatch.setattr(looking, "treating", lambda code: (broken,))
    files = [SourceFile.decode(Path(n), PRINTING.encode()) for n in ("a.py",)]
    result = engine.run(files, Settings())
    assert [e.path.name for e in result.errors] == ["a.py"]
    assert "left as it was" in result.errors[0].sentence
    assert not any(file.changed for file in result.files)


def test_many_fixes_in_one_function_take_as_many_passes_as_they_need() -> None:
    checks = "".join(f"    if x.sum() > {n}:\n        return x * {n}\n" for n in range(15))
    text = f"import torch\n\ndef f(x: torch.Tensor):\n{checks}    return x * -1\n"
    result = engine.run([SourceFile.decode(Path("f.py"), text.encode())], Settings())
    assert not result.errors and all(f.applied for f in result.files[0].findings)


HOISTED = """import torch
from torch import nn

class M(nn.Module):
    def __init__(self, sizes, shift=0):
        super().__init__()
        self.sizes = sizes
        _, shift = self.fitting((3, 3), (shift, shift))
        self.shift = shift[0]

    def fitting(self, window, shift):
        shift = [0 if r <= w else s for r, w, s in zip(self.sizes, window, shift)]
        return window, shift

    def forward(self, x):
        if self.shift > 0:
            x = torch.roll(x, self.shift)
        return x
"""


def test_a_condition_that_was_hoisted_rests() -> None:
    files = [SourceFile.decode(Path("m.py"), HOISTED.encode())]
    result = engine.run(files, Settings(safety=Safety.UNSAFE))
    assert not result.errors
    (finding,) = result.files[0].findings
    assert finding.applied is not None and finding.applied.transform == "hoist"
    again = [SourceFile.decode(Path("m.py"), result.files[0].after.encode())]
    assert not engine.run(again, Settings(safety=Safety.UNSAFE)).files[0].findings
