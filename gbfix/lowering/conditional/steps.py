"""Writes the statements of an arm so that their updates only count where a predicate holds.

Loops and static branches stay around the updates, and functions of the same module that are called for
nothing but theirs are written out. Knows statements, nothing of the test that decides.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gbfix.analysis.conditions import Refused, data_kind, leaves, split
from gbfix.codegen.layout import indent
from gbfix.codegen.predicates import Renderer, single
from gbfix.fixes import Context
from gbfix.lowering.conditional.calls import is_mode, written_out
from gbfix.lowering.conditional.checks import check_computed, check_fresh
from gbfix.lowering.conditional.scope import Scope
from gbfix.lowering.conditional.updates import (
    Written,
    augmented_update,
    called_update,
    part_augmented,
    part_update,
    update_calls,
)
from gbfix.lowering.unbounded import unbounded
from gbfix.lowering.unread import is_never_read
from gbfix.lowering.views import compiled_view


@dataclass
class MaskedSteps:
    """Writes arms, and keeps what was written.

    `inside` holds the nodes that are written anew, so that the names they alone use are theirs.
    """

    context: Context
    torch: str
    inside: frozenset[ast.AST]
    written: Written = field(default_factory=Written, init=False)

    def lines(self, statements: Sequence[ast.stmt], predicate: str) -> list[str]:
        """The statements of an arm.

        Raises:
            Refused: where one does more than update tensors in place.
        """
        scope = Scope(self.context, self.context.analysis, self.torch, predicate, self.inside)
        return self._block(statements, scope)

    def _block(self, statements: Sequence[ast.stmt], scope: Scope) -> list[str]:
        return [line for s in statements for line in self._statement(s, scope)]

    def _statement(self, statement: ast.stmt, scope: Scope) -> list[str]:
        if isinstance(statement, ast.Pass):
            return []
        if isinstance(statement, ast.Continue):
            return ["continue"]
        if isinstance(statement, (ast.For, ast.If, ast.With)):
            return self._compound(statement, scope)
        self.written.unbounded += unbounded(statement, scope.analysis, scope.context.facts)
        if isinstance(statement, ast.Expr):
            if isinstance(statement.value, ast.Constant):
                return []
            return self._expression(statement, scope)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Subscript):
            return part_augmented(statement, statement.target, scope, self.written)
        if isinstance(statement, ast.AugAssign):
            return [augmented_update(statement, scope, self.written)]
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            return self._assigned(statement, statement.targets[0], scope)
        raise Refused("statement-in-arm", f"line {statement.lineno} is no update in place")

    def _compound(self, statement: ast.For | ast.If | ast.With, scope: Scope) -> list[str]:
        unit = scope.context.unit
        if isinstance(statement, ast.For):
            value = scope.analysis.values.get(statement.iter)
            if statement.orelse or value is None or value.tensor:
                raise Refused("statement-in-arm", "an arm loops over a tensor, or has `else`")
            check_computed([statement.iter], scope)
            check_fresh(statement.target, scope)
            head = f"for {scope.text(statement.target)} in {scope.text(statement.iter)}:"
            body = self._block(statement.body, scope)
        elif isinstance(statement, ast.With):
            names = [ast.unparse(i.context_expr) for i in statement.items]
            if not all(map(is_mode, names)) or any(
                i.optional_vars is not None for i in statement.items
            ):
                raise Refused("statement-in-arm", f"an arm enters `{names[0]}`")
            head = f"with {', '.join(names)}:"
            body = self._block(statement.body, scope)
        else:
            traced = compiled_view([statement], scope.analysis, scope.context.facts)
            if traced != [statement] and scope.analysis.eager:
                return self._block(traced, scope)
            if any(data_kind(leaf, scope.analysis) for leaf in leaves(statement.test)):
                return self._decided(statement, scope)
            check_computed([statement.test], scope)
            head = f"if {scope.text(statement.test)}:"
            body = self._block(statement.body, scope)
            if statement.orelse:
                rest = self._block(statement.orelse, scope)
                made = [head, *_indented(body, unit)]
                return [*made, "else:", *_indented(rest, unit)] if rest else made
        return [head, *_indented(body, unit)]

    def _decided(self, statement: ast.If, scope: Scope) -> list[str]:
        """An inner branch on a tensor: its updates count where both tests hold."""
        context = scope.context
        if scope.depth:
            raise Refused("break-in-arm", "a function that an arm calls branches on a tensor")
        check_computed([statement.test], scope)
        parts = split(statement.test, scope.analysis, context.facts)
        if parts.guards:
            raise Refused("break-in-arm", "an arm branches on a tensor and on what is static")
        renderer = Renderer(context.view, scope.analysis, scope.torch)
        test = single(renderer.render(parts.predicate))
        condition = test.operand if test.boolean else f"({test.operand} != 0)"
        name = context.names.take("holds")
        lines = [f"{name} = {scope.predicate} & {condition}"]
        other = ""
        if statement.orelse:
            other = context.names.take("holds")
            lines.append(f"{other} = {scope.predicate} & ~{name}")
        lines += self._block(statement.body, replace(scope, predicate=name))
        lines += self._block(statement.orelse, replace(scope, predicate=other))
        self.written.nested = True
        return lines

    def _expression(self, statement: ast.Expr, scope: Scope) -> list[str]:
        if update_calls(statement.value)[1]:
            return [called_update(statement, scope, self.written)]
        call = written_out(statement.value, scope)
        body = self._block(call.body, call.scope)
        for mode in reversed(call.modes):
            body = [f"with {mode}:", *_indented(body, scope.context.unit)]
        return [*call.lead, *body]

    def _assigned(self, statement: ast.Assign, target: ast.expr, scope: Scope) -> list[str]:
        if isinstance(target, ast.Subscript):
            return part_update(statement, target, scope, self.written)
        if isinstance(target, ast.Attribute) and isinstance(statement.value, ast.Constant):
            value = scope.analysis.values.get(target.value)
            if is_never_read(target.attr, value, scope.context.facts):
                self.written.unset.append(scope.text(target))
                return []
        if not isinstance(target, ast.Name):
            raise Refused("statement-in-arm", f"an arm assigns `{ast.unparse(target)}`")
        check_fresh(target, scope)
        check_computed([statement.value], scope)
        return [f"{scope.text(target)} = {scope.text(statement.value)}"]


def _indented(lines: list[str], unit: str) -> list[str]:
    return [indent(line, unit) for line in lines or ["pass"]]
