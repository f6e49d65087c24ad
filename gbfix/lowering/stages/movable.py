"""Whether the statements of a part can stand in a function of their own.

Knows text and names, nothing of why they are moved.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.trees import of_kind, walk
from gbfix.fixes import Context
from gbfix.lowering.beside import check_strings
from gbfix.lowering.stages.parts import Part


def check_movable(part: Part, context: Context) -> None:
    """Whether a part can stand in a function of its own.

    Raises:
        Refused: for text that cannot be moved, or a counter that picks a layer.
    """
    view = context.view
    counters = {
        n.id
        for loop in of_kind(context.info.node, ast.For)
        for n in walk(loop.target)
        if isinstance(n, ast.Name)
    }
    for item in part.items:
        statement = item.statement
        if not (view.starts_line(statement) and view.ends_line(statement)):
            raise NotApplicable("not-divided", "a statement shares its line with other code")
        check_strings(statement, statement, view)
        for node in walk(statement):
            if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Name):
                continue
            value = context.analysis.values.get(node.value)
            name = node.slice.id
            if name in counters and name in part.given and not (value and value.tensor):
                raise Refused("counter-crosses", f"each `{name}` would get a graph of its own")
