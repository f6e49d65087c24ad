"""A progress bar on standard error, shown only to a terminal and only when work is long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
