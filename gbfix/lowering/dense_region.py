"""The statements that one dense rewrite takes together, and where its compiled path goes.

A region begins at a statement that selects rows and ends where no selected rows are held any more;
regions that follow one another at once become one. Knows statements and edits; what they mean in
dense form is in `dense`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.dynamic import shape_from_data
from gbfix.analysis.trees import walk
from gbfix.codegen import layout
from gbfix.codegen.fitting import fitted
from gbfix.fixes import Context
from gbfix.lowering.companions import companion
from gbfix.lowering.dense import norms
from gbfix.lowering.dense.block import DenseBlock, Found
from gbfix.lowering.dense.choices import add_choice, is_choice
from gbfix.lowering.dense.settled import add_settled, is_settled
from gbfix.lowering.gates import (
    add_gate,
    is_gate,
    leaves_block,
    nothing_unless_selected,
    skips_rest,
)
from gbfix.lowering.hit_loops import check_loop, hit_list
from gbfix.lowering.placement import beside_all, width_for
from gbfix.lowering.views import block_of
from gbfix.source.text import Edit


@dataclass(frozen=True)
class Region:
    """Consecutive statements and their dense form."""

    statements: tuple[ast.stmt, ...]
    lines: tuple[str, ...]
    tests: tuple[str, ...]
    found: Found


def region_of(site: BreakSite, context: Context, torch: str) -> Region:
    """The region around a site.

    Raises:
        Refused: where the site's statement has no dense form.
    """
    statement = _top(site.statement, context)
    block = block_of(statement, context.info.module)
    wanted = next(i for i, s in enumerate(block) if s is statement)
    at = 0
    while at <= wanted:
        if not _begins(block[at], context):
            at += 1
            continue
        try:
            found = _grown(block, at, context, torch)
        except Refused:
            if at == wanted:
                raise
            at += 1
            continue
        if at <= wanted < at + len(found.statements):
            return found
        at += len(found.statements)
    raise NotApplicable("no-selection", "nothing is selected here that is used here")


def _top(statement: ast.stmt, context: Context) -> ast.stmt:
    """The statement, or the test of emptiness around it."""
    parents = context.info.module.parents
    above = parents.get(statement)
    while isinstance(above, ast.If) and (is_gate(above, context) or is_choice(above, context)):
        statement, above = above, parents.get(above)
    while above is not None and not isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if isinstance(above, ast.For) and hit_list(above, context) is not None:
            return above
        above = parents.get(above)
    return statement


def _begins(statement: ast.stmt, context: Context) -> bool:
    """Whether a statement selects something."""
    if statement in context.analysis.eager:
        return False
    if isinstance(statement, ast.If):
        chosen = is_choice(statement, context) and not is_settled(statement, context)
        return chosen or is_gate(statement, context)
    return not isinstance(
        statement, (ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef)
    ) and any(
        isinstance(n, (ast.Subscript, ast.Call))
        and shape_from_data(n, context.analysis) is not None
        for n in walk(statement)
    )


def _grown(block: list[ast.stmt], at: int, context: Context, torch: str) -> Region:
    """The longest region that begins at a statement."""
    taken = set(context.names.taken)
    best: int | None = None
    # Not the exception itself: with its traceback it would hold this frame, and all trees with it.
    last: tuple[type[Refused], str, str] = Refused, "rows-leave", "selected rows leave the block"
    made = DenseBlock(context, torch)
    for position in range(at, len(block)):
        try:
            _add(made, block, position)
        except Refused as refused:
            last = type(refused), refused.code, refused.sentence
            break
        live = context.liveness.after[block[position]] | context.liveness.captured
        if lost := sorted(made.unread - live):
            last = (
                Refused,
                "not-read",
                f"`{lost[0]}` is not read again, so there is nothing to select",
            )
            break
        if not (made.names | made.hits) & live:
            best = position
            following = block[position + 1] if position + 1 < len(block) else None
            if following is None or not (following is made.passed or _begins(following, context)):
                break
    context.names.taken = taken
    if best is None:
        kind, code, sentence = last
        raise kind(code, sentence)
    made = DenseBlock(context, torch)
    for position in range(at, best + 1):
        _add(made, block, position)
    _check_consumed(block[at : best + 1], made.lines, context)
    if made.unread:
        raise Refused(
            "not-read", f"`{min(made.unread)}` is not read again; nothing is to be selected"
        )
    return Region(
        tuple(block[at : best + 1]), tuple(made.lines), tuple(made.masks.tests), made.found
    )


def _check_consumed(statements: Sequence[ast.stmt], lines: Sequence[str], context: Context) -> None:
    """Refuse a region that still selects what it was to do without, in the index of a store say.

    Raises:
        Refused: for the first selection that is left.
    """
    text = "\n".join(lines)
    written = [line.lstrip() for line in text.splitlines()]
    for statement in statements:
        for node in walk(statement):
            loads = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
            if isinstance(node, ast.expr) and (loads or isinstance(node, ast.Call)):
                selected = context.view.text(node)
                # `x[mask] = 0` selects nothing: it only says where.
                rest = "\n".join(line.removeprefix(f"{selected} = ") for line in written)
                if shape_from_data(node, context.analysis) is not None and selected in rest:
                    raise Refused("rows-leave", f"`{selected}` is needed as it is")


def _add(made: DenseBlock, block: list[ast.stmt], position: int) -> None:
    statement = block[position]
    if statement is made.passed:
        return  # the other side of an early return
    if statement in made.context.analysis.eager:
        raise Refused("mixed-modes", "an eager-only statement stands between")
    if isinstance(statement, (ast.If, ast.Match)) and is_settled(statement, made.context):
        if isinstance(statement, ast.If) and made.mentions(statement.test):
            # The number of selected rows is one to Python, but no setting.
            if is_choice(statement, made.context):
                add_choice(made, statement)
                return
        add_settled(made, statement, _add)
        return
    if isinstance(statement, ast.If):
        if is_choice(statement, made.context):
            add_choice(made, statement)
            return
        if leaves_block(statement):
            skips_rest(made, statement, block[position + 1 :])
            made.found.gated = True
            return
        made.found.gated = True
        add_gate(made, statement)
        return
    if isinstance(statement, ast.For):
        _add_loop(made, statement)
        return
    routed = _hits(made, statement, block[position + 1 :])
    if routed:
        return
    made.add(statement)


def _hits(made: DenseBlock, statement: ast.stmt, rest: list[ast.stmt]) -> bool:
    """Whether a statement names the hits over which a later loop of the block runs."""
    for loop in rest:
        if isinstance(loop, ast.For):
            found = hit_list(loop, made.context)
            if found is not None and found[0] is statement:
                made.hits.add(ast.unparse(loop.iter))
                return True
    return False


def _add_loop(made: DenseBlock, loop: ast.For) -> None:
    """A loop over what was hit becomes a loop over everything that could be."""
    found = hit_list(loop, made.context)
    if found is None or ast.unparse(loop.iter) not in made.hits:
        raise Refused("statement-kind", f"line {loop.lineno} loops over something else")
    check_loop(loop, found[1])
    view, target = made.context.view, ast.unparse(loop.target)
    first = len(made.lines) + 1
    made.lines.append(f"for {target} in range({view.text(found[1])}.shape[0]):")
    made.numbered = target
    live = made.context.liveness.after[loop] - made.hits
    for position, statement in enumerate(loop.body):
        if not isinstance(statement, ast.If):
            nothing_unless_selected(made, statement, live)
        _add(made, loop.body, position)
    made.numbered = None
    made.hits.discard(ast.unparse(loop.iter))
    made.found.gated = True
    unit = made.context.unit
    made.lines[first:] = [f"{unit}{line}" for line in made.lines[first:]]
    for name in [n for n in made.names if n not in live]:
        made.held.pop(name, None)
        made.indices.pop(name, None)


def region_edits(region: Region, torch: str, context: Context) -> tuple[Edit, ...]:
    """The edits that put the compiled path beside the statements of a region.

    Raises:
        Refused: where a branch spares a normalisation that has to be written out.
    """
    width = width_for(context, region.statements[0])
    lines = [_fitted(line, width, context.unit) for line in region.lines]
    helpers: tuple[Edit, ...] = ()
    if region.found.normed:
        if region.found.gated and region.found.counts_nothing:
            raise Refused("gate-has-effect", "with nothing selected, no batch would be counted")
        helpers = companion(norms.TEXT, torch, context)
    beside = beside_all(region.statements, "\n".join(lines), torch, region.tests, context)
    return (*helpers, *beside)


def _fitted(line: str, width: int, unit: str) -> str:
    depth = len(line) - len(line.lstrip())
    return layout.indent(fitted(line[depth:], width - depth, unit), line[:depth])
