"""Copies a tensor, a list or a dictionary without the `copy` module.

Dynamo traces `copy.deepcopy` of plain objects, but not of tensors, and does not trace `copy.copy`.

Before:

    import copy


    def smooth(x: torch.Tensor):
        x = x.relu()
        with torch.no_grad():
            kept = copy.deepcopy(x.detach())
        return x + kept

After:

    import copy


    def smooth(x: torch.Tensor):
        x = x.relu()
        with torch.no_grad():
            kept = x.detach().clone() if torch.compiler.is_compiling() else copy.deepcopy(x.detach())
        return x + kept

`copy.deepcopy` of a tensor that requires a gradient gives a new leaf, or raises; it is only replaced
where no gradient can be required. A shallow copy of a list or dictionary is taken with its `copy`
method.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Refused
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import called
from gbfix.codegen.expressions import flat
from gbfix.codegen.guards import compiling
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.python_diagnoses import OBJECT_COPY
from gbfix.source.text import Edit

_DETACHES = frozenset({"detach", "detach_"})


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer the method that copies.

    Raises:
        Refused: where it is not known what is copied, or a gradient could be required.
    """
    call = site.node
    assert isinstance(call, ast.Call)
    if len(call.args) != 1 or call.keywords:
        raise Refused("unknown-kind", "the copy is told more than what to copy")
    given = call.args[0]
    if called(call, context.analysis) == "copy.deepcopy":
        return _deep(call, given, site.statement, context)
    return _shallow(call, given, context)


def _deep(call: ast.Call, given: ast.expr, statement: ast.stmt, context: Context) -> Fix:
    if not _detached(given):
        raise Refused("may-require-grad", f"`{ast.unparse(given)}` may require a gradient")
    if isinstance(context.info.module.parents[call], (ast.Attribute, ast.BinOp, ast.Subscript)):
        raise Refused("unusual-place", "the copy is used on the spot")
    torch = context.torch(statement)
    view = context.view
    start, end = view.start(call), view.end(call)
    text = f"{flat(view, given)}.clone() if {compiling(torch)} else {flat(view, call)}"
    return Fix(
        "clone",
        Safety.REVIEW,
        "the copy has the layout of `clone`, which makes views contiguous",
        (Edit(start, end, text),),
        context.needs_torch,
    )


def _detached(node: ast.expr) -> bool:
    """`x.detach()`, `x.data`, and what keeps them apart from autograd."""
    if isinstance(node, ast.Attribute):
        return node.attr == "data"
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _DETACHES
    )


def _shallow(call: ast.Call, given: ast.expr, context: Context) -> Fix:
    """`copy.copy(x)` of a list or dictionary that was made in this function is `x.copy()`."""
    if not isinstance(given, ast.Name) or not _plain_container(given.id, context):
        raise Refused(
            "unknown-kind", f"`{ast.unparse(given)}` is not seen to be a list or dictionary"
        )
    start, end = context.view.start(call), context.view.end(call)
    return Fix(
        "clone",
        Safety.SAFE,
        "the method gives the same copy",
        (Edit(start, end, f"{given.id}.copy()"),),
    )


def _plain_container(name: str, context: Context) -> bool:
    """Whether a local name is only ever bound to a list or dictionary display."""
    info = context.info
    if any(isinstance(a, ast.arg) and a.arg == name for a in walk(info.node.args)):
        return False
    bound = [
        info.module.parents[n]
        for n in walk(info.node)
        if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
    ]
    displays = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
    return bool(bound) and all(
        isinstance(b, ast.Assign) and isinstance(b.value, displays) for b in bound
    )


TRANSFORM = Transform(
    name="clone",
    codes=(OBJECT_COPY.code,),
    summary="copy a tensor or a container without the `copy` module",
    doc=__doc__ or "",
    propose=propose,
    rank=20,
)
