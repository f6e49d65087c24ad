"""Reads the text that `TORCH_LOGS=graph_breaks` (or `+dynamo`, `recompiles`) prints, in any company.

Lines of a message carry the same prefix, between lines of the program's own output; a log in the short
format carries a prefix on the first line of a message only. Read with logs of torch 2.7, 2.11 and 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gbfix.trace.model import Break, Code, Frame, Recompile, Trace, merge
from gbfix.trace.reasons import Told, told

_PREFIX = re.compile(
    r"(?P<at>[VDIWEC]\d{4} [\d:.]+ (?P<pid>\d+) \S+?:\d+\])(?: (?P<id>\[!?\d[^\]]*\]))?"
    r"(?: \[__(?P<kind>\w+)\])?(?: (?P<text>.*))?$"
)
_SHORT = re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR):(?P<name>torch\.[\w.]+):(?P<text>.*)$")
_RECOMPILE = re.compile(r"Recompiling function (?P<name>\S+) in (?P<file>.+):(?P<line>\d+)\s*$")
_GUARD = re.compile(r"^\s*-?\s*\d+/\d+: (?P<guard>.+)$")
_UNKNOWN = Code("unknown", 0, "unknown")


@dataclass(frozen=True)
class _Message:
    """One message of the log. `frame` is the compiled frame, such as `0/0`, if it is told."""

    text: str
    frame: str | None


def is_log(start: str) -> bool:
    """Whether there are lines of PyTorch's logs in a text."""
    return any(_PREFIX.search(line) or _SHORT.match(line) for line in start.splitlines())


def load(path: Path) -> Trace:
    """The breaks and recompiles of a log."""
    breaks: list[Break] = []
    recompiles: list[Recompile] = []
    stacks: dict[tuple[str, int], tuple[Frame, ...]] = {}
    codes: dict[str, Code] = {}
    for message in _messages(path):
        found = _recompile(message.text)
        if found is not None:
            recompiles.append(found)
            continue
        if "raph break" not in message.text and "raph Break" not in message.text:
            continue
        one = told(message.text)
        if one is None:
            continue
        one = _with_stack(one, stacks)
        code = _split_code(one, message.frame)
        if one.skipped is None:
            code = codes.setdefault(message.frame or str(one.place), code)
        breaks.append(Break(one.stack, one.reason, one.effect, code))
    made = Trace(source="TORCH_LOGS", breaks=tuple(breaks), recompiles=tuple(recompiles))
    return merge([made])


def _messages(path: Path) -> Iterator[_Message]:
    """The messages; lines of the program between them are passed over where lines have prefixes."""
    key: tuple[str, str] | None = None
    lines: list[str] = []
    frame: str | None = None
    short = False
    with path.open(encoding="utf-8", errors="replace") as file:
        for raw in file:
            line = raw.rstrip("\r\n")
            found = _PREFIX.search(line)
            brief = _SHORT.match(line) if found is None else None
            if found is None and brief is None:
                if short:
                    lines.append(line)
                continue
            text = (found or brief)["text"] or ""  # type: ignore[index]
            now = (found["at"], found["id"] or "") if found else ("", line)
            begins = text.startswith(("Graph break", "Recompiling function"))
            if now != key or begins:
                if lines:
                    yield _Message("\n".join(lines), frame)
                lines, key, short = [], now, brief is not None
                frame = found["id"].strip("[]!") if found and found["id"] else None
            lines.append(text)
    if lines:
        yield _Message("\n".join(lines), frame)


def _recompile(text: str) -> Recompile | None:
    lines = text.splitlines()
    found = _RECOMPILE.search(lines[0]) if lines else None
    if found is None:
        return None
    guards = tuple(g["guard"] for line in lines[1:] if (g := _GUARD.match(line)))
    return Recompile(Code(found["file"], int(found["line"]), found["name"]), guards)


def _with_stack(one: Told, stacks: dict[tuple[str, int], tuple[Frame, ...]]) -> Told:
    """A repeated break is logged without its stack: it has that of the first."""
    if one.stack:
        stacks.setdefault((one.stack[-1].file, one.stack[-1].line), one.stack)
        return one
    if one.place is None:
        return one
    file, line = one.place
    return replace(one, stack=stacks.get(one.place, (Frame(file, line, ""),)))


def _split_code(one: Told, frame: str | None) -> Code:
    """The frame that is split: the log names only its number, so that is its name."""
    if one.skipped is not None:
        name, file, line = one.skipped
        return Code(file, line, name)
    if not one.stack:
        return _UNKNOWN
    if frame is None:
        return Code(one.stack[-1].file, 0, one.stack[-1].function)
    return Code(one.stack[-1].file, 0, f"frame {frame.partition('/')[0]}")
