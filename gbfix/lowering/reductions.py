"""Reductions over selected rows, as reductions over all rows that leave the others out.

What is not selected is filled with the neutral element of the reduction. Knows reductions and losses,
nothing of statements.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.analysis.integer_places import needs_integer
from gbfix.lowering.dense.forms import check_sides, has_one_dimension, is_there_before
from gbfix.lowering.selection import Lowered, Selection

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock

REDUCTIONS = frozenset(
    "sum nansum mean prod any all max min amax amin std var norm count_nonzero".split()
)
EXTREMES = frozenset("max min amax amin".split())
OVERFLOWING = "in half precision, the sum that a mean is made of can overflow"
_FILLS = {"sum": "0", "nansum": "0", "prod": "1", "any": "False", "all": "True",
          "count_nonzero": "0", "norm": "0"}  # fmt: skip
LOSSES = frozenset(
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits".split()
)
_REDUCED = frozenset({"mean", "sum"})
_WIDE = frozenset({"float", "double"})
_SIZED = frozenset("view reshape expand repeat tile narrow sample rsample sample_n".split())


def reduced(
    block: DenseBlock,
    node: ast.Call,
    name: str,
    given: Sequence[ast.expr],
    inner: Lowered,
) -> Lowered | None:
    """A reduction of rows in dense form; None where it works within each row.

    Raises:
        Refused: for a reduction that has no dense form.
    """
    assert inner.rows is not None
    options = {k.arg: k.value for k in node.keywords}
    dim = given[1] if len(given) > 1 else options.pop("dim", None)
    if dim is not None and ast.unparse(dim) == "-1" and inner.extra != 0:
        return None  # or else the rows have no dimension of their own, which is asked
    if (
        len(given) > 2
        or options
        or (dim is not None and name in {"std", "var", "norm", "max", "min"})
    ):
        raise Refused(
            "reduction-form", f"`{ast.unparse(node)}` is not a plain reduction of the rows"
        )
    over: str = ""
    if dim is not None:
        if ast.unparse(dim) != "0" or not has_one_dimension(block, inner.rows):
            raise Refused(
                "reduction-form", f"`{ast.unparse(node)}` reduces something else than rows"
            )
        over = "0"
    _check_use(block, node)
    _check_guarded(block, inner, name)
    if over and block.guarded is not None:
        raise Refused("no-reduction", f"`{ast.unparse(node)}` gives more than one number")
    if name in {"sum", "nansum", "mean", "prod", "std", "var", "norm"}:
        block.found.reordered = True
    if name in {"mean", "std", "var"}:
        _check_range(block, given[0], inner)
    value = inner
    wide = block.masks.over(inner.rows, inner)
    if name in _FILLS:
        fill = "" if value.zeroed else f".masked_fill({wide.rest}, {_FILLS[name]})"
        return _made(f"{value.operand}{fill}.{name}({over})")
    if name == "mean":
        if inner.resized and inner.extra != 0 and not over:
            value = inner = _named(block, inner)
        fill = "" if value.zeroed else f".masked_fill({wide.rest}, 0)"
        total = f"{value.operand}{fill}.sum({over})"
        return Lowered(f"{total} / {_divisor(block, inner, wide, over)}", changed=True)
    if name in {"std", "var"}:
        return _spread(block, name, value, inner, wide)
    return _extreme(block, node, name, value, inner, wide, over)


def _made(text: str) -> Lowered:
    return Lowered(text, True, changed=True)


def _named(block: DenseBlock, value: Lowered) -> Lowered:
    """The same with a name, so that its own elements can be counted."""
    name = value.text
    if not name.isidentifier():
        name = block.context.names.take("values")
        block.lines.append(f"{name} = {value.text}")
    zero = name if value.zeroed else ""
    return replace(value, text=name, bare=True, sample=name, resized=False, zero=zero)


def counted(inner: Lowered, wide: Selection, over: str = "") -> str:
    """How many elements were selected: rows, times what is in a row unless only rows are reduced."""
    assert inner.rows is not None
    if inner.extra == 0 or over:
        return inner.rows.count
    sample = inner.text if inner.resized else inner.sample
    return (
        f"({wide.text}).expand_as({sample}).sum()"
        if wide.inverted
        else (f"{wide.mask}.expand_as({sample}).sum()")
    )


def _divisor(block: DenseBlock, inner: Lowered, wide: Selection, over: str = "") -> str:
    """What a mean divides by: at least one where nothing would be asked for."""
    assert inner.rows is not None
    least = ".clamp(min=1)" if block.guarded is not None else ""
    return f"{counted(inner, wide, over)}{least}"


def _check_use(block: DenseBlock, node: ast.Call) -> None:
    """A reduction that is taken as a size would end the graph as the selection does.

    Raises:
        Refused: for one.
    """
    analysis, parents = block.context.analysis, block.context.info.module.parents
    parent = parents.get(node)
    while isinstance(parent, ast.Attribute) and parent.attr in {"long", "int"}:
        cast = parents.get(parent)
        if not isinstance(cast, ast.Call):
            break
        node, parent = cast, parents.get(cast)
    if isinstance(parent, (ast.Tuple, ast.List)):
        parent = parents.get(parent)
    function = parent.func if isinstance(parent, ast.Call) else None
    sized = isinstance(function, ast.Attribute) and function.attr in _SIZED
    if needs_integer(node, analysis) or sized:
        raise Refused("needs-integer", f"`{ast.unparse(node)}` is taken as a size")


def _check_guarded(block: DenseBlock, inner: Lowered, name: str) -> None:
    """Where a test asks whether something is selected, what is made of nothing must do no harm.

    Raises:
        Refused: for another reduction, or one of other rows.
    """
    assert inner.rows is not None
    if block.guarded is None:
        return
    if inner.rows.key != block.guarded:
        raise Refused("other-mask", "the test asks for another mask")
    if name not in {"sum", "nansum", "mean", *EXTREMES}:
        raise Refused("no-reduction", f"`{name}` of nothing has no gradient")


def _check_range(block: DenseBlock, node: ast.expr, inner: Lowered) -> None:
    """A mean of half precision is summed in single precision, a sum of its own is not and overflows."""
    cast = (
        node.func.attr
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        else ""
    )
    if cast in _WIDE:
        return
    if is_there_before(block, inner.sample):
        block.masks.require(f"{inner.sample}.dtype != {block.torch}.float16")
    else:
        block.found.overflowing = True


def _spread(
    block: DenseBlock, name: str, value: Lowered, inner: Lowered, wide: Selection
) -> Lowered:
    names = block.context.names
    values, count, centered = names.take("values"), names.take("count"), names.take("centered")
    fill = f".masked_fill({wide.rest}, 0)"
    block.lines.append(f"{values} = {value.operand}{fill}")
    if inner.resized:
        inner = replace(inner, text=values)
    block.lines.append(f"{count} = {counted(inner, wide)}")
    block.lines.append(f"{centered} = ({values} - {values}.sum() / {count}){fill}")
    # Of nothing the result is 0/0, as in eager, and not 0/-1.
    degrees = f"({count} - 1).clamp(min=0)"
    block.found.unwarned = True
    if name == "var":
        return Lowered(f"{centered}.square().sum() / {degrees}", changed=True)
    return Lowered(f"{centered}.norm() / {degrees}.sqrt()", changed=True)


def _extreme(
    block: DenseBlock,
    node: ast.Call,
    name: str,
    value: Lowered,
    inner: Lowered,
    wide: Selection,
    over: str,
) -> Lowered:
    assert inner.rows is not None
    known = block.context.analysis.values.get(node)
    largest = name in {"min", "amin"}
    if known is None or known.integer or known.boolean:
        raise Refused("dtype-unproven", f"`{ast.unparse(node)}` is not proven to be floating")
    if not known.floating:
        if not is_there_before(block, inner.sample):
            raise Refused("dtype-unproven", f"`{ast.unparse(node)}` is not proven to be floating")
        block.masks.require(f"{inner.sample}.is_floating_point()")
    test = f"{inner.rows.text.join(['(', ')']) if inner.rows.inverted else inner.rows.mask}.any()"
    message = f'"{name}() of an empty selection"'
    if block.guarded is None:
        check = f"{block.torch}._assert_async({test}, {message})"
        if block.lines[-1:] != [check]:
            block.lines.append(check)
        block.found.asserted = True
    bound = 'float("inf")' if largest else '-float("inf")'
    return _made(f"{value.operand}.masked_fill({wide.rest}, {bound}).{name}({over})")


def losses(block: DenseBlock, node: ast.Call, name: str | None) -> Lowered | None:
    """A loss between rows that were selected by one mask; None where it is not one.

    Raises:
        Refused: for options that have no dense form.
    """
    if name is None or (name not in LOSSES and name not in {"cross_entropy", "nll_loss"}):
        return None
    if len(node.args) != 2:
        return None
    first, second = block.lower(node.args[0], fill=0), block.lower(node.args[1])
    if first.rows is None or second.rows is None:
        return None
    if first.rows.key != second.rows.key:
        raise Refused("other-mask", "prediction and target were selected by different masks")
    if first.groups != second.groups:
        raise Refused("row-shape", "prediction and target may be grouped in other ways")
    options = {k.arg: k for k in node.keywords}
    function = block.context.view.text(node.func)
    told = options.get("reduction")
    if told is not None and isinstance(told.value, ast.Constant) and told.value.value == "none":
        return _each(block, node, name, function, first)
    block.found.reductions += 1
    block.found.reordered = True
    if name in {"cross_entropy", "nll_loss"}:
        return _classified(block, node, function, first, second)
    how, rest = _options(options, block)
    wide = block.masks.over(first.rows, first)
    second = block.lower(node.args[1], fill=0)
    each = block.context.names.take("losses")
    given = ", ".join([first.text, second.text, *rest, 'reduction="none"'])
    block.lines.append(f"{each} = {function}({given})")
    total = f"{each}.masked_fill({wide.rest}, 0).sum()"
    _check_guarded(block, first, how)
    if how == "sum":
        return _made(total)
    _check_range(block, node.args[0], first)
    # The two may broadcast, so that there are more losses than predictions.
    divisor = _divisor(block, replace(first, sample=each, resized=False), wide)
    return Lowered(f"{total} / {divisor}", changed=True)


def _each(block: DenseBlock, node: ast.Call, name: str, function: str, first: Lowered) -> Lowered:
    """The losses of the rows one by one, which are rows again."""
    assert first.rows is not None
    if name in {"cross_entropy", "nll_loss"}:
        text = _classes(block, node, function, first, block.lower(node.args[1]))
        if first.rows.rank != 1:
            text = f"{text}.reshape({first.rows.mask}.shape)"
        return replace(first, text=text, bare=True, extra=0)
    second = block.lower(node.args[1], fill=0)
    check_sides(block, first, second, node.args[1])
    rest = [f"{k.arg}={block.context.view.text(k.value)}" for k in node.keywords]
    text = f"{function}({', '.join([first.text, second.text, *rest])})"
    return replace(first, text=text, bare=True)


def _options(options: dict[str | None, ast.keyword], block: DenseBlock) -> tuple[str, list[str]]:
    """How a loss is reduced, and its other options as text.

    Raises:
        Refused: for an option that is no number.
    """
    how, rest = "mean", []
    for name, keyword in options.items():
        value = keyword.value
        if name == "reduction" and isinstance(value, ast.Constant) and value.value in _REDUCED:
            how = str(value.value)
        elif name in {"beta", "delta"} and isinstance(value, (ast.Constant, ast.Name)):
            rest.append(f"{name}={block.context.view.text(value)}")
        else:
            raise Refused("reduction-form", f"`{ast.unparse(keyword)}` has no dense form here")
    return how, rest


def _classified(
    block: DenseBlock, node: ast.Call, function: str, first: Lowered, second: Lowered
) -> Lowered:
    """Labels that were not selected get the index that the loss ignores."""
    _check_guarded(block, first, "cross_entropy")
    return _made(_classes(block, node, function, first, second))


def _classes(
    block: DenseBlock, node: ast.Call, function: str, first: Lowered, second: Lowered
) -> str:
    """A loss of classes in dense form, reduced as its options say."""
    assert first.rows is not None
    ignored, rest = "-100", []
    for keyword in node.keywords:
        text = block.context.view.text(keyword.value)
        if keyword.arg == "ignore_index":
            ignored = text
        elif keyword.arg == "reduction":
            how = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if how not in {*_REDUCED, "none"}:
                raise Refused("reduction-form", f"`reduction={text}` has no dense form here")
        elif keyword.arg not in {"weight", "label_smoothing"}:
            raise Refused("reduction-form", f"`{keyword.arg}` has no dense form here")
        rest.append(f"{keyword.arg}={text}")
    labels = f"{second.operand}.masked_fill({first.rows.rest}, {ignored})"
    if second.extra not in {0, None} or first.extra == 0:
        raise Refused("row-shape", "labels are not one number a row")
    scores = first.text
    if first.rows.rank != 1:
        mask = first.rows.mask
        last = f"{mask}.dim() - 1" if first.rows.rank is None else str(first.rows.rank - 1)
        scores = f"{first.operand}.flatten(0, {last})"
        labels = (
            f"{labels}.flatten(0, {last})" if first.rows.rank is None else f"{labels}.flatten()"
        )
    return f"{function}({', '.join([scores, labels, *rest])})"
