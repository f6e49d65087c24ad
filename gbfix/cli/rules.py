"""`gbfix rules` and `gbfix explain`: what gbfix looks for and how it treats it.

All text comes from the two registries; the module only lays it out.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gbfix.errors import UserError
from gbfix.report.spans import Line, Span, line, print_lines

if TYPE_CHECKING:
    from gbfix.diagnoses import Diagnosis
    from gbfix.fixes import Transform


def rules() -> None:
    """List the diagnoses and the transforms that treat them."""
    from gbfix.diagnoses import DIAGNOSES
    from gbfix.registry import transforms

    print_lines(_table(list(DIAGNOSES.values()), transforms()), sys.stdout)


def explain(
    name: Annotated[
        str, typer.Argument(metavar="CODE", help="A code or name of a diagnosis, or a transform.")
    ],
) -> None:
    """Say what a diagnosis means, why it breaks the graph and how it is fixed."""
    from gbfix.diagnoses import DIAGNOSES
    from gbfix.registry import transforms

    for diagnosis in DIAGNOSES.values():
        if name.upper() == diagnosis.code or name.lower() == diagnosis.name:
            print_lines(_diagnosis(diagnosis, transforms()), sys.stdout)
            return
    for transform in transforms():
        if name.lower() == transform.name:
            print_lines(_transform(transform), sys.stdout)
            return
    known = ", ".join([*DIAGNOSES, *(transform.name for transform in transforms())])
    raise UserError(f"Nothing is called `{name}`; there are {known}.")


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


def _diagnosis(diagnosis: Diagnosis, treatments: tuple[Transform, ...]) -> Iterator[Line]:
    yield line(Span(f"{diagnosis.code} {diagnosis.name}", "bold"), f": {diagnosis.summary}")
    yield line()
    for text_line in textwrap.wrap(diagnosis.explanation, 88):
        yield line(text_line)
    if diagnosis.registry:
        yield line()
        yield line(f"PyTorch's own names for it: {', '.join(diagnosis.registry)}.")
    for transform in treatments:
        if diagnosis.code in transform.codes:
            yield line()
            yield from _transform(transform)


def _transform(transform: Transform) -> Iterator[Line]:
    yield line(Span(f"Fix: {transform.name}", "bold green"), f": {transform.summary}")
    yield line()
    for text_line in inspect.cleandoc(transform.doc).splitlines():
        yield line(text_line)
