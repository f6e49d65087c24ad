"""Turns validation of tensor values into checks that a graph can hold.

`if tensor: raise` and assertions that Dynamo cannot take over become `torch._assert_async` in the
compiled path, and stay as they are in eager mode.

Before:

    def forward(self, x: torch.Tensor):
        if torch.isnan(x).any():
            raise ValueError("x has NaN")
        return self.net(x)

After:

    def forward(self, x: torch.Tensor):
        if torch.compiler.is_compiling():
            torch._assert_async(~torch.isnan(x).any(), "x has NaN")
        elif torch.isnan(x).any():
            raise ValueError("x has NaN")
        return self.net(x)

In the compiled path a failing check raises `RuntimeError` with the message; values that the message
would have formatted are named instead of shown. On CUDA a failing check is a device-side assertion:
it shows at the next synchronisation, and the process's CUDA context is lost. The setting
`check = "skip"` gives the other idiom, which does not check at all while compiling:

    if not torch.compiler.is_compiling() and torch.isnan(x).any():
        raise ValueError("x has NaN")
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.checkers import checker_call
from gbfix.analysis.conditions import Refused, Split, split
from gbfix.codegen import layout
from gbfix.codegen.guards import compiling
from gbfix.codegen.messages import assertion_message
from gbfix.codegen.predicates import Rendered, Renderer
from gbfix.diagnoses import TENSOR_ASSERT, TENSOR_RAISE
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.guarding import guarded_runs
from gbfix.lowering.placement import (
    around,
    beside_all,
    compiled_block,
    eager_only_test,
    width_for,
)
from gbfix.lowering.read_checks import ReadChecks, read_checks
from gbfix.lowering.validations import RAISES, SKIPS, check_not_caught, check_only_raises
from gbfix.lowering.views import is_elif
from gbfix.settings import CheckStyle
from gbfix.source.text import Edit


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer a check inside the graph for an `if ...: raise` or an `assert`.

    Raises:
        Refused: where the branch does more than raise, or its test has no tensor form.
    """
    check_not_caught(site.statement, context)
    if isinstance(site.node, (ast.If, ast.Assert)):
        found = read_checks(site.node, context)
        if found is not None:
            return _of_reads(found, context)
    if isinstance(site.node, ast.Assert):
        return _assertion(site.node, context)
    if isinstance(site.node, ast.Call) and isinstance(site.statement, ast.Expr):
        return _helper(site.node, site.statement, context)
    node = site.node
    if not isinstance(node, ast.If):
        raise Refused("unusual-condition", "what raises is not an `if` or an `assert`")
    if not (node.body and isinstance(node.body[-1], ast.Raise)):
        return _raising_else(node, context)
    check_only_raises(node.body, context)
    if context.settings.check is CheckStyle.SKIP:
        return _skip(node, context)
    parts = split(node.test, context.analysis, context.facts)
    torch = context.torch(node)
    renderer = Renderer(context.view, context.analysis, torch)
    fine = renderer.negated(parts.predicate)
    if node.orelse:
        return _with_else(node, parts, fine, torch, context)
    body = _call(
        fine, _message_of(node.body[-1], context), torch, width_for(context, node), context
    )
    edit = compiled_block(node, body, torch, parts.guards, context, join="el")
    return Fix("check", Safety.REVIEW, RAISES, (edit,), context.needs_torch)


def _of_reads(found: ReadChecks, context: Context) -> Fix:
    """Checks of numbers that are read right before them, and shown by what is raised."""
    first = found.statements[0]
    torch = context.torch(first)
    if context.settings.check is CheckStyle.SKIP:
        edits = guarded_runs(found.statements, context)
        return Fix("check", Safety.REVIEW, SKIPS, edits, context.needs_torch)
    renderer = Renderer(context.view, context.analysis, torch, found.tensors, found.truncated)
    lines: list[str] = []
    for check in found.checks:
        parts = split(check.test, context.analysis, context.facts)
        if parts.guards:
            raise Refused("mixed-condition", "what is checked is partly decided while tracing")
        if isinstance(check, ast.Assert):
            fine = renderer.render(parts.predicate)
            message = assertion_message(check.msg, context.view, context.analysis, test=check.test)
        else:
            check_only_raises(check.body, context)
            fine = renderer.negated(parts.predicate)
            message = _message_of(check.body[-1], context)
        lines.append(_call(fine, message, torch, width_for(context, check), context))
    edits = beside_all(found.statements, "\n".join(lines), torch, (), context)
    return Fix("check", Safety.REVIEW, RAISES, edits, context.needs_torch)


