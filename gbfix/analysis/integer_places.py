"""Places where Python or torch takes an integer from a tensor without being asked.

The bound of a slice, what `range` goes up to, an index into a list, the size of what is made. Knows
places, nothing of what reads there become.
"""

from __future__ import annotations

import ast

from gbfix.analysis.counted import counted
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind

SIZED = frozenset(
    f"torch.{n}" for n in ("arange", "zeros", "ones", "empty", "eye", "linspace", "full")
)


def needs_integer(node: ast.expr, analysis: Analysis) -> bool:
    """Whether a tensor stands where an integer is taken from it."""
    module = analysis.info.module
    call = call_of(node, analysis)
    if call is not None and node in counted(call, analysis) and not _of_given(node, analysis):
        return True
    parent = module.parents.get(node)
    if isinstance(parent, ast.Slice):
        return True
    if isinstance(parent, ast.Subscript) and parent.slice is node:
        base = analysis.values.get(parent.value)
        return base is not None and base.only(Kind.OBJECT) and base.elements is not None
    if isinstance(parent, ast.Call) and node in parent.args:
        function = analysis.values.get(parent.func)
        name = function.reference if function is not None else None
        if name == "builtins.range":
            return True
        if name == "torch.linspace":  # its ends may be tensors, not the number of its steps
            return parent.args.index(node) == 2
        return name in SIZED and not (name == "torch.full" and parent.args[0] is not node)
    return False


def call_of(node: ast.expr, analysis: Analysis) -> ast.Call | None:
    """The call that something is an argument of, or an element of one that is a sequence."""
    parents = analysis.info.module.parents
    parent = parents.get(node)
    parent = parents.get(parent) if isinstance(parent, (ast.Tuple, ast.List)) else parent
    parent = parents.get(parent) if isinstance(parent, ast.keyword) else parent
    return parent if isinstance(parent, ast.Call) else None


def _of_given(node: ast.expr, analysis: Analysis) -> bool:
    """Whether a loop over a parameter gives a size: lists of sizes are often annotated as tensors."""
    function = analysis.info.node
    if not isinstance(node, ast.Name):
        return False
    given = {a.arg for a in walk(function.args) if isinstance(a, ast.arg)}
    return any(
        any(isinstance(t, ast.Name) and t.id == node.id for t in walk(loop.target))
        and any(isinstance(n, ast.Name) and n.id in given for n in walk(loop.iter))
        for loop in walk(function)
        if isinstance(loop, (ast.For, ast.comprehension))
    )
