"""Places at the top level of a module, before the definition that a function stands in.

Knows syntax only.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.fixes import Context


def top_statement(node: ast.AST, context: Context) -> ast.stmt:
    """The top-level statement around a node.

    Raises:
        Refused: if it is a block, such as `if` or `try`, and no plain definition.
    """
    module = context.info.module
    current = node
    while module.parents[current] is not module.tree:
        current = module.parents[current]
    if not isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        raise Refused("no-place-outside", "the function is defined inside another block")
    if not context.view.starts_line(current):
        raise Refused("no-place-outside", "the definition shares its line")
    return current
