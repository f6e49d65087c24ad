"""A statement that becomes the body of an operator: what it has to be given, and its text.

Everything that the statement reads of the function's variables becomes an operand: tensors as they are,
sizes and other plain values with the type that the analysis can prove. Names of the module stay.
"""

from __future__ import annotations

import ast
import copy
import keyword
from collections.abc import Iterator
from dataclasses import dataclass, field

from gbfix.analysis.conditions import Refused
from gbfix.analysis.parameters import declared
from gbfix.analysis.project import BUILTINS
from gbfix.fixes import Context
from gbfix.lowering.operator_schema import TENSOR, constant_type, parameter_type

SHAPE = "Size"
_COUNTS = frozenset({"dim", "numel", "nelement", "size", "ndimension", "stride"})
_WHOLE = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)


@dataclass(frozen=True)
class Operand:
    """One argument of the operator.

    Attributes:
        name: its name in the body.
        kind: its type, such as `Tensor`, `int` or `Size`, which an operator takes as a list.
        given: the expression that it stands for, as text.
    """

    name: str
    kind: str
    given: str


@dataclass
class Body:
    """The text of a statement in terms of its operands."""

    text: str
    operands: list[Operand] = field(default_factory=list)


def body_of(statement: ast.stmt, context: Context) -> Body:
    """What a statement needs to be run in an operator.

    Raises:
        Refused: where it reads a value whose type cannot be told.
    """
    return _Body(statement, context).made()


def type_of(node: ast.expr, context: Context) -> str | None:
    """The type that an operator gives to a value of the function; None if it cannot be told."""
    return _Body(ast.Expr(node), context)._kind(node)


