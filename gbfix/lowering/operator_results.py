"""Tells shape, dtype, device, memory and gradients of what a function returns, from its text.

The function is run with abstract values, both ways of each branch; loops until nothing changes. What
is not known to give a definite shape gives none. Knows nothing of operators.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from gbfix.analysis.conditions import Refused
from gbfix.analysis.trees import walk
from gbfix.fixes import Context
from gbfix.lowering import operator_values as known
from gbfix.lowering.operator_expressions import evaluate
from gbfix.lowering.operator_scope import Environment, Results, Scope
from gbfix.lowering.operator_values import NUMBER, Holds, Known, arithmetic, joined

_UNTRACKED = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.NamedExpr)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Match)


def results(context: Context, tensors: Sequence[str], numbers: Sequence[str]) -> Results:
    """What the function returns.

    Args:
        context: the function.
        tensors: parameters that are tensors.
        numbers: parameters that are Python numbers, or lists of them.

    Raises:
        Refused: where it does what is not followed.
    """
    node = context.info.node
    for inner in walk(ast.Module(node.body, [])):
        if isinstance(inner, (*_UNTRACKED, *_DEFINITIONS)):
            raise Refused("not-followed", f"`{type(inner).__name__.lower()}` is not followed here")
    environment = dict.fromkeys(numbers, NUMBER)
    for name in tensors:
        me = frozenset({name})
        environment[name] = Known(Holds.TENSOR, (name,), exact=True, grads=me, bases=me)
    run = _Run(Scope(context, environment))
    if run.block(node.body, dict(environment)) is not None:
        run.scope.results.returned.append([])
    return run.scope.results


class _Run:
    """The statements of a function, run with the values that its scope holds."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def block(self, body: Sequence[ast.stmt], environment: Environment) -> Environment | None:
        """Run statements; None if the end cannot be reached."""
        self.scope.environment = environment
        for statement in body:
            if not self.run(statement):
                return None
        return self.scope.environment

    def run(self, statement: ast.stmt) -> bool:
        """Run one statement; False if what follows cannot be reached from it."""
        if isinstance(statement, ast.Return):
            self._return(statement)
            return False
        if isinstance(statement, ast.Raise):
            return False
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            if statement.value is not None:
                value = evaluate(self.scope, statement.value)
                for target in getattr(statement, "targets", None) or [statement.target]:  # type: ignore[union-attr]
                    self.bind(target, value)
        elif isinstance(statement, ast.AugAssign):
            self._augmented(statement)
        elif isinstance(statement, ast.If):
            evaluate(self.scope, statement.test)
            entry = self.scope.environment
            ends = [self.block(body, dict(entry)) for body in (statement.body, statement.orelse)]
            return self._meet(ends)
        elif isinstance(statement, (ast.For, ast.While)):
            self._loop(statement)
        elif isinstance(statement, ast.With):
            if any(i.optional_vars for i in statement.items):
                raise Refused("not-followed", "`with` binds a name here")
            self._context_managers(statement)
            return self.block(statement.body, self.scope.environment) is not None
        elif isinstance(statement, ast.Expr):
            evaluate(self.scope, statement.value)
        elif isinstance(statement, ast.Assert):
            evaluate(self.scope, statement.test)
        elif not isinstance(
            statement, (ast.Pass, ast.Break, ast.Continue, ast.Import, ast.ImportFrom)
        ):
            kind = type(statement).__name__.lower()
            raise Refused("not-followed", f"`{kind}` is not followed here")
        return True

    def _context_managers(self, statement: ast.With) -> None:
        for item in statement.items:
            call = item.context_expr
            name = self.scope.qualified(call.func) if isinstance(call, ast.Call) else None
            if name != "torch.no_grad":
                raise Refused("not-followed", f"`with {ast.unparse(call)}` is not followed here")
        # In there values carry no gradients; which of them are used outside is not followed.
        self.scope.environment = {n: replace(v, grads=None) if v.grads else v
                            for n, v in self.scope.environment.items()}  # fmt: skip

    def _meet(self, ends: Sequence[Environment | None]) -> bool:
        reached = [end for end in ends if end is not None]
        if not reached:
            return False
        first = reached[0]
        for other in reached[1:]:
            names = first.keys() | other.keys()
            first = {name: joined(first.get(name), other.get(name)) for name in names}
        self.scope.environment = first
        return True

    def _loop(self, node: ast.For | ast.While) -> None:
        """Rounds until nothing changes; a `break` leaves with what some round has reached."""
        if node.orelse:
            raise Refused("not-followed", "`else` of a loop is not followed here")
        entry = self.scope.environment
        has_exit = any(isinstance(n, (ast.Break, ast.Continue)) for n in walk(node))
        for _ in range(8):
            self.scope.environment = dict(entry)
            if isinstance(node, ast.While):
                evaluate(self.scope, node.test)
            else:
                over = evaluate(self.scope, node.iter)
                grads, bases = known.of(over)
                counted = over.holds is Holds.NUMBER
                self.bind(
                    node.target, NUMBER if counted else Known(Holds.OTHER, grads=grads, bases=bases)
                )
            before = dict(self.scope.environment)
            end = self.block(node.body, self.scope.environment)
            ends: list[Environment | None] = [entry, before, end]
            if has_exit and end is not None:
                # Names that are bound on the way may be left in between.
                stored = {n.id for n in walk(node) if isinstance(n, ast.Name)
                          and isinstance(n.ctx, ast.Store)}  # fmt: skip
                ends.append(
                    {
                        n: v
                        if n not in stored or before.get(n) == v
                        else Known(Holds.OTHER, grads=None, bases=v.bases)
                        for n, v in end.items()
                    }
                )
            self._meet(ends)
            if self.scope.environment == entry:
                return
            entry = self.scope.environment
        raise Refused("not-followed", "a loop changes what its values are in each round")

    def _return(self, node: ast.Return) -> None:
        value = node.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            self.scope.results.returned.append([])
            return
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        self.scope.results.returned.append([(evaluate(self.scope, part), part) for part in parts])

    def bind(self, target: ast.expr, value: Known) -> None:
        """Store a value."""
        if isinstance(target, ast.Name):
            self.scope.environment[target.id] = value
        elif isinstance(target, ast.Subscript):
            self.scope.written(target.value, value)
            evaluate(self.scope, target.slice)
        elif isinstance(target, (ast.Tuple, ast.List)):
            part = value if value.holds is Holds.NUMBER else replace(
                Known(Holds.OTHER), grads=value.grads, bases=value.bases)  # fmt: skip
            for element in target.elts:
                self.bind(element, part)
        else:
            raise Refused("keeps-state", f"`{ast.unparse(target)}` outlives the call")

    def _augmented(self, node: ast.AugAssign) -> None:
        value = evaluate(self.scope, node.value)
        if not isinstance(node.target, ast.Name):
            self.bind(node.target, value)
            return
        old = self.scope.environment.get(node.target.id)
        if old is None:
            raise Refused("keeps-state", f"`{node.target.id}` outlives the call")
        if old.holds is Holds.NUMBER:
            self.scope.environment[node.target.id] = arithmetic([old, value])
        else:
            self.scope.written(node.target, value)
