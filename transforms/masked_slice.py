"""Writes what a mask of a later dimension selects with `torch.where`.

`y[:, keep] = z[:, keep] * 2` takes out as many columns as the mask has true elements. Where each
element is computed by itself, the compiled path computes all columns and selects afterwards.

Before:

    def forward(self, x: torch.Tensor, z: torch.Tensor):
        y = x * 1
        keep = x.sum(0) > 0
        y[:, keep] = z[:, keep] * 2
        return y

After:

    def forward(self, x: torch.Tensor, z: torch.Tensor):
        y = x * 1
        keep = x.sum(0) > 0
        if torch.compiler.is_compiling() and keep.dim() == 1 and z.dim() == y.dim():
            y = torch.where(keep.reshape((-1,) + (1,) * (y.dim() - 2)), z * 2, y)
        else:
            y[:, keep] = z[:, keep] * 2
        return y

The other indices have to be whole dimensions. What may fail on elements that are not selected, or has
an unbounded derivative there, is left alone, and so is a value of another kind than the selected
elements, which could meet them in another way. Where something else may share the storage of what is
written, the result is copied into it.
"""

from __future__ import annotations

import ast

from gbfix.analysis import torch_table
from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.dynamic import mask_like, operation_name
from gbfix.analysis.ranks import Ranks
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat
from gbfix.codegen.fitting import fitted
from gbfix.diagnoses import MASK_INDEX
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.doubling import substituted
from gbfix.lowering.owned import is_own
from gbfix.lowering.placement import beside_all, width_for
from gbfix.lowering.selection import mask_tests
from gbfix.source.text import Edit

