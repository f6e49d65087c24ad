"""Answers `gbfix quickfix`: turns a place into a request and actions into output.

An editor waits for the answer, so nothing is loaded here that it can do without: neither the library
of the command line nor the other commands. What the actions are is no business of this module.
"""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbfix.cli import requests
from gbfix.errors import UserError
from gbfix.settings import Branch, CheckStyle, Region

if TYPE_CHECKING:
    from gbfix.editor.actions import Action, Place
    from gbfix.findings import Finding
    from gbfix.source.text import SourceFile

VERSION = 1


class QuickfixFormat(str, Enum):
    """How to print code actions."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class Asked:
    """The place, and the options that were given."""

    place: str
    output_format: QuickfixFormat = QuickfixFormat.TEXT
    apply: int | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    region: Region | None = None
    branch: Branch | None = None
    check_style: CheckStyle | None = None
    stdin_filename: Path | None = None


def answer(asked: Asked) -> int:
    """Print the actions, or make one of them; returns the exit code."""
    gc.disable()  # the process ends with the answer
    from gbfix.editor.actions import actions_at

    path, line, column = _parse(asked.place)
    if asked.stdin_filename is not None:
        path = None  # the buffer is what counts, whatever the file of that name holds
    request = requests.request(
        [path or requests.STDIN],
        asked.stdin_filename,
        select=asked.select,
        ignore=asked.ignore,
        region=asked.region,
        branch=asked.branch,
        check_style=asked.check_style,
    )
    source = _read(path, request.stdin_name)
    found = actions_at(source, request.settings, (line, column))
    gc.freeze()
    if asked.apply is not None:
        _apply(found, asked.apply, source, written=path is not None)
        return 0
    if asked.output_format is QuickfixFormat.JSON:
        sys.stdout.write(json.dumps(_document(source, line, column, found), indent=2) + "\n")
    else:
        sys.stdout.write(_text(source, found))
    return 0 if found.actions else 1


def _parse(text: str) -> tuple[Path | None, int, int | None]:
    """A file (None for standard input), a line and perhaps a column."""
    parts = text.rsplit(":", 2)
    if len(parts) == 3 and not parts[1].isdigit():
        parts = [":".join(parts[:2]), parts[2]]
    if len(parts) < 2 or not parts[0] or not all(p.isascii() and p.isdigit() for p in parts[1:]):
        raise UserError(f"`{text}` is not FILE:LINE or FILE:LINE:COL.")
    numbers = [int(p) for p in parts[1:]]
    if 0 in numbers:
        raise UserError(f"`{text}`: lines and columns are counted from 1.")
    path = None if parts[0] == str(requests.STDIN) else Path(parts[0])
    return path, numbers[0], numbers[1] if len(numbers) == 2 else None


def _read(path: Path | None, stdin_name: Path | None) -> SourceFile:
    from gbfix.source.loading import decode, load, without_syntax_errors

    if path is None:
        loaded = decode(stdin_name or requests.STDIN, sys.stdin.buffer.read())
    else:
        loaded = load([path])
    # What mentions torch is parsed when it is looked at.
    loaded = without_syntax_errors(
        loaded, {source.path for source in loaded.sources if "torch" not in source.text}
    )
    if loaded.errors:
        raise UserError(loaded.errors[0].sentence)
    (source,) = loaded.sources
    return source


def _apply(found: Place, number: int, source: SourceFile, *, written: bool) -> None:
    from gbfix.editor.actions import apply_action
    from gbfix.source.writing import WriteError, write_atomically

    if number > len(found.actions):
        count = len(found.actions)
        there = f"there {'is' if count == 1 else 'are'} {count or 'none'}"
        raise UserError(f"there is no action {number} here; {there}.")
    after = source.encode(apply_action(source, found.actions[number - 1]))
    if not written:
        sys.stdout.buffer.write(after)
        sys.stdout.buffer.flush()
        return
    try:
        write_atomically(source.path, source.encode(source.text), after)
    except WriteError as error:
        raise UserError(str(error)) from None


def _document(source: SourceFile, line: int, column: int | None, found: Place) -> dict[str, Any]:
    from gbfix import __version__

    return {
        "version": VERSION,
        "gbfix": __version__,
        "path": str(source.path),
        "line": line,
        "column": column,
        "findings": [_finding(finding) for finding in found.findings],
        "actions": [_action(action) for action in found.actions],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "end_column": finding.end_column,
        "refusals": [asdict(refusal) for refusal in finding.refusals],
    }


def _action(action: Action) -> dict[str, Any]:
    return {
        "title": action.title,
        "code": action.finding.code,
        "name": action.finding.name,
        "transform": action.transform,
        "safety": action.safety.label,
        "explanation": action.explanation,
        "edits": [{"range": asdict(edit.range), "newText": edit.new_text} for edit in action.edits],
    }


def _text(source: SourceFile, found: Place) -> str:
    lines: list[str] = []
    for number, action in enumerate(found.actions, start=1):
        finding = action.finding
        where = f"{source.path}:{finding.line}:{finding.column}"
        lines += [f"{number}. {action.title}", f"   {where}: {finding.code} {finding.message}"]
        lines.append(f"   {action.explanation}")
    for finding in found.findings:
        if any(action.finding is finding for action in found.actions):
            continue
        lines.append(f"{source.path}:{finding.line}:{finding.column}: {finding.message}")
        lines += [f"   {r.transform}: {r.code}: {r.sentence}" for r in finding.refusals]
    if not found.findings:
        lines.append("No break site here.")
    return "".join(line + "\n" for line in lines)
