"""A conditional expression on a tensor, `a if t else b`, put into a form that a graph can hold.

The statement around it is written twice: once with the new form for the compiled path, once as it
was. Knows where an expression may be replaced, not which form is right.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from gbfix.analysis.conditions import Refused, data_kind, leaves, split
from gbfix.analysis.effects import effects
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.sites import BreakSite
from gbfix.analysis.trees import walk
from gbfix.codegen import layout
from gbfix.codegen.expressions import copied, flat, flatten
from gbfix.codegen.predicates import Renderer, single
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix
from gbfix.lowering.aliases import check_not_changed_later, shared_root, tensor_sources
from gbfix.lowering.branch import check_tensor
from gbfix.lowering.gradients import held_attributes, stale_graph, stale_reason
from gbfix.lowering.hazards import check_random
from gbfix.lowering.lost_stores import check_stores
from gbfix.lowering.placement import around, unlike_shapes, width_for
from gbfix.source.text import Edit

UNPROVEN = (
    "the arms must give one shape, dtype and stride, which could not be proven; if they do not, "
    "compiling fails"
)
ZERO_GRADIENTS = (
    "a tensor that only one arm uses gets a gradient of zeros instead of None when compiled"
)
Check = Callable[[ast.expr, ast.expr], None]
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)


def conditional_expression(site: BreakSite, context: Context, form: str, check: Check) -> Fix:
    """A fix for a conditional expression in a simple statement.

    Raises:
        Refused: where it stands in a place that cannot be written twice, or its values do not fit.
    """
    node, statement, analysis = site.node, site.statement, context.analysis
    if isinstance(node, ast.BoolOp) or not isinstance(node, ast.IfExp):
        what = type(node).__name__.lower()
        raise Refused("unusual-condition", f"a `{what}` outside of an `if` has no functional form")
    _check_place(node, statement, context)
    parts = split(node.test, analysis, context.facts)
    for value in (node.body, node.orelse):
        check_tensor(analysis.values[value], f"`{ast.unparse(value)}`")
    for value in (node.body, node.orelse):
        found = effects([value], analysis, context.facts)
        if not found.pure or found.scalar or found.dynamic:
            raise Refused("impure-arm", f"`{ast.unparse(value)}` does more than compute")
        check_random(found, analysis)
        if any(data_kind(leaf, analysis) for c in found.conditions for leaf in leaves(c.test)):
            raise Refused("break-in-arm", f"`{ast.unparse(value)}` has a graph break of its own")
    check(node.body, node.orelse)
    _check_copies(node, statement, context)
    torch = context.torch(statement)
    predicate = Renderer(context.view, analysis, torch).render(parts.predicate)
    a, b = flat(context.view, node.body), flat(context.view, node.orelse)
    if form == "where":
        predicate = single(predicate)
        condition = predicate.text if predicate.boolean else f"{predicate.operand} != 0"
        arguments = [condition, a, b]
    else:
        stored = [n for t in getattr(statement, "targets", ()) if (n := dotted(t)) is not None]
        check_stores((statement, statement), stored, analysis, context.facts)
        a, b = (_cloned(n, t, context) for n, t in ((node.body, a), (node.orelse, b)))
        arguments = [predicate.text, f"lambda: {a}", f"lambda: {b}"]
    body = _statement(node, statement, f"{torch}.{form}", arguments, context)
    same = tensor_sources([node.body], analysis) == tensor_sources([node.orelse], analysis)
    alike = analysis.values[node.body].dtype == analysis.values[node.orelse].dtype
    safety, reason = Safety.SAFE, "both values are made of the same tensors"
    read = held_attributes([node.body, node.orelse], analysis)
    stale = stale_graph(read, statement, analysis, context.facts)
    if stale:
        safety, reason = Safety.UNSAFE, stale_reason(stale)
    elif not alike:
        safety, reason = Safety.REVIEW, UNPROVEN
    elif not same:
        safety, reason = Safety.REVIEW, ZERO_GRADIENTS
    if context.only_compiled and not parts.guards:
        width = width_for(context, statement, nested=False)
        body = _statement(node, statement, f"{torch}.{form}", arguments, context, width)
        start, end = context.view.start(statement), context.view.end(statement)
        if not context.view.has_comment(start, end):
            text = layout.indent(body, context.view.indent(statement)).lstrip()
            return Fix(form, safety, reason, (Edit(start, end, text),), context.needs_torch)
    edits = (
        *around(statement, body, torch, parts.guards, context),
        *unlike_shapes(node, parts.guards, torch, context),
    )
    return Fix(form, safety, reason, edits, context.needs_torch)


def _check_copies(node: ast.IfExp, statement: ast.stmt, context: Context) -> None:
    """A value that is handed on as a copy may not be changed in place, here or later."""
    analysis, facts = context.analysis, context.facts
    roots = [r for n in (node.body, node.orelse)
             if (r := shared_root(n, analysis, frozenset())) is not None]  # fmt: skip
    if not roots:
        return
    here = effects([statement], analysis, facts)
    if here.mutated or (here.unknown and getattr(statement, "value", None) is not node):
        raise Refused("alias-then-mutate", "the statement may change what it is given in place")
    results = [
        n.id for n in walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    check_not_changed_later(roots, results, (statement, statement), analysis, facts)


def _cloned(node: ast.expr, text: str, context: Context) -> str:
    if shared_root(node, context.analysis, frozenset()) is None:
        return text
    return copied(node, text)


def _check_place(node: ast.expr, statement: ast.stmt, context: Context) -> None:
    if not isinstance(statement, _SIMPLE):
        raise Refused("compound-header", "it stands in the header of a compound statement")
    parents = context.info.module.parents
    parent = parents[node]
    while parent is not statement:
        if isinstance(parent, (ast.Lambda, ast.comprehension, ast.ListComp, ast.GeneratorExp,
                               ast.DictComp, ast.SetComp, ast.IfExp, ast.BoolOp)):  # fmt: skip
            raise Refused(
                "nested-expression", "it stands inside another expression that may not run"
            )
        parent = parents[parent]


def _statement(
    node: ast.expr,
    statement: ast.stmt,
    head: str,
    arguments: list[str],
    context: Context,
    width: int | None = None,
) -> str:
    """The statement with the expression replaced by a call, at no indentation."""
    view = context.view
    width = width if width is not None else width_for(context, statement)
    start, end = view.start(statement), view.end(statement)
    before = view.slice(start, view.start(node))
    after = view.slice(view.end(node), end)
    if (
        before.rstrip().endswith("(")
        and after.lstrip().startswith(")")
        and _only_value(node, statement)
    ):
        before, after = before.rstrip()[:-1], after.lstrip()[1:]
    if "\n" in before or "\n" in after:
        call = f"{head}({', '.join(arguments)})"
        return _flattened(statement, f"{before}{call}{after}")
    return layout.call(f"{before}{head}", arguments, width=width, unit=context.unit, tail=after)


def _only_value(node: ast.expr, statement: ast.stmt) -> bool:
    return getattr(statement, "value", None) is node


def _flattened(statement: ast.stmt, text: str) -> str:
    if isinstance(statement, ast.Return):
        return "return " + flatten(text.removeprefix("return").strip())
    if isinstance(statement, ast.Expr):
        return flatten(text)
    raise Refused("multi-line-statement", "the statement around it spans several lines")