class _Body:
    def __init__(self, statement: ast.stmt, context: Context) -> None:
        self.statement = statement
        self.context = context
        self.by_text: dict[str, Operand] = {}
        self.replaced: dict[ast.expr, str] = {}
        node = context.info.node
        self.locals = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)} | {
            n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }

    def made(self) -> Body:
        for node in self._expressions(self.statement):
            self._visit(node)
        return Body(self._text(), list(self.by_text.values()))

    def _expressions(self, node: ast.AST) -> Iterator[ast.expr]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield child
            else:
                yield from self._expressions(child)

    def _visit(self, node: ast.expr) -> None:
        """Find the operands in an expression, which are as small as they can be."""
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Lambda)):
            raise Refused("not-followed", f"`{ast.unparse(node)}` is not taken into an operator")
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            raise Refused("not-followed", "a comprehension is not taken into an operator")
        own = isinstance(node, ast.Attribute) and _is_self(node.value)
        if own or (isinstance(node, ast.Name) and node.id in self.locals):
            kind = self._kind(node)
            if kind is None:
                raise Refused("unknown-type", f"it cannot be told what `{ast.unparse(node)}` is")
            self._operand(node, kind)
            return
        found = dict(self.by_text), dict(self.replaced)
        try:
            for child in self._expressions(node):
                self._visit(child)
        except Refused:
            kind = self._kind(node)
            # What is computed in a branch must not be computed where that is not taken.
            if kind is None or not isinstance(self.statement, ast.Expr):
                raise
            self.by_text, self.replaced = found
            self._operand(node, kind)

    def _operand(self, node: ast.expr, kind: str) -> None:
        text = ast.unparse(node)
        if text not in self.by_text:
            self.by_text[text] = Operand(self._free(_name(node)), kind, text)
        self.replaced[node] = self.by_text[text].name

    def _free(self, wanted: str) -> str:
        """A name that neither the module nor another operand has."""
        taken = BUILTINS | set(self.context.info.module.bindings)
        taken |= {operand.name for operand in self.by_text.values()}
        name, number = wanted, 1
        while name in taken or keyword.iskeyword(name):
            number += 1
            name = f"{wanted}_{number}"
        return name

    def _kind(self, node: ast.expr) -> str | None:
        """The type of a value of the function; None if it is none, or cannot be told."""
        if isinstance(node, ast.Constant):
            return None
        value = self.context.analysis.values.get(node)
        if value is not None and value.tensor:
            return TENSOR
        if isinstance(node, ast.Attribute):
            if self._is_tensor(node.value):
                return {"shape": SHAPE, "dtype": "dtype", "device": "device", "ndim": "int"}.get(
                    node.attr
                )
            if _is_self(node.value):
                return self._of_attribute(node.attr)
            return None
        if isinstance(node, ast.Subscript):
            one = not isinstance(node.slice, ast.Slice)
            return "int" if one and self._kind(node.value) == SHAPE else None
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, _WHOLE):
            sides = [self._kind(side) or constant_type(side) for side in (node.left, node.right)]
            return "int" if sides == ["int", "int"] and not _is_constant(node) else None
        if isinstance(node, ast.Name) and node.id in self.locals:
            return self._of_name(node)
        return None

    def _is_tensor(self, node: ast.expr) -> bool:
        value = self.context.analysis.values.get(node)
        return value is not None and value.tensor

    def _of_call(self, node: ast.Call) -> str | None:
        function = node.func
        if isinstance(function, ast.Name) and function.id == "len" and len(node.args) == 1:
            return "int" if self._is_tensor(node.args[0]) else None
        if isinstance(function, ast.Attribute) and self._is_tensor(function.value):
            if function.attr in _COUNTS:
                whole = function.attr in ("size", "stride") and not node.args
                return (SHAPE if function.attr == "size" else None) if whole else "int"
        return None

    def _of_name(self, node: ast.Name) -> str | None:
        info = self.context.info
        bound = [
            n
            for n in ast.walk(info.node)
            if isinstance(n, ast.Name) and n.id == node.id and isinstance(n.ctx, ast.Store)
        ]
        arguments = [a for a in ast.walk(info.node.args) if isinstance(a, ast.arg)]
        own = next((a for a in arguments if a.arg == node.id), None)
        if own is not None:
            return None if bound else parameter_type(own, self.context)
        if len(bound) != 1:
            return None
        parent = info.module.parents[bound[0]]
        if isinstance(parent, ast.Assign) and parent.targets == [bound[0]]:
            return self._kind(parent.value) or constant_type(parent.value)
        if isinstance(parent, ast.For) and parent.target is bound[0]:
            return "int" if _calls(parent.iter, "range") else None
        above = info.module.parents.get(parent)
        if isinstance(parent, ast.Tuple) and isinstance(above, ast.For):
            counted = parent.elts[0] is bound[0] and _calls(above.iter, "enumerate")
            return "int" if counted and above.target is parent else None
        return None

    def _of_attribute(self, attribute: str) -> str | None:
        """The type of a plain value that `__init__` stores and no other method changes."""
        owner = self.context.info.owner
        if owner is None:
            return None
        stores = [
            n
            for n in ast.walk(owner.node)
            if isinstance(n, ast.Attribute) and n.attr == attribute and isinstance(n.ctx, ast.Store)
        ]
        if len(stores) != 1:
            return None
        parents = self.context.info.module.parents
        assigned = parents[stores[0]]
        function: ast.AST = assigned
        while not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            function = parents[function]
        if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
            return None
        if not isinstance(assigned, ast.Assign) or len(assigned.targets) != 1:
            return None
        value = assigned.value
        if isinstance(value, ast.Name):
            arguments = [a for a in ast.walk(function.args) if isinstance(a, ast.arg)]
            own = next((a for a in arguments if a.arg == value.id), None)
            if own is None:
                return None
            kind = parameter_type(own, self.context) or _of_default(own, function)
            return None if kind == TENSOR else kind
        return constant_type(value)

    def _text(self) -> str:
        view = self.context.view
        start, end = view.start(self.statement), view.end(self.statement)
        pieces: list[tuple[int, int, str]] = []
        for node in self._outermost(self.statement):
            text = self.replaced.get(node)
            if text is None:
                text = _unparsed(node, self.replaced)
            pieces.append((view.start(node), view.end(node), text))
        made, at = "", start
        for first, last, text in sorted(pieces):
            made += view.slice(at, first) + text
            at = last
        made += view.slice(at, end)
        indent = view.indent(self.statement)
        if isinstance(self.statement, ast.If):
            made = made.removeprefix("el")  # of an `elif`
        lines = made.split("\n")
        return "\n".join([lines[0], *(line.removeprefix(indent) for line in lines[1:])])

    def _outermost(self, node: ast.AST) -> Iterator[ast.expr]:
        """What is replaced, as a whole where the parts of a format string have no places."""
        for child in ast.iter_child_nodes(node):
            if child in self.replaced:
                yield child
            elif isinstance(child, ast.JoinedStr):
                if any(inner in self.replaced for inner in ast.walk(child)):
                    yield child
            else:
                yield from self._outermost(child)


def _of_default(argument: ast.arg, function: ast.FunctionDef) -> str | None:
    """The type of a default; a whole number may stand for any other number."""
    _, default = declared(function).get(argument.arg, (argument, None))
    kind = constant_type(default) if default is not None else None
    return kind if kind != "int" and argument.annotation is None else None


def _unparsed(node: ast.expr, replaced: dict[ast.expr, str]) -> str:
    """A format string with names in place of what is replaced."""

    def renamed(inner: ast.AST) -> ast.AST:
        if inner in replaced:
            return ast.Name(replaced[inner], ast.Load())
        made = copy.copy(inner)
        for name, value in ast.iter_fields(inner):
            if isinstance(value, ast.AST):
                setattr(made, name, renamed(value))
            elif isinstance(value, list):
                setattr(made, name, [renamed(v) if isinstance(v, ast.AST) else v for v in value])
        return made

    text = ast.unparse(renamed(node))
    if text.startswith("f'") and '"' not in text and "\\" not in text and "'" not in text[2:-1]:
        return f'f"{text[2:-1]}"'
    return text


def _name(node: ast.expr) -> str:
    """A name for what an expression gives: the last name in it that says something."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _name(node.value)
        return f"{base}_{node.attr}" if base not in ("", "self") else node.attr
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            return _name(node.func)
        return _name(node.func) if isinstance(node.func, ast.Name) else "value"
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return "value"


def _calls(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _is_constant(node: ast.expr) -> bool:
    return not any(isinstance(n, ast.Name) for n in ast.walk(node))


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
