"""Progress bars on standard error, shown only to a terminal; that of files only when there are many."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gbfix.migrate.run import Advance

_LONG = 50


@contextmanager
def progress(files: int) -> Iterator[Callable[[Path], None] | None]:
    """A function to call after each file, or None where nobody would see the bar."""
    if files < _LONG or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading", total=files)

        def advance(path: Path) -> None:
            bar.update(task, advance=1, description=path.name)

        yield advance


@contextmanager
def phases(name: str, total: int) -> Iterator[Advance]:
    """A function to call with each thing that is done or begun in a phase."""
    with _bar(name, total) as move:
        yield lambda what, by=1: move(by, what)


@contextmanager
def verifying(names: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """A function to call with each name when its turn comes; a name may have several turns."""
    begun: set[str] = set()
    with _bar("Verifying", len(set(names))) as move:

        def begin(name: str) -> None:
            if name in begun or name not in names:
                move(0, name)
            else:
                move(1 if begun else 0, name)
                begun.add(name)

        yield begin


@contextmanager
def _bar(name: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """A bar for one phase; what is yielded moves it, and does nothing where nobody would see it."""
    if not sys.stderr.isatty():
        yield lambda by, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[phase]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, phase=name)
        yield lambda by, what: bar.update(task, advance=by, description=what)
