"""A trace joined to the code: what the run has shown counts as proven, and costs order the sites."""

from __future__ import annotations

import textwrap
from pathlib import Path

import torch

import gbfix.trace
from gbfix.engine import run
from gbfix.settings import Settings
from gbfix.source.loading import load
from gbfix.trace.joining import Joined, join, observed
from gbfix.trace.model import Trace
from gbfix.trace.ownership import Owned
from gbfix.verify.recipes import Inputs


def recorded(path: Path, text: str, *calls: str, inputs: Path | None = None) -> Trace:
    """Run a file's text while it is recorded, and then each of the calls."""
    path.write_text(textwrap.dedent(text))
    names: dict[str, object] = {"__name__": path.stem}
    with gbfix.trace.record(inputs=inputs) as recording:
        exec(compile(path.read_text(), str(path), "exec"), names)
        for call in calls:
            exec(call, names)
    return recording.trace


def joined(trace: Trace, *paths: Path) -> Joined:
    seen = observed(trace)
    result = run(load(paths).sources, Settings(), rewrite=False, observed=seen)
    return join(trace, result, Owned(paths))


def test_what_is_seen_needs_no_proof_and_costs_order(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    trace = recorded(
        path,
        """
        import torch

        def inner(config, scale, flag):
            if config and flag:
                scale = scale * 2
            return scale

        def forward(x, flag):
            y = inner(True, x, flag)
            print("y")
            return inner(True, y, flag)

        compiled = torch.compile(forward, backend="eager")
        """,
        "compiled(torch.ones(2), torch.tensor(True))",
    )
    found = joined(trace, path)
    branch, printed = found.findings
    assert (branch.code, branch.line, branch.column) == ("GBF101", 5, 8)
    assert branch.certain
    assert branch.offers
    assert branch.seen is not None
    # `forward`, what is resumed of it, and `inner` itself are split.
    assert branch.seen.fragments >= 2
    assert (printed.code, printed.line) == ("GBF201", 11)
    unaided = run(load([path]).sources, Settings(), rewrite=False)
    assert not any(f.certain and f.line == 5 for file in unaided.files for f in file.findings)


def test_a_break_of_a_kind_without_diagnosis_has_pytorchs_words(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    trace = recorded(
        path,
        """
        import torch

        @torch.compile(backend="eager")
        def forward(x):
            torch._dynamo.graph_break()
            return x + 1
        """,
        "forward(torch.ones(2))",
    )
    (finding,) = joined(trace, path).findings
    assert finding.code.startswith("GB0")
    assert finding.name == "call-to-torch-dynamo-graph-break"
    assert not finding.offers
    assert finding.refusals[0].code == "no-diagnosis"
    assert "pytorch-hint" in [r.code for r in finding.refusals]


def test_a_break_in_a_library_leads_from_the_users_line(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "deep.py"
    library.parent.mkdir()
    path = tmp_path / "net.py"
    library.write_text("def check(x):\n    if x.sum() > 0:\n        return x\n    return x - 1\n")
    trace = recorded(
        path,
        f"""
        import sys
        import torch
        sys.path.insert(0, {str(library.parent)!r})
        import deep
        sys.path.pop(0)

        @torch.compile(backend="eager")
        def forward(x):
            return deep.check(x) + 1
        """,
        "forward(torch.ones(2))",
    )
    (finding,) = joined(trace, path).findings
    assert finding.line == 10
    assert finding.seen is not None
    assert finding.seen.library == f"{library}:2"
    assert finding.refusals[0].code == "in-library"


def test_recorded_inputs_are_what_the_call_was_given(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    trace = recorded(
        path,
        """
        import torch

        @torch.compile(backend="eager")
        def forward(x, *, scale=1.0):
            x.mul_(scale)
            return x
        """,
        "forward(torch.ones(2), scale=3.0)",
        inputs=tmp_path / "inputs",
    )
    (sample,) = trace.samples
    assert sample.arguments == ("float32[2]", "scale=float")
    inputs = Inputs(saved=(str(tmp_path / "inputs" / str(sample.file)),))
    ((args, kwargs),) = inputs.make()
    assert torch.equal(args[0], torch.ones(2))
    assert kwargs == {"scale": 3.0}


def test_recording_ends_with_the_block(tmp_path: Path) -> None:
    @torch.compile(backend="eager")
    def forward(x: torch.Tensor) -> torch.Tensor:
        print("x")
        return x + 1

    with gbfix.trace.record() as recording:
        forward(torch.ones(2))
    count = len(recording.trace.breaks)
    torch._dynamo.reset()
    forward(torch.ones(2))
    assert len(recording.trace.breaks) == count == 1
    assert recording.trace.entries[0].calls == 1


def test_entries_are_what_was_compiled() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.encode(x)

        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    @torch.compile(backend="eager")
    @torch.no_grad()
    def quiet(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    model, x = Model(), torch.ones(2)
    first = torch.compile(model, backend="eager")
    second = torch.compile(model.encode, backend="eager")
    third = torch.compile(torch.nn.Sequential(torch.nn.Identity()), backend="eager")
    with gbfix.trace.record() as recording:
        for call in (first, second, quiet, third, first, model):
            call(x)
    calls = {entry.name.rpartition(".")[2]: entry.calls for entry in recording.trace.entries}
    assert calls == {"Model": 2, "encode": 1, "quiet": 1, "Sequential": 1}
    assert {e.file for e in recording.trace.entries if e.name != "Sequential"} == {__file__}


def test_what_is_behind_a_skipped_frame_comes_last(tmp_path: Path) -> None:
    """A break in a loop skips the frame, so that Dynamo does not come to what follows."""
    path = tmp_path / "net.py"
    trace = recorded(
        path,
        """
        import torch

        def total(x, steps):
            y = helper(x)
            for step in range(steps):
                print(step)
                y = y + step
            if y.sum() > 0:
                y = y * 2
            return y

        def helper(x):
            if x.shape[0] > 5:
                print("large")
            return x

        compiled = torch.compile(total, backend="eager")
        """,
        "compiled(torch.ones(3), 2)",
    )
    found = joined(trace, path)
    printed, branch = found.findings
    assert (printed.code, printed.line) == ("GBF201", 7)
    assert (branch.code, branch.line) == ("GBF101", 9)
    assert branch.offers
    assert branch.seen is not None
    assert not branch.seen.met
    assert branch.seen.effect == "not met: behind line 7, where the frame is skipped"
    assert (7, 7) in found.only[path]
    assert (9, 9) in found.only[path]
