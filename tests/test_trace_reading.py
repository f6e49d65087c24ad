"""Traces made elsewhere: logs of PyTorch, of this and other versions, and files of other machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gbfix.errors import UserError
from gbfix.trace import store
from gbfix.trace.journal import Journal, folder_of
from gbfix.trace.localize import localized
from gbfix.trace.model import Break, Code, Effect, Entry, Frame, Reason, Trace, merge
from gbfix.trace.places import places
from gbfix.trace.reading import read
from gbfix.trace.reasons import effect_of, reason_of

PREFIX = "V1130 05:49:12.560000 8211 torch/_dynamo/symbolic_convert.py:5124]"

# What torch 2.13 says of `if x.sum() > 0:`.
BRANCH = """\
Graph break in user code at /home/ann/project/net.py:3
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x):

Data-dependent branching
  Explanation: Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`).
  Hint: This graph break is fundamental.
  Hint: Use `torch.cond` to express dynamic control flow.

  Developer debug context: attempted to jump with TensorVariable()

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html

User code traceback:
  File "/home/ann/project/run.py", line 9, in <module>
    net(torch.ones(2))
  File "/home/ann/project/net.py", line 3, in forward
    if x.sum() > 0:
       ^^^^^^^^^^^"""
SKIPPED = """\
Graph break: torch.compile cannot properly resume from this graph break, which results in a skip.
torch.compile will skip tracing the frame loop (/home/ann/project/net.py line 8) and fall back to eager.
The graph break occurred in the following user code:
  File "/home/ann/project/net.py", line 10, in loop
    print(x)

Traceback (most recent call last):
  File "/opt/torch/_dynamo/symbolic_convert.py", line 1, in step
torch._dynamo.exc.Unsupported: Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
  Hint: Avoid calling builtin `print`.

  Developer debug context: builtin print

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html

from user code:
   File "/home/ann/project/net.py", line 10, in loop
    print(x)"""
# The wording of torch 2.7, without registry entries; the reason is the one of torch 2.6.
OLD = """\
Graph break in user code at /home/ann/project/net.py:3
Graph Break Reason: generic_jump TensorVariable()
User code traceback:
  File "/home/ann/project/net.py", line 3, in forward
    if x.sum() > 0:
"""


def log(*messages: str, frame: str = "0/0") -> str:
    """Messages as `TORCH_LOGS=graph_breaks` prints them, between lines of the program."""
    lines = ["epoch 1"]
    for number, message in enumerate(messages):
        prefix = PREFIX.replace(".56", f".{number:02}")
        lines += [f"{prefix} [{frame}] [__graph_breaks] {text}" for text in message.splitlines()]
        lines += ["loss 0.5"]
    return "\n".join(lines) + "\n"


def structured(*items: tuple[dict[str, object], str]) -> str:
    """Entries as `TORCH_TRACE` writes them."""
    text = ""
    for data, payload in items:
        text += f"{PREFIX} {json.dumps(data)}\n"
        text += "".join(f"\t{line}\n" for line in payload.splitlines())
    return text


def test_reason_is_taken_apart() -> None:
    reason = reason_of(BRANCH.split("Reason: ")[1].split("User code")[0])
    assert (reason.name, reason.registry) == ("Data-dependent branching", "GB0170")
    assert reason.explanation.startswith("Detected data-dependent branching")
    assert len(reason.hints) == 2
    assert reason.context == "attempted to jump with TensorVariable()"


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("generic_jump TensorVariable()", "GB0170"),
        ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "GB0124"),
        ("Data dependent operator\n  Explanation: Operator has a non-Tensor output", "GB0033"),
        ("Logger not supported for non-export cases. To avoid graph breaks", "GB0291"),
        ("something new", None),
    ],
)
def test_reasons_without_an_entry_are_known_by_their_wording(text: str, entry: str | None) -> None:
    assert reason_of(text).registry == entry


def test_what_dynamo_does_next() -> None:
    assert effect_of("Failed to handle graph break gracefully. Skipping") is Effect.SKIPS_FRAME
    assert effect_of("Encountered graph break that we cannot resume from.") is Effect.SKIPS_REST
    assert effect_of(BRANCH) is Effect.SPLITS


def test_text_log(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    repeated = BRANCH.split("\n\nUser code")[0].replace(
        "Graph break in", "Graph break (user stack suppressed due to duplicate graph break) in"
    )
    recompiled = (
        f"{PREFIX} [0/1] [__recompiles] Recompiling function forward in /home/ann/project/net.py:2\n"
        f"{PREFIX} [0/1] [__recompiles]     triggered by the following guard failure(s):\n"
        f"{PREFIX} [0/1] [__recompiles]     - 0/0: tensor 'x' size mismatch at index 0\n"
    )
    path.write_text(log(BRANCH, repeated, SKIPPED) + recompiled + log(OLD, frame="4/0"))
    trace = read(path)
    assert trace.source == "TORCH_LOGS"
    first, skipped, old = trace.breaks
    assert first.times == 2
    assert [str(frame) for frame in first.stack] == [
        "/home/ann/project/run.py:9",
        "/home/ann/project/net.py:3",
    ]
    assert first.place.text == "if x.sum() > 0:"
    assert (skipped.effect, skipped.code.name) == (Effect.SKIPS_FRAME, "loop")
    assert skipped.reason.registry == "GB0059"
    assert old.reason.registry == "GB0170"
    assert trace.recompiles[0].guards == ("tensor 'x' size mismatch at index 0",)


def test_text_log_in_the_short_format(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"DEBUG:torch._dynamo.symbolic_convert.__graph_breaks:{BRANCH}\nepoch 2\n")
    (one,) = read(path).breaks
    assert (one.reason.registry, len(one.stack)) == ("GB0170", 2)


def test_structured_log(tmp_path: Path) -> None:
    artifact = {"name": "dynamo_graph_break_reason", "encoding": "string"}
    frame = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    start = {"stack": [{"line": 2, "name": "forward", "filename": 1, "loc": ""}]}
    recompiles = {"name": "recompile_reasons", "encoding": "json"}
    text = structured(
        ({"artifact": {"name": "torch_version"}}, '{"pytorch_version": "2.11.0"}'),
        ({"str": ["/home/ann/project/net.py", 1]}, ""),
        ({"dynamo_start": start, **frame}, ""),
        ({"artifact": artifact, **frame}, BRANCH + "\n\nTraceback (most recent call last):\n  x"),
        ({"artifact": recompiles, **frame}, "0/0: tensor 'x' size mismatch"),
    )
    (tmp_path / "dedicated_log_torch_trace_x.log").write_text(text + PREFIX + ' {"artifact": {"na')
    trace = read(tmp_path)
    assert (trace.source, trace.processes[0].torch) == ("TORCH_TRACE", "2.11.0")
    (one,) = trace.breaks
    assert one.code == Code("/home/ann/project/net.py", 2, "forward")
    assert len(one.stack) == 2
    assert trace.recompiles[0].guards == ("tensor 'x' size mismatch",)


def test_paths_and_lines_of_another_machine(tmp_path: Path) -> None:
    local = tmp_path / "project" / "net.py"
    local.parent.mkdir()
    local.write_text("import torch\n\n\ndef forward(x):\n    if x.sum() > 0:\n        return x\n")
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "net.py"
    other.write_text("")
    path = tmp_path / "log.txt"
    path.write_text(log(BRANCH))
    found = localized(read(path), [local, other]).breaks[0].place
    assert (found.file, found.line) == (str(local), 5)
    local.write_text("nothing of it\n")
    assert "has changed" in localized(read(path), [local]).notes[0]


def break_at(line: int, function: str, *, entry: str | None = None, times: int = 1) -> Break:
    stack = (
        Frame("/p/main.py", 9, "<module>", "run()"),
        Frame("/p/net.py", line, "inner", "if x:"),
    )
    reason = Reason("Data-dependent branching", "GB0170")
    return Break(stack, reason, Effect.SPLITS, Code("/p/net.py", 1, function), entry, times)


def test_merged_traces_count_together(tmp_path: Path) -> None:
    entry = Entry("e", "Net", "net", "/p/net.py", 1, calls=3)
    one = Trace(entries=(entry,), breaks=(break_at(4, "forward", entry="e"),))
    both = merge([one, one, Trace(source="TORCH_LOGS", breaks=(break_at(4, "inner"),))])
    assert (both.entries[0].calls, both.source) == (6, "gbfix+TORCH_LOGS")
    assert [b.times for b in both.breaks] == [2, 1]
    path = tmp_path / "trace.json"
    store.save(both, path)
    assert read(path) == both
    (place,) = places(both, lambda _: True)
    assert (place.fragments, place.times, place.calls, place.seen.cost) == (2, 3, 6, 12)


def test_library_break_stands_at_the_users_line() -> None:
    library = "/env/lib/python3.11/site-packages/lib/deep.py"
    stack = (
        Frame("/p/main.py", 9, "<module>"),
        Frame("/p/net.py", 4, "forward"),
        Frame(library, 7, "helper"),
        Frame("/env/lib/python3.11/site-packages/torch/nn/modules/module.py", 3, "call"),
    )
    one = Break(stack, Reason("some break", "GB0999"), Effect.SPLITS, Code(library, 1, "f"))
    (place,) = places(Trace(breaks=(one,)), lambda file: file.startswith("/p/"))
    assert (str(place.frame), str(place.library)) == ("/p/net.py:4", f"{library}:7")


def test_journal_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    journal = Journal(folder_of(path))
    journal.write("entry", {"id": "e", "name": "f", "module": "m", "file": "/m.py", "line": 1})
    journal.write("calls", {"e": 5})
    (file,) = folder_of(path).iterdir()
    file.write_text(file.read_text() + '{"event": "calls", "value": {"e"')
    assert read(path).entries[0].calls == 5


def test_what_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"format": "gbfix-trace", "version": 99}')
    with pytest.raises(UserError, match="version 99"):
        read(path)
    path.write_text("{}")
    with pytest.raises(UserError, match="not a trace"):
        read(path)
    path.write_text("hello\n")
    with pytest.raises(UserError, match="neither a trace"):
        read(path)
    with pytest.raises(UserError, match="in this folder"):
        read(tmp_path)
