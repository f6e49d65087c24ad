"""One of two values that a tensor chooses, `f(a if t else b)`, put into a form that a graph can hold.

The statement around it is written twice: once with the new form for the compiled path, once as it
was. So is an `if` whose arms are one statement but for a value. Knows where an expression may be
replaced, not which form is right.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Guard, Refused, data_kind, leaves, split
from gbfix.analysis.effects import effects
from gbfix.analysis.evaluate import Environment, dotted
from gbfix.analysis.trees import walk
from gbfix.codegen import layout
from gbfix.codegen.expressions import copied, flat, flatten
from gbfix.codegen.predicates import Renderer, single
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix
from gbfix.lowering.aliases import check_not_changed_later, shared_root, tensor_sources
from gbfix.lowering.arm_values import given_tensor, held_before
from gbfix.lowering.dense_gradients import dense_gradients, with_replacements
from gbfix.lowering.doubling import in_compiled_path
from gbfix.lowering.gradients import gradients_are_off
from gbfix.lowering.hazards import check_random
from gbfix.lowering.lost_stores import check_stores
from gbfix.lowering.made_alike import Made, made_alike
from gbfix.lowering.placement import (
    around,
    compiled_block,
    unlike_shapes,
    width_for,
    with_tensor_guards,
)
from gbfix.lowering.places import check_places, element_reads
from gbfix.lowering.shared_operands import copies_needed
from gbfix.lowering.stale_graphs import held_attributes, stale_graph, stale_reason
from gbfix.lowering.turned import check_turned, check_view_attributes
from gbfix.lowering.views import is_elif
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


@dataclass(frozen=True)
class Selection:
    """One of two values that tensor data choose, in a statement that is otherwise the same.

    Attributes:
        test: the test, which chooses `yes` where it holds.
        yes, no: the values.
        at: the expression in whose place the chosen value goes.
        statement: the statement around it.
        branch: the `if` whose arms are this statement; None for a conditional expression.
    """

    test: ast.expr
    yes: ast.expr
    no: ast.expr
    at: ast.expr
    statement: ast.stmt
    branch: ast.If | None = None


def conditional_expression(site: BreakSite, context: Context, form: str, check: Check) -> Fix:
    """A fix for a conditional expression in a simple statement.

    Raises:
        Refused: where it stands in a place that cannot be written twice, or its values do not fit.
    """
    node, statement = site.node, site.statement
    if isinstance(node, ast.BoolOp) or not isinstance(node, ast.IfExp):
        what = type(node).__name__.lower()
        raise Refused("unusual-condition", f"a `{what}` outside of an `if` has no functional form")
    _check_place(node, statement, context)
    return selected(
        Selection(node.test, node.body, node.orelse, node, statement), context, form, check
    )


def selected(selection: Selection, context: Context, form: str, check: Check) -> Fix:
    """A fix that chooses one of two values in the graph.

    Raises:
        Refused: where the values do not fit, or do more than compute.
    """
    analysis, statement = context.analysis, selection.statement
    values = (selection.yes, selection.no)
    parts = split(selection.test, analysis, context.facts)
    asked: dict[str, None] = {}
    environment = analysis.before[selection.branch or statement]
    for value in values:
        name = held_before(value, {}, environment)
        given_tensor(analysis.values[value], f"`{ast.unparse(value)}`", name, asked)
    for value in values:
        found = effects([value], analysis, context.facts)
        if not found.pure or found.scalar or found.dynamic:
            raise Refused("impure-arm", f"`{ast.unparse(value)}` does more than compute")
        check_random(found, analysis)
        if any(data_kind(leaf, analysis) for c in found.conditions for leaf in leaves(c.test)):
            raise Refused("break-in-arm", f"`{ast.unparse(value)}` has a graph break of its own")
    check(*values)
    _check_copies(selection, context)
    torch = context.torch(statement)
    predicate = Renderer(context.view, analysis, torch).render(parts.predicate)
    a, b = (flat(context.view, value) for value in values)
    if form == "where":
        predicate = single(predicate)
        condition = predicate.text if predicate.boolean else f"{predicate.operand} != 0"
        arguments = [condition, a, b]
    else:
        stored = [n for t in getattr(statement, "targets", ()) if (n := dotted(t)) is not None]
        check_stores((statement, statement), stored, analysis, context.facts)
        check_view_attributes(values, analysis)
        if not gradients_are_off(statement, context.info):
            check_turned([[value] for value in values], analysis)
        a, b = (_cloned(n, t, context) for n, t in zip(values, (a, b), strict=True))
        check_places(selection.test, values, analysis)
        elements = element_reads(values, analysis, context.facts, context.view, asked)
        a, b = (with_replacements(text, elements) for text in (a, b))
        if not gradients_are_off(statement, context.info):
            dense = dense_gradients(values, frozenset(), analysis, context.view)
            a, b = (with_replacements(text, dense) for text in (a, b))
        one, other = (_made(value, environment) for value in values)
        at = selection.branch or statement
        alike = made_alike((one, other), selection.test, at, analysis, context.view)
        a, b = (with_replacements(text, alike) for text in (a, b))
        copies = [c for c in copies_needed(values, (), statement, analysis) if "." not in c]
        head = f"lambda {', '.join(copies)}" if copies else "lambda"
        arguments = [predicate.text, f"{head}: {a}", f"{head}: {b}"]
        if copies:
            comma = "," if len(copies) == 1 else ""
            arguments.append(f"({', '.join(f'{c}.clone()' for c in copies)}{comma})")
    safety, reason = _judged(selection, context)
    guards = with_tensor_guards(parts.guards, asked, torch)
    edits = _placed(selection, f"{torch}.{form}", arguments, guards, torch, context)
    return Fix(form, safety, reason, edits, context.needs_torch)


def _made(value: ast.expr, environment: Environment) -> Made:
    name = held_before(value, {}, environment)
    return Made([value], [value] if name is None else [], [] if name is None else [name])


def _judged(selection: Selection, context: Context) -> tuple[Safety, str]:
    analysis = context.analysis
    yes, no = selection.yes, selection.no
    read = held_attributes([yes, no], analysis)
    stale = stale_graph(read, selection.statement, analysis, context.facts)
    if stale:
        return Safety.UNSAFE, stale_reason(stale)
    if analysis.values[yes].dtype != analysis.values[no].dtype:
        return Safety.REVIEW, UNPROVEN
    if tensor_sources([yes], analysis) != tensor_sources([no], analysis):
        return Safety.REVIEW, ZERO_GRADIENTS
    return Safety.SAFE, "both values are made of the same tensors"


def _placed(
    selection: Selection,
    head: str,
    arguments: list[str],
    guards: Sequence[Guard],
    torch: str,
    context: Context,
) -> tuple[Edit, ...]:
    """The statement with the value chosen in it, beside the original or in its place."""
    at, statement, view = selection.at, selection.statement, context.view
    whole = selection.branch or statement
    width = width_for(context, whole)
    body = _statement(at, statement, head, arguments, context, width)
    if (context.only_compiled or in_compiled_path(statement, context)) and not guards:
        start, end = view.start(whole), view.end(whole)
        alone = selection.branch is None or not is_elif(selection.branch, context.info.module)
        if alone and not view.has_comment(start, end):
            width = width_for(context, whole, nested=False)
            body = _statement(at, statement, head, arguments, context, width)
            text = layout.indent(body, view.indent(whole)).lstrip()
            return (Edit(start, end, text),)
    if selection.branch is not None:
        lead = compiled_block(selection.branch, body, torch, guards, context, join="el")
        return (lead, *unlike_shapes(selection.branch, guards, torch, context))
    around_it = around(statement, body, torch, guards, context)
    whole_test = context.info.module.parents[selection.test]
    assert isinstance(whole_test, ast.IfExp)
    return (*around_it, *unlike_shapes(whole_test, guards, torch, context))


def _check_copies(selection: Selection, context: Context) -> None:
    """A value that is handed on as a copy may not be changed in place, here or later."""
    analysis, facts, statement = context.analysis, context.facts, selection.statement
    roots = [r for n in (selection.yes, selection.no)
             if (r := shared_root(n, analysis, frozenset())) is not None]  # fmt: skip
    if not roots:
        return
    here = effects([statement], analysis, facts)
    if here.mutated or (here.unknown and getattr(statement, "value", None) is not selection.at):
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
    width: int,
) -> str:
    """The statement with the expression replaced by a call, at no indentation."""
    view = context.view
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
