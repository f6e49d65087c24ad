"""What a trace keeps of calls and modules is what fixes are verified on."""

from __future__ import annotations

import enum
import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import gbfix.trace
from gbfix.cli.main import main
from gbfix.trace import store
from gbfix.trace.inputs import recorded
from gbfix.trace.journal import tensors_of
from gbfix.trace.objects import put_together, taken_apart
from gbfix.trace.samples import NotPlain
from gbfix.verify.options import Options
from gbfix.verify.recipes import Inputs

MODEL = """\
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, x):
        if x.abs().max() > self.limit:
            x = x / 2
        return x


class Scale(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.register_buffer("factor", factor)

    def forward(self, x):
        if x.sum() > 0:
            x = x * self.factor
        return x


class Block(nn.Module):
    def __init__(self, width, factor):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.gate = Gate(1.0)
        self.scale = Scale(factor)

    def forward(self, x):
        return self.scale(self.gate(self.inner(x)))
"""


class Mode(enum.Enum):
    WIDE = 1


class Config:
    def __init__(self, width: int) -> None:
        self.width = width
        self.mode = Mode.WIDE
        self.more = SimpleNamespace(names=["a"], sizes={"b": (1, 2)})


class Net(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.inner = nn.Linear(config.width, config.width)
        self.tied = self.inner.weight
        self.layers = nn.ModuleList([nn.GELU(), nn.Dropout(0.5)])
        self.activate = torch.relu
        self.register_buffer("steps", torch.arange(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.activate(self.inner(x)) @ self.tied
        return self.layers[1](x) * self.config.width


def test_a_module_is_made_again_with_what_it_held(tmp_path: Path) -> None:
    net = Net(Config(4)).eval()
    torch.save(taken_apart(net, 1 << 20), tmp_path / "net.pt")
    made = put_together(torch.load(tmp_path / "net.pt", weights_only=True), {})
    x = torch.randn(2, 4)
    assert torch.equal(made(x), net(x))
    assert made.tied is made.inner.weight
    assert made.inner.weight is not net.inner.weight
    assert not made.layers[1].training
    assert (made.config.mode, made.config.more) == (Mode.WIDE, net.config.more)


@pytest.mark.parametrize(
    ("value", "limit"), [(nn.LSTM(2, 2), 1 << 20), (nn.Linear(64, 64), 100), (print, 1 << 20)]
)
def test_what_cannot_be_made_again_is_not_kept(value: Any, limit: int) -> None:
    with pytest.raises(NotPlain):
        taken_apart(value, limit)


def test_the_trace_of_another_names_no_function_that_acts() -> None:
    for module, name in (("os", "system"), ("subprocess", "run"), ("builtins", "eval")):
        with pytest.raises(ValueError, match="not taken from a trace"):
            put_together({"__gbfix__": "name", "module": module, "name": name}, {})


def recorded_block(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trace of `Block` with a factor of another dtype than its input."""
    (folder / "net.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)
    monkeypatch.setattr("gbfix.verify.session.default_backend", lambda: "eager")
    monkeypatch.setattr("gbfix.cli.verify.verify_options", lambda _: Options(shrink_seconds=0))
    importlib.invalidate_caches()
    block = importlib.import_module("net").Block(6, torch.full((6,), 3.0, dtype=torch.float64))
    path = folder / "trace.json"
    with gbfix.trace.record(inputs=tensors_of(path)) as recording:
        torch.compile(block, backend="eager")(torch.ones(2, 6))
    del sys.modules["net"]
    store.save(recording.trace, path)
    return path


def test_only_what_passes_with_recorded_inputs_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither class can be constructed without arguments; the model that calls both was recorded.

    The arms of `Scale` have one dtype in most uses, but not in this one.
    """
    path = recorded_block(tmp_path, monkeypatch)
    assert main(["apply", "--verify", "--trace", str(path), "net.py"]) == 0
    said = capsys.readouterr()
    assert "net.py:Block: verified: " in said.err
    assert "net.py:Block: different: " in said.err
    assert "cond: not-verified: different: compiled, call 1" in said.out.partition("Not fixed")[2]
    text = (tmp_path / "net.py").read_text()
    gate, scale = MODEL[MODEL.index("class Gate") :].split("class Scale")
    assert scale in text
    assert gate not in text
    assert text.count("torch.cond") == 1


def test_a_class_that_inherits_its_forward_is_found_where_it_is_defined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    base = "import torch\n\n\nclass Base(torch.nn.Module):\n    def forward(self, x):\n"
    (tmp_path / "base.py").write_text(f"{base}        return self.act(x)\n")
    own = "from base import Base\n\n\nclass Own(Base):\n    def act(self, x):\n"
    own += "        x[x > 1] = 1.0\n        return x * 2\n"
    (tmp_path / "own.py").write_text(own)
    path = tmp_path / "trace.json"
    with gbfix.trace.record(inputs=tensors_of(path)) as recording:
        torch.compile(importlib.import_module("own").Own(), backend="eager")(torch.ones(3))
    for name in ("own", "base"):
        del sys.modules[name]
    store.save(recording.trace, path)
    (entry,) = recording.trace.entries
    assert (Path(entry.file), entry.line, entry.name) == (tmp_path / "own.py", 5, "Own")
    (found,) = recorded([path], tmp_path / "own.py", "Own")
    assert (found.file, found.module) == (tmp_path / "own.py", "own")


STEP = """\
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, 2)

    def forward(self, x):
        return self.inner(x)


@torch.compile(backend="eager")
def step(model, x, limit):
    loss = model(x).pow(2).mean()
    if loss > limit:
        loss = loss * 0.5
    return loss
"""


def test_a_module_among_the_arguments_is_kept_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "steps.py").write_text(STEP)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    steps = importlib.import_module("steps")
    path = tmp_path / "trace.json"
    with gbfix.trace.record(inputs=tensors_of(path)) as recording:
        head = steps.Head(4)
        for scale in (0.0, 100.0, 1.0):
            steps.step(head, torch.full((3, 4), scale), 0.5)
    del sys.modules["steps"]
    store.save(recording.trace, path)
    (found,) = recorded([path], tmp_path / "steps.py", "step")
    calls = Inputs(saved=tuple(map(str, found.calls))).make()
    # The third call is like the first, and so is the second, which has other values.
    assert [float(args[1][0, 0]) for args, _ in calls] == [0.0, 100.0]
    assert torch.equal(calls[0][0][0].inner.weight, head.inner.weight)


def test_what_leads_to_a_definition_is_what_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recorded_block(tmp_path, monkeypatch)
    (direct,) = recorded([path], tmp_path / "net.py", "Block")
    (above,) = recorded([path], tmp_path / "net.py", "Gate")
    assert direct == above
    assert (above.name, above.module, len(above.calls)) == ("Block", "net", 1)
    assert above.state is not None
    assert recorded([path], tmp_path / "net.py", "Other") == ()
