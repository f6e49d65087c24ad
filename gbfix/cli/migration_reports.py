"""The options of `gbfix migrate` that write its reports, and the writing of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gbfix.cli.running import write_report
from gbfix.errors import UserError

if TYPE_CHECKING:
    from gbfix.migrate.outcome import Outcome

Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.html", help="Write a report as one HTML page."),
]
Summary = Annotated[
    Path | None,
    typer.Option(
        "--summary", metavar="FILE.md", help="Write a summary as Markdown, for a pull request."
    ),
]


def check_places(*paths: Path | None) -> None:
    """Say before a long run, not after it, that a file has no place.

    Raises:
        UserError: for a file in a folder that does not exist, and for a folder.
    """
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise UserError(f"{path} is a folder, not a file.")
        if not path.parent.is_dir():
            raise UserError(f"{path}: its folder does not exist.")


def write(outcome: Outcome, report: Path | None, summary: Path | None) -> None:
    """Write the reports that were asked for.

    Raises:
        UserError: if one cannot be written.
    """
    if report is not None:
        from gbfix.report.html import page

        write_report(report, page(outcome))
    if summary is not None:
        from gbfix.report import markdown

        write_report(summary, markdown.summary(outcome))
