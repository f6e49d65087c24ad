"""What is said after a run: the sites that were rewritten, and the breaks that were left.

Line numbers are those of the files on disk, not of the text that ran.
"""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gbfix.findings import FileResult, RunResult
from gbfix.overlay.running import Left, Told

_MOST = 20


@dataclass(frozen=True)
class Before:
    """What a trace of the original program says: its breaks, and at how many places they are."""

    breaks: int
    places: int


def summary(result: RunResult, told: Told, before: Before | None = None) -> Iterator[str]:
    """Sentences, one a line; the original is spoken of only as far as a trace has seen it."""
    changed = [file for file in result.files if file.changed]
    used = [file for file in changed if file.path.resolve() in told.loaded]
    yield (
        f"rewrote {_count(_sites(used), 'break site')} in {_count(len(used), 'file')}, "
        "in memory only; no file was written."
    )
    rest = len(changed) - len(used)
    if rest:
        unused = _sites(changed) - _sites(used)
        yield f"the program did not load {_count(rest, 'rewritten file')} ({_count(unused, 'site')})."
    if before is not None:
        places = _count(before.places, "place")
        yield f"the trace has {_count(before.breaks, 'graph break')} before, at {places}."
    yield from _left(result, told)


def _sites(files: Sequence[FileResult]) -> int:
    return sum(finding.applied is not None for file in files for finding in file.findings)


def _left(result: RunResult, told: Told) -> Iterator[str]:
    if not told.counted:
        yield "the breaks that are left could not be counted on this version of torch."
        return
    places: Counter[tuple[str, str]] = Counter()
    maps = {file.path.resolve(): _Lines(file) for file in result.files if file.changed}
    for left, times in told.breaks.items():
        entry = f" [{left.registry}]" if left.registry else ""
        places[_place(left, maps), f"{entry} {left.reason}"] += times
    if not places:
        if told.graphs == 0 or told.graphs is None:
            yield "nothing was compiled in this run, so there was nothing that could break."
        else:
            yield f"no graph break was left in this run; {_count(told.graphs, 'graph')} compiled."
        return
    total = sum(places.values())
    yield f"{_count(total, 'graph break')} left in this run, at {_count(len(places), 'place')}:"
    for (place, reason), times in places.most_common(_MOST):
        again = f" ({times} times)" if times > 1 else ""
        yield f"  {place}:{reason}{again}"
    if len(places) > _MOST:
        yield f"  and {len(places) - _MOST} more."


def _place(left: Left, maps: dict[Path, _Lines]) -> str:
    """The innermost line that is not torch's own, as it stands on disk."""
    own = [frame for frame in left.stack if f"{os.sep}torch{os.sep}" not in frame[0]]
    if not (own or left.stack):
        return "unknown"
    file, line = (own or list(left.stack))[-1]
    lines = maps.get(Path(file).resolve())
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{lines.before(line) if lines is not None else line}"


class _Lines:
    """The lines of a rewritten file, and which lines on disk they stand for."""

    def __init__(self, file: FileResult) -> None:
        before, after = file.before.text.splitlines(), file.after.splitlines()
        matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
        self._codes = matcher.get_opcodes()

    def before(self, line: int) -> int:
        """The line, from 1, in the file as it is on disk."""
        index = line - 1
        for tag, start, end, new_start, new_end in self._codes:
            if new_start <= index < new_end:
                return (start + index - new_start if tag == "equal" else min(start, end)) + 1
        return line


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
