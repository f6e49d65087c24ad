"""Brings a trace to the files at hand: paths of another machine, and lines that have moved since.

A path that does not exist here is taken for the local file that shares the longest end with it. A
line whose text is known is looked for in its neighbourhood if it has moved. What cannot be placed is
told. It knows files and lines, not code.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath

from gbfix.trace.model import Break, Code, Entry, Frame, Trace

_NEAR = 60
_PACKAGES = ("site-packages", "dist-packages")


def localized(trace: Trace, files: Iterable[Path]) -> Trace:
    """The trace with places of this machine, as far as they can be found among `files` or installed.

    Notes tell of files that could not be found and of lines that are no longer there.
    """
    return _Localizer(files).trace(trace)


class _Localizer:
    """Maps the paths and lines of one trace."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.files = [path.resolve() for path in files]
        self.paths: dict[str, str] = {}
        self.texts: dict[str, list[str]] = {}
        self.moved: set[str] = set()

    def trace(self, trace: Trace) -> Trace:
        """Map all places of a trace."""
        breaks = tuple(self._break(one) for one in trace.breaks)
        notes = [f"{file}: has changed since the trace was made; some breaks cannot be placed in it"
                 for file in sorted(self.moved)]  # fmt: skip
        return replace(
            trace,
            breaks=breaks,
            skips=tuple(replace(s, code=self._code(s.code)) for s in trace.skips),
            recompiles=tuple(replace(r, code=self._code(r.code)) for r in trace.recompiles),
            signatures=tuple(replace(s, code=self._code(s.code)) for s in trace.signatures),
            entries=tuple(self._entry(entry) for entry in trace.entries),
            notes=(*trace.notes, *notes),
        )

    def _break(self, one: Break) -> Break:
        stack = tuple(self._frame(frame) for frame in one.stack)
        return replace(one, stack=stack, code=self._code(one.code))

    def _entry(self, entry: Entry) -> Entry:
        return replace(entry, file=self.path(entry.file))

    def _code(self, code: Code) -> Code:
        return replace(code, file=self.path(code.file))

    def _frame(self, frame: Frame) -> Frame:
        file = self.path(frame.file)
        line = self._line(file, frame)
        if line == frame.line:
            return replace(frame, file=file)
        end = frame.end_line + line - frame.line if frame.end_line is not None else None
        return replace(frame, file=file, line=line, end_line=end)

    def path(self, file: str) -> str:
        """The local path of a path of the trace; the path itself if there is none."""
        if file not in self.paths:
            self.paths[file] = self._path(file)
        return self.paths[file]

    def _path(self, file: str) -> str:
        if file.startswith("<"):
            return file
        given = Path(file)
        resolved = str(given.resolve()) if given.is_file() else None
        if resolved is not None and (not self.files or Path(resolved) in self._set):
            return resolved
        # A path with a drive or backslashes was written on Windows.
        pure = PureWindowsPath(file) if "\\" in file or file[1:2] == ":" else PurePosixPath(file)
        parts = [part for part in pure.parts if part != pure.anchor]
        best = _longest_end(parts, self.files)
        if best is not None and resolved is None:
            return str(best)
        if resolved is not None:
            return resolved
        return self._installed(parts) or file

    @cached_property
    def _set(self) -> frozenset[Path]:
        return frozenset(self.files)

    @staticmethod
    def _installed(parts: Sequence[str]) -> str | None:
        """The file of an installed package, by what follows `site-packages`."""
        at = max((i for i, part in enumerate(parts) if part in _PACKAGES), default=-1)
        if at < 0:
            return None
        found = Path(sysconfig.get_paths()["purelib"]).joinpath(*parts[at + 1 :])
        return str(found) if found.is_file() else None

    def _line(self, file: str, frame: Frame) -> int:
        if not frame.text or file.startswith("<"):
            return frame.line
        lines = self._lines(file)
        if not lines or _is(lines, frame.line, frame.text):
            return frame.line
        near = [
            line
            for line in range(max(1, frame.line - _NEAR), min(len(lines), frame.line + _NEAR) + 1)
            if _is(lines, line, frame.text)
        ]
        if len(near) == 1:
            return near[0]
        self.moved.add(file)
        return frame.line

    def _lines(self, file: str) -> list[str]:
        if file not in self.texts:
            try:
                text = Path(file).read_text(encoding="utf-8", errors="replace")
            except OSError:
                text = ""
            self.texts[file] = text.splitlines()
        return self.texts[file]


def _is(lines: Sequence[str], line: int, text: str) -> bool:
    return 1 <= line <= len(lines) and lines[line - 1].strip() == text.strip()


def _longest_end(parts: Sequence[str], files: Iterable[Path]) -> Path | None:
    """The file that shares the longest end with a path, if there is only one such."""
    if not parts:
        return None
    best: list[Path] = []
    most = 0
    for path in files:
        own = path.parts
        shared = 0
        while shared < min(len(parts), len(own)) and parts[-1 - shared] == own[-1 - shared]:
            shared += 1
        if shared > most:
            most, best = shared, [path]
        elif shared == most and shared:
            best.append(path)
    # `__init__.py` alone says nothing.
    needed = 2 if parts[-1] in ("__init__.py", "__main__.py", "utils.py", "model.py") else 1
    return best[0] if len(best) == 1 and most >= needed else None
