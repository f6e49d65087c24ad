"""Tells a watcher of everything that Dynamo does in this process, without changing what it does.

Each contact is one function, patched in and taken out again. A watcher is told in plain values and
torch's own objects; what it makes of them, and that it may not raise, is its own affair.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol
from unittest import mock

from gbfix.dynamo.ended import user_stack

Left = Callable[[BaseException | None], None]


class Watcher(Protocol):
    """What is told of each event. None of these may raise."""

    def entered(self, function: Any, args: Any, kwargs: Any) -> Left | None:
        """A compiled callable is called; what is returned is called when the call ends."""

    def compiling(self, code: types.CodeType, names: dict[str, Any]) -> None:
        """A frame is about to be compiled, with what its parameters hold."""

    def broke(
        self, code: types.CodeType, reason: str, error: BaseException | None, stack: Sequence[Any]
    ) -> None:
        """A graph broke; `stack` is one of `traceback.FrameSummary`, outermost first."""

    def gave_up(self, code: types.CodeType, error: BaseException, demanded: bool) -> None:
        """A frame could not be compiled; `demanded` says that the call raises for it."""

    def skipped(self, code: types.CodeType, reason: str) -> None:
        """A frame is left to Python as a whole."""

    def recompiled(self, code: types.CodeType, reasons: Sequence[str]) -> None:
        """A frame is compiled again, since guards have failed."""


@contextlib.contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Tell a watcher of what happens in the block, also of calls of what was compiled before it."""
    with contextlib.ExitStack() as stack:
        for patch in _patches(watcher):
            stack.enter_context(patch)
        stack.enter_context(_existing_contexts(watcher))
        yield


def install(watcher: Watcher) -> None:
    """Tell a watcher of all that happens from now on, for as long as the process lives."""
    for patch in _patches(watcher):
        patch.__enter__()


def set_stance(name: str) -> None:
    """Set the stance of the whole process.

    `eval_frame._set_stance` and `DynamoStance`, which `torch.compiler.set_stance` is made of: seen on
    torch 2.13. What it would import is loading when this is called, so it is not called itself.
    """
    from torch._dynamo import eval_frame

    eval_frame._set_stance(eval_frame.DynamoStance(name))


def _patches(watcher: Watcher) -> list[Any]:
    return [
        *_calls(watcher),
        *_frames(watcher),
        *_breaks(watcher),
        *_skips(watcher),
        *_recompiles(watcher),
    ]


def _calls(watcher: Watcher) -> Iterator[Any]:
    """Hear of each call of a compiled callable.

    `_TorchDynamoContext` calls each of its `enter_exit_hooks` before a call and what they return
    after it. Seen on torch 2.13.
    """
    from torch._dynamo.eval_frame import _TorchDynamoContext

    original = _TorchDynamoContext.__init__

    @functools.wraps(original)
    def __init__(self: Any, callback: Any, *args: Any, **kwargs: Any) -> None:
        original(self, callback, *args, **kwargs)
        if callback is not None and callback is not False:
            self.enter_exit_hooks.append(functools.partial(_enter, watcher))

    _leave_alone(__init__)
    yield mock.patch.object(_TorchDynamoContext, "__init__", __init__)


def _leave_alone(function: Any) -> None:
    """Keep Dynamo from compiling a function that stands in for one of torch's own, which it skips.

    `convert_frame.skip_code`: seen on torch 2.13.
    """
    from torch._dynamo import convert_frame

    leave: Any = vars(convert_frame)["skip_code"]
    leave(function.__code__)


@contextlib.contextmanager
def _existing_contexts(watcher: Watcher) -> Iterator[None]:
    """The same for what was compiled before. `_TorchDynamoContext.callback`: seen on torch 2.13."""
    from torch._dynamo.eval_frame import _TorchDynamoContext

    hook = functools.partial(_enter, watcher)
    contexts = [c for c in gc.get_objects() if issubclass(type(c), _TorchDynamoContext)]
    lists = [c.enter_exit_hooks for c in contexts if c.callback is not None and c.callback]
    for hooks in lists:
        hooks.append(hook)
    try:
        yield
    finally:
        for hooks in lists:
            hooks.remove(hook)


def _nothing() -> None:
    pass