_BOUNDED = frozenset(
    "add sub mul neg clamp relu sin cos tanh sigmoid abs to float double half bfloat16 clone detach "
    "minimum maximum round floor ceil sign nan_to_num eq ne lt le gt ge masked_fill".split()
)
_SYMBOLS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to write all of a dimension, and select afterwards.

    Raises:
        Refused: where more is done than elements computed by themselves.
    """
    statement = site.statement
    target = _target(statement)
    if target is None or not isinstance(target.slice, ast.Tuple):
        raise NotApplicable("no-update", "nothing is written by a mask of a later dimension")
    base, values = target.value, context.analysis.values
    whole = values.get(base)
    assert isinstance(statement, (ast.Assign, ast.AugAssign))
    parts = target.slice.elts
    masks = [
        p for p in parts if whole is not None and (v := values.get(p)) and mask_like(p, v, whole)
    ]
    if len(masks) != 1 or not isinstance(base, ast.Name):
        raise NotApplicable("no-update", "nothing is written by a mask of a later dimension")
    if any(not _is_whole(p) for p in parts if p is not masks[0]) or parts[0] is masks[0]:
        raise Refused("other-index", "the other indices are not whole dimensions")
    torch = context.torch(statement)
    mask, tests, view = (
        masks[0],
        mask_tests(masks[0], context.analysis, context.torch(statement)),
        context.view,
    )
    lines: list[str] = []
    text = flat(view, mask)
    if not isinstance(mask, ast.Name):
        name = context.names.take("mask")
        lines.append(f"{name} = {text}")
        tests += _flat_tests(mask, context)
        text = name
    elif Ranks(context.analysis, context.facts).of(mask) != 1:
        tests.append(f"{text}.dim() == 1")
    index = ast.unparse(target.slice)
    texts: dict[ast.expr, str] = {}
    for node in walk(statement.value):
        if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == index:
            if not isinstance(node.value, ast.Name):
                raise Refused("complex-expression", f"`{ast.unparse(node)}` selects from no name")
            texts[node] = node.value.id
            if node.value.id != base.id:
                test = f"{node.value.id}.dim() == {base.id}.dim()"
                tests += [test] if test not in tests else []
    _check(statement.value, set(texts), context)
    value = _text(statement.value, texts, context)
    if isinstance(statement, ast.AugAssign):
        symbol = _SYMBOLS.get(type(statement.op))
        if symbol is None:
            raise Refused("operation-kind", f"`{ast.unparse(statement)}` is not bounded")
        loose = isinstance(statement.value, (ast.BinOp, ast.UnaryOp))
        value = f"{base.id} {symbol} {f'({value})' if loose else value}"
    selected = f"{torch}.where({_wide(text, parts, mask, base, context)}, {value}, {base.id})"
    own = is_own(base.id, statement, context)
    lines.append(f"{base.id} = {selected}" if own else f"{base.id}.copy_({selected})")
    width = width_for(context, statement)
    body = "\n".join(fitted(line, width, context.unit) for line in lines)
    edits: tuple[Edit, ...] = beside_all([statement], body, torch, tests, context)
    reason = "every element is computed, and the selected ones are written"
    return Fix("masked-slice", Safety.SAFE, reason, edits, context.needs_torch)


def _target(statement: ast.stmt) -> ast.Subscript | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, ast.AugAssign):
        target = statement.target
    else:
        return None
    return target if isinstance(target, ast.Subscript) else None


def _is_whole(part: ast.expr) -> bool:
    """`:` or `...`."""
    if isinstance(part, ast.Slice):
        return part.lower is part.upper is part.step is None
    return isinstance(part, ast.Constant) and part.value is ...


def _flat_tests(mask: ast.expr, context: Context) -> list[str]:
    """What asks whether a comparison of a name with a number has one dimension."""
    root = mask.operand if isinstance(mask, ast.UnaryOp) else mask
    if isinstance(root, ast.Name):
        return [f"{root.id}.dim() == 1"]
    if Ranks(context.analysis, context.facts).of(root) == 1:
        return []
    if isinstance(root, ast.Compare) and isinstance(root.left, ast.Name):
        other = context.analysis.values.get(root.comparators[0])
        if other is not None and (other.only(Kind.STATIC) or other.zero_dim):
            return [f"{root.left.id}.dim() == 1"]
    raise Refused("mask-shape", f"`{ast.unparse(mask)}` is not proven to have one dimension")


def _wide(
    text: str, parts: list[ast.expr], mask: ast.expr, base: ast.Name, context: Context
) -> str:
    """The mask with as many dimensions behind it as what is written has."""
    at = parts.index(mask)
    if any(isinstance(p, ast.Constant) for p in parts[:at]):
        behind = len(parts) - at - 1
        return f"{text}[:, {', '.join(['None'] * behind)}]" if behind else text
    rank = Ranks(context.analysis, context.facts).of(base)
    if rank is not None:
        behind = rank - at - 1
        return f"{text}[:, {', '.join(['None'] * behind)}]" if behind else text
    bare = text if text.isidentifier() else f"({text})"
    return f"{bare}.reshape((-1,) + (1,) * ({base.id}.dim() - {at + 1}))"


def _check(node: ast.expr, selected: set[ast.expr], context: Context) -> None:
    """Whether each element is computed by itself, with bounded derivatives.

    Raises:
        Refused: naming what is not.
    """
    text, value = ast.unparse(node), context.analysis.values.get(node)
    if node in selected or isinstance(node, ast.Constant):
        return
    if value is not None and (value.only(Kind.STATIC) or (value.tensor and value.zero_dim)):
        return
    if isinstance(node, ast.BinOp):
        divisor = context.analysis.values.get(node.right)
        number = divisor is not None and divisor.only(Kind.STATIC)
        if type(node.op) not in _SYMBOLS and not (isinstance(node.op, ast.Div) and number):
            raise Refused("not-bounded", f"`{text}` may fail on elements that are not selected")
        if isinstance(node.op, ast.Mult) and not any(
            (v := context.analysis.values.get(s)) is not None and v.only(Kind.STATIC)
            for s in (node.left, node.right)
        ):
            raise Refused("nan-gradient", f"`{text}` can leak a NaN gradient")
        _check(node.left, selected, context)
        _check(node.right, selected, context)
    elif isinstance(node, ast.UnaryOp):
        _check(node.operand, selected, context)
    elif isinstance(node, ast.Call):
        name = operation_name(node, context.analysis)
        operation = torch_table.method(name) if name is not None else None
        if name is None or name.rstrip("_") != name or name not in _BOUNDED or operation is None:
            raise Refused("not-bounded", f"`{text}` is not known to treat each element by itself")
        own = node.func.value if isinstance(node.func, ast.Attribute) else None
        receiver = context.analysis.values.get(own) if own is not None else None
        if own is not None and receiver is not None and receiver.kinds & (Kind.TENSOR | Kind.MAYBE):
            _check(own, selected, context)
        for part in (*node.args, *(k.value for k in node.keywords)):
            _check(part, selected, context)
    else:
        raise Refused("operand-unproven", f"`{text}` may meet selected elements in another way")


def _text(node: ast.expr, texts: dict[ast.expr, str], context: Context) -> str:
    made = substituted(ast.copy_location(ast.Expr(node), node), texts, context.view)
    if "\n" in made:
        raise Refused("complex-expression", f"`{ast.unparse(node)}` spans several lines")
    return made


TRANSFORM = Transform(
    name="masked-slice",
    codes=(MASK_INDEX.code,),
    summary="write what a mask of a later dimension selects with `torch.where`",
    doc=__doc__ or "",
    propose=propose,
    rank=8,
)
