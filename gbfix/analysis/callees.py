"""Which functions of the project a call of a value may run.

Knows values and what the project defines, neither statements nor regions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gbfix.analysis.project import ClassInfo, FunctionInfo, Project
from gbfix.analysis.values import Kind, Value


def callees(value: Value | None, project: Project) -> Iterator[FunctionInfo]:
    """Functions that calling a value may run."""
    if value is None:
        return
    if value.item is not None and value.kinds & Kind.MODULE:
        yield from callees(value.item, project)
    if value.reference is None:
        return
    cls = project.class_info(value.reference)
    if cls is not None:
        if value.kinds & (Kind.MODULE | Kind.OBJECT):
            yield from methods(cls, ("forward", "__call__"), project)
        elif value.kinds & Kind.REFERENCE:
            yield from methods(cls, ("__init__", "__post_init__"), project)
        return
    info = project.function_info(value.reference)
    if info is not None:
        yield info


def methods(cls: ClassInfo, names: Iterable[str], project: Project) -> Iterator[FunctionInfo]:
    """The methods of some names that instances of a class have."""
    for name in names:
        method = project.method(cls, name)
        if method is not None:
            yield method