def _message_of(statement: ast.stmt, context: Context) -> str:
    assert isinstance(statement, ast.Raise)
    return assertion_message(statement.exc, context.view, context.analysis)


def _call(predicate: Rendered, message: str, torch: str, width: int, context: Context) -> str:
    arguments = [predicate.text, message]
    return layout.call(f"{torch}._assert_async", arguments, width=width, unit=context.unit)


def _with_else(node: ast.If, parts: Split, fine: Rendered, torch: str, context: Context) -> Fix:
    """An `if` with other arms: the check goes before it, and the test is skipped when compiled."""
    if is_elif(node, context.info.module):
        raise Refused("elif-with-else", "an `elif` that raises has further arms")
    message = _message_of(node.body[-1], context)
    body = _call(fine, message, torch, width_for(context, node), context)
    edits = (
        compiled_block(node, body, torch, parts.guards, context),
        *eager_only_test(node, torch, context),
    )
    return Fix("check", Safety.REVIEW, RAISES, edits, context.needs_torch)


def _skip(node: ast.If, context: Context) -> Fix:
    torch = context.torch(node)
    edits = eager_only_test(node, torch, context)
    return Fix("check", Safety.REVIEW, SKIPS, edits, context.needs_torch)


def _raising_else(node: ast.If, context: Context) -> Fix:
    """`if ok: ... else: raise`: the compiled path checks and goes on with the first arm."""
    raise Refused(
        "raise-in-else", "the exception is raised in the other arm of a branch that does work"
    )


def _assertion(node: ast.Assert, context: Context) -> Fix:
    parts = split(node.test, context.analysis, context.facts)
    torch = context.torch(node)
    predicate = Renderer(context.view, context.analysis, torch).render(parts.predicate)
    if context.settings.check is CheckStyle.SKIP:
        return _skip_assertion(node, torch, context)
    message = assertion_message(node.msg, context.view, context.analysis, test=node.test)
    body = _call(predicate, message, torch, width_for(context, node), context)
    edits = around(node, body, torch, parts.guards, context)
    return Fix("check", Safety.REVIEW, RAISES, edits, context.needs_torch)


def _helper(call: ast.Call, statement: ast.Expr, context: Context) -> Fix:
    """A call of a helper that raises: the check goes into the graph beside the call."""
    check = checker_call(call, context.analysis, context.facts)
    assert check is not None
    torch = context.torch(statement)
    if context.settings.check is CheckStyle.SKIP:
        raise Refused("helper-kept", "a call of a checking helper is not skipped")
    parts = split(check.condition, context.analysis, context.facts)
    renderer = Renderer(context.view, context.analysis, torch)
    fine = (
        renderer.negated(parts.predicate) if check.raises_when else renderer.render(parts.predicate)
    )
    exception: ast.expr = ast.Call(ast.Name(check.exception), [], [])
    if check.message is not None:
        exception = ast.Call(ast.Name(check.exception), [check.message], [])
    message = assertion_message(exception, context.view, context.analysis)
    body = _call(fine, message, torch, width_for(context, statement), context)
    edits = around(statement, body, torch, parts.guards, context)
    return Fix("check", Safety.REVIEW, RAISES, edits, context.needs_torch)


def _skip_assertion(node: ast.Assert, torch: str, context: Context) -> Fix:
    start, end = context.view.start(node.test), context.view.end(node.test)
    lead = f"{compiling(torch)} or "
    if isinstance(node.test, (ast.IfExp, ast.Lambda)) or context.view.slice(
        context.view.start(node), start
    ).rstrip().endswith("("):
        raise Refused("parenthesised-test", "the test of the assertion stands in parentheses")
    edits: tuple[Edit, ...] = (Edit(start, start, lead),)
    if "\n" in context.view.slice(start, end):
        edits = (Edit(start, start, f"{lead}("), Edit(end, end, ")"))
    return Fix("check", Safety.REVIEW, SKIPS, edits, context.needs_torch)


TRANSFORM = Transform(
    name="check",
    codes=(TENSOR_RAISE.code, TENSOR_ASSERT.code),
    summary="check tensor values inside the graph",
    doc=__doc__ or "",
    propose=propose,
    rank=20,
)
