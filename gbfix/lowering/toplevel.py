"""Places at the top level of a module, before the definition that a function stands in.

Knows syntax only.
"""

from __future__ import annotations

import ast
import re

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


def title(context: Context) -> str:
    """What is made of a function is called after it, and after the class that it stands in."""
    own = context.info.node.name.strip("_")
    outer = getattr(top_statement(context.info.node, context), "name", own).strip("_")
    return own if outer == own else f"{_snake(outer)}_{own}"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
