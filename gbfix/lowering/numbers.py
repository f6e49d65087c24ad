"""Follows a number that was read from a tensor to where it meets tensors again.

If arithmetic is all that happens to it on the way, a tensor of one element can take its place in the
compiled path: in double precision, as Python computes, or as it is where it meets a tensor at once.
A number that decides a shape, leaves the function or is handed on has to stay a number. Knows
expressions and names, nothing of where text goes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.draws import draw
from gbfix.analysis.flow import Analysis
from gbfix.analysis.reads import read_tensor
from gbfix.analysis.values import Kind, Value
from gbfix.codegen.predicates import compares_alike
from gbfix.lowering.choices import BranchChoice, chosen, is_exact, literal
from gbfix.lowering.course import Asking, Course, Meeting, Method, asking, check_tests
from gbfix.lowering.table_entries import entries, is_entry

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_MATH = {
    "sqrt": "sqrt", "exp": "exp", "log": "log", "log2": "log2", "log10": "log10", "sin": "sin",
    "cos": "cos", "tanh": "tanh", "fabs": "abs",
}  # fmt: skip
_TAKING = frozenset("add sub mul div add_ sub_ mul_ div_ multiply subtract divide".split())
_FILLING = frozenset("fill_ masked_fill masked_fill_".split())
_SCALED = frozenset("add add_ sub sub_ addcmul addcmul_ addcdiv addcdiv_".split())
_BOUNDS = {"builtins.max": "min", "builtins.min": "max"}
_ORDERS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_BOUNDING = frozenset("clamp clamp_ clip clip_ clamp_min clamp_max".split())


def follow(read: ast.expr, analysis: Analysis) -> Course:
    """Follow a read to its ends.

    Raises:
        Refused: where the number is needed as a number.
    """
    follower = _Follower(analysis)
    follower.start(read)
    course = follower.course
    if course.tests:
        check_tests(course, follower.parents)
    return course


def follow_choice(choice: BranchChoice, node: ast.stmt, analysis: Analysis) -> Course:
    """Follow the number that an `if` gives a name to its ends.

    Raises:
        Refused: where the number is needed as a number, or the name is bound elsewhere too.
    """
    follower = _Follower(analysis)
    follower.course.computed = not is_exact(choice.number)
    follower.named(choice.name, choice.stores, node)
    return follower.course


class _Follower:
    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.parents = analysis.info.module.parents
        self.definitions = definitions_of(analysis.info.node, analysis.info.module)
        self.course = Course()

    def start(self, read: ast.expr) -> None:
        """Take up a read."""
        tensor = read_tensor(read, self.analysis)
        if draw(read, self.analysis) is not None or chosen(read, self.analysis):
            tensor = read  # a number that was drawn or chosen is put into a tensor
        if isinstance(read, ast.IfExp) and not is_exact(read):
            self.course.computed = True
        if isinstance(read, ast.Subscript):
            tensor = read
            self.course.computed |= entries(read, self.analysis).floats
        if tensor is None or read in self.course.reads:
            return
        if (
            tensor is not read
            and isinstance(read, ast.Call)
            and isinstance(read.func, ast.Name)
            and not (read.func.id == "float" or (read.func.id == "int" and self._integer(tensor)))
        ):
            raise Refused(
                "integer-read", f"`{ast.unparse(read)}` makes an integer or a truth value"
            )
        self.course.reads[read] = tensor
        self._use(read)

    def _starts(self, node: ast.expr) -> bool:
        """Whether a number comes into being here."""
        is_read = read_tensor(node, self.analysis) is not None
        drawn = draw(node, self.analysis) is not None
        return is_read or drawn or is_entry(node, self.analysis)

    def _value(self, node: ast.AST) -> Value | None:
        return self.analysis.values.get(node)

    def _use(self, node: ast.expr) -> None:
        """Follow one expression that has the number as its value."""
        if node in self.course.seen:
            return
        self.course.seen.add(node)
        parent = self.parents[node]
        asks = asking(node, self.parents)
        if asks is not None:
            self._tested(node, asks)
            return
        if isinstance(parent, ast.BinOp):
            self._operator(node, parent)
        elif isinstance(parent, ast.UnaryOp) and isinstance(parent.op, (ast.USub, ast.UAdd)):
            self.course.computed = True
            self._use(parent)
        elif isinstance(parent, ast.Assign):
            self._assigned(node, parent)
        elif isinstance(parent, (ast.Call, ast.keyword)):
            self._argument(node, parent)
        elif isinstance(parent, ast.Compare):
            self._compared(node, parent)
        elif isinstance(parent, ast.AugAssign) and parent.value is node:
            value = self._value(parent.target)
            plain = isinstance(parent.op, (ast.Add, ast.Sub, ast.Mult, ast.Div))
            if not plain or value is None or not value.tensor:
                raise self._escapes(node)
            self._meets(node, parent.target)
        elif not self._is_shown(node):
            raise self._escapes(node)

    def _is_shown(self, node: ast.expr) -> bool:
        """Whether a number stands in the text of an exception, which only Python raises."""
        current: ast.AST = node
        while not isinstance(current, ast.stmt):
            current = self.parents[current]
        above = self.parents[current]
        if not isinstance(above, ast.If) or current not in above.body:
            return False
        shown = isinstance(self.parents[node], ast.FormattedValue)
        return shown and isinstance(above.body[-1], ast.Raise)

    def _escapes(self, node: ast.expr) -> Refused:
        text = ast.unparse(self.parents[node])
        text = text if len(text) <= 60 else text[:57] + "..."
        return Refused("scalar-escapes", f"`{text}` needs `{ast.unparse(node)}` as a Python number")

    def _is_plain(self, node: ast.expr) -> bool:
        """A Python number that no tensor decides, or another number that is followed."""
        value = self._value(node)
        return value is not None and value.only(Kind.STATIC)

    def _operator(self, node: ast.expr, parent: ast.BinOp) -> None:
        other = parent.right if parent.left is node else parent.left
        value = self._value(other)
        if not isinstance(parent.op, _OPERATORS):
            raise self._escapes(node)
        if value is not None and value.tensor:
            if isinstance(parent.op, ast.Pow) and parent.left is not node:
                self._meets(node, other)
                return
            if isinstance(parent.op, ast.Pow):
                raise self._escapes(node)
            self._meets(node, other)
            return
        if self._joins_tensor(parent, value):
            self._meets(node, other)
            return
        self.course.computed = True
        if isinstance(parent.op, (ast.Div, ast.Pow)):
            self.course.rounded = True
        self._others(other, node)
        self._use(parent)

    def _joins_tensor(self, product: ast.BinOp, other: Value | None) -> bool:
        """Whether the other operand may be a tensor, and the result meets one in any case."""
        above = self.parents[product]
        if other is None or not other.only(Kind.MAYBE) or not isinstance(above, ast.BinOp):
            return False
        partner = self._value(above.right if above.left is product else above.left)
        plain = isinstance(above.op, (ast.Add, ast.Sub)) and isinstance(product.op, ast.Mult)
        return plain and partner is not None and partner.tensor

    def _others(self, other: ast.expr, node: ast.expr) -> None:
        """The other operand has to be a plain number, or one that is followed too."""
        value = self._value(other)
        if value is None or value.kinds & Kind.TENSOR:
            raise self._escapes(node)
        if value.kinds & Kind.SCALAR:
            for inner in _numbers(other):
                if self._starts(inner):
                    self.start(inner)
                elif isinstance(inner, ast.Name):
                    self._from_name(inner)
        elif not value.only(Kind.STATIC):
            raise self._escapes(node)

    def _from_name(self, use: ast.Name) -> None:
        value = self._value(use)
        if value is None or not value.kinds & Kind.SCALAR or use.id in self.course.names:
            return
        statement = self.definitions.of(use)
        if statement is None:
            raise Refused("scalar-escapes", f"`{use.id}` is not bound once, by itself")
        for inner in _numbers(statement.value):
            if self._starts(inner):
                self.start(inner)
            elif isinstance(inner, ast.Name):
                self._from_name(inner)

    def _assigned(self, node: ast.expr, parent: ast.Assign) -> None:
        target = parent.targets[0]
        if len(parent.targets) != 1:
            raise self._escapes(node)
        if isinstance(target, ast.Subscript):
            base = self._value(target.value)
            if base is not None and base.tensor:
                self._meets(node, target.value)
                return
        if not isinstance(target, ast.Name):
            raise self._escapes(node)
        self.named(target.id, (target,), parent)

    def named(self, name: str, stores: Sequence[ast.Name], binding: ast.stmt) -> None:
        """Follow a name that a statement binds, in the places `stores` and nowhere else."""
        bound = self.definitions.stores.get(name, [])
        uses: list[ast.Name] | None = self.definitions.loads.get(name, [])
        if set(bound) != set(stores) or name in self.definitions.parameters:
            uses = self.definitions.last(name, binding) if isinstance(binding, ast.Assign) else None
        if uses is None:
            raise Refused("scalar-escapes", f"`{name}` is bound more than once")
        self.course.names.add(name)
        for use in uses:
            if not self.definitions.encloses(binding, use):
                raise Refused("scalar-escapes", f"`{name}` is read where it may not be bound")
            self._use(use)

    def _argument(self, node: ast.expr, parent: ast.Call | ast.keyword) -> None:
        keyword = parent if isinstance(parent, ast.keyword) else None
        call = self.parents[parent] if keyword is not None else parent
        if not isinstance(call, ast.Call):
            raise self._escapes(node)
        function = self._value(call.func)
        name = function.reference if function is not None else None
        if keyword is None and name == "builtins.float" and len(call.args) == 1:
            self._use(call)
            return
        if keyword is None and name == "builtins.abs":
            self.course.computed = True
            self._use(call)
            return
        if keyword is None and name is not None and name.startswith("math."):
            method = _MATH.get(name.removeprefix("math."))
            if method is not None and len(call.args) == 1:
                self.course.computed = True
                self.course.rounded = True
                self.course.functions[call] = Method(node, f"{method}()")
                self._use(call)
                return
        if keyword is None and name in _BOUNDS and len(call.args) == 2 and not call.keywords:
            self._bounded(node, call, _BOUNDS[name])
            return
        if isinstance(call.func, ast.Attribute) and call.func.value is not node:
            operands = [call.func.value, *call.args]
            if name is not None and name.startswith("torch."):
                operands = call.args
            receiver = self._value(operands[0]) if operands else None
            if receiver is not None and receiver.tensor:
                self._operand(node, call, operands, keyword)
                if self.course.meetings and self.course.meetings[-1].number is node:
                    return
        if name == "torch.where" and keyword is None and len(call.args) == 3:
            others = [a for a in call.args[1:] if a is not node]
            value = self._value(others[0]) if len(others) == 1 else None
            if node is not call.args[0] and value is not None and value.tensor:
                self._meets(node, others[0])
                return
        raise self._escapes(node)

    def _bounded(self, node: ast.expr, call: ast.Call, side: str) -> None:
        """`max(n, 1)`, or `min`, with a number that is written out or set before."""
        other = call.args[1] if call.args[0] is node else call.args[0]
        value = literal(other)
        whole = self._is_integer() and isinstance(value, int)
        # Python keeps the first of two where NaN is one of them, which no integers make: 0 / 0 raises.
        from_integers = all(map(self._integer, self.course.reads.values()))
        known = value is not None and call.args[0] is node
        if not (whole or known or (from_integers and (value is not None or self._is_plain(other)))):
            raise self._escapes(node)
        if not whole:
            self.course.computed = True
        self.course.functions[call] = Method(node, f"clamp({side}={ast.unparse(other)})")
        self._use(call)

    def _is_integer(self) -> bool:
        """Whether all that was read so far are integers, with which nothing was computed."""
        return not self.course.computed and all(map(self._integer, self.course.reads.values()))

    def _integer(self, tensor: ast.expr) -> bool:
        value = self._value(tensor)
        return value is not None and value.integer

    def _operand(
        self,
        node: ast.expr,
        call: ast.Call,
        operands: list[ast.expr],
        keyword: ast.keyword | None,
    ) -> None:
        """A number among the operands of an operation of torch, the first of which is a tensor."""
        assert isinstance(call.func, ast.Attribute)
        attr, receiver = call.func.attr, operands[0]
        if keyword is not None and keyword.arg in {"alpha", "value"} and attr in _SCALED:
            scaled = self._value(operands[1]) if len(operands) > 1 else None
            if scaled is not None and scaled.tensor:
                self.course.meetings.append(Meeting(node, operands[1], (operands[1], keyword)))
            return
        alone = len(operands) + len(call.keywords) == 2
        takes = keyword is None and attr in _TAKING and operands[1:] == [node] and alone
        fills = keyword is None and attr in _FILLING and operands[-1] is node and not call.keywords
        if takes or fills or (attr in _BOUNDING and alone):
            self._meets(node, receiver)

    def _compared(self, node: ast.expr, parent: ast.Compare) -> None:
        """With a tensor it gives a mask; a comparison of numbers is a condition of its own."""
        others = [o for o in (parent.left, *parent.comparators) if o is not node]
        value = self._value(others[0]) if len(others) == 1 else None
        if value is not None and value.tensor:
            self._meets(node, others[0])
            return
        self._test_of_numbers(node, parent)

    def _test_of_numbers(self, node: ast.expr, parent: ast.Compare) -> None:
        """A comparison with a number, where only its truth is asked: a tensor answers alike."""
        text = ast.unparse(parent)
        if len(parent.ops) != 1 or not isinstance(parent.ops[0], _ORDERS):
            raise Refused("scalar-tested", f"`{text}` compares the number in a way of its own")
        asks = asking(parent, self.parents)
        if asks is None:
            raise Refused("scalar-tested", f"`{text}` compares the number with another number")
        other = parent.comparators[0] if parent.left is node else parent.left
        made = self.definitions.of(other) if isinstance(other, ast.Name) else None
        if not compares_alike(made.value if made is not None else other, self.analysis):
            self.course.computed = True  # in double precision no other number is rounded
            self._others(other, node)
        self._tested(parent, asks)

    def _tested(self, node: ast.expr, asks: Asking) -> None:
        if not self.course.reads or any(r is t for r, t in self.course.reads.items()):
            raise Refused(
                "scalar-tested", f"`{ast.unparse(node)}` asks a number that is no read of a tensor"
            )
        self.course.tests[node] = asks

    def _meets(self, number: ast.expr, partner: ast.expr) -> None:
        self.course.meetings.append(Meeting(number, partner))


def _numbers(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of an expression of numbers that may come from tensors."""
    if isinstance(node, ast.BinOp):
        yield from _numbers(node.left)
        yield from _numbers(node.right)
    elif isinstance(node, ast.UnaryOp):
        yield from _numbers(node.operand)
    else:
        yield node
        if isinstance(node, ast.Call):
            for argument in node.args:
                yield from _numbers(argument)
