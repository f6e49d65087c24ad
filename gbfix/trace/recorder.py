"""Turns what Dynamo does into events of a journal, while the program runs.

Nothing here may change what the program does: every method swallows its own failures (the first of
them is noted in the trace), no random number is drawn, and no value of the program is kept. How Dynamo
is watched is not known here.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import os
import threading
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gbfix.trace.describing import (
    code_of,
    entry_of,
    frame_of,
    known_of,
    owner_of,
    this_process,
)
from gbfix.trace.encoding import encode
from gbfix.trace.model import (
    Break,
    Code,
    Effect,
    Entry,
    Failure,
    Frame,
    Known,
    Recompile,
    Sample,
    Signature,
    Skip,
)
from gbfix.trace.reasons import effect_of, reason_of

_OWN = str(Path(__file__).parent.parent)
_BYTES_A_SAMPLE = 32 << 20
_BYTES_A_MODULE = 64 << 20
_BYTES_A_PROCESS = 256 << 20
_CALLS_LOOKED_AT = 256
_MOST_FAILURES = 3
_MOST_SIGNATURES = 4
_SECONDS_BETWEEN_COUNTS = 1.0

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Sink(Protocol):
    """Where events go: a journal, or a list."""

    def write(self, event: str, value: Any) -> None:
        """Take one event."""


@dataclass(frozen=True)
class Options:
    """What is recorded beside breaks.

    Attributes:
        tensors: the folder for argument values; None keeps none.
        samples: how many calls of an entry are sampled at most.
        triage: whether a failing call is run again in eager, in a forked child.
    """

    tensors: Path | None = None
    samples: int = 4
    triage: bool = True


def harmless(method: _Method) -> _Method:
    """A method whose failures are noted once and otherwise forgotten."""

    @functools.wraps(method)
    def guarded(self: Recorder, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.failed(method.__name__, error)
            return None

    return guarded  # type: ignore[return-value]


@dataclass
class _Called:
    """What is known of an entry in this process."""

    entry: Entry
    calls: int = 0
    told: int = 0
    told_at: float = 0.0
    shapes: set[tuple[str, ...]] = field(default_factory=set)
    samples: int = 0
    alike: int = 0
    failures: int = 0


class Recorder:
    """Watches Dynamo (see `gbfix.dynamo.hooks.Watcher`) and writes events."""

    def __init__(self, sink: Sink, options: Options) -> None:
        self.sink = sink
        self.options = options
        self.entries: dict[str, _Called] = {}
        self.by_kind: dict[int, tuple[object, _Called]] = {}
        self.running = threading.local()
        self.signatures: dict[Code, set[Signature]] = {}
        self.bytes = 0
        self.pid = -1
        self.noted: set[str] = set()
        atexit.register(self.finish)

    # What the hooks tell

    @harmless
    def entered(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Count and sample a call of a compiled callable."""
        self._check_process()
        called = self._called(function)
        called.calls += 1
        self._count(called)
        if called.calls <= _CALLS_LOOKED_AT and called.samples < self.options.samples:
            self._sample(called, args, kwargs)
        stack = self._stack()
        stack.append(called.entry.id)

        def left(error: BaseException | None) -> None:
            if stack:
                stack.pop()
            if error is not None and isinstance(error, Exception):
                self._left(called, function, args, kwargs, error)

        return left

    @harmless
    def compiling(self, code: types.CodeType, names: dict[str, Any]) -> None:
        """Keep what kinds of arguments a function is compiled for."""
        self._check_process()
        self._sign(code, names)

    @harmless
    def broke(
        self, code: types.CodeType, reason: str, error: BaseException | None, stack: Sequence[Any]
    ) -> None:
        """Record a break."""
        self._check_process()
        effect = effect_of(reason)
        self._break(code, reason, error, stack, effect)

    @harmless
    def gave_up(self, code: types.CodeType, error: BaseException, demanded: bool) -> None:
        """Record what no break has told of: a frame that fails, be it demanded or not."""
        from gbfix.dynamo.ended import is_unsupported, user_stack

        if not is_unsupported(error) or getattr(error, "logged", False):
            return
        self._check_process()
        if code.co_flags & inspect.CO_GENERATOR and not demanded:
            # It is inlined or left alone; if its caller was left to Python, that is what is told.
            return
        effect = Effect.FAILS if demanded else Effect.SKIPS_FRAME
        self._break(
            code, str(error).split("\nfrom user code:")[0], error, user_stack(error), effect
        )

    @harmless
    def skipped(self, code: types.CodeType, reason: str) -> None:
        """Record a frame left to Python."""
        self._check_process()
        first = next(iter(reason.strip().splitlines()), "")
        self._write("skip", Skip(code_of(code), first, self._entry()))

    @harmless
    def recompiled(self, code: types.CodeType, reasons: Sequence[str]) -> None:
        """Record a recompilation, without the names of the compilations that guards belong to."""
        self._check_process()
        guards = tuple(reason.split(": ", 1)[-1].splitlines()[0] for reason in reasons if reason)
        self._write("recompile", Recompile(code_of(code), guards, self._entry()))

    # Entries

    def _called(self, function: Any) -> _Called:
        kind = owner_of(function)
        known = self.by_kind.get(id(kind))
        if known is not None and kind is not None:
            return known[1]
        entry = entry_of(function)
        if entry.id not in self.entries:
            entry = self._with_state(entry, function)
            self.entries[entry.id] = _Called(entry)
            self._write("entry", entry)
        called = self.entries[entry.id]
        # It is kept, so that nothing else can come to have the same identity.
        self.by_kind[id(kind)] = kind, called
        return called

    def _with_state(self, entry: Entry, function: Any) -> Entry:
        """The entry with what its module holds, so that one like it can be made again."""
        from gbfix.trace.describing import module_of

        module = module_of(function)
        if module is None or not self._keeps_values():
            return entry
        from gbfix.trace.objects import taken_apart

        left = min(_BYTES_A_MODULE, _BYTES_A_PROCESS - self.bytes)
        try:
            return replace(entry, state=self._store(taken_apart(module, left)))
        except Exception as error:
            return replace(entry, no_state=f"it holds {error}"[:200])

    def _keeps_values(self) -> bool:
        return self.options.tensors is not None and self.options.samples > 0 and not _capturing()

    def _count(self, called: _Called) -> None:
        """Tell the number of calls now and then, so that a killed program has told nearly all."""
        now = time.monotonic()
        doubled = called.calls >= 2 * called.told and called.calls <= 1024
        if doubled or now - called.told_at > _SECONDS_BETWEEN_COUNTS:
            called.told, called.told_at = called.calls, now
            self.sink.write("calls", {called.entry.id: called.calls})

    def _sample(self, called: _Called, args: Any, kwargs: Any) -> None:
        from gbfix.trace.objects import taken_apart
        from gbfix.trace.samples import NotPlain, arguments, copied

        told = arguments(args, kwargs)
        if told in called.shapes:
            if not self._is_worth_keeping(called):
                return
            called.alike += 1
        called.shapes.add(told)
        called.samples += 1
        file = None
        left = min(_BYTES_A_SAMPLE, _BYTES_A_PROCESS - self.bytes)
        if self._keeps_values():
            try:
                file = self._store(copied(args, kwargs, left))
            except NotPlain:
                with contextlib.suppress(Exception):
                    file = self._store(taken_apart((args, kwargs), left))
        self._write("sample", Sample(called.entry.id, told, file))

    def _is_worth_keeping(self, called: _Called) -> bool:
        """Whether to sample a call like earlier ones, of which the values may take another arm.

        Ever fewer are, and half of the samples are left for what is of another shape.
        """
        is_due = called.calls & (called.calls - 1) == 0
        return is_due and called.alike < self.options.samples // 2 and self._keeps_values()

    def _store(self, values: Any) -> str:
        import torch

        assert self.options.tensors is not None
        self.options.tensors.mkdir(parents=True, exist_ok=True)
        path = self.options.tensors / f"{os.getpid()}-{time.time_ns():x}.pt"
        temporary = path.with_suffix(".part")
        torch.save(values, temporary)
        self.bytes += temporary.stat().st_size
        temporary.replace(path)
        return path.name

    @harmless
    def _left(
        self, called: _Called, function: Any, args: Any, kwargs: Any, error: Exception
    ) -> None:
        """Record an exception that leaves a compiled callable, and whose it is."""
        from gbfix.trace.triage import judge

        called.failures += 1
        if called.failures > _MOST_FAILURES:
            return
        rerun = self.options.triage
        verdict, evidence = judge(
            function, args, kwargs, error, rerun=rerun, in_child=self._fall_silent
        )
        message = next(iter(str(error).strip().splitlines()), "")[:500]
        failure = Failure(called.entry.id, type(error).__name__, message, verdict, evidence)
        self._write("failure", failure)

    # Events

    def _break(
        self,
        code: types.CodeType,
        reason: str,
        error: BaseException | None,
        stack: Sequence[Any],
        effect: Effect,
    ) -> None:
        frames = tuple(frame_of(frame) for frame in stack if not frame.filename.startswith(_OWN))
        known: tuple[Known, ...] = ()
        with contextlib.suppress(Exception):
            known = self._known_at(error, frames)
        self._write(
            "break",
            Break(frames, reason_of(reason), effect, code_of(code), self._entry(), 1, known),
        )

    def _known_at(self, error: BaseException | None, frames: Sequence[Frame]) -> tuple[Known, ...]:
        from gbfix.dynamo.ended import names_at

        found = names_at(error)
        if found is None or not frames or found[0].co_filename != frames[-1].file:
            return ()
        return known_of(found[1])

    def _sign(self, code: types.CodeType, names: dict[str, Any]) -> None:
        made = Signature(code_of(code), known_of(names))
        known = self.signatures.setdefault(made.code, set())
        if made not in known and len(known) < _MOST_SIGNATURES and made.parameters:
            known.add(made)
            self._write("signature", made)

    def _write(self, event: str, value: Any) -> None:
        self.sink.write(event, encode(value))

    def _entry(self) -> str | None:
        stack = self._stack()
        return stack[-1] if stack else None

    def _stack(self) -> list[str]:
        stack: list[str] | None = getattr(self.running, "stack", None)
        if stack is None:
            stack = self.running.stack = []
        return stack

    def _check_process(self) -> None:
        """A forked child begins anew: what it counts must not be counted twice."""
        if self.pid == os.getpid():
            return
        first = self.pid == -1
        self.pid = os.getpid()
        if not first:
            self.entries = {}
            self.by_kind = {}
            self.signatures = {}
            self.bytes = 0
        self._write("process", this_process())

    def _fall_silent(self) -> None:
        self.sink = _Nowhere()

    def failed(self, what: str, error: Exception) -> None:
        """Note that recording failed, once for each kind of failure."""
        note = f"recording failed ({what}): {type(error).__name__}: {error}"
        if note not in self.noted and len(self.noted) < 20:
            self.noted.add(note)
            with contextlib.suppress(Exception):
                self.sink.write("note", note)

    def finish(self) -> None:
        """Tell the final counts of calls."""
        if self.pid == os.getpid():
            calls = {key: called.calls for key, called in self.entries.items()}
            if calls:
                self.sink.write("calls", calls)


class _Nowhere:
    """Takes events and forgets them."""

    def write(self, event: str, value: Any) -> None:
        """Forget one event."""


def _capturing() -> bool:
    """Whether a CUDA graph is being captured, during which nothing may be copied."""
    import torch

    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return bool(started and torch.cuda.is_current_stream_capturing())
