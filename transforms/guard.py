"""Keeps output out of compiled code: `if not torch.compiler.is_compiling():`.

Prints, log calls and warnings stay where they are and still speak in eager mode. In the compiled
path the line is not there, and neither is the break. Neighbouring calls share one guard; an `if`
whose whole body only speaks takes the guard into its test, so that a tensor condition goes too.

Before:

    def forward(self, x):
        y = self.net(x)
        print("norm", y.norm())
        return y

After:

    def forward(self, x):
        y = self.net(x)
        if not torch.compiler.is_compiling():
            print("norm", y.norm())
        return y

The fix is refused where an argument does something that the program needs (an assignment, a `pop`, a
`next`), because skipping the call would skip that too.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.effects import effects
from gbfix.analysis.trees import walk
from gbfix.codegen import layout
from gbfix.codegen.guards import compiling
from gbfix.diagnoses import (
    LOGGING_CALL,
    PRINT_CALL,
    SCALAR_READ,
    TENSOR_BRANCH,
    TENSOR_TO_LIST,
    WARNINGS_CALL,
)
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.guarding import guarded, guarded_runs
from gbfix.lowering.output import check_arguments, only_speaks
from gbfix.lowering.placement import eager_only_test
from gbfix.lowering.spoken import is_left_at_once, shown_with
from gbfix.lowering.views import block_of, is_elif
from gbfix.settings import SideEffects
from gbfix.source.text import Edit

_FAMILIES = {
    PRINT_CALL.code: "print",
    LOGGING_CALL.code: "logging",
    WARNINGS_CALL.code: "warnings",
}
_REASON = "nothing is printed, logged or warned in the compiled path"
_SHOWN = "the number is only shown, and nothing is shown in the compiled path"
_SILENT = "the function only shows values, and nothing is shown in the compiled path"


def propose(site: BreakSite, context: Context) -> Fix:
    """Guard a call, its neighbours, or the `if` around it.

    Raises:
        Refused: where the call or the condition around it has effects of its own.
    """
    if is_left_at_once(context):
        return _leave(context)
    statement = site.statement
    if site.read is not None:
        _check_dropped(context)
        edits = guarded_runs(shown_with(site, context), context)
        return Fix("guard", Safety.REVIEW, _SHOWN, edits, context.needs_torch)
    family = _FAMILIES.get(site.diagnosis.code)
    if family is not None and context.settings.effects_of(family) is not SideEffects.DROP:
        raise Refused("not-dropped", "the side effects of this family are not to be dropped")
    if isinstance(site.node, ast.If):
        if not _only_speaks(site.node, context):
            raise NotApplicable("not-only-output", "the branch does more than print, log or warn")
        return _guard_if(site.node, context)
    if isinstance(site.node, (ast.IfExp, ast.BoolOp, ast.UnaryOp)) or not isinstance(
        statement, ast.Expr
    ):
        raise NotApplicable("not-only-output", "the condition decides more than output")
    check_arguments(statement, context.analysis, context.facts)
    around = _speaking_if(statement, context)
    if around is not None:
        return _guard_if(around, context)
    return _guard_run(_neighbours(statement, context), context)


def _check_dropped(context: Context) -> None:
    policies = {context.settings.effects_of(family) for family in _FAMILIES.values()}
    if policies != {SideEffects.DROP}:
        raise Refused("not-dropped", "the side effects of this family are not to be dropped")


def _leave(context: Context) -> Fix:
    """Leave a function that only speaks before it reads anything."""
    _check_dropped(context)
    view, node = context.view, context.info.node
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    first = body[0]
    if not view.starts_line(first):
        raise Refused("shared-line", "the statement shares its line with another")
    torch = context.torch(first)
    at = view.line_start(view.start(first))
    text = f"if {compiling(torch)}:\n{context.unit}return\n"
    edit = Edit(at, at, layout.indent(text, view.indent(first)))
    return Fix("guard", Safety.REVIEW, _SILENT, (edit,), context.needs_torch)


def _only_speaks(node: ast.If, context: Context) -> bool:
    """Whether every arm of an `if` consists of output alone."""
    if not node.body or not all(_speaks(s, context) for s in node.body):
        return False
    return all(
        _only_speaks(s, context) if isinstance(s, ast.If) else _speaks(s, context)
        for s in node.orelse
    )


def _speaks(statement: ast.stmt, context: Context) -> bool:
    if statement in context.analysis.eager:
        return False
    return only_speaks(statement, context.analysis, context.facts)


def _speaking_if(statement: ast.stmt, context: Context) -> ast.If | None:
    """The outermost `if` around a statement that only speaks and whose tests only compute."""
    found: ast.If | None = None
    parent = context.info.module.parents.get(statement)
    while isinstance(parent, ast.If):
        if not _only_speaks(parent, context) or not _pure_tests(parent, context):
            break
        found = parent
        parent = context.info.module.parents.get(parent)
    if found is None or is_elif(found, context.info.module):
        return None
    return found


def _pure_tests(node: ast.If, context: Context) -> bool:
    tests = [n.test for n in walk(node) if isinstance(n, ast.If)]
    found = effects(tests, context.analysis, context.facts)
    named = any(isinstance(n, ast.NamedExpr) for t in tests for n in walk(t))
    return not (found.mutated or found.attributes or found.random or named)


def _guard_if(node: ast.If, context: Context) -> Fix:
    """Take the guard into the test; around the whole `if` where it has other arms.

    Raises:
        Refused: where the `if` is an `elif`.
    """
    view = context.view
    if is_elif(node, context.info.module):
        raise Refused("elif-output", "the branch is an `elif`")
    if not _pure_tests(node, context):
        raise Refused("effectful-condition", "the test does more than compute")
    torch = context.torch(node)
    if node.orelse:
        return _guard_run([node], context)
    before = view.slice(view.start(node), view.start(node.test)).rstrip()
    wraps = before.endswith("(") and "\n" in view.slice(
        view.start(node), view.line_end(view.end(node.test))
    )
    line = view.source.line_text(node.lineno)
    longer = len(line) + len(f"not {compiling(torch)} and ")
    if longer > context.settings.line_length and not wraps:
        return _guard_run([node], context)
    edits = eager_only_test(node, torch, context)
    return Fix("guard", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _neighbours(statement: ast.stmt, context: Context) -> list[ast.stmt]:
    """The run of output statements around one, none of which shares a line with other code."""
    block = block_of(statement, context.info.module)
    at = next(i for i, s in enumerate(block) if s is statement)
    first = last = at
    while first > 0 and _joins(block[first - 1], block[first], context):
        first -= 1
    while last + 1 < len(block) and _joins(block[last], block[last + 1], context):
        last += 1
    return block[first : last + 1]


def _joins(above: ast.stmt, below: ast.stmt, context: Context) -> bool:
    if not (_speaks(above, context) and _speaks(below, context)):
        return False
    view = context.view
    return all(view.starts_line(s) and view.ends_line(s) for s in (above, below))


def _guard_run(statements: Sequence[ast.stmt], context: Context) -> Fix:
    """Put a guard above statements and indent them."""
    view = context.view
    first, last = statements[0], statements[-1]
    torch = context.torch(first)
    if not (view.starts_line(first) and view.ends_line(last)):
        return _guard_inline(first, context)
    edits = guarded(statements, torch, context)
    return Fix("guard", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _guard_inline(statement: ast.stmt, context: Context) -> Fix:
    """`a = 1; print(a)` and `if x: print(x)`: the statements of the line get lines of their own.

    Raises:
        Refused: where the line holds more than simple statements.
    """
    view = context.view
    block = block_of(statement, context.info.module)
    parent = context.info.module.parents[statement]
    line = [s for s in block if s.lineno == statement.lineno or s.end_lineno == statement.lineno]
    header = not view.starts_line(line[0])
    if any(s.lineno != s.end_lineno for s in line):
        raise Refused("shared-line", "the call shares a line with a statement over several lines")
    if header and not isinstance(parent, (ast.If, ast.For, ast.While, ast.With, ast.FunctionDef)):
        raise Refused("shared-line", "the call stands on the line of a header")
    if header and any(
        b is not block and isinstance(b, list) and b and b[0].lineno == statement.lineno
        for b in (getattr(parent, "orelse", None), getattr(parent, "body", None))
    ):
        raise Refused("shared-line", "the call shares its line with another block")
    torch = context.torch(statement)
    outer = view.indent(line[0])
    indent = outer + context.unit if header else outer
    texts: list[str] = []
    guarded = False
    for one in line:
        speaks = _speaks(one, context)
        if speaks and not guarded:
            texts.append(f"{indent}if not {compiling(torch)}:")
        texts.append(f"{indent}{context.unit if speaks else ''}{view.text(one)}")
        guarded = speaks
    start, end = view.start(line[0]), view.end(line[-1])
    tail = view.slice(end, view.line_end(end)).lstrip()
    if tail.startswith(";"):
        end += view.slice(end, view.line_end(end)).index(";") + 1
    text = "\n".join(texts)
    if header:
        space = view.slice(view.line_start(start), start)
        start -= len(space) - len(space.rstrip())
        text = f"\n{text}"
    else:
        text = text.removeprefix(indent)
    return Fix("guard", Safety.REVIEW, _REASON, (Edit(start, end, text),), context.needs_torch)


TRANSFORM = Transform(
    name="guard",
    codes=(
        PRINT_CALL.code,
        LOGGING_CALL.code,
        WARNINGS_CALL.code,
        TENSOR_BRANCH.code,
        SCALAR_READ.code,
        TENSOR_TO_LIST.code,
    ),
    summary="skip output while compiling",
    doc=__doc__ or "",
    propose=propose,
    rank=10,
)