def _enter(watcher: Watcher) -> Callable[[], None]:
    """Called by the wrapper of a compiled callable, whose frame holds the function and arguments.

    `compile_wrapper` with `fn`, `args` and `kwargs`: seen on torch 2.13. Entering a context by
    `with` has no such frame.
    """
    frame: types.FrameType | None = sys._getframe(1)
    if frame is not None and frame.f_code.co_name == "<listcomp>":  # until Python 3.11
        frame = frame.f_back
    names = frame.f_locals if frame is not None else {}
    if "fn" not in names or "args" not in names or "kwargs" not in names:
        return _nothing
    left = watcher.entered(names["fn"], names["args"], names["kwargs"])
    if left is None:
        return _nothing
    return lambda: left(sys.exc_info()[1])


def _frames(watcher: Watcher) -> Iterator[Any]:
    """Hear of each attempt to compile a frame, and of those that fail.

    `ConvertFrameAssert.__call__` compiles, and `_one_graph` says whether it has to: seen on torch
    2.13. `skip` counts the callers up to the compiled frame, of which this adds one.
    """
    from torch._dynamo.convert_frame import ConvertFrameAssert

    original = ConvertFrameAssert.__call__

    @functools.wraps(original)
    def __call__(self: Any, frame: Any, *args: Any, skip: int = 0, **kwargs: Any) -> Any:
        code = frame.f_code
        with contextlib.suppress(Exception):
            count = code.co_argcount + code.co_kwonlyargcount
            names = {name: frame.f_locals.get(name) for name in code.co_varnames[:count]}
            watcher.compiling(code, names)
        try:
            return original(self, frame, *args, skip=skip + 1, **kwargs)
        except Exception as error:
            watcher.gave_up(code, error, bool(getattr(self, "_one_graph", False)))
            raise

    yield mock.patch.object(ConvertFrameAssert, "__call__", __call__)


def _breaks(watcher: Watcher) -> Iterator[Any]:
    """Hear of every break.

    All pass `InstructionTranslatorBase.log_graph_break`, which marks those that it has seen as
    `logged`: seen on torch 2.13. `counters["graph_break"]` misses jumps and skipped frames.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    original = InstructionTranslatorBase.log_graph_break

    @functools.wraps(original)
    def log_graph_break(
        self: Any, code_options: Any, reason: str = "", *args: Any, **kwargs: Any
    ) -> Any:
        given = [*args, *kwargs.values()]
        error = next((value for value in given if isinstance(value, BaseException)), None)
        if not getattr(error, "logged", False):
            with contextlib.suppress(Exception):
                watcher.broke(self.output.root_tx.f_code, reason, error, user_stack(error))
        return original(self, code_options, reason, *args, **kwargs)

    yield mock.patch.object(InstructionTranslatorBase, "log_graph_break", log_graph_break)


def _skips(watcher: Watcher) -> Iterator[Any]:
    """Hear of frames left to Python as a whole.

    `convert_frame.add_skip_reason` is told of each; those without tensor operations are left out,
    since there is nothing in them to compile. Seen on torch 2.13; where the function is missing,
    skips are known from what could not be compiled.
    """
    from torch._dynamo import convert_frame

    original = getattr(convert_frame, "add_skip_reason", None)
    if original is None:
        return

    def add_skip_reason(reason: str, frame: Any) -> Any:
        said = str(reason)
        if "No ops traced" not in said and re.search("while tracing|suppressed", said):
            watcher.skipped(frame.f_code, said)
        return original(reason, frame)

    yield mock.patch.object(convert_frame, "add_skip_reason", add_skip_reason)


def _recompiles(watcher: Watcher) -> Iterator[Any]:
    """Hear of recompilations and the guards that failed.

    `convert_frame.get_and_maybe_log_recompilation_reasons(entries, frame, backend)` returns them:
    seen on torch 2.13.
    """
    from torch._dynamo import convert_frame

    name = "get_and_maybe_log_recompilation_reasons"
    original = getattr(convert_frame, name, None)
    if original is None:
        return

    def reasons(entries: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(entries, frame, *args, **kwargs)
        with contextlib.suppress(Exception):
            watcher.recompiled(frame.f_code, [str(reason) for reason in found or ()])
        return found

    yield mock.patch.object(convert_frame, name, reasons)
