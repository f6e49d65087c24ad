"""Tests on the paths through a function: what is asked, and what holds on each edge from then on.

Evaluates expressions under what earlier tests have established, and keeps track of code that only runs
in eager mode. Knows expressions; in which order statements run is the business of `flow`.
"""

from __future__ import annotations

import ast

from gbfix.analysis.equality import same_shapes, tensor_test
from gbfix.analysis.evaluate import Environment, Evaluator
from gbfix.analysis.facts import Facts
from gbfix.analysis.guarded_names import guarded_name
from gbfix.analysis.modes import OTHER_TRACING, Mode, asked_beside
from gbfix.analysis.narrowing import narrow
from gbfix.analysis.observed import proven
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.record import Analysis, Condition, Place
from gbfix.analysis.trees import walk
from gbfix.analysis.usage import tensor_locals
from gbfix.analysis.values import (
    UNKNOWN,
    Kind,
    Value,
    join,
    join_all,
    replace,
    sequence,
    tensor,
)


class Paths(Evaluator):
    """Evaluates the expressions of one function, each under what is known where it stands."""

    def __init__(self, info: FunctionInfo, facts: Facts, environment: Environment) -> None:
        super().__init__(facts, info.module, environment)
        self.info = info
        # One that does not know the analysis, or else they would hold each other.
        evaluator = Evaluator(facts, info.module)
        evaluator.values = self.values
        self.analysis = Analysis(info, self.values, evaluator=evaluator)
        self.mode = Mode()
        self.statement: ast.stmt = info.node
        self._owner: ast.stmt = info.node

    def compiling(self, test: ast.expr) -> bool:
        """Whether an expression asks if the code is being compiled."""
        return isinstance(test, ast.Call) and self.facts.asks_compiling(self.qualified(test.func))

    def _never(self, test: ast.expr) -> bool:
        """Whether a test asks for another way of tracing, or holds nowhere at all."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return any(self._never(v) for v in test.values)
        if isinstance(test, ast.Constant):
            return not test.value
        if isinstance(test, (ast.Name, ast.Attribute)):
            return self.qualified(test) == "typing.TYPE_CHECKING"
        return isinstance(test, ast.Call) and self.qualified(test.func) in OTHER_TRACING

    def assumed(self, mode: Mode, test: ast.expr, truth: bool) -> Mode:
        """The mode on one edge of a test; what is only run when not compiling is not compiled."""
        assumed = mode.assume(test, truth, self.compiling)
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, truth = test.operand, not truth
        return assumed._replace(eager=True) if truth and self._never(test) else assumed

    def condition(self, test: ast.expr, owner: ast.AST) -> None:
        """Evaluate a test operand by operand, each under what the earlier ones established."""
        self.analysis.conditions[owner] = Condition(owner, test, self.statement, self.mode.eager)
        self._owner = owner if isinstance(owner, ast.stmt) else self.statement
        self._operands(test, alone=True)

    def _operands(self, test: ast.expr, *, alone: bool) -> None:
        if isinstance(test, ast.BoolOp):
            outer, mode = self.environment, self.mode
            for value in test.values:
                if self.mode.eager:
                    self.analysis.eager.update(_leaves(value))
                self._operands(value, alone=False)
                truth = isinstance(test.op, ast.And)
                self.environment = narrow(self, self.environment, value, truth)
                self.mode = self.assumed(self.mode, value, truth)
            self.environment, self.mode = outer, mode
            self.values[test] = join_all(self.values.get(v, UNKNOWN) for v in test.values)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._operands(test.operand, alone=alone)
            self.values[test] = self.values.get(test.operand, UNKNOWN)
        else:
            self.evaluate(test)
            if self.facts.observed.decided(self.module, test, alone=alone):
                self.values[test] = proven(self.values.get(test))
                if isinstance(test, ast.Name) and test.id in self.environment:
                    self.environment = {**self.environment, test.id: self.values[test]}
            shapes = same_shapes(test, self.values)
            # Beside a compiled path for equal shapes, the call is left for shapes that differ.
            if shapes is not None and self.mode.excludes(shapes, self.compiling):
                self.analysis.eager.add(test)
            if self.mode.exclusions and not self.values[test].static:
                is_tensor = tensor_test(test, self.module)  # or, beside a compiled path, it is none
                if is_tensor is not None and self.mode.excludes(is_tensor, self.compiling):
                    self.analysis.eager.add(test)
                if asked_beside(self._owner, self.mode):
                    self.analysis.eager.add(test)
            named = guarded_name(test, self.analysis) if self.mode.exclusions else None
            if named is not None:
                held = self.assumed(self.mode, named.test, True)
                if held.eager or asked_beside(self._owner, held):
                    self.analysis.eager.add(test)

    def _ifexp(self, node: ast.IfExp) -> Value:
        self.condition(node.test, node)
        outer, mode = self.environment, self.mode
        values = []
        for branch, truth in ((node.body, True), (node.orelse, False)):
            self.environment = narrow(self, outer, node.test, truth)
            self.mode = self.assumed(mode, node.test, truth)
            values.append(self.evaluate(branch))
        self.environment, self.mode = outer, mode
        if self.compiling(node.test):  # what is traced gets the first
            return values[0]
        if self._never(node.test):
            return values[1]
        return join(*values)

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        value = super()._unaryop(node)
        if isinstance(node.op, ast.Not):
            condition = Condition(node, node.operand, self.statement, self.mode.eager)
            self.analysis.conditions[node] = condition
        return value

    def _call(self, node: ast.Call) -> Value:
        self.analysis.places[node] = Place(self.statement, self.mode)
        if self.mode.eager:
            self.analysis.eager.add(node)
        return super()._call(node)

    def _subscript(self, node: ast.Subscript) -> Value:
        self.analysis.places[node] = Place(self.statement, self.mode)
        return super()._subscript(node)

    def branch_of(self, name: str) -> Value:
        """What a local function gives as a branch of `torch.cond`: one tensor or several."""
        for node in walk(self.info.node):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                for inner in walk(node):
                    if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Tuple):
                        return sequence(tensor(unshared=True) for _ in inner.value.elts)
        return tensor(unshared=True)

    def bind(self, target: ast.AST, value: Value) -> None:
        """Bind a target, and forget what earlier tests said about it."""
        unknown = value.only(Kind.UNKNOWN | Kind.MAYBE) and not value.array
        if isinstance(target, ast.Name) and unknown:
            if target.id in tensor_locals(self.info.node, self.module):
                value = replace(value, kinds=Kind.TENSOR)
        super().bind(target, value)
        if isinstance(target, ast.Name):
            self.mode = self.mode.forget(target.id)
            prefix = f"{target.id}."
            for key in [k for k in self.environment if k.startswith(prefix)]:
                del self.environment[key]
        elif isinstance(target, ast.Attribute):
            self.analysis.sets_attributes = True
            self.mode = self.mode.forget(target.attr, "attr")


def _leaves(test: ast.expr) -> list[ast.expr]:
    if isinstance(test, ast.BoolOp):
        return [leaf for v in test.values for leaf in _leaves(v)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _leaves(test.operand)
    return [test]
