"""Selects between two numpy arrays without asking one for its truth.

Dynamo traces numpy as tensors, and a branch on an array ends the graph as one on a tensor does; in a
loop it gives up the whole frame. In the compiled path the new value is computed and selected with
`torch.where`, where tracing finds it to have the shape and dtype of the old one. The eager path stays
numpy.

Before:

    import numpy as np


    def settle(grid: torch.Tensor, weights: torch.Tensor):
        out, rows = grid.detach().numpy() * 1, weights.detach().numpy()
        for i in range(2):
            hit = rows[i] + out > 3
            if np.count_nonzero(hit) == 1:
                out = out + np.where(hit, rows[i], 0)
        return torch.from_numpy(out)

After:

    import numpy as np


    def settle(grid: torch.Tensor, weights: torch.Tensor):
        out, rows = grid.detach().numpy() * 1, weights.detach().numpy()
        for i in range(2):
            hit = rows[i] + out > 3
            if torch.compiler.is_compiling() and isinstance(out, np.ndarray):
                old = torch.as_tensor(out)
                new = torch.as_tensor(out + np.where(hit, rows[i], 0))
                if new.shape == old.shape and new.dtype == old.dtype:
                    holds = torch.as_tensor(np.count_nonzero(hit) == 1)
                    out = torch.where(holds, new, old).numpy()
                elif np.count_nonzero(hit) == 1:
                    out = new.numpy()
            elif np.count_nonzero(hit) == 1:
                out = out + np.where(hit, rows[i], 0)
        return torch.from_numpy(out)

The arm may assign one name, from arithmetic and plain functions of numpy. What changes an array in
place, raises on some data, or divides integers is left alone. A warning of numpy about an operation on
data for which the arm would not have run is not given by compiled code, which never gives any.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Value
from gbfix.codegen.expressions import flat
from gbfix.codegen.fitting import fitted
from gbfix.codegen.guards import compiling
from gbfix.codegen.layout import indent
from gbfix.diagnoses import TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.placement import width_for
from gbfix.lowering.views import is_elif
from gbfix.source.text import Edit

_WHOLE = frozenset("any all sum max min amax amin mean prod count_nonzero std var".split())
_ELEMENTWISE = frozenset(
    "where abs absolute add subtract multiply negative maximum minimum clip sqrt exp log sin cos tanh "
    "square sign floor ceil rint round isnan isinf isfinite logical_and logical_or logical_not "
    "zeros_like ones_like full_like nan_to_num astype copy cumsum".split()
)
_ATTRIBUTES = frozenset({"T", "shape", "size", "ndim", "real", "imag"})
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.BitAnd, ast.BitOr, ast.BitXor)


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to select an array.

    Raises:
        Refused: where the arm does more than compute one array.
    """
    node = site.node
    numpy = _numpy(context)
    if not isinstance(node, ast.If) or numpy is None or not _mentions(node, context):
        raise NotApplicable("no-numpy", "no numpy array decides here")
    statement = node.body[0]
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if len(node.body) != 1 or node.orelse or not isinstance(statement, ast.Assign):
        raise Refused("not-an-expression", "the arm is more than one value for one name")
    if len(statement.targets) != 1 or not isinstance(target, ast.Name):
        raise Refused("not-an-expression", "the arm is more than one value for one name")
    before = context.analysis.before.get(node, {}).get(target.id)
    if before is None or before.unbound or before.tensor:
        raise NotApplicable("no-numpy", f"`{target.id}` is not known to be an array before")
    _check_unchanged(target.id, context)
    test, inverted = node.test, False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, inverted = test.operand, not inverted
    for part in (test, statement.value):
        _check(part, context)
    view = context.view
    if is_elif(node, context.info.module) or not view.starts_line(node):
        raise Refused("unusual-place", "the `if` does not start its line")
    torch = context.torch(site.statement)
    old, new, holds = (context.names.take(n) for n in ("old", "new", "holds"))
    name, asked, unit = target.id, flat(view, node.test), context.unit
    truth = f"{torch}.as_tensor({flat(view, test)}){_single(test, context)}"
    width = width_for(context, node)
    first = [
        f"{old} = {torch}.as_tensor({name})",
        f"{new} = {torch}.as_tensor({flat(view, statement.value)})",
    ]
    inner = [
        f"{holds} = {'~' if inverted else ''}{truth}",
        f"{name} = {torch}.where({holds}, {new}, {old}).numpy()",
    ]
    lines = [
        f"if {compiling(torch)} and isinstance({name}, {numpy}.ndarray):",
        *(indent(fitted(line, width, unit), unit) for line in first),
        f"{unit}if {new}.shape == {old}.shape and {new}.dtype == {old}.dtype:",
        *(indent(fitted(line, width - len(unit), unit), unit * 2) for line in inner),
        f"{unit}elif {asked}:",
        f"{unit * 2}{name} = {new}.numpy()",
    ]
    start, margin = view.start(node), view.indent(node)
    text = indent("\n".join(lines), margin).removeprefix(margin)
    reason = "where the shape and dtype stay, which tracing asks, both values are computed"
    edit = Edit(start, start, f"{text}\n{margin}el")
    needed = context.needs_torch
    return Fix("numpy-where", Safety.REVIEW, reason, (edit,), needed, asking=True)


