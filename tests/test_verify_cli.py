"""`gbfix verify` and `gbfix apply --verify` from the command line, and `gbfix.verify` as a function."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import gbfix
from gbfix.cli.main import main
from gbfix.dynamo.backends import default_backend
from gbfix.errors import UserError
from gbfix.verify.api import verify
from gbfix.verify.options import Options
from gbfix.verify.verdict import Status, Verdict
from gbfix.verify.worker import Workers

MODEL = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        h = self.inner(x)
        if h.sum() > 0:
            h = self.inner(h)
        return h


class Sized(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.inner = nn.Linear(sizes["in"], sizes["out"])

    def forward(self, x):
        if x.sum() > 0:
            return self.inner(x)
        return x * 2


def flip(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def make():
    return Sized({"in": 3, "out": 3})


def some():
    return [(torch.ones(2, 3),), ((-torch.ones(2, 3),), {})]
"""


SIZED = (
    MODEL[MODEL.index("class Sized") : MODEL.index("def flip")] + MODEL[MODEL.index("def make") :]
)


def flip(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


def flipped(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.sum() > 0, x + 1, x - 1)


def wrong(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x + 1, x - 1)


def wrong_compiled(x: torch.Tensor) -> torch.Tensor:
    return wrong(x) if torch.compiler.is_compiling() else flipped(x)


class Scale(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * self.factor
        return x


class ScaleWhere(Scale):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.sum() > 0, x * self.factor, x * 1)


def rounded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = x + 256
    if x.sum() > 0:
        return h - 256, x * 2
    return x * 2, x * 2


def fused(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if not torch.compiler.is_compiling():
        return rounded(x)
    h = x + 256
    return torch.where(x.sum() > 0, h - 256, x * 2), torch.where(x.sum() > 0, x * 2, x * 3)


INPUTS = [(torch.ones(3),), (torch.tensor([-2.0, 1.0]),)]
OPTIONS = Options(backend="eager", gradients=False, shrink_seconds=0, both_dynamic=False)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verdicts(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, dict]]:  # type: ignore[type-arg]
    code = main(["verify", "--backend", "eager", "--output-format", "json", *arguments])
    document = json.loads(capsys.readouterr().out)
    return code, {v["target"].rpartition(":")[2]: v for v in document["verdicts"]}


def test_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = verdicts(capsys, "model.py")
    assert code == 1
    assert list(found) == ["Block", "Sized"]
    assert found["Block"]["verified"]
    evidence = found["Block"]["evidence"]
    assert evidence["arms"] == {"covered": 2, "total": 2, "missing": []}
    assert [b["registry"] for b in evidence["before"]["breaks"]][:1] == ["GB0170"]
    assert evidence["before"]["breaks"][0]["diagnosis"] == "GBF101"
    assert dict(evidence["before"]["ran"]["left_out"]) == {"aten::is_nonzero": 7}
    assert evidence["after"]["breaks"] == [] and evidence["after"]["fullgraph"]
    assert evidence["after"]["ran"]["left_out"] == []
    assert evidence["before_static"]["fullgraph"] is False
    # Another size comes among the first four calls: a graph for any size, or one more graph.
    assert evidence["after"]["recompiles"] == evidence["after_static"]["recompiles"] == 1
    assert sum(evidence["after_static"]["recompiles_by_call"]) == 1
    assert found["Sized"]["status"] == "not run"
    assert "--init" in found["Sized"]["reason"]
    assert (folder / "model.py").read_text() == MODEL


def test_a_class_that_needs_help(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = verdicts(capsys, "model:Sized", "--init", "model:make", "--inputs", "model:some")
    assert code == 0
    assert found["Sized"]["status"] == "verified"
    assert found["Sized"]["evidence"]["calls"] == 4


def test_a_function_outside_the_region(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = verdicts(capsys, "model.py:flip")
    assert code == 0
    assert found["flip"]["verified"]


def test_text_output_and_a_given_rewrite(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other.py").write_text(
        MODEL.replace("        return x + 1\n", "        return x + 2\n")
    )
    given = ["--backend", "eager", "model.py:flip", "--against", "other.py"]
    code = main(["verify", *given, "--reproduce", "scripts"])
    out = capsys.readouterr().out
    assert code == 1
    assert out.startswith("model.py:flip: different: eager, call ")
    assert "differs: eager, call " in out
    assert "shown by (torch.tensor(1.0),) (after " in out
    assert "script: scripts/model_flip.py" in out
    assert "0 of 1 verified." in out
    (folder / "model.py").unlink()  # the script has all that it needs
    done = subprocess.run(
        [sys.executable, "scripts/model_flip.py"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1, done
    assert "result = 2.0 (float32[])" in done.stdout and "result = 3.0" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere.py"],
        ["model.py:nothing"],
        ["no.such.module:f"],
        ["model"],
        ["model.py", "--init", "model:make"],
        ["model.py", "--backend", "tpu"],
        ["broken.py"],
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.py").write_text("import torch\ndef broken(:\n", encoding="utf-8")
    assert main(["verify", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1


def test_apply_writes_only_what_is_verified(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gbfix.verify.session.default_backend", lambda: "eager")
    assert main(["apply", "--verify", "model.py"]) == 0
    text = (folder / "model.py").read_text()
    sized = MODEL[MODEL.index("class Sized") : MODEL.index("def flip")]
    assert sized in text
    assert text.count("is_compiling") == 1
    assert "not-verified" in capsys.readouterr().out


def test_apply_takes_the_options_that_say_how_code_is_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sized.py").write_text(MODEL[: MODEL.index("class Block")] + SIZED)
    running = ["--backend", "eager", "--init", ":make", "--inputs", ":some", "--dtype", "float64"]
    assert main(["apply", "--verify", *running, "--diff", "sized.py"]) == 1
    captured = capsys.readouterr()
    assert "+        if torch.compiler.is_compiling():" in captured.out
    assert "4 calls with 2 inputs, with gradients, backend eager" in captured.err
    assert main(["apply", "--verify", "--init", ":make", "model.py"]) == 2
    assert "Block, Sized are: use `--at`" in capsys.readouterr().err
    assert main(["apply", "--backend", "eager", "sized.py"]) == 2
    assert "only asked with `--verify`" in capsys.readouterr().err


def test_static_commands_do_not_import_torch(folder: Path) -> None:
    code = (
        "import sys; from gbfix.cli.main import main; main(['check', 'model.py']); import gbfix;"
        "assert callable(gbfix.verify); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_functions_and_modules_as_arguments(workers: Workers) -> None:
    assert verify(flip, flipped, INPUTS, options=OPTIONS, workers=workers).verified
    scaled = verify(Scale(2.0), ScaleWhere(2.0), INPUTS, options=OPTIONS, workers=workers)
    assert scaled.status is Status.DIFFERENT  # returns a copy in eager as well
    assert "argument 1" in scaled.reason


def test_callable_package(workers: Workers) -> None:
    verdict = gbfix.verify(flip, wrong, INPUTS, options=OPTIONS, workers=workers)
    assert verdict.status is Status.DIFFERENT
    assert verdict.differences[0].call == 1


@pytest.mark.skipif(default_backend() != "inductor", reason="needs a C++ compiler")
def test_precision_that_inductor_keeps_is_told_as_such(workers: Workers) -> None:
    # Between the graphs of the original a sum is rounded to bfloat16; in one graph it is not.
    x = torch.linspace(0.1, 0.9, 9).bfloat16()
    options = Options(backend="inductor", gradients=False, shrink_seconds=0, both_dynamic=False)
    inputs = [(x,), (-x,)]
    verdict = verify(rounded, fused, inputs, options=options, workers=workers)
    (told,) = {remark.detail for remark in verdict.remarks}
    assert "with emulate_precision_casts off by 0 where " in told
    assert {remark.place for remark in verdict.remarks} == {"result[0]"}
    # The wrong arm of the other result stays a difference.
    assert verdict.status is Status.DIFFERENT
    assert {(d.place, d.call) for d in verdict.differences} == {("result[1]", 1), ("result[1]", 3)}


def test_one_input_misses_an_arm(workers: Workers) -> None:
    verdict = verify(flip, flipped, INPUTS[:1], options=OPTIONS, workers=workers)
    assert verdict.status is Status.PARTLY_VERIFIED
    assert "false arm of `x.sum() > 0`" in verdict.reason


def test_the_same_is_no_improvement(workers: Workers) -> None:
    verdict = verify(flip, flip, INPUTS, options=OPTIONS, workers=workers)
    assert verdict.status is Status.NO_FEWER_BREAKS


def test_no_more_is_asked_of_what_breaks_no_less(workers: Workers) -> None:
    def found(original: Any, rewritten: Any, **how: Any) -> Verdict:
        options = replace(OPTIONS, **how)
        return verify(original, rewritten, INPUTS, options=options, workers=workers)

    plain = found(flip, flipped)
    again = found(flip, flipped, only_if_fewer=True)
    assert plain.status is Status.VERIFIED
    same = replace(again.evidence, seconds=plain.evidence.seconds)
    assert replace(again, evidence=same) == plain

    assert found(flipped, wrong_compiled).status is Status.DIFFERENT
    verdict = found(flipped, wrong_compiled, only_if_fewer=True)
    assert verdict.status is Status.NO_FEWER_BREAKS and verdict.reason == "no breaks before"
    assert verdict.evidence.before is not None and verdict.evidence.after is None

    verdict = found(flip, flip, only_if_fewer=True)
    assert verdict.status is Status.NO_FEWER_BREAKS
    assert verdict.reason == "1 break before, 1 break after"
    # What differs in eager is told first.
    assert found(flipped, wrong, only_if_fewer=True).status is Status.DIFFERENT


def test_what_cannot_be_sent_is_said(workers: Workers) -> None:
    with pytest.raises(UserError, match="worker process"):
        verify(lambda x: x, flipped, INPUTS, workers=workers)
    with pytest.raises(UserError, match="no inputs"):
        verify(flip, flipped, [], workers=workers)


# What is told meanwhile


def on_terminal(*arguments: str) -> str:
    """What a command writes to a terminal that its standard error is."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "gbfix", *arguments]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment
    ) as running:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # there is nobody at the other end any more
            while piece := os.read(ours, 1 << 16):
                said += piece
        os.close(ours)
    assert running.returncode in (0, 1), said
    return said.decode()


@pytest.mark.parametrize("command", [("verify",), ("apply", "--verify", "--diff")], ids=" ".join)
def test_a_terminal_is_told_what_is_verified(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "flips.py"
    path.write_text(MODEL[: MODEL.index("class Block")] + MODEL[MODEL.index("def flip") :])
    arguments = (*command, str(path), "--backend", "eager", "--region", "all")
    said = on_terminal(*arguments)
    assert "Verifying" in said and "0/1" in said and "flips.py:flip" in said
    piped = subprocess.run(
        [sys.executable, "-m", "gbfix", *arguments], capture_output=True, text=True, check=False
    )
    assert "Verifying" not in piped.stderr + piped.stdout
