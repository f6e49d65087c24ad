"""What Dynamo makes of a callable: graphs, operators, breaks by site, skipped frames, recompiles.

A graph count alone lies, since a frame that is skipped whole shows no graphs and no breaks; so
skips and operators are recorded beside it. The module knows nothing of who asks or why.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from gbfix.dynamo.control import comparable, compile_with, is_compiled, left_alone, lookup, reset
from gbfix.dynamo.operators import OperatorCounter
from gbfix.dynamo.records import Break, Capture, Fragment, Skip

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass
class Recorder:
    """Collects what happens while `recording`; `backend` is to be given to `torch.compile`."""

    inner: Callable[..., Any]
    operators: list[int] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    compiled: set[str] = field(default_factory=set)
    recompiled: set[str] = field(default_factory=set)
    counter: OperatorCounter = field(default_factory=OperatorCounter)
    fragments: list[tuple[str, Fragment]] = field(default_factory=list)
    cuts: dict[str, int] = field(default_factory=dict)

    def backend(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        """Count a graph, then have the real backend compile it."""
        placed = ("placeholder", "output")
        nodes = [node for node in graph.graph.nodes if node.op not in placed]
        operators = len(nodes)
        # The arms of a `cond` are attributes of the graph, and nothing that is called.
        names = tuple(_called(node) for node in nodes if node.op != "get_attr")
        self.operators.append(operators)
        identity, again = _compile_id()
        self.fragments.append((identity, Fragment(*_code(), names, again=again)))
        (self.recompiled if again else self.compiled).add(identity)
        compiled: Callable[..., Any] = self.inner(graph, inputs)
        return self.counter.wrapped(compiled, operators)

    def capture(self) -> Capture:
        """What has been seen so far."""
        return Capture(
            graphs=len(self.operators),
            operators=sum(self.operators),
            breaks=tuple(self.breaks),
            skips=tuple(self.skips),
            recompiles=len(self.recompiled),
            # A break is told of before the graph that it ends, and belongs to the same compilation.
            fragments=tuple(replace(f, cut_by=self.cuts.get(key)) for key, f in self.fragments),
        )


@contextlib.contextmanager
def recording(
    backend: str = "eager",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    emulate_precision_casts: bool = False,
) -> Iterator[Recorder]:
    """Record all that Dynamo does in the block, from a clean state; `torch.compile` is redirected."""
    recorder = Recorder(lookup(backend))
    reset()
    with (
        comparable(emulate_precision_casts=emulate_precision_casts),
        # What becomes of a record is up to who listens, and no part of what is compiled.
        left_alone(logging.Logger._log),
        compile_with(recorder.backend, fullgraph=fullgraph, dynamic=dynamic),
        _watching_breaks(recorder),
        _watching_skips(recorder),
    ):
        yield recorder
    reset()


def capture(
    function: Callable[..., Any],
    calls: Sequence[Arguments],
    *,
    backend: str = "eager",
    dynamic: bool | None = None,
    check_fullgraph: bool = True,
) -> Capture:
    """Call a function compiled, with each of the arguments in turn, and report.

    The function is called twice as often when `check_fullgraph` asks whether it also compiles with
    `fullgraph=True`. Exceptions of the function itself are passed on.
    """
    with recording(backend, dynamic=dynamic) as recorder:
        compiled = function if is_compiled(function) else torch.compile(function)
        for args, kwargs in calls:
            compiled(*args, **kwargs)
        found = recorder.capture()
    if not check_fullgraph:
        return found
    return found.with_fullgraph(_fullgraph_error(function, calls, dynamic))


def _fullgraph_error(
    function: Callable[..., Any], calls: Sequence[Arguments], dynamic: bool | None
) -> str | None:
    if is_compiled(function):
        return "it is compiled already, with settings of its own"
    with recording("eager", fullgraph=True, dynamic=dynamic):
        compiled = torch.compile(function)
        for args, kwargs in calls:
            try:
                compiled(*args, **kwargs)
            except Exception as error:
                if is_compile_error(error):
                    return summary(error)
                raise
    return None


def is_compile_error(error: BaseException) -> bool:
    """Whether an exception comes from the compiler rather than from the compiled code.

    `torch._dynamo.exc.TorchDynamoException` covers Dynamo and, as `BackendCompilerFailed`, the
    backends; `InductorError` is its subclass. Seen on torch 2.13.
    """
    from torch._dynamo.exc import TorchDynamoException

    return isinstance(error, TorchDynamoException)


def summary(error: BaseException) -> str:
    """The first telling line of a compiler's message, which may have a hundred."""
    # A failing operator is told with all its arguments before what is wrong with them.
    text = re.sub(r"(call_function|call_method) .*?: got (?=\w+\()", "", str(error), flags=re.S)
    explained = re.search(r"Explanation: (.*)", text)
    # What a backend raises is announced in a line of its own.
    telling = (line.strip() for line in text.splitlines() if not line.endswith("raised:"))
    first = next(filter(None, telling), "")
    told = explained.group(1) if explained else first
    return f"{type(error).__name__}: {told.removeprefix(f'{type(error).__name__}: ')}"[:400]


