"""What the dense forms of all kinds of expressions share: their text and what is known of their shapes.

Knows how a changed part is put into its source and when a value can meet selected rows; nothing of
what a kind of expression means.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flatten
from gbfix.codegen.names import used_names
from gbfix.codegen.view import View
from gbfix.lowering.selection import Lowered, Selection

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock

BARE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


def compose(block: DenseBlock, node: ast.expr, children: Sequence[tuple[ast.expr, Lowered]]) -> str:
    """The source of a node with changed children put in."""
    view = block.context.view
    start = view.start(node)
    text, at = "", start
    for child, lowered in sorted(children, key=lambda c: view.start(c[0])):
        if not lowered.changed:
            continue
        text += view.slice(at, view.start(child))
        loose = (
            isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp))
            or (isinstance(node, (ast.Attribute, ast.Subscript)) and child is node.value)
            or (isinstance(node, ast.Call) and child is node.func)
        )
        text += lowered.operand if loose and isinstance(child, BARE) else lowered.text
        at = view.end(child)
        if isinstance(child, (ast.IfExp, ast.BinOp)) and lowered.bare and loose:
            text, at = _unwrapped(text, lowered.text, at, view)
    text += view.slice(at, view.end(node))
    return flatten(text) if "\n" in text else text


def _unwrapped(text: str, inner: str, at: int, view: View) -> tuple[str, int]:
    """Text that ends with what was an expression in parentheses, without them."""
    head, rest = text[: -len(inner)], view.source.text[at:]
    if not head.rstrip().endswith("(") or not rest.lstrip().startswith(")"):
        return text, at
    return head.rstrip()[:-1] + inner, at + rest.index(")") + 1


def plain(
    block: DenseBlock, node: ast.expr, children: Sequence[tuple[ast.expr, Lowered]]
) -> Lowered:
    return Lowered(
        compose(block, node, children),
        isinstance(node, BARE),
        changed=any(c.changed for _, c in children),
        number=is_number(block, node),
    )


def filled(block: DenseBlock, value: Lowered, fill: int) -> Lowered:
    assert value.rows is not None
    wide = block.masks.over(value.rows, value)
    return replace(
        value, text=f"{value.operand}.masked_fill({wide.rest}, {fill})", bare=True, changed=True
    )


def known_shape(block: DenseBlock, node: ast.expr) -> int:
    value = block.context.analysis.values.get(node)
    return value.shape if value is not None and value.tensor else 0


def is_number(block: DenseBlock, node: ast.expr) -> bool:
    value = block.context.analysis.values.get(node)
    return value is not None and (
        value.only(Kind.STATIC | Kind.SCALAR) or (value.tensor and value.zero_dim)
    )


def _is_optional_number(block: DenseBlock, node: ast.expr) -> bool:
    """Whether a value is a Python number where it is not None, which fails with rows either way."""
    value = block.context.analysis.values.get(node)
    return value is not None and value.kinds in {
        Kind.STATIC | Kind.NONE,
        Kind.SCALAR | Kind.NONE,
        Kind.STATIC | Kind.SCALAR | Kind.NONE,
    }


def check_sides(block: DenseBlock, mine: Lowered, other: Lowered, node: ast.expr) -> None:
    """Whether a value can be combined with rows element by element in the dense form too."""
    assert mine.rows is not None
    if other.count is not None:
        return
    if other.rows is not None:
        if other.rows.key != mine.rows.key:
            raise Refused("other-mask", f"`{ast.unparse(node)}` was selected by another mask")
        if mine.extra is not None and other.extra is not None and mine.extra != other.extra:
            if not (mine.weighted or other.weighted):
                raise Refused("shapes-unproven", "rows of different shapes are combined")
        return
    if other.number or _is_optional_number(block, node):
        return
    rank = block.masks.ranks.of(node)
    if rank == 0 or (rank is not None and mine.extra is not None and rank <= mine.extra):
        return
    if rank is None and asks_for_row(block, mine, node):
        return
    raise Refused(
        "operand-unproven",
        f"`{ast.unparse(node)}` is not proven to have no dimension of selected rows",
    )


def resizes(block: DenseBlock, mine: Lowered, sides: Sequence[tuple[ast.expr, Lowered]]) -> bool:
    """Whether rows may have another number of elements once they are combined with other values."""
    if any(side.resized for _, side in sides):
        return True
    for part, side in sides:
        if side.count is not None or side.number or _is_optional_number(block, part):
            continue
        if side.rows is None:
            if mine.extra != 0 and block.masks.ranks.of(part) != 0:
                return True
        elif side.extra != mine.extra or (mine.extra != 0 and side.sample != mine.sample):
            if not mine.shape or side.shape != mine.shape:
                return True
    return False


def asks_for_row(block: DenseBlock, mine: Lowered, node: ast.expr) -> bool:
    """Ask while tracing that a tensor has one row at most, which meets every selected one.

    Only of what a module holds: a local tensor was made for the rows, as a rule, and has as many.
    """
    if not isinstance(node, (ast.Attribute, ast.Subscript)):
        return False
    value = block.context.analysis.values.get(node)
    names = {n.id for n in walk(node) if isinstance(n, ast.Name)}
    if value is None or not value.tensor or names & {*block.bound, *block.held, *block.indices}:
        return False
    own = block.context.info.node.args.args[:1] if block.context.info.owner is not None else []
    if names != {a.arg for a in own}:
        return False
    if any(isinstance(n, (ast.Call, ast.NamedExpr, ast.BinOp)) for n in walk(node)):
        return False
    need_trailing(block, mine)
    block.masks.require(f"{ast.unparse(node)}.shape[:-1].numel() == 1")
    return True


def is_there_before(block: DenseBlock, text: str) -> bool:
    """Whether a text names something that is there before the block, so that it can be asked first."""
    name = dotted(ast.parse(text, mode="eval").body)
    root = "" if name is None else name.partition(".")[0]
    return root not in block.bound and root in used_names(block.context.info.node)


def need_trailing(block: DenseBlock, value: Lowered) -> None:
    """Rows must have a dimension of their own; where it is not known it is asked in tracing."""
    if value.extra is None:
        one, some = _dimensions(block, value)
        if one not in block.masks.tests:
            block.masks.require(some)
    elif value.extra < 1:
        raise Refused("row-shape", "selected elements have no dimension of their own")


def with_one_dimension(block: DenseBlock, value: Lowered) -> Lowered:
    """Rows of which nothing is known, asked in tracing for one dimension of their own."""
    if value.extra is not None:
        return value
    one, some = _dimensions(block, value)
    block.masks.require(one, implied=some)
    return replace(value, extra=1)


def _dimensions(block: DenseBlock, value: Lowered) -> tuple[str, str]:
    """The tests whether rows have one dimension of their own, and whether they have any."""
    assert value.rows is not None
    mask = block.masks.asked(value.rows)
    if mask is None or mask in block.bound or not is_there_before(block, value.sample):
        raise Refused("row-shape", "rows are not proven to have a dimension of their own")
    rank = f"{value.sample}.dim()"
    return f"{rank} == {mask}.dim() + 1", f"{rank} > {mask}.dim()"


def has_one_dimension(block: DenseBlock, rows: Selection) -> bool:
    """Whether a mask has one dimension; where it is not known it is asked in tracing."""
    if rows.rank is not None:
        return rows.rank == 1
    mask = block.masks.asked(rows)
    if mask is None or not is_there_before(block, mask):
        return False
    block.masks.require(f"{mask}.dim() == 1")
    return True


def need_evaluation(block: DenseBlock) -> None:
    """A layer that draws random numbers in training may only run in evaluation."""
    owner = block.context.info.owner
    if owner is None or not block.context.facts.project.is_module_class(owner.qualified):
        raise Refused("random-rows", "a layer draws random numbers for the selected rows")
    arguments = block.context.info.node.args.args
    test = f"not {arguments[0].arg}.training"
    block.masks.require(test)


def plain_call(
    block: DenseBlock, node: ast.Call, children: Sequence[tuple[ast.expr, Lowered]]
) -> Lowered:
    changed = any(c.changed for _, c in children)
    text = compose_call(block, node, children)
    return Lowered(text, True, changed=changed, number=is_number(block, node))


def compose_call(
    block: DenseBlock, node: ast.Call, children: Sequence[tuple[ast.expr, Lowered]]
) -> str:
    """A call's source with changed arguments; a changed receiver is put in parentheses."""
    fixed = [
        (c, replace(v, text=v.operand, bare=True))
        if isinstance(node.func, ast.Attribute) and c is node.func.value and isinstance(c, BARE)
        else (c, v)
        for c, v in children
    ]
    return compose(block, node, fixed)


def copy_with(block: DenseBlock, statement: ast.stmt, value: ast.expr, lowered: Lowered) -> None:
    """Copy a statement with its value in dense form."""
    view = block.context.view
    start, end = view.start(value), view.end(value)
    head = view.slice(view.start(statement), start)
    tail = view.slice(end, view.end(statement))
    text = f"{head}{lowered.text}{tail}"
    if "\n" in text and not isinstance(statement, ast.Return):
        target = view.slice(view.start(statement), start).strip().rstrip("(").rstrip()
        text = f"{target} {lowered.text}" if head.rstrip().endswith("(") else text
    elif "\n" in text:
        text = f"return {lowered.text}"
    block.lines.append(text)
