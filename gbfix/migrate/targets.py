"""What is to be run as a whole: from a file of targets, or the entries of traces.

Names and paths only; nothing is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gbfix.errors import UserError


@dataclass(frozen=True)
class Entry:
    """A function or class at the top of a file."""

    path: Path
    name: str


def read_targets(path: Path) -> tuple[str, ...]:
    """The lines of a file of targets; blank ones and comments are left out.

    Raises:
        UserError: if it cannot be read, or has no target.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeError:
        raise UserError(f"{path}: cannot be read: it is not UTF-8.") from None
    found = tuple(line.split("#")[0].strip() for line in lines)
    found = tuple(filter(None, found))
    if not found:
        raise UserError(f"{path}: there is no target in it.")
    return found


def entries_of(targets: Sequence[str], traces: Sequence[Path], root: Path) -> tuple[Entry, ...]:
    """The entries that are asked for by name, or else those of the traces that are below the root.

    Raises:
        UserError: for a text that is no target, or one that does not say which function or class.
    """
    from gbfix.verify.project import file_of_module
    from gbfix.verify.targets import parse

    found: list[Entry] = []
    for text in targets:
        path, module, name = parse(text)
        if not name:
            raise UserError(f"`{text}` does not say which function or class: add `:name`.")
        found.append(Entry((path if path is not None else file_of_module(module)).resolve(), name))
    if not targets and traces:
        from gbfix.trace.localize import localized
        from gbfix.trace.reading import read_all

        trace = localized(read_all(traces), sorted(root.rglob("*.py")))
        for entry in trace.entries:
            path = Path(entry.file).resolve()
            if path.is_relative_to(root) and path.is_file():
                found.append(Entry(path, entry.name))
    return tuple(dict.fromkeys(found))
