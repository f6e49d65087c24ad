"""Expressions that change nothing under a neutral mask: `y * keep` where `keep` is all true.

The prover behind shortcuts. It knows a handful of identities, each exact in value and dtype, and
answers no to everything else.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.equality import member

_VIEWS = frozenset("unsqueeze squeeze view reshape expand expand_as to bool".split())


@dataclass(frozen=True)
class Neutral:
    """A mask that is known to select everything, or nothing.

    Attributes:
        name: the mask, as source text.
        boolean: it is of dtype bool; otherwise only where it is zero is known.
        nothing: it is all false, or all zero; otherwise all true, or without a zero.
    """

    name: str
    boolean: bool
    nothing: bool = False

    def renamed(self, name: str) -> Neutral:
        """The same knowledge under another name."""
        return Neutral(name, self.boolean, self.nothing)


def shortcut_mask(test: ast.expr, truth: bool) -> tuple[str, bool] | None:
    """What a test with this truth says of a mask: its text, and whether it must be boolean.

    `keep.all()` true says that `keep` is all true; `(mask == 0).any()` false says that `mask` has no
    zero; `torch.all(mask != 0)` likewise.
    """
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, truth = test.operand, not truth
    reduction = reduced(test)
    if reduction is None:
        return None
    name, inner = reduction
    if name == "all" and truth:
        if isinstance(inner, (ast.Name, ast.Attribute)):
            return ast.unparse(inner), True
        zero = zero_test(inner, ast.NotEq)
        return (zero, False) if zero is not None else None
    if name == "any" and not truth:
        zero = zero_test(inner, ast.Eq)
        if zero is not None:
            return zero, False
        if isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Invert):
            return ast.unparse(inner.operand), True
    return None


def reduced(test: ast.expr) -> tuple[str, ast.expr] | None:
    """`x.all()`, `torch.any(x)`, `0 in x`: the reduction and what it reduces."""
    asked = member(test)
    if asked is not None:
        return ("any" if isinstance(asked.ops[0], ast.Eq) else "all"), asked
    if not isinstance(test, ast.Call) or not isinstance(test.func, ast.Attribute):
        return None
    name = test.func.attr
    if name not in {"all", "any"} or test.keywords:
        return None
    if isinstance(test.func.value, ast.Name) and test.func.value.id in {"torch", "th"}:
        return (name, test.args[0]) if len(test.args) == 1 else None
    return (name, test.func.value) if not test.args else None


def zero_test(node: ast.expr, operator: type[ast.cmpop]) -> str | None:
    """The text of `m` in `m == 0` or `m != 0`."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    number = node.comparators[0]
    if not isinstance(node.ops[0], operator) or not isinstance(number, ast.Constant):
        return None
    return ast.unparse(node.left) if number.value == 0 else None


def same_under(node: ast.expr, other: ast.expr, mask: Neutral) -> bool:
    """Whether an expression equals another one under a neutral mask."""
    if ast.unparse(node) == ast.unparse(other):
        return True
    kept = _kept(node, mask)
    return kept is not None and ast.unparse(kept) == ast.unparse(other)


def unchanged(node: ast.expr, name: str, mask: Neutral) -> bool:
    """Whether an expression is just `name` under a neutral mask."""
    return same_under(node, ast.Name(name, ast.Load()), mask)


