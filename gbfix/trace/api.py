"""`with gbfix.trace.record() as recording:`, for scripts and test suites."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gbfix.trace.encoding import decode
from gbfix.trace.model import Entry, Trace, merge
from gbfix.trace.recorder import Options, Recorder
from gbfix.trace.store import EVENTS


@dataclass
class Recording:
    """What is being recorded; `trace` has what has been recorded so far."""

    _events: list[tuple[str, Any]] = field(default_factory=list)

    def write(self, event: str, value: Any) -> None:
        """Take one event of the recorder."""
        self._events.append((event, value))

    @property
    def trace(self) -> Trace:
        """The trace so far."""
        found: dict[str, list[Any]] = {}
        calls: dict[str, int] = {}
        for event, value in self._events:
            if event in EVENTS:
                name, kind = EVENTS[event]
                found.setdefault(name, []).append(decode(kind, value))
            elif event == "calls":
                calls.update(value)
        notes = tuple(str(value) for event, value in self._events if event == "note")
        entries: list[Entry] = found.pop("entries", [])
        counted = tuple(replace(entry, calls=calls.get(entry.id, 0)) for entry in entries)
        parts: dict[str, Any] = {name: tuple(values) for name, values in found.items()}
        return merge([Trace(entries=counted, notes=notes, **parts)])


@contextlib.contextmanager
def record(
    *, inputs: Path | str | None = None, samples: int = 4, triage: bool = True, reset: bool = True
) -> Iterator[Recording]:
    """Record what Dynamo does in a `with` block.

    Args:
        inputs: a folder for samples of argument values; None keeps none.
        samples: how many calls of an entry are sampled at most.
        triage: whether a failing call is made again in eager, in a forked child, to say whose
            failure it is.
        reset: forget all compiled code first; code that stays compiled shows no breaks.
    """
    from gbfix.dynamo.control import reset as forget
    from gbfix.dynamo.hooks import watching

    recording = Recording()
    recorder = Recorder(recording, Options(Path(inputs) if inputs else None, samples, triage))
    if reset:
        forget()
    with watching(recorder):
        try:
            yield recording
        finally:
            recorder.finish()
