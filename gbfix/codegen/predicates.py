"""Predicates as tensor expressions: `and`, `or`, `not` of tensors without reading their values.

A predicate stands for the truth of one element. Of bool dtype it combines with `&`, `|` and `~`;
of any other dtype with `torch.logical_and` and its kin. A Python number read from a tensor
(`.item()`) is put back into tensor form.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gbfix.analysis.conditions import (
    Combined,
    Leaf,
    Negated,
    Predicate,
    Refused,
)
from gbfix.analysis.draws import PLAIN, as_uniform, draw, is_drawn
from gbfix.analysis.equality import compared, member, one_of, same_shapes
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value
from gbfix.codegen.comparisons import SYMBOLS
from gbfix.codegen.expressions import flat, operand
from gbfix.codegen.gathered import gathered
from gbfix.codegen.view import View

_FLIPPED: dict[type[ast.cmpop], str] = {ast.Eq: "!=", ast.NotEq: "=="}
_ASKED_OF_NUMBERS = frozenset({"isnan", "isinf", "isfinite"})
_BARE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


@dataclass(frozen=True)
class Rendered:
    """A predicate as text.

    Attributes:
        text: the expression.
        bare: it binds more tightly than any operator.
        boolean: its dtype is bool.
        zero_dim: its shape is `[]`.
    """

    text: str
    bare: bool
    boolean: bool
    zero_dim: bool

    @property
    def operand(self) -> str:
        """The text as an operand of another operator."""
        return self.text if self.bare else f"({self.text})"


def single(predicate: Rendered) -> Rendered:
    """The predicate with the shape `[]`: `torch.where` would broadcast any other in silence."""
    if predicate.zero_dim:
        return predicate
    return Rendered(f"{predicate.operand}.reshape(())", True, predicate.boolean, True)


def compares_alike(node: ast.expr, analysis: Analysis) -> bool:
    """Whether a number compares the same in any dtype: a small whole number, or one from a shape."""
    if isinstance(node, ast.UnaryOp):
        return compares_alike(node.operand, analysis)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value).is_integer() and abs(node.value) < 2048
    value = analysis.values.get(node)
    sized = isinstance(node, (ast.Subscript, ast.Call)) and any(
        isinstance(n, ast.Attribute) and n.attr in {"shape", "size", "numel", "dim"}
        for n in walk(node)
    )
    return sized and value is not None and value.static


class Renderer:
    """Renders predicates of one analyzed function; `torch` is the module's name for torch.

    `held` tells, for names that hold numbers, the tensors that they were read from, and `truncated`
    which of the numbers were made whole.
    """

    def __init__(
        self,
        view: View,
        analysis: Analysis,
        torch: str,
        held: Mapping[str, ast.expr] | None = None,
        truncated: Collection[str] = (),
    ) -> None:
        self.view = view
        self.analysis = analysis
        self.torch = torch
        self.held = held or {}
        self.truncated = truncated

    def render(self, predicate: Predicate) -> Rendered:
        """The predicate as a tensor expression.

        Raises:
            Refused: for a Python scalar that cannot be put back into tensor form.
        """
        if isinstance(predicate, Leaf):
            return self._leaf(predicate)
        if isinstance(predicate, Negated):
            return self.negated(predicate.part)
        parts = [self.render(p) for p in predicate.parts]
        zero = all(p.zero_dim for p in parts)
        if all(p.boolean for p in parts):
            symbol = " & " if predicate.conjunction else " | "
            return Rendered(symbol.join(p.operand for p in parts), False, True, zero)
        name = "logical_and" if predicate.conjunction else "logical_or"
        text = parts[0].text
        for part in parts[1:]:
            text = f"{self.torch}.{name}({text}, {part.text})"
        return Rendered(text, True, True, zero)

    def negated(self, predicate: Predicate) -> Rendered:
        """The negation of a predicate, as short as it can be said exactly."""
        if isinstance(predicate, Negated):
            return self.render(predicate.part)
        if isinstance(predicate, Combined):
            flipped = Combined(
                not predicate.conjunction, tuple(Negated(p) for p in predicate.parts)
            )
            if all(isinstance(p, Negated) for p in predicate.parts):
                return self.render(flipped)
        if isinstance(predicate, Leaf) and predicate.scalar:
            total = gathered(predicate.node, self.view, self.analysis, self.torch)
            if total is not None:
                return Rendered(total.denied, False, True, True)
        if isinstance(predicate, Leaf) and not predicate.scalar:
            node = predicate.node
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                symbol = _FLIPPED.get(type(node.ops[0]))
                if symbol is not None and self.render(predicate).boolean:
                    left, right = flat(self.view, node.left), flat(self.view, node.comparators[0])
                    zero = predicate.value.zero_dim
                    return Rendered(f"{left} {symbol} {right}", False, True, zero)
        inner = self.render(predicate)
        if inner.boolean:
            return Rendered(f"~{inner.operand}", False, True, inner.zero_dim)
        return Rendered(f"{self.torch}.logical_not({inner.text})", True, True, inner.zero_dim)

    def _leaf(self, leaf: Leaf) -> Rendered:
        asked = member(leaf.node)
        if asked is not None:
            return self._member(asked)
        if one_of(leaf.node):
            return self._one_of(leaf.node)
        if leaf.scalar:
            return self._scalar(leaf.node)
        node, value = leaf.node, leaf.value
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return self._chain(node, value)
        if isinstance(node, (ast.IfExp, ast.NamedExpr, ast.Lambda, ast.Await, ast.Starred)):
            raise Refused("complex-condition", f"`{ast.unparse(node)}` cannot be a predicate")
        boolean = value.boolean and value.tensor
        return Rendered(flat(self.view, node), isinstance(node, _BARE), boolean, value.zero_dim)

    def _member(self, asked: ast.Compare) -> Rendered:
        """`0 in t`, as what a tensor answers when it is asked so."""
        given = self.analysis.values.get(asked.left)
        if given is not None and (given.elements is not None or given.only(Kind.OBJECT)):
            text = ast.unparse(asked.left)
            raise Refused("python-scalar", f"what `{text}` holds is not written out in the test")
        number, symbol = asked.comparators[0], SYMBOLS[type(asked.ops[0])]
        value = self.analysis.values.get(number)
        if value is None or not (value.tensor or value.only(Kind.STATIC)):
            raise Refused("python-scalar", f"`{ast.unparse(number)}` is not known to be a number")
        reduction = "any" if isinstance(asked.ops[0], ast.Eq) else "all"
        text = f"{operand(self.view, asked.left)} {symbol} {operand(self.view, number)}"
        return Rendered(f"({text}).{reduction}()", True, True, True)

    def _one_of(self, test: ast.expr) -> Rendered:
        """`t in (0, 3)`, as a question to the tensor for each of the candidates."""
        assert isinstance(test, ast.Compare)
        value = self.analysis.values.get(test.left)
        if value is None or not value.tensor:
            raise Refused("python-scalar", f"`{ast.unparse(test.left)}` is not known as a tensor")
        plain = isinstance(test.left, (ast.Name, ast.Attribute))
        candidates = one_of(test)
        if not plain and len(candidates) > 1:
            raise Refused("chained-comparison", "what is looked for is not a plain name")
        for candidate in candidates:
            known = self.analysis.values.get(candidate)
            if known is None or not known.only(Kind.STATIC):
                text = ast.unparse(candidate)
                raise Refused("python-scalar", f"`{text}` is not known to be a number")
        symbol, joined = ("==", " | ") if isinstance(test.ops[0], ast.In) else ("!=", " & ")
        parts = [
            f"{operand(self.view, test.left)} {symbol} {operand(self.view, c)}" for c in candidates
        ]
        if len(parts) > 1:
            parts = [f"({part})" for part in parts]
        return Rendered(joined.join(parts), False, True, value.zero_dim)

    def _chain(self, node: ast.Compare, value: Value) -> Rendered:
        """`a < b < c` is `(a < b) & (b < c)`: the middle is evaluated twice, so it must be plain."""
        operands = [node.left, *node.comparators]
        for middle in operands[1:-1]:
            if not isinstance(middle, (ast.Name, ast.Attribute)):
                raise Refused(
                    "chained-comparison", "the middle of the comparison is not a plain name"
                )
        texts = [flat(self.view, o) for o in operands]
        symbols = [SYMBOLS.get(type(o)) for o in node.ops]
        if None in symbols:
            raise Refused("chained-comparison", "the comparison mixes `is` or `in` with tensors")
        parts = [
            f"({a} {symbol} {b})" for a, symbol, b in zip(texts, symbols, texts[1:], strict=False)
        ]
        return Rendered(" & ".join(parts), False, True, value.zero_dim)

    # Python scalars put back into tensor form

    def _scalar(self, node: ast.expr) -> Rendered:
        asked = self.analysis.values.get(node)
        if asked is not None and asked.array:  # Dynamo traces it, and torch.cond takes no array
            text = f"{self.torch}.as_tensor({flat(self.view, node)})"
            return Rendered(text, True, isinstance(node, ast.Compare), False)
        if is_drawn(node, self.analysis):
            return self._drawn(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            symbol = SYMBOLS.get(type(node.ops[0]))
            if symbol is not None:
                left, right = node.left, node.comparators[0]
                wide = not (self._exact(left) and self._exact(right))
                a, b = self._side(left, wide), self._side(right, wide)
                return Rendered(f"{a} {symbol} {b}", False, True, True)
        inner = self._read(node)
        if inner is not None:
            value = self.analysis.values.get(inner)
            text = flat(self.view, inner)
            boolean = value is not None and value.boolean
            zero = value is not None and value.zero_dim
            return Rendered(text, isinstance(inner, _BARE), boolean, zero)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"any", "all"}
            and len(node.args) == 1
            and not node.keywords
        ):
            value = self.analysis.values.get(node.args[0])
            if value is not None and value.tensor and value.boolean:
                text = flat(self.view, node.args[0])
                if not isinstance(node.args[0], _BARE):
                    text = f"({text})"
                return Rendered(f"{text}.{node.func.id}()", True, True, True)
        total = gathered(node, self.view, self.analysis, self.torch)
        if total is not None:
            return Rendered(total.asked, False, True, True)
        number = self._asked_of_number(node)
        if number is not None:
            return number
        comparison = self._comparison(node)
        if comparison is not None:
            return Rendered(comparison, True, True, True)
        raise Refused(
            "python-scalar", f"`{ast.unparse(node)}` is a Python value read from a tensor earlier"
        )

    def _asked_of_number(self, node: ast.expr) -> Rendered | None:
        """`math.isnan(t.item())` as `torch.isnan(t)`, and what else is asked of one number alike."""
        if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
            return None
        function = self.analysis.values.get(node.func)
        library, _, name = ((function.reference or "") if function else "").rpartition(".")
        if library != "math" or name not in _ASKED_OF_NUMBERS:
            return None
        given = self.analysis.values.get(node.args[0])
        asked = node.args[0] if given is not None and given.tensor else self._read(node.args[0])
        if asked is None:
            return None
        value = self.analysis.values.get(asked)
        zero = value is not None and value.zero_dim
        return Rendered(f"{self.torch}.{name}({flat(self.view, asked)})", True, True, zero)

    def _drawn(self, node: ast.expr) -> Rendered:
        """A condition on numbers that were drawn, which the graph gets as they are."""
        boolean = isinstance(node, ast.Compare)
        if not boolean and not isinstance(node, ast.Name):
            raise Refused("python-scalar", f"`{ast.unparse(node)}` is a number, not a comparison")
        text = flat(self.view, node)
        computes = any(isinstance(n, (ast.BinOp, ast.UnaryOp)) for n in walk(node))
        for inner in walk(node):
            drawn = draw(inner, self.analysis)
            if drawn is None or not isinstance(inner, ast.Call):
                continue
            old = flat(self.view, inner)
            new = as_uniform(flat(self.view, inner.func)) if drawn == PLAIN else old
            if new is None:
                raise Refused("module-unnamed", "the module `random` has no name here")
            if computes:  # Dynamo takes no arithmetic on drawn numbers
                new = f"{self.torch}.as_tensor({new}, dtype={self.torch}.float64)"
            text = text.replace(old, new)
        if not computes:
            return Rendered(f"{self.torch}.as_tensor({text})", True, boolean, True)
        for inner in walk(node):
            value = self.analysis.values.get(inner)
            if isinstance(inner, ast.Name) and value is not None and value.kinds & Kind.SCALAR:
                raise Refused("python-scalar", f"`{inner.id}` is a number that was drawn earlier")
        return Rendered(text, False, boolean, True)

    def _comparison(self, node: ast.expr) -> str | None:
        """`torch.equal` (of equal shapes) and `torch.allclose` without reading the answer."""
        found = compared(node, self.analysis.values)
        if found is None or not isinstance(node, ast.Call):
            return None
        name, a, b = found
        left, right = flat(self.view, a), flat(self.view, b)
        if name == "equal":
            if same_shapes(node, self.analysis.values) is None:
                return None
            return f"({left} == {right}).all()"
        rest = node.args[node.args.index(b) + 1 :]
        options = [flat(self.view, r) for r in rest]
        options += [f"{k.arg}={flat(self.view, k.value)}" for k in node.keywords if k.arg]
        return f"{self.torch}.isclose({', '.join([left, right, *options])}).all()"

    def _read(self, node: ast.expr) -> ast.expr | None:
        """The tensor of `t.item()`, `bool(t)`, or `float(t)`; None for anything else."""
        if isinstance(node, ast.Name):
            return self.held.get(node.id)
        if not isinstance(node, ast.Call) or node.keywords:
            return None
        inner: ast.expr | None = None
        if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
            inner = node.func.value
        elif (
            isinstance(node.func, ast.Name)
            and node.func.id in {"bool", "float"}
            and len(node.args) == 1
        ):
            inner = node.args[0]
        value = self.analysis.values.get(inner) if inner is not None else None
        return inner if value is not None and value.tensor else None

    def _whole(self, node: ast.expr) -> str | None:
        """The tensor in the place of `int(t)`, or of `int(t) + 1`; None for anything else."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            whole, by = self._whole(node.left), node.right
            number = isinstance(by, ast.Constant) and isinstance(by.value, int)
            symbol = "+" if isinstance(node.op, ast.Add) else "-"
            return f"({whole} {symbol} {ast.unparse(by)})" if whole and number else None
        name = (
            node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        )
        if name != "int" or not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
            return None
        value = self.analysis.values.get(node.args[0])
        if value is None or not value.tensor:
            return None
        single = "" if value.zero_dim else ".reshape(())"
        return f"{operand(self.view, node.args[0])}{single}.long()"

    def _exact(self, node: ast.expr) -> bool:
        """Whether a number compares the same in any dtype: integers, and integral floats."""
        if self._whole(node) is not None:
            return True
        if self._read(node) is not None or gathered(node, self.view, self.analysis, self.torch):
            return True
        if isinstance(node, ast.UnaryOp):
            return self._exact(node.operand)
        return compares_alike(node, self.analysis)

    def _side(self, node: ast.expr, wide: bool) -> str:
        inner = self._read(node)
        total = gathered(node, self.view, self.analysis, self.torch)
        if total is not None and total.name == "sum":
            return f"{total.total}.double()" if wide else total.total
        whole = self._whole(node)
        if whole is not None:
            return f"{whole}.double()" if wide and isinstance(node, ast.Call) else whole
        if inner is None:
            value = self.analysis.values.get(node)
            if value is None or value.kinds & (Kind.SCALAR | Kind.TENSOR):
                raise Refused(
                    "python-scalar",
                    f"`{ast.unparse(node)}` is a Python value read from a tensor earlier",
                )
            text = flat(self.view, node)
            return text if isinstance(node, (*_BARE, ast.Constant, ast.UnaryOp)) else f"({text})"
        text = flat(self.view, inner)
        text = text if isinstance(inner, _BARE) else f"({text})"
        value = self.analysis.values[inner]
        if not value.zero_dim:
            text = f"{text}.reshape(())"
        if isinstance(node, ast.Name) and node.id in self.truncated:
            text = f"{text}.trunc()"
        # A Python float is a double: compared as such, the threshold is not rounded.
        return f"{text}.double()" if wide else text
