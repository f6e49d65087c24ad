"""Loops over what was hit: `for e in hits.nonzero():`, where hits counts what is routed to each `e`.

For an `e` that nothing is routed to, a body that only adds up routed rows does nothing, so the compiled
path loops over all of them. Knows how such loops are written; bodies are lowered by `dense`.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import operands, operation_name
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.fixes import Context
from gbfix.lowering.routing import found_in, found_rows


def hits(node: ast.expr, analysis: Analysis) -> ast.expr | None:
    """What is counted in `(routed.sum(dim=(-1, -2)) > 0).nonzero()`, also as a list."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in {"tolist", "flatten", "squeeze"} and not node.args:
            inner = hits(node.func.value, analysis)
            if inner is not None:
                return inner
    mask = found_rows(node, analysis)
    if mask is None and isinstance(node, ast.Call) and not node.keywords:
        given = operands(node, analysis)
        plain = operation_name(node, analysis) in {"nonzero", "argwhere"} and len(given) == 1
        mask = given[0] if plain else found_in(node, analysis)
    return _counted(mask, analysis) if mask is not None else None


def _counted(mask: ast.expr, analysis: Analysis) -> ast.expr | None:
    """`routed` of `routed.sum(dim=(-1, -2)) > 0`, `torch.greater(..., 0)` or `routed.any(...)`."""
    if isinstance(mask, ast.Compare) and len(mask.ops) == 1 and isinstance(mask.ops[0], ast.Gt):
        if ast.unparse(mask.comparators[0]) != "0":
            return None
        mask = mask.left
    elif isinstance(mask, ast.Call) and operation_name(mask, analysis) in {"greater", "gt"}:
        given = operands(mask, analysis)
        if len(given) != 2 or ast.unparse(given[1]) != "0":
            return None
        mask = given[0]
    if not isinstance(mask, ast.Call) or operation_name(mask, analysis) not in {"sum", "any"}:
        return None
    given = operands(mask, analysis)
    dims = [ast.unparse(k.value) for k in mask.keywords if k.arg == "dim"]
    dims += [ast.unparse(a) for a in given[1:]]
    both = {"(-1, -2)", "(-2, -1)", "[-1, -2]", "[-2, -1]", "(1, 2)"}
    only = len(dims) == 1 and dims[0] in both and len(mask.keywords) <= 1
    return given[0] if only and isinstance(given[0], ast.Name) else None


def hit_list(node: ast.For, context: Context) -> tuple[ast.stmt, ast.expr] | None:
    """The statement that names the hits of a loop, and what they count."""
    if not isinstance(node.iter, ast.Name) or node.orelse or not isinstance(node.target, ast.Name):
        return None
    bound = [
        n
        for n in walk(context.info.node)
        if isinstance(n, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == node.iter.id for t in n.targets)
    ]
    uses = [
        n
        for n in walk(context.info.node)
        if isinstance(n, ast.Name) and n.id == node.iter.id and isinstance(n.ctx, ast.Load)
    ]
    if len(bound) != 1 or uses != [node.iter]:
        return None
    routed = hits(bound[0].value, context.analysis)
    return (bound[0], routed) if routed is not None else None


def check_loop(node: ast.For, routed: ast.expr) -> None:
    """Refuse a loop whose body uses the number for more than to take one item.

    Raises:
        Refused: naming the use.
    """
    assert isinstance(node.target, ast.Name)
    name, masks = node.target.id, 0
    for inner in (n for s in node.body for n in walk(s)):
        if isinstance(inner, ast.Subscript) and ast.unparse(inner.slice) == name:
            masks += ast.unparse(inner.value) == ast.unparse(routed)
    taken = [
        n.slice
        for s in node.body
        for n in walk(s)
        if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Name)
    ]
    for inner in (n for s in node.body for n in walk(s)):
        if isinstance(inner, ast.Name) and inner.id == name and inner not in taken:
            raise Refused("hit-number", f"line {inner.lineno} uses `{name}` as more than an index")
    if masks != 1:
        raise Refused("other-mask", "the loop does not run over what its body selects")
