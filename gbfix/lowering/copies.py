"""Expressions that are a copy of a tensor, equal to it in every value.

Knows syntax and tensors, nothing of why something is copied.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

_COPIES = frozenset({"clone", "contiguous"})


def copied_name(node: ast.expr) -> str | None:
    """The name of the tensor that an expression copies: `x.clone()`, `torch.clone(x)`."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in _COPIES:
        owner = node.func.value
        if copied := copied_name(owner):
            return copied
        if isinstance(owner, ast.Name) and owner.id != "torch":
            return owner.id
        if len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            return node.args[0].id
    return None


def copies_only(body: Sequence[ast.stmt]) -> bool:
    """Whether statements only replace tensors by copies of them: `x = x.clone()`."""
    for statement in body:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return False
        target = statement.targets[0]
        if not isinstance(target, ast.Name) or copied_name(statement.value) != target.id:
            return False
    return bool(body)
