"""Groups breaks by the place where they are to be treated, and says what each place costs.

One line that is inlined into three functions breaks three times: that is one place and three
fragments. A break in a library stands at the user's line that leads there. It knows stacks and
owners, not what the code means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gbfix.findings import Seen
from gbfix.trace.model import Break, Code, Effect, Frame, Reason, Trace
from gbfix.trace.ownership import leads

_WORST = (Effect.FAILS, Effect.SKIPS_FRAME, Effect.SKIPS_REST, Effect.SPLITS)


@dataclass(frozen=True)
class Place:
    """A place where graphs break.

    Attributes:
        frame: the line at which it can be treated: the user's, if there is one in the stack.
        library: the line inside a library to which that line leads, if it breaks there.
        path: the lines that lead to the break, innermost first, without those of PyTorch and
            Python; `frame` is one of them.
    """

    frame: Frame
    library: Frame | None
    path: tuple[Frame, ...]
    reason: Reason
    effect: Effect
    fragments: int
    times: int
    calls: int
    breaks: tuple[Break, ...]

    @property
    def seen(self) -> Seen:
        """The place as evidence for a finding."""
        return Seen(
            self.reason.registry,
            self.reason.name,
            self.reason.explanation,
            self.reason.hints,
            self.effect.value,
            self.fragments,
            self.times,
            self.calls,
            str(self.library) if self.library is not None else None,
        )


def places(trace: Trace, owned: Callable[[str], bool]) -> list[Place]:
    """The places of all breaks, those that cost most first."""
    groups: dict[tuple[object, ...], list[Break]] = {}
    for one in trace.breaks:
        frame, library, _ = _lines(one, owned)
        key = (frame.file, frame.line, frame.column, library and (library.file, library.line),
               one.reason.registry or one.reason.name)  # fmt: skip
        groups.setdefault(key, []).append(one)
    found = [_place(group, owned, trace.calls) for group in groups.values()]
    return sorted(found, key=lambda p: (-p.seen.cost, p.frame.file, p.frame.line))


def _place(group: list[Break], owned: Callable[[str], bool], calls: Mapping[str, int]) -> Place:
    frame, library, path = _lines(group[0], owned)
    entries = {one.entry for one in group if one.entry is not None}
    return Place(
        frame,
        library,
        path,
        group[0].reason,
        min((one.effect for one in group), key=_WORST.index),
        len({_frame_of(one.code) for one in group}),
        sum(one.times for one in group),
        sum(calls.get(entry, 0) for entry in entries),
        tuple(group),
    )


def _frame_of(code: Code) -> tuple[str, int, str]:
    return code.file, code.line, code.name


def _lines(
    one: Break, owned: Callable[[str], bool]
) -> tuple[Frame, Frame | None, tuple[Frame, ...]]:
    """The line to treat, the library's line behind it, and all lines that lead there."""
    inner_first = list(reversed(one.stack)) or [one.place]
    path = tuple(f for f in inner_first if not leads(f.file) or owned(f.file)) or (inner_first[0],)
    frame = next((f for f in path if owned(f.file)), path[0])
    return frame, (path[0] if frame is not path[0] else None), path


def unplaced_skips(trace: Trace) -> Iterable[str]:
    """A sentence for each skipped frame that no break explains, but for those of PyTorch and Python."""
    explained = {_frame_of(b.code) for b in trace.breaks if b.effect is not Effect.SPLITS}
    for skip in trace.skips:
        if _frame_of(skip.code) not in explained and not leads(skip.code.file):
            yield f"{skip.code.file}:{skip.code.line}: {skip.code.name} is not compiled: {skip.reason}"
