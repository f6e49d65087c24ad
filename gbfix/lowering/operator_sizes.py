"""Shapes as text, in terms of the sizes of a function's parameters.

`rows, width = x.shape` makes `rows` another word for `x.shape[0]`. Knows names and tuples of
expressions, nothing of what has such a shape.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Mapping, Sequence

from gbfix.analysis.project import Function

RESHAPING = frozenset({"unsqueeze", "repeat", "expand"})


def named_sizes(function: Function, parameters: Collection[str]) -> dict[str, str]:
    """The local names that are sizes of parameters, each bound once, and what they stand for."""
    stores: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores[node.id] = stores.get(node.id, 0) + 1
    found: dict[str, str] = {}
    for statement in function.body:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target = statement.targets[0]
        if isinstance(target, ast.Tuple):
            whole = _whole_shape(statement.value, parameters, stores)
            for number, part in enumerate(target.elts if whole else ()):
                if isinstance(part, ast.Name) and stores[part.id] == 1:
                    found[part.id] = f"{whole}.shape[{number}]"
        elif isinstance(target, ast.Name) and stores[target.id] == 1:
            one = _one_size(statement.value, parameters, stores)
            if one is not None:
                found[target.id] = one
    return found


def _whole_shape(
    node: ast.expr, parameters: Collection[str], stores: Mapping[str, int]
) -> str | None:
    """The parameter whose shape an expression is: `x.shape` or `x.size()`."""
    if isinstance(node, ast.Call) and not node.args and not node.keywords:
        node = node.func
        if not isinstance(node, ast.Attribute) or node.attr != "size":
            return None
    elif not isinstance(node, ast.Attribute) or node.attr != "shape":
        return None
    owner = node.value
    if isinstance(owner, ast.Name) and owner.id in parameters and owner.id not in stores:
        return owner.id
    return None


def _one_size(node: ast.expr, parameters: Collection[str], stores: Mapping[str, int]) -> str | None:
    """One size of a parameter: `x.shape[0]`, `x.size(0)` or `len(x)`."""
    if isinstance(node, ast.Subscript):
        whole = _whole_shape(node.value, parameters, stores)
        return (
            f"{whole}.shape[{ast.unparse(node.slice)}]" if whole and _is_int(node.slice) else None
        )
    if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
        return None
    if isinstance(node.func, ast.Attribute) and _is_int(node.args[0]):
        bare = ast.Call(node.func, [], [])
        whole = _whole_shape(bare, parameters, stores)
        return f"{whole}.shape[{ast.unparse(node.args[0])}]" if whole else None
    owner = node.args[0]
    if isinstance(node.func, ast.Name) and node.func.id == "len" and isinstance(owner, ast.Name):
        if owner.id in parameters and owner.id not in stores:
            return f"{owner.id}.shape[0]"
    return None


def _is_int(node: ast.expr) -> bool:
    try:
        return type(ast.literal_eval(node)) is int
    except ValueError:
        return False


def with_sizes(node: ast.expr, sizes: Mapping[str, str]) -> str:
    """The text of an expression, with what its names stand for."""

    class Named(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            text = sizes.get(name.id)
            return name if text is None else ast.parse(text, mode="eval").body

    return ast.unparse(Named().visit(copy.deepcopy(node)))


def reshaped(shape: str, method: str, wanted: Sequence[str]) -> str | None:
    """The shape after `unsqueeze`, `repeat` or `expand`; None if it cannot be told."""
    parsed = ast.parse(shape, mode="eval").body
    if not isinstance(parsed, ast.Tuple):
        return None
    dims = [ast.unparse(part) for part in parsed.elts]
    if method == "unsqueeze":
        if len(wanted) != 1 or not wanted[0].lstrip("-").isdigit():
            return None
        at = int(wanted[0])
        if not -len(dims) - 1 <= at <= len(dims):
            return None
        at += len(dims) + 1 if at < 0 else 0
        dims.insert(at, "1")
    else:
        if len(wanted) < len(dims):
            return None
        dims = ["1"] * (len(wanted) - len(dims)) + dims
        join = _repeated if method == "repeat" else _expanded
        dims = [join(size, dim) for size, dim in zip(wanted, dims, strict=True)]
    return f"({dims[0]},)" if len(dims) == 1 else f"({', '.join(dims)})"


def _repeated(size: str, dim: str) -> str:
    if "1" in (size, dim):
        return dim if size == "1" else size
    return f"({size}) * ({dim})"


def _expanded(size: str, dim: str) -> str:
    return dim if size == "-1" else size
