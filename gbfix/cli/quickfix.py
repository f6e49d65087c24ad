"""`gbfix quickfix`: the code actions for one place, for editors and scripts.

It turns a place into a request and actions into output; what the actions are is no business of its.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbfix.cli import options
from gbfix.errors import UserError

if TYPE_CHECKING:
    from gbfix.editor.actions import Action, Place
    from gbfix.findings import Finding
    from gbfix.source.text import SourceFile

VERSION = 1


class QuickfixFormat(str, Enum):
    """How to print code actions."""

    TEXT = "text"
    JSON = "json"


Where = Annotated[
    str,
    typer.Argument(
        metavar="FILE:LINE[:COL]",
        help="The place, counted from 1; -:LINE for a buffer on standard input.",
    ),
]
Apply = Annotated[
    int | None,
    typer.Option(
        "--apply",
        min=1,
        metavar="N",
        help="Make action N: write the file, or print the buffer from standard input.",
    ),
]
Format = Annotated[QuickfixFormat, typer.Option("--format", help="How to print the actions.")]


def quickfix(
    place: Where,
    output_format: Format = QuickfixFormat.TEXT,
    apply: Apply = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    region: options.RegionOption = None,
    branch: options.BranchOption = None,
    check_style: options.CheckOption = None,
    stdin_filename: options.StdinFilename = None,
) -> None:
    """List the code actions for one place, with the text edits that make them.

    Lines and columns of edits are those of the Language Server Protocol: from 0, columns in UTF-16
    code units. Exits with 0 if there are actions, 1 if there are none, 2 on errors.
    """
    from gbfix.editor.actions import actions_at

    path, line, column = _parse(place)
    if stdin_filename is not None:
        path = None  # the buffer is what counts, whatever the file of that name holds
    request = options.request(
        [path or options.STDIN],
        stdin_filename,
        select=select,
        ignore=ignore,
        region=region,
        branch=branch,
        check_style=check_style,
    )
    source = _read(path, request.stdin_name)
    found = actions_at(source, request.settings, (line, column))
    if apply is not None:
        _apply(found, apply, source, written=path is not None)
        raise typer.Exit(0)
    if output_format is QuickfixFormat.JSON:
        sys.stdout.write(json.dumps(_document(source, line, column, found), indent=2) + "\n")
    else:
        sys.stdout.write(_text(source, found))
    raise typer.Exit(0 if found.actions else 1)


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
    path = None if parts[0] == str(options.STDIN) else Path(parts[0])
    return path, numbers[0], numbers[1] if len(numbers) == 2 else None


def _read(path: Path | None, stdin_name: Path | None) -> SourceFile:
    from gbfix.source.loading import decode, load, without_syntax_errors

    if path is None:
        name = stdin_name or options.STDIN
        loaded = without_syntax_errors(decode(name, sys.stdin.buffer.read()), {name})
    else:
        loaded = without_syntax_errors(load([path]), {path})
    if loaded.errors:
        raise UserError(loaded.errors[0].sentence)
    (source,) = loaded.sources
    return source


def _apply(found: Place, number: int, source: SourceFile, *, written: bool) -> None:
    from gbfix.editor.actions import apply_action
    from gbfix.source.writing import WriteError, write_atomically

    if number > len(found.actions):
        raise UserError(f"there is no action {number} here; there are {len(found.actions)}.")
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