def _compile_id() -> tuple[str, bool]:
    """The name of the compilation in progress, and whether its frame had been compiled before.

    `torch._guards.CompileContext.current_compile_id`, whose `frame_compile_id` counts the
    compilations of one frame: seen on torch 2.13.
    """
    current = torch._guards.CompileContext.current_compile_id()
    if current is None:
        return "none", False
    return str(current), bool(current.frame_compile_id)


def _code() -> tuple[str, int, str]:
    """File, first line and function of the code that is being compiled.

    `torch._guards.CompileContext.current_trace_id` has no place, so it is the frame of the tracing
    context: `torch._dynamo.symbolic_convert.InstructionTranslator.current_tx().f_code`, and a part
    that is resumed after a break is called `torch_dynamo_resume_in_NAME_at_LINE`. Seen on torch 2.13;
    where it is missing, the place is unknown.
    """
    try:
        from torch._dynamo.symbolic_convert import InstructionTranslator

        code = InstructionTranslator.current_tx().f_code
    except (ImportError, AttributeError):
        return "unknown", 0, "unknown"
    name = re.sub(r"^torch_dynamo_resume_in_(.*)_at_\d+$", r"\1", code.co_name)
    return code.co_filename, code.co_firstlineno, name


def _called(node: torch.fx.Node) -> str:
    """What a node of a graph calls, as short as it is clear: `relu`, `linear`, `getitem`, `view`."""
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


@contextlib.contextmanager
def _watching_breaks(recorder: Recorder) -> Iterator[None]:
    """Record every break.

    All of them pass `InstructionTranslatorBase.log_graph_break`; `counters["graph_break"]` misses
    `if tensor:` jumps and skipped frames. Seen on torch 2.13.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    original = InstructionTranslatorBase.log_graph_break

    def log_graph_break(self: Any, code_options: Any, reason: str, exc: Any) -> None:
        if not getattr(exc, "logged", False):
            recorder.cuts[_compile_id()[0]] = len(recorder.breaks)
            recorder.breaks.append(_break(reason, exc))
        original(self, code_options, reason, exc)

    with mock.patch.object(InstructionTranslatorBase, "log_graph_break", log_graph_break):
        yield


@contextlib.contextmanager
def _watching_skips(recorder: Recorder) -> Iterator[None]:
    """Record frames that Dynamo gives up as a whole.

    `convert_frame.add_skip_reason` is told of each; frames without tensor operations are left out,
    since there is nothing in them to compile. Seen on torch 2.13; where the function is missing,
    skips are known only from their breaks.
    """
    from torch._dynamo import convert_frame

    if not hasattr(convert_frame, "add_skip_reason"):
        yield
        return

    def add_skip_reason(reason: str, frame: Any) -> None:
        if "No ops traced" not in reason and re.search("while tracing|suppressed", reason):
            code = frame.f_code
            recorder.skips.append(
                Skip(
                    code.co_filename,
                    code.co_firstlineno,
                    code.co_name,
                    reason.strip().splitlines()[0],
                )
            )

    with mock.patch.object(convert_frame, "add_skip_reason", add_skip_reason):
        yield


def _break(reason: str, exc: Any) -> Break:
    registry = re.search(r"gb\d{4}", reason)
    explained = re.search(r"Explanation: (.*)", reason)
    name = getattr(exc, "gb_type", None) or type(exc).__name__
    file, line = _site(exc)
    if "Failed to handle graph break gracefully" in reason:
        kind = "skips the frame"
    elif "cannot resume from" in reason:
        kind = "skips the rest"
    else:
        kind = "splits"
    text = f"{name}: {explained.group(1)}" if explained else str(name)
    return Break(file, line, registry.group().upper() if registry else None, text[:300], kind)


def _site(exc: Any) -> tuple[str, int]:
    """The innermost line of code that is neither torch's nor the standard library's.

    `real_stack` of the exception, or `TracingContext.extract_stack`: seen on torch 2.13.
    """
    stack = getattr(exc, "real_stack", None) or torch._guards.TracingContext.extract_stack()
    frames = [(frame.filename, frame.lineno or 0) for frame in reversed(list(stack))]
    own = [frame for frame in frames if not _is_library(frame[0])]
    return (own or frames or [("unknown", 0)])[0]


def _is_library(file: str) -> bool:
    library, torch_folder = sysconfig.get_paths()["stdlib"], str(Path(torch.__file__).parent)
    if file.startswith(torch_folder):
        return True
    return file.startswith(library) and "site-packages" not in file
