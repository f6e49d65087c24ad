"""Reads of tensor data as Python values outside of conditions: numbers, lists, and positions.

`.item()`, `int(t)`, `float(t)` and `bool(t)` make numbers, `.tolist()` lists, and a tensor where
Python or torch needs an integer (the bound of a slice, `range(t)`, an index into a list) is read
without being asked, as is one of shape `[]` that selects from another. Reads that a condition makes
are found with the condition. Says what is read, nothing of treatment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from gbfix.analysis.answers import (
    ANSWERING,
    ANSWERING_METHODS,
    NUMBERS,
    answers,
    array_read,
    takes_numbers,
)
from gbfix.analysis.counted import counted
from gbfix.analysis.flow import Analysis
from gbfix.analysis.integer_places import SIZED, needs_integer
from gbfix.analysis.project import Module
from gbfix.analysis.ranks import Ranks
from gbfix.analysis.trees import of_kind, walk
from gbfix.analysis.values import Value

_TAKING = SIZED | {"builtins.range"}
# Made of Python numbers, which Dynamo knows.
_MAKING = frozenset(
    f"torch.{n}" for n in ("tensor", "as_tensor", "scalar_tensor", "zeros", "ones", "full", "empty")
)


class ReadKind(Enum):
    """What a read makes of a tensor."""

    NUMBER = "number"
    LIST = "list"
    POSITION = "position"
    INDEX = "index"
    ARRAY = "array"
    ARRAY_LIST = "array list"
    ANSWER = "answer"


_OPAQUE = frozenset({ReadKind.ARRAY, ReadKind.ARRAY_LIST, ReadKind.ANSWER})
_NOT_OF_TENSORS = _OPAQUE | {ReadKind.POSITION}


@dataclass(frozen=True, eq=False)
class Read:
    """One read.

    Attributes:
        node: the expression that reads: the call, or the tensor that stands for an integer.
        tensor: the tensor that is read.
        kind: what becomes of it.
        statement: the statement that it stands in.
    """

    node: ast.expr
    tensor: ast.expr
    kind: ReadKind
    statement: ast.stmt

    @property
    def opaque(self) -> bool:
        """Whether something else than one tensor is read, so that none can stand in its place."""
        return self.kind in _OPAQUE


def reads(analysis: Analysis) -> tuple[Read, ...]:
    """The reads of one analyzed function, those of nested functions and of conditions left out."""
    if reads not in analysis.derived:
        analysis.derived[reads] = tuple(_find_reads(analysis))
    found: tuple[Read, ...] = analysis.derived[reads]
    return found


def _find_reads(analysis: Analysis) -> Iterator[Read]:
    module = analysis.info.module
    may_read = _candidates(analysis)
    found = [
        (node, *read)
        for node in (list(analysis.values) if may_read else ())
        if node in may_read and isinstance(node, ast.expr)
        if (read := _read(node, analysis)) is not None
    ]
    tested = _tested(analysis) if found else set()
    for node, tensor, kind in found:
        if node in tested:
            continue
        statement = _statement(node, analysis, module)
        if statement is None or statement in analysis.eager or node in analysis.eager:
            continue
        if _only_eager(node, statement, analysis, module):
            continue
        yield Read(node, tensor, kind, statement)


def _candidates(analysis: Analysis) -> set[ast.AST]:
    """What may be a read, by what it is or where it stands: most nodes are none of these."""
    values = analysis.values
    found: set[ast.AST] = set()
    for node in values:
        kind = node.__class__
        if kind is ast.Call:
            assert isinstance(node, ast.Call)
            function = node.func
            if function.__class__ is ast.Attribute:
                assert isinstance(function, ast.Attribute)
                if (
                    function.attr == "item"
                    or function.attr == "tolist"
                    or function.attr in ANSWERING_METHODS
                ):
                    found.add(node)
            value = values.get(function)
            name = value.reference if value is not None else None
            if name is not None and name in ANSWERING:
                found.add(node)
            if name is not None and (name in NUMBERS or name in _TAKING or takes_numbers(name)):
                found.add(node)
                found.update(node.args)
            found.update(counted(node, analysis))
        elif kind is ast.Slice:
            assert isinstance(node, ast.Slice)
            found.update(p for p in (node.lower, node.upper, node.step) if p is not None)
        elif kind is ast.Subscript:
            assert isinstance(node, ast.Subscript)
            base = values.get(node.value)
            if base is not None and base.elements is not None:
                found.add(node.slice)
    for subscript in of_kind(analysis.info.node, ast.Subscript):
        base = values.get(subscript.value)
        if base is not None and base.tensor:
            found.update(part for part in indices(subscript) if is_one_index(part, analysis))
    return found


def indices(node: ast.Subscript) -> list[ast.expr]:
    """The indices of a subscript, one for each dimension that it names."""
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def read_tensor(node: ast.expr, analysis: Analysis) -> ast.expr | None:
    """The tensor of `t.item()`, `t.tolist()`, `int(t)` and their like; None for anything else."""
    found = _read(node, analysis)
    return found[0] if found is not None and found[1] not in _NOT_OF_TENSORS else None


def is_number(node: ast.expr, analysis: Analysis) -> bool:
    """Whether an expression reads one number from a tensor."""
    found = _read(node, analysis)
    return found is not None and found[1] is ReadKind.NUMBER


def _read(node: ast.expr, analysis: Analysis) -> tuple[ast.expr, ReadKind] | None:
    values = analysis.values
    if isinstance(node, ast.Call):
        function = node.func
        given = array_read(node, analysis)
        if given is not None:
            is_list = isinstance(function, ast.Attribute) and function.attr == "tolist"
            return given, ReadKind.ARRAY_LIST if is_list else ReadKind.ARRAY
        if isinstance(function, ast.Attribute) and not node.keywords:
            if function.attr in {"item", "tolist"} and not node.args:
                if _is_tensor(values.get(function.value)):
                    is_list = function.attr == "tolist"
                    return function.value, ReadKind.LIST if is_list else ReadKind.NUMBER
        if answers(node, analysis):
            return node, ReadKind.ANSWER
        value = values.get(function)
        name = value.reference if value is not None else None
        if name in NUMBERS and len(node.args) == 1 and not node.keywords:
            if _is_tensor(values.get(node.args[0])):
                return node.args[0], ReadKind.NUMBER
    if _is_tensor(values.get(node)):
        if needs_integer(node, analysis):
            return node, ReadKind.POSITION
        parent = analysis.info.module.parents.get(node)
        called = values.get(parent.func) if isinstance(parent, ast.Call) else None
        if called is not None and called.reference and takes_numbers(called.reference):
            return node, ReadKind.NUMBER
    return (node, ReadKind.INDEX) if is_one_index(node, analysis) else None


def is_one_index(node: ast.AST, analysis: Analysis) -> bool:
    """Whether a tensor of shape `[]`, computed in the graph, is an index of another tensor.

    Dynamo makes a number of it to select with; of what the graph is given, it knows one (seen on torch
    2.13).
    """
    value = analysis.values.get(node)
    if value is None or not value.tensor or value.boolean or value.floating:
        return False
    parents = analysis.info.module.parents
    parent = parents.get(node)
    if isinstance(parent, ast.Tuple):
        parent = parents.get(parent)
    if not isinstance(node, ast.expr) or not isinstance(parent, ast.Subscript):
        return False
    if node not in indices(parent):
        return False
    if not _is_tensor(analysis.values.get(parent.value)) or not is_computed(node, analysis):
        return False
    return value.zero_dim or (analysis.evaluator is not None and _rank(node, analysis) == 0)


def _rank(node: ast.expr, analysis: Analysis) -> int | None:
    """How many dimensions a tensor has, as far as the function says."""
    if _rank not in analysis.derived:
        assert analysis.evaluator is not None
        analysis.derived[_rank] = Ranks(analysis, analysis.evaluator.facts)
    ranks: Ranks = analysis.derived[_rank]
    return ranks.of(node)


def is_computed(node: ast.expr, analysis: Analysis) -> bool:
    """Whether a tensor is the result of an operation of the function."""
    if isinstance(node, ast.Name):
        if node.id in _parameters(analysis):
            return False
        if any(_goes_over(loop, node.id) for loop in of_kind(analysis.info.node, ast.For)):
            return True
        value = _assigned_once(analysis).get(node.id)
        return (
            value is not None and not isinstance(value, ast.Name) and is_computed(value, analysis)
        )
    if isinstance(node, ast.Call):
        made = analysis.values.get(node.func)
        return made is None or made.reference not in _MAKING
    return isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Subscript))


def _is_tensor(value: Value | None) -> bool:
    return value is not None and value.tensor


def _parameters(analysis: Analysis) -> set[str]:
    return {a.arg for a in walk(analysis.info.node.args) if isinstance(a, ast.arg)}


def _goes_over(loop: ast.For, name: str) -> bool:
    """Whether a loop binds a name, alone, to each element of what it goes over."""
    return isinstance(loop.target, ast.Name) and loop.target.id == name


def _tested(analysis: Analysis) -> set[ast.AST]:
    """Every node of a test that decides control flow."""
    found: set[ast.AST] = set()
    for condition in analysis.conditions.values():
        if isinstance(condition.owner, (ast.BoolOp, ast.UnaryOp)):
            continue
        found.update(walk(condition.test))
    for name, value in _assigned_once(analysis).items():
        uses = [n for n in found if isinstance(n, ast.Name) and n.id == name]
        if uses and len(uses) == _loads(name, analysis):
            found.update(walk(value))
    return found


def _assigned_once(analysis: Analysis) -> dict[str, ast.expr]:
    """Names that the function binds once, by itself, with the value they get."""
    stores: dict[str, list[ast.AST]] = {}
    for name in of_kind(analysis.info.node, ast.Name):
        if not isinstance(name.ctx, ast.Load):
            stores.setdefault(name.id, []).append(name)
    found: dict[str, ast.expr] = {}
    for node in of_kind(analysis.info.node, ast.Assign):
        if len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and len(stores[target.id]) == 1:
                found[target.id] = node.value
    return found


def _loads(name: str, analysis: Analysis) -> int:
    return sum(
        n.id == name and isinstance(n.ctx, ast.Load) for n in of_kind(analysis.info.node, ast.Name)
    )


def _statement(node: ast.AST, analysis: Analysis, module: Module) -> ast.stmt | None:
    """The statement of the function itself that a node stands in."""
    current: ast.AST = node
    while not isinstance(current, ast.stmt):
        if isinstance(current, ast.Lambda):
            return None
        parent = module.parents.get(current)
        if parent is None:
            return None
        current = parent
    statement, outer = current, module.parents.get(current)
    while outer is not None and outer is not analysis.info.node:
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            return None
        outer = module.parents.get(outer)
    return statement if outer is not None else None


def _only_eager(node: ast.AST, statement: ast.stmt, analysis: Analysis, module: Module) -> bool:
    """Whether a node stands in the eager part of a conditional expression, or in output."""
    current: ast.AST = node
    while current is not statement:
        parent = module.parents[current]
        if isinstance(parent, ast.IfExp) and current is not parent.test:
            condition = analysis.conditions.get(parent)
            asks = parent.test
            negated = isinstance(asks, ast.UnaryOp) and isinstance(asks.op, ast.Not)
            asks = asks.operand if isinstance(asks, ast.UnaryOp) and negated else asks
            if condition is not None and _asks(asks, analysis):
                return (current is parent.body) == negated
        current = parent
    return False


def _asks(test: ast.expr, analysis: Analysis) -> bool:
    return analysis.evaluator is not None and analysis.evaluator.facts.is_asked(test, analysis)
