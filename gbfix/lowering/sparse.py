"""Which names of a function hold sparse tensors: what is made sparse, and what products are given.

Follows assignments by name until nothing is added. A product with a dense operand is dense. Knows calls
and names, nothing of what is done about them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import called
from gbfix.analysis.values import Kind
from gbfix.fixes import Context
from gbfix.python_diagnoses import SPARSE_TENSOR

# Which argument of a product is the sparse one.
_PRODUCTS = {
    "torch.sparse.mm": 0, "torch.spmm": 0, "torch.smm": 0, "torch.hspmm": 0, "torch.dsmm": 0,
    "torch.sparse.addmm": 1, "torch.sspaddmm": 1,
}  # fmt: skip
_DENSE = frozenset({"torch.sparse.mm", "torch.spmm", "torch.dsmm", "torch.sparse.addmm"})
_DENSE_METHODS = frozenset({"to_dense", "mm", "matmul", "mv", "size", "dim"})


def sparse_values(
    sites: Iterable[BreakSite], context: Context
) -> tuple[frozenset[str], frozenset[ast.AST]]:
    """The local names that hold sparse tensors, and the calls of the sites that give one."""
    analysis = context.analysis
    calls = [s.node for s in sites if s.diagnosis is SPARSE_TENSOR and isinstance(s.node, ast.Call)]
    found: set[str] = set()
    for call in calls:
        at = _PRODUCTS.get(called(call, analysis) or "")
        if at is not None and len(call.args) > at:
            operand = call.args[at]
            found |= {operand.id} if isinstance(operand, ast.Name) else set()
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "coalesce":
            operand = call.func.value
            found |= {operand.id} if isinstance(operand, ast.Name) else set()
    given = frozenset(c for c in calls if called(c, analysis) not in _DENSE)
    made = {id(c) for c in given}
    if not calls:
        return frozenset(), frozenset()
    changed = True
    while changed:
        changed = False
        for statement in walk(context.info.node):
            if not isinstance(statement, ast.Assign):
                continue
            if not _gives_sparse(statement.value, found, made, context):
                continue
            for target in statement.targets:
                names = {n.id for n in walk(target) if isinstance(n, ast.Name)}
                changed = changed or not names <= found
                found |= names
    return frozenset(found), given


def _gives_sparse(node: ast.expr, names: set[str], made: set[int], context: Context) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    if id(node) in made:
        return True
    if isinstance(node, ast.Call):
        if called(node, context.analysis) in _DENSE:
            return False
        if isinstance(node.func, ast.Attribute):
            receiver = context.analysis.values.get(node.func.value)
            if node.func.attr in _DENSE_METHODS:
                return False
            if receiver is not None and receiver.kinds & Kind.TENSOR:
                return _gives_sparse(node.func.value, names, made, context)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        sides = (node.left, node.right)
        return all(_gives_sparse(s, names, made, context) for s in sides)
    return any(
        _gives_sparse(child, names, made, context)
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.expr)
    )
