"""What a tensor was made of: the Python integers that `torch.tensor([h, w])` and its like hold.

Only integers count, for a float is rounded on its way through a tensor. A tensor whose elements are
all one number (`torch.full`), and the steps between the elements of an `arange`, are known too. The
answer is source text that gives the same number at the place of the read. Nothing is said about
tensors that are changed in place.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.flow import Analysis
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat
from gbfix.codegen.view import View

_INTEGER_DTYPES = frozenset(f"torch.{n}" for n in ("long", "int64", "int", "int32"))
_MADE = frozenset({"torch.tensor", "torch.as_tensor", "torch.LongTensor", "torch.IntTensor"})
_KEEPING = frozenset("to cpu cuda detach clone contiguous long int".split())
_MOST_STEPS = 24


@dataclass(frozen=True)
class Number:
    """One integer, as text; `guarded` where a read would fail for an empty tensor."""

    text: str
    guarded: bool = False
    loose: bool = True


@dataclass(frozen=True)
class Row:
    """A known row of integers: the text of the sequence, or of each element."""

    text: str | None
    items: tuple[Contents, ...] | None


@dataclass(frozen=True)
class Uniform:
    """A tensor of one number everywhere, with its length where that is known."""

    item: Number
    length: str | None = None


@dataclass(frozen=True)
class Steps:
    """`arange`: elements that lie one step apart."""

    step: Number


Contents = Number | Row | Uniform | Steps


class Reader:
    """Finds the contents of tensors in one function."""

    def __init__(self, analysis: Analysis, view: View) -> None:
        self.analysis = analysis
        self.view = view
        self.definitions = definitions_of(analysis.info.node, analysis.info.module)

    def number(self, tensor: ast.expr) -> Number | None:
        """The number that reading a tensor of one element gives."""
        found = self._contents(tensor, _MOST_STEPS)
        return found if isinstance(found, Number) else None

    def row(self, tensor: ast.expr) -> str | None:
        """The list that `.tolist()` gives."""
        found = self._contents(tensor, _MOST_STEPS)
        if not isinstance(found, Row):
            return None
        return _listed(found)

    def numbers(self, tensor: ast.expr) -> str | None:
        """The numbers that a tensor was made of, as a tuple, or the one number of one without rows."""
        found = self._contents(tensor, _MOST_STEPS)
        if isinstance(found, Number):
            return found.text
        if not isinstance(found, Row):
            return None
        if found.items is None:
            return f"tuple({found.text})"
        texts = [item.text for item in found.items if isinstance(item, Number)]
        if len(texts) != len(found.items) or not texts:
            return None
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"

    def _contents(self, node: ast.expr, steps: int) -> Contents | None:
        if steps <= 0:
            return None
        if isinstance(node, ast.Name):
            statement = self.definitions.of(node)
            if statement is None or self.definitions.is_changed(node.id):
                return None
            if not self._still(statement.value, statement):
                return None
            return self._contents(statement.value, steps - 1)
        if isinstance(node, ast.Call):
            return self._call(node, steps)
        if isinstance(node, ast.Subscript):
            return self._item(node, steps)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            return self._difference(node, steps)
        return None

    def _still(self, value: ast.expr, since: ast.stmt) -> bool:
        """Whether the numbers that a value was made of can be said at the place of the read."""
        return self.definitions.holds(value, since)

    def _call(self, node: ast.Call, steps: int) -> Contents | None:
        if any(isinstance(a, ast.Starred) for a in node.args):
            return None
        value = self.analysis.values.get(node.func)
        name = value.reference if value is not None else None
        if name in _MADE and len(node.args) == 1 and self._keeps_integers(node):
            return self._literal(node.args[0], steps)
        if name == "torch.full" and len(node.args) == 2 and self._keeps_integers(node):
            number = self._integer(node.args[1])
            return None if number is None else Uniform(number, self._length(node.args[0]))
        if name == "torch.arange" and self._keeps_integers(node):
            return self._arange(node)
        if name == "torch.diff" and len(node.args) == 1 and not node.keywords:
            inner = self._contents(node.args[0], steps - 1)
            return Uniform(_guarded(inner.step)) if isinstance(inner, Steps) else None
        if name in {"torch.max", "torch.min"} and len(node.args) == 1 and not node.keywords:
            return self._reduced(name[6:], node.args[0], steps)
        if not isinstance(node.func, ast.Attribute) or node.func.attr.startswith("__"):
            return None
        receiver = self.analysis.values.get(node.func.value)
        if receiver is None or not receiver.tensor:
            return None
        attr = node.func.attr
        if attr in _KEEPING and self._keeps_integers(node) and not self._retyped(node):
            return self._contents(node.func.value, steps - 1)
        if attr in {"max", "min", "amax", "amin"} and not node.args and not node.keywords:
            return self._reduced(attr.removeprefix("a"), node.func.value, steps)
        return None

    def _reduced(self, attr: str, node: ast.expr, steps: int) -> Contents | None:
        inner = self._contents(node, steps - 1)
        if isinstance(inner, Uniform):
            return _guarded(inner.item)
        if isinstance(inner, Row) and inner.items:
            texts = [i.text for i in inner.items if isinstance(i, Number)]
            if len(texts) == len(inner.items):
                return Number(f"{attr}({', '.join(texts)})", loose=False)
        return None

    def _retyped(self, node: ast.Call) -> bool:
        """Whether `.to(x)` may change the dtype."""
        for argument in node.args:
            value = self.analysis.values.get(argument)
            qualified = self.analysis.info.module.qualify(argument) or ""
            is_device = isinstance(argument, ast.Attribute) and argument.attr == "device"
            is_text = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            if qualified in _INTEGER_DTYPES or is_device or is_text:
                continue
            if value is not None and isinstance(argument, ast.Name) and argument.id == "device":
                continue
            return True
        return False

    def _keeps_integers(self, node: ast.Call) -> bool:
        for keyword in node.keywords:
            if keyword.arg == "dtype":
                if self.analysis.info.module.qualify(keyword.value) not in _INTEGER_DTYPES:
                    return False
            elif keyword.arg not in {"device", "non_blocking", "pin_memory", "copy", "step"}:
                return False
        return True

    def _literal(self, node: ast.expr, steps: int) -> Contents | None:
        if isinstance(node, (ast.Tuple, ast.List)):
            items: list[Contents] = []
            for element in node.elts:
                item = self._literal(element, steps - 1)
                if item is None:
                    return None
                items.append(item)
            return Row(None, tuple(items))
        if self._is_shape(node):
            return Row(flat(self.view, node), None)
        if isinstance(node, ast.Name):
            statement = self.definitions.of(node)
            if statement is not None and isinstance(statement.value, (ast.Tuple, ast.List)):
                if self.definitions.is_changed(node.id):
                    return None
                if self._still(statement.value, statement):
                    return self._literal(statement.value, steps - 1)
                return None
        return self._integer(node)

    def _is_shape(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            value = self.analysis.values.get(node.value)
            return value is not None and value.tensor
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            value = self.analysis.values.get(node.func.value)
            sizes = node.func.attr == "size" and not node.args and not node.keywords
            return sizes and value is not None and value.tensor
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return self._is_shape(node.value)
        return False

    def _integer(self, node: ast.expr) -> Number | None:
        if not self._is_integer(node, _MOST_STEPS):
            return None
        tight = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant))
        return Number(flat(self.view, node), loose=not tight)

    def _is_integer(self, node: ast.expr, steps: int) -> bool:
        """Whether an expression is surely a Python integer that no tensor decides."""
        value = self.analysis.values.get(node)
        if steps <= 0 or (value is not None and value.kinds & (Kind.TENSOR | Kind.SCALAR)):
            return False
        if isinstance(node, ast.Constant):
            return type(node.value) is int and abs(node.value) < 2**31
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._is_integer(node.operand, steps - 1)
        if isinstance(node, ast.BinOp) and isinstance(
            node.op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
        ):
            sides = (node.left, node.right)
            return all(self._is_integer(side, steps - 1) for side in sides)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            return self._is_shape(node.value)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "len":
                return value is not None and value.only(Kind.STATIC)
            if isinstance(node.func, ast.Attribute) and node.func.attr in {"size", "dim", "numel"}:
                receiver = self.analysis.values.get(node.func.value)
                full = node.func.attr != "size" or len(node.args) == 1
                return full and receiver is not None and receiver.tensor
        if isinstance(node, ast.Attribute) and node.attr == "ndim":
            receiver = self.analysis.values.get(node.value)
            return receiver is not None and receiver.tensor
        if isinstance(node, ast.Name):
            return self._is_integer_name(node, steps)
        return False

    def _is_integer_name(self, node: ast.Name, steps: int) -> bool:
        stores = self.definitions.stores.get(node.id, [])
        if not stores and node.id in self.definitions.parameters:
            arguments = self.analysis.info.node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            wanted = next((a for a in every if a.arg == node.id), None)
            return (
                wanted is not None
                and isinstance(wanted.annotation, ast.Name)
                and wanted.annotation.id == "int"
            )
        if len(stores) != 1 or node.id in self.definitions.parameters:
            return False
        parent = self.analysis.info.module.parents.get(stores[0])
        if isinstance(parent, ast.Tuple):
            statement = self.analysis.info.module.parents.get(parent)
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                return False
            given = statement.value
            if isinstance(given, ast.Tuple) and len(given.elts) == len(parent.elts):
                if any(isinstance(e, ast.Starred) for e in (*given.elts, *parent.elts)):
                    return False
                return self._is_integer(given.elts[parent.elts.index(stores[0])], steps - 1)
            return self._is_shape(given)
        if isinstance(parent, ast.Assign) and parent.targets == stores:
            return self._is_integer(parent.value, steps - 1)
        return False

    def _length(self, node: ast.expr) -> str | None:
        if isinstance(node, (ast.Tuple, ast.List)) and len(node.elts) == 1:
            node = node.elts[0]
        number = self._integer(node)
        return number.text if number is not None else None

    def _arange(self, node: ast.Call) -> Contents | None:
        step = next((k.value for k in node.keywords if k.arg == "step"), None)
        if step is None and len(node.args) == 3:
            step = node.args[2]
        if not all(self._is_integer(a, _MOST_STEPS) for a in node.args):
            return None
        number = Number("1", loose=False) if step is None else self._integer(step)
        return None if number is None else Steps(number)

    def _difference(self, node: ast.BinOp, steps: int) -> Contents | None:
        """`t[1:] - t[:-1]` of an arange is its step everywhere."""
        left, right = node.left, node.right
        if not (isinstance(left, ast.Subscript) and isinstance(right, ast.Subscript)):
            return None
        texts = [ast.unparse(n) for n in (left.value, right.value, left.slice, right.slice)]
        if texts[0] != texts[1] or texts[2:] != ["1:", ":-1"]:
            return None
        inner = self._contents(left.value, steps - 1)
        return Uniform(_guarded(inner.step)) if isinstance(inner, Steps) else None

    def _item(self, node: ast.Subscript, steps: int) -> Contents | None:
        at = _constant(node.slice)
        inner = self._contents(node.value, steps - 1) if at is not None else None
        if at is None or inner is None:
            return None
        if isinstance(inner, Uniform):
            return _guarded(inner.item)
        if isinstance(inner, Row):
            if inner.text is not None:
                return Number(f"{inner.text}[{at}]", loose=False)
            assert inner.items is not None
            if -len(inner.items) <= at < len(inner.items):
                return inner.items[at]
        return None


def _listed(row: Row) -> str | None:
    """The text of a row, or of rows in a row, as a list."""
    if row.items is None:
        return f"list({row.text})"
    texts: list[str] = []
    for item in row.items:
        text = item.text if isinstance(item, Number) else None
        if isinstance(item, Row):
            text = _listed(item)
        if text is None:
            return None
        texts.append(text)
    return f"[{', '.join(texts)}]"


def _guarded(number: Number) -> Number:
    return Number(number.text, True, number.loose)


def _constant(node: ast.expr) -> int | None:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return sign * node.value
    return None