def _numpy(context: Context) -> str | None:
    """The module's name for numpy."""
    bindings = context.info.module.bindings
    return next((n for n, bound in bindings.items() if bound and bound[-1] == "numpy"), None)


def _mentions(node: ast.If, context: Context) -> bool:
    """Whether a function of numpy is called in the test or below it."""
    return any(
        isinstance(n, ast.Call) and (_reference(n, context) or "").startswith("numpy.")
        for n in walk(node)
    )


def _reference(node: ast.Call, context: Context) -> str | None:
    value: Value | None = context.analysis.values.get(node.func)
    named = value.reference if value is not None else None
    return named or context.info.module.qualify(node.func)


def _check(part: ast.expr, context: Context) -> None:
    """Whether an expression computes and nothing more, on all data.

    Raises:
        Refused: naming what is not known to.
    """
    for node in walk(part):
        text = ast.unparse(node) if isinstance(node, ast.expr) else ""
        if isinstance(node, ast.Call):
            called = _reference(node, context) or ""
            last = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            known = called.startswith("numpy.") or "." not in called or not called
            if not known or last not in _WHOLE | _ELEMENTWISE:
                raise Refused(
                    "impure-arm", f"`{text}` is not known to be a plain function of numpy"
                )
        elif isinstance(node, ast.BinOp) and not isinstance(node.op, _OPERATORS):
            raise Refused("partial-arm", f"`{text}` may fail on some data")
        elif isinstance(node, ast.Attribute):
            parent = context.info.module.parents.get(node)
            if not (isinstance(parent, ast.Call) and parent.func is node):
                if node.attr not in _ATTRIBUTES and not _names_module(node, context):
                    raise Refused("impure-arm", f"`{text}` is not known to be part of an array")
        elif isinstance(node, ast.Subscript):
            for index in walk(node.slice):
                if isinstance(index, (ast.BinOp, ast.Call, ast.Compare, ast.Subscript)):
                    raise Refused("partial-arm", f"`{text}` may fail on some data")
        elif isinstance(node, (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr, ast.Await)):
            raise Refused("complex-expression", f"`{text}` is more than arithmetic")


def _check_unchanged(name: str, context: Context) -> None:
    """Whether no array is changed in place that may be the old one, of which the new one is a copy.

    Raises:
        Refused: naming one that is.
    """
    same = {name}
    for node in walk(context.info.node):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            names = {t.id for t in node.targets if isinstance(t, ast.Name)}
            if node.value.id == name or name in names:
                same |= names | {node.value.id}
    for node in walk(context.info.node):
        base: ast.AST = node
        if isinstance(node, ast.AugAssign):
            base = node.target
        stores = isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)
        )
        while isinstance(base, (ast.Subscript, ast.Attribute)):
            base = base.value
        if stores and isinstance(base, ast.Name) and base.id in same:
            raise Refused("alias-then-mutate", f"`{base.id}` is changed in place")


def _names_module(node: ast.Attribute, context: Context) -> bool:
    return (context.info.module.qualify(node) or "").startswith("numpy.")


def _single(test: ast.expr, context: Context) -> str:
    """What makes one boolean of a test: nothing for a comparison of what is reduced as a whole."""
    compared = isinstance(test, ast.Compare)
    parts = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
    whole = all(isinstance(p, ast.Constant) or _reduced(p) for p in parts)
    named = test.func if isinstance(test, ast.Call) else None
    boolean = compared or (isinstance(named, ast.Attribute) and named.attr in {"any", "all"})
    return ("" if whole else ".reshape(())") + ("" if boolean else ".bool()")


def _reduced(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    base = node.func.value
    most = 1 if isinstance(base, ast.Name) and base.id in {"np", "numpy"} else 0
    return node.func.attr in _WHOLE and len(node.args) <= most and not node.keywords


TRANSFORM = Transform(
    name="numpy-where",
    codes=(TENSOR_BRANCH.code,),
    summary="select between two numpy arrays",
    doc=__doc__ or "",
    propose=propose,
    rank=33,
)
