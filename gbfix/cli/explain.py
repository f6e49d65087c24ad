"""`gbfix explain`: what a break means and how it is fixed, by whichever name the user has in hand.

A name is a code or name of a diagnosis, the name of a fix, or an identifier of PyTorch's own registry
of graph breaks (`GB0170`, as in Dynamo's messages). All text comes from the registries.
"""

from __future__ import annotations

import difflib
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gbfix.cli import completing
from gbfix.errors import UserError
from gbfix.report.spans import Line, Span, line, print_lines

if TYPE_CHECKING:
    from gbfix.diagnoses import Diagnosis
    from gbfix.dynamo.registry import Entry
    from gbfix.fixes import Transform

_WIDTH = 88


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="CODE",
            autocompletion=completing.explained,
            help="A code or name of a diagnosis (GBF101), a fix, or an entry of PyTorch's registry "
            "of graph breaks (GB0170).",
        ),
    ],
) -> None:
    """Say what a break means, why it breaks the graph and how it is fixed."""
    print_lines(_explained(name.strip()), sys.stdout)


def _explained(name: str) -> Iterator[Line]:
    """The page of a name.

    Raises:
        UserError: for a name that nothing has, with the nearest one that there is.
    """
    from gbfix.diagnoses import DIAGNOSES
    from gbfix.dynamo.registry import identifier
    from gbfix.registry import transforms
    from gbfix.selection import canonical

    for diagnosis in DIAGNOSES.values():
        if name.upper() == diagnosis.code or canonical(name) == diagnosis.name:
            return _diagnosis_page(diagnosis, transforms())
    for transform in transforms():
        if canonical(name) == transform.name:
            return _transform(transform)
    entry = identifier(name)
    if entry is not None:
        return _entry_page(entry, list(DIAGNOSES.values()), transforms())
    names = [*DIAGNOSES, *(diagnosis.name for diagnosis in DIAGNOSES.values())]
    names += [transform.name for transform in transforms()]
    spelled = name.upper().replace("O", "0") if name.upper().startswith("GB") else canonical(name)
    close = difflib.get_close_matches(spelled, names, 1, 0.5)
    if close:
        raise UserError(f"Nothing is called `{name}`; the nearest there is is `{close[0]}`.")
    raise UserError(f"Nothing is called `{name}`; `gbfix rules` lists all names.")


def _entry_page(
    identifier: str, diagnoses: Sequence[Diagnosis], treatments: tuple[Transform, ...]
) -> Iterator[Line]:
    """PyTorch's entry, what gbfix calls it, and each fix that may treat it, once."""
    from gbfix.dynamo.installed import torch_version
    from gbfix.dynamo.registry import available, entry, nearest

    found = entry(identifier)
    ours = [diagnosis for diagnosis in diagnoses if identifier in diagnosis.registry]
    version = torch_version()
    if found is None and not ours:
        if not available():
            raise UserError(
                f"`{identifier}` cannot be looked up: "
                + (
                    "torch is not installed."
                    if version is None
                    else f"torch {version} has no registry."
                )
            )
        close = nearest(identifier)
        ending = f"; the nearest there is is `{close}`" if close else ""
        raise UserError(
            f"`{identifier}` is not in the registry of torch {version}, which is installed{ending}."
        )
    return _entry_lines(identifier, found, ours, treatments, version)


def _entry_lines(
    identifier: str,
    found: Entry | None,
    ours: Sequence[Diagnosis],
    treatments: tuple[Transform, ...],
    version: str | None,
) -> Iterator[Line]:
    if found is None:
        yield line(Span(identifier, "bold"), ": not in the registry of the torch that is installed")
    else:
        title = found.type or "PyTorch makes the name of this entry when it breaks"
        yield line(Span(identifier, "bold"), f": {title} (registry of torch {version})")
        yield line()
        yield from _wrapped(found.explanation)
        if found.context:
            yield line(f"Context: {found.context}")
        for hint in found.hints:
            yield from _wrapped(hint, "- ")
    if not ours:
        yield line()
        yield line("gbfix has no diagnosis for it.")
        return
    for diagnosis in ours:
        yield line()
        yield from _diagnosis(diagnosis)
    codes = {diagnosis.code for diagnosis in ours}
    for transform in treatments:
        if codes & set(transform.codes):
            yield line()
            yield from _transform(transform)


def _diagnosis_page(diagnosis: Diagnosis, treatments: tuple[Transform, ...]) -> Iterator[Line]:
    yield from _diagnosis(diagnosis)
    if diagnosis.registry:
        yield line()
        yield from _registry_lines(diagnosis)
    for transform in treatments:
        if diagnosis.code in transform.codes:
            yield line()
            yield from _transform(transform)


def _registry_lines(diagnosis: Diagnosis) -> Iterator[Line]:
    """PyTorch's names, with what the installed torch says they stand for."""
    from gbfix.dynamo.registry import entry

    yield line("PyTorch's own names for it:")
    for identifier in diagnosis.registry:
        found = entry(identifier)
        yield line(f"  {identifier}  {found.type if found is not None else ''}".rstrip())


def _diagnosis(diagnosis: Diagnosis) -> Iterator[Line]:
    yield line(Span(f"{diagnosis.code} {diagnosis.name}", "bold"), f": {diagnosis.summary}")
    yield line()
    yield from _wrapped(diagnosis.explanation)


def _transform(transform: Transform) -> Iterator[Line]:
    yield line(Span(f"Fix: {transform.name}", "bold green"), f": {transform.summary}")
    yield line()
    for text_line in inspect.cleandoc(transform.doc).splitlines():
        yield line(text_line)


def _wrapped(text: str, bullet: str = "") -> Iterator[Line]:
    indent = " " * len(bullet)
    for text_line in textwrap.wrap(text, _WIDTH, initial_indent=bullet, subsequent_indent=indent):
        yield line(text_line)
