"""Statements that are moved into a function of their own beside the one that they stand in.

Finds the name of that function, and asks whether the text can be moved. Knows names and lines, nothing
of why something is moved.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.codegen.view import View
from gbfix.fixes import Context


def name_beside(role: str, context: Context) -> str:
    """A free name for a function beside this one; of a method, no class of its object has it."""
    owner = context.info.owner
    wanted = f"_{context.info.node.name.strip('_')}_{role}"
    name = context.names.take(wanted)
    while owner is not None and any(
        name in cls.methods or name in context.facts.writes(cls)
        for cls in context.facts.project.mro(owner)
    ):
        name = context.names.take(wanted)
    return name


def check_strings(first: ast.stmt, last: ast.stmt, view: View) -> None:
    """Make sure that no line of some statements but the first begins inside a string.

    Raises:
        Refused: if one does; it cannot be indented anew.
    """
    lines = range(first.lineno + 1, (last.end_lineno or 0) + 1)
    if any(view.string_lines(line) & set(lines) for line in lines):
        raise Refused("unusual-place", "a string of several lines stands in the statement")
