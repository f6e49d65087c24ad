"""`gbfix rules`: what gbfix looks for and how it treats it.

All text comes from the two registries; the module only lays it out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gbfix.report.spans import Line, Span, line, print_lines

if TYPE_CHECKING:
    from gbfix.diagnoses import Diagnosis
    from gbfix.fixes import Transform


def rules() -> None:
    """List the diagnoses and the transforms that treat them."""
    from gbfix.diagnoses import DIAGNOSES
    from gbfix.registry import transforms

    print_lines(_table(list(DIAGNOSES.values()), transforms()), sys.stdout)


def _table(diagnoses: list[Diagnosis], treatments: tuple[Transform, ...]) -> Iterator[Line]:
    rows = [
        (item.code, item.name, _treated_by(item, treatments), item.summary) for item in diagnoses
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    styles = ("bold red", "cyan", "green")
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        pieces = [Span(f"{cell}  ", style) for cell, style in zip(cells, styles, strict=True)]
        yield (*pieces, Span(row[3]))
    yield line()
    width = max(len(transform.name) for transform in treatments)
    for transform in treatments:
        yield line(Span(transform.name.ljust(width) + "  ", "green"), transform.summary)


def _treated_by(diagnosis: Diagnosis, treatments: tuple[Transform, ...]) -> str:
    names = [transform.name for transform in treatments if diagnosis.code in transform.codes]
    return ", ".join(names) or "-"