def _kept(node: ast.expr, mask: Neutral) -> ast.expr | None:
    """The operand that a masked operation hands on when everything is selected."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        if is_true(node.right, mask) or _is_one(node.right, node.left, mask):
            return node.left
        other = is_true(node.left, mask) or _is_one(node.left, node.right, mask)
        return node.right if other else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    method, arguments = node.func.attr, node.args
    on_torch = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
    if method == "where" and on_torch and len(arguments) == 3:
        if _selects(arguments[0], mask) and _same_kind(arguments[2], arguments[1]):
            return arguments[1]
        if rejects(arguments[0], mask) and _same_kind(arguments[1], arguments[2]):
            return arguments[2]
    elif method == "where" and not on_torch and len(arguments) == 2:
        if _selects(arguments[0], mask) and _same_kind(arguments[1], node.func.value):
            return node.func.value
    elif method == "masked_fill" and not on_torch and len(arguments) == 2:
        # Only a boolean tensor is taken, and what has no other element is false then.
        if rejects(arguments[0], mask) or (mask.nothing and _is_mask(arguments[0], mask)):
            return node.func.value
    return None


def _is_one(node: ast.expr, other: ast.expr, mask: Neutral) -> bool:
    """`1 - mask.type_as(x)` beside `x`, of a mask that is zero: a product with it changes no bit."""
    if not (mask.nothing and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
        return False
    whole = isinstance(node.left, ast.Constant) and node.left.value == 1
    cast = node.right
    if not isinstance(cast, ast.Call) or not isinstance(cast.func, ast.Attribute):
        return False
    text = ast.unparse(other)
    into = [ast.unparse(a) for a in cast.args]
    same = (cast.func.attr, into) in [
        ("type_as", [text]),
        ("to", [text]),
        ("to", [f"{text}.dtype"]),
    ]
    return whole and same and not cast.keywords and _is_mask(cast.func.value, mask)


def _same_kind(filler: ast.expr, kept: ast.expr) -> bool:
    """A filler made from what is kept, so that it brings in no other dtype."""
    text = ast.unparse(kept)
    if isinstance(filler, ast.Call) and isinstance(filler.func, ast.Attribute):
        if filler.keywords:  # a dtype of its own, maybe
            return False
        if filler.func.attr in {"new_zeros", "new_ones", "new_full"}:
            return ast.unparse(filler.func.value) == text
        # Not `rand_like`, which would draw numbers.
        if filler.func.attr in {"zeros_like", "ones_like", "full_like"} and filler.args:
            return ast.unparse(filler.args[0]) == text
    return False


def _is_mask(node: ast.expr, mask: Neutral) -> bool:
    """The mask itself or a view of it."""
    while True:
        if ast.unparse(node) == mask.name:
            return True
        if isinstance(node, ast.Subscript) and _keeps_all(node.slice):
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _VIEWS - {"to"}
        ):
            node = node.func.value
        else:
            return False


def _keeps_all(index: ast.expr) -> bool:
    """`[:, None, :]` and `[..., None]`: every element, in another shape."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for part in parts:
        if isinstance(part, ast.Slice):
            if part.lower or part.upper or part.step:
                return False
        elif not (isinstance(part, ast.Constant) and part.value in (None, ...)):
            return False
    return True


def is_true(node: ast.expr, mask: Neutral) -> bool:
    """Whether a boolean tensor is true everywhere: a product with it changes no bit."""
    if not mask.nothing and mask.boolean and _is_mask(node, mask):
        return True
    if mask.nothing and isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return mask.boolean and _is_mask(node.operand, mask)
    return False


def _selects(node: ast.expr, mask: Neutral) -> bool:
    if is_true(node, mask):
        return True
    operator = ast.Eq if mask.nothing else ast.NotEq
    return isinstance(node, ast.Compare) and _is_zero(node, operator, mask)


def rejects(node: ast.expr, mask: Neutral) -> bool:
    """Whether a boolean tensor is false everywhere."""
    if mask.nothing:
        if mask.boolean and _is_mask(node, mask):
            return True
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return mask.boolean and _is_mask(node.operand, mask)
    operator = ast.NotEq if mask.nothing else ast.Eq
    return isinstance(node, ast.Compare) and _is_zero(node, operator, mask)


def _is_zero(node: ast.Compare, operator: type[ast.cmpop], mask: Neutral) -> bool:
    number = node.comparators[0]
    return (
        len(node.ops) == 1
        and isinstance(node.ops[0], operator)
        and isinstance(number, ast.Constant)
        and number.value == 0
        and _is_mask(node.left, mask)
    )
