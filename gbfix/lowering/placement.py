"""Where the compiled path goes: beside the original, which stays as the eager path.

`if T:` becomes `if torch.compiler.is_compiling(): <compiled> elif T:`, so every byte of the
original is still there and eager runs it as before. In a function that is only ever compiled the
original is replaced. Knows statements and offsets, nothing of what the compiled path says.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from itertools import pairwise

from gbfix.analysis.conditions import Guard, Refused
from gbfix.analysis.trees import walk
from gbfix.codegen import layout
from gbfix.codegen.guards import compiling, operands
from gbfix.fixes import Context
from gbfix.lowering.asked_inside import asked_inside
from gbfix.lowering.branch import Branch
from gbfix.lowering.views import final_returns, is_elif, walk_scope
from gbfix.source.text import Edit


def width_for(context: Context, statement: ast.stmt, *, nested: bool = True) -> int:
    """Columns left for text that will be indented below a statement."""
    view = context.view
    used = len(view.indent(statement).expandtabs(4)) + (
        len(context.unit.expandtabs(4)) if nested else 0
    )
    return max(context.settings.line_length - used, 40)


def beside(branch: Branch, body: str, torch: str, context: Context) -> tuple[Edit, ...]:
    """Put the compiled path before the `if` (or `elif`), which becomes its alternative.

    Raises:
        Refused: if the `if` does not start its line.
    """
    node = branch.node
    alone = branch.ends or branch.leaves
    guards = with_tensor_guards(branch.split.guards, branch.asked, torch)
    tests, join = asked_inside(branch, context), "" if alone else "el"
    lead = compiled_block(node, body, torch, guards, context, join=join, tests=tests)
    return (
        lead,
        *unlike_shapes(node, branch.split.guards, torch, context),
        *_without_inner(branch, context),
    )


def with_tensor_guards(
    guards: Sequence[Guard], names: Collection[str], torch: str
) -> tuple[Guard, ...]:
    """Guards, and the questions whether names hold tensors, which come before what is asked of them."""
    read = {n.id for g in guards for n in walk(g.node) if isinstance(n, ast.Name)}
    first = [_tensor_guard(name, torch) for name in names if name in read]
    return (*first, *guards, *(_tensor_guard(name, torch) for name in names if name not in read))


def _tensor_guard(name: str, torch: str) -> Guard:
    """The question whether a name holds a tensor."""
    kind = ast.Attribute(ast.Name(torch, ast.Load()), "Tensor", ast.Load())
    named = ast.Name(name, ast.Load())
    return Guard(ast.Call(ast.Name("isinstance", ast.Load()), [named, kind], []), True)


def unlike_shapes(
    node: ast.If | ast.IfExp, guards: Sequence[Guard], torch: str, context: Context
) -> tuple[Edit, ...]:
    """Edits that decide the original test while compiling: tensors of unlike shapes are not equal."""
    if not any(g.shapes for g in guards) or not all(g.truth for g in guards):
        return ()
    if isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not):
        return compiled_test(node, torch, (), context) if len(guards) == 1 else ()
    joined = isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And)
    tests = node.test.values if isinstance(node.test, ast.BoolOp) and joined else [node.test]
    if all(isinstance(t, (ast.Call, ast.Name, ast.Attribute, ast.Compare)) for t in tests):
        return eager_only_test(node, torch, context)
    return ()


def compiled_block(
    node: ast.If,
    body: str,
    torch: str,
    guards: Sequence[Guard],
    context: Context,
    *,
    join: str = "",
    tests: Sequence[str] = (),
) -> Edit:
    """An edit that puts a compiled path before an `if` or `elif`; `join` comes right before an `if`.

    `tests` are further conditions of the compiled path, decided while tracing.

    Raises:
        Refused: if the `if` does not start its line.
    """
    view = context.view
    if not view.starts_line(node):
        raise Refused("unusual-place", "the `if` does not start its line")
    indent = view.indent(node)
    chained = is_elif(node, context.info.module)
    head = layout.header(
        "elif" if chained else "if",
        [*operands(view, torch, guards), *tests],
        width=width_for(context, node, nested=False),
        unit=context.unit,
    )
    blank = "\n" if body.startswith("def ") else ""
    text = f"{head}\n{blank}{layout.indent(body, context.unit)}\n"
    block = layout.indent(text, indent).removeprefix(indent)
    at = view.start(node)
    return Edit(at, at, f"{block}{indent}{'' if chained else join}")


def eager_only_test(node: ast.If | ast.IfExp, torch: str, context: Context) -> tuple[Edit, ...]:
    """Edits that make the test of an `if` false while compiling."""
    view = context.view
    start, end = view.start(node.test), view.end(node.test)
    lead = f"not {compiling(torch)} and "
    before = view.slice(view.start(node), start).rstrip()
    if before.endswith("("):  # the parentheses keep the test together
        at = view.start(node) + len(before) - 1
        space = "" if view.source.text[at - 1].isspace() else " "
        return (Edit(at, at, f"{space}{lead}"),)
    loose = isinstance(node.test, (ast.IfExp, ast.Lambda, ast.NamedExpr)) or (
        isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or)
    )
    if loose:
        return (Edit(start, start, f"{lead}("), Edit(end, end, ")"))
    return (Edit(start, start, lead),)


def compiled_test(
    node: ast.If | ast.IfExp, torch: str, guards: Sequence[Guard], context: Context
) -> tuple[Edit, ...]:
    """Edits that make what a test asks of tensors true while compiling; its guards keep their say.

    Raises:
        Refused: if the guards are not the first operands of one `and`.
    """
    view, test = context.view, node.test
    lead = f"{compiling(torch)} or "
    if not guards:
        start = view.start(test)
        if isinstance(test, (ast.IfExp, ast.Lambda, ast.NamedExpr)):
            return (Edit(start, start, f"{lead}("), Edit(view.end(test), view.end(test), ")"))
        return (Edit(start, start, lead),)
    tested = test.values if isinstance(test, ast.BoolOp) else []
    first = len(guards)
    leading = [guard.node for guard in guards] == tested[:first]
    if not leading or not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
        raise Refused("mixed-condition", "what is decided while tracing does not come first")
    start, end = view.start(tested[first]), view.end(tested[-1])
    if any(view.slice(view.end(a), view.start(b)).count("(") for a, b in pairwise(tested[first:])):
        raise Refused("unusual-place", "the operands of the test stand in parentheses")
    if view.slice(view.end(tested[first - 1]), start).count("("):
        if first + 1 < len(tested):
            raise Refused("unusual-place", "the operands of the test stand in parentheses")
        return (Edit(start, start, lead),)
    return (Edit(start, start, f"({lead}"), Edit(end, end, ")"))


def _without_inner(branch: Branch, context: Context) -> list[Edit]:
    """Take compiled paths of inner branches out again, where the outer one now has them.

    What stays beside an outer compiled path only runs in eager mode, so an inner compiled path there
    is dead code. Only what this run has written is taken out.
    """
    view, edits = context.view, []
    known = " ".join(context.original.split())
    for top in (branch.node, *branch.rest):
        for node in walk_scope(top):
            if not isinstance(node, ast.If) or node is branch.node:
                continue
            text = view.slice(view.start(node), view.end(node.body[-1]))
            head = " ".join(view.text(node.test).split())
            if not head.endswith(".compiler.is_compiling()") and (
                ".compiler.is_compiling() and " not in head
            ):
                continue
            if head.startswith("not ") or " ".join(text.split()) in known:
                continue
            edits += _removal(node, context)
    return edits


def _removal(node: ast.If, context: Context) -> list[Edit]:
    view, start = context.view, context.view.start(node)
    if not node.orelse:
        first = view.line_start(start)
        return [Edit(first, view.next_line(view.end(node)), "")]
    other = node.orelse[0]
    if len(node.orelse) != 1 or not isinstance(other, ast.If):
        return _only_else(node, context)
    keyword = 0 if view.source.text.startswith("elif", start) else len("el")
    return [Edit(start, view.start(other) + keyword, "")]


def _only_else(node: ast.If, context: Context) -> list[Edit]:
    """What stands in the `else` in the place of the whole `if`, one step less indented."""
    view, first = context.view, node.orelse[0]
    start, end = view.line_start(view.start(first)), view.end(node.orelse[-1])
    text = view.slice(start, end)
    deep, flat = view.indent(first), view.indent(node)
    whole = not view.source.text.startswith("elif", view.start(node))
    lines = text.splitlines(keepends=True)
    if not whole or any(line.strip() and not line.startswith(deep) for line in lines):
        return []
    if any(
        isinstance(n, (ast.Constant, ast.JoinedStr)) and n.end_lineno != n.lineno
        for s in node.orelse
        for n in walk_scope(s)
    ):
        return []  # a text over several lines would change
    moved = "".join(line.replace(deep, flat, 1) if line.strip() else line for line in lines)
    return [Edit(view.line_start(view.start(node)), end, moved)]


def replacing(branch: Branch, body: str, context: Context) -> tuple[Edit, ...]:
    """Replace the `if`, and the rest that it absorbs, by the compiled path.

    Raises:
        Refused: where comments would be lost or the test has static parts.
    """
    view, node = context.view, branch.node
    last: ast.stmt = branch.rest[-1] if branch.rest else node
    start, end = view.start(node), view.end(last)
    guarded = branch.split.guards or branch.asked or asked_inside(branch, context)
    if branch.is_elif or guarded or not view.starts_line(node):
        raise Refused("keeps-original", "the test has static parts")
    if view.has_comment(start, end):
        raise Refused("keeps-original", "comments would be lost")
    indent = view.indent(node)
    if body.startswith("def "):
        text = layout.indent(body, indent)
        return (Edit(view.line_start(start), end, f"\n{text}"),)
    return (Edit(start, end, layout.indent(body, indent).removeprefix(indent)),)


def around(
    statement: ast.stmt,
    body: str,
    torch: str,
    guards: Sequence[Guard],
    context: Context,
) -> tuple[Edit, ...]:
    """Put the compiled path before a simple statement, which moves below `else:`.

    Raises:
        Refused: if the statement shares its line with another.
    """
    view = context.view
    if not (view.starts_line(statement) and view.ends_line(statement)):
        raise Refused("unusual-place", "the statement shares its line with another")
    indent = view.indent(statement)
    start = view.start(statement)
    width = max(context.settings.line_length - len(indent.expandtabs(4)), 40)
    head = layout.header("if", operands(view, torch, guards), width=width, unit=context.unit)
    text = layout.indent(f"{head}\n{layout.indent(body, context.unit)}\nelse:\n", indent)
    lead = Edit(start, start, text.removeprefix(indent) + indent + context.unit)
    later = view.indent_lines(start + 1, view.end(statement), context.unit)
    return (lead, *later)


def beside_all(
    statements: Sequence[ast.stmt],
    body: str,
    torch: str,
    tests: Sequence[str],
    context: Context,
) -> tuple[Edit, ...]:
    """Put one compiled path before consecutive statements, which become its alternative.

    `tests` are further conditions of the compiled path, decided while tracing. Statements that
    return on every path stay as they are; a single `if` becomes an `elif`; others move below `else:`.

    Raises:
        Refused: if the statements share a line with others.
    """
    view, first, last = context.view, statements[0], statements[-1]
    if not (view.starts_line(first) and view.ends_line(last)):
        raise Refused("unusual-place", "the statement shares its line with another")
    if isinstance(first, ast.If) and is_elif(first, context.info.module):
        raise Refused("unusual-place", "the branch is an `elif`")
    indent, start = view.indent(first), view.start(first)
    if context.only_compiled and not tests and not view.has_comment(start, view.end(last)):
        return (Edit(start, view.end(last), layout.indent(body, indent).removeprefix(indent)),)
    width = max(context.settings.line_length - len(indent.expandtabs(4)), 40)
    head = layout.header("if", [compiling(torch), *tests], width=width, unit=context.unit)
    text = layout.indent(f"{head}\n{layout.indent(body, context.unit)}\n", indent)
    lead = text.removeprefix(indent)
    if final_returns(statements):
        return (Edit(start, start, f"{lead}{indent}"),)
    if isinstance(first, ast.If) and len(statements) == 1:
        return (Edit(start, start, f"{lead}{indent}el"),)
    edits = [Edit(start, start, f"{lead}{indent}else:\n{indent}{context.unit}")]
    return (*edits, *view.indent_lines(start + 1, view.end(last), context.unit))
