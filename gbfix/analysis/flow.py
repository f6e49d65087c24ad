"""Abstract execution of one function: environments along paths, conditions met, values returned.

Walks the statements of a function in order and joins environments where paths meet; what tests say
of each path is told by `paths`. The result is plain data; what is a break site, `sites` decides.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from gbfix.analysis.bindings import import_bindings
from gbfix.analysis.calls import item_of
from gbfix.analysis.decorators import leaves_to_operator
from gbfix.analysis.evaluate import Environment, dotted
from gbfix.analysis.facts import Facts
from gbfix.analysis.modes import Mode
from gbfix.analysis.narrowing import narrow
from gbfix.analysis.operators import binary
from gbfix.analysis.paths import Paths
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.record import Analysis, Condition, Place, merge
from gbfix.analysis.trees import children, is_generator, takes_all, walk
from gbfix.analysis.values import (
    MAYBE,
    NONE,
    UNKNOWN,
    Kind,
    Value,
    container,
    join,
    join_all,
    reference,
    replace,
    settled,
    tensor,
)

__all__ = ["Analysis", "Condition", "analyze", "merge"]


def analyze(info: FunctionInfo, facts: Facts) -> Analysis:
    """Analyze a function. Takes time in proportion to its length."""
    environment: Environment = {}
    if info.outer is not None:
        environment |= _closure(info.outer, facts)
    environment |= facts.parameters(info)
    flow = _Flow(info, facts, environment)
    end = flow.block(info.node.body, environment)
    if end is not None:
        flow.returns.append(NONE)
    flow.analysis.returned = join_all(flow.returns) if flow.returns else NONE
    if info.module.has_generators and is_generator(info.node):
        flow.analysis.returned = container(MAYBE)
    return flow.analysis


def _closure(outer: FunctionInfo, facts: Facts) -> Environment:
    """Names that a nested function can see: what the outer function ever binds."""
    analysis = facts.analysis(outer)
    if analysis is None:
        return dict(facts.parameters(outer))
    found: Environment = dict(facts.parameters(outer))
    for environment in analysis.before.values():
        for name, value in environment.items():
            found[name] = join(found[name], value) if name in found else value
    return {n: settled(replace(v, unshared=False, unbound=False)) for n, v in found.items()}


_HANDLERS: dict[type[ast.stmt], Callable[..., Environment | None] | None] = {}


class _Flow(Paths):
    """Runs the statements of a function, and keeps what it returns and where loops are left."""

    def __init__(self, info: FunctionInfo, facts: Facts, environment: Environment) -> None:
        super().__init__(info, facts, environment)
        self.returns: list[Value] = []
        self.breaks: list[list[Environment]] = []

    def block(self, body: Sequence[ast.stmt], environment: Environment) -> Environment | None:
        """Run statements; None if the end cannot be reached."""
        self.environment = environment
        mode = self.mode
        for statement in body:
            self.statement = statement
            self.analysis.before[statement] = dict(self.environment)
            if self.mode.eager:
                self.analysis.eager.add(statement)
            after = self._run(statement)
            if after is None:
                self.mode = mode
                return None
            self.environment = after
        self.mode = mode
        return self.environment

    def _run(self, statement: ast.stmt) -> Environment | None:
        kind = statement.__class__
        try:
            handler = _HANDLERS[kind]
        except KeyError:
            handler = _HANDLERS[kind] = getattr(_Flow, f"_do_{kind.__name__.lower()}", None)
        if handler is not None:
            return handler(self, statement)
        for child in children(statement):
            if isinstance(child, ast.expr):
                self.evaluate(child)
        return self.environment

    def _do_expr(self, node: ast.Expr) -> Environment:
        # The body of a loop is walked more than once, the last time with all that is known.
        self.analysis.statements[node] = self.mode.eager
        self.evaluate(node.value)
        call = node.value
        if isinstance(call, ast.Call):  # append, register_buffer, a helper that keeps its argument
            for argument in [*call.args, *(k.value for k in call.keywords)]:
                if isinstance(argument, (ast.Name, ast.Tuple, ast.List, ast.Dict)):
                    self._share(argument)
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "register_buffer"
            and len(call.args) >= 2
            and isinstance(call.args[0], ast.Constant)
        ):
            owner = dotted(call.func.value)
            value = self.values[call.args[1]]
            if value.only(Kind.UNKNOWN | Kind.MAYBE):
                value = self.values[call.args[1]] = tensor()  # nothing else can be registered
            self.environment[f"{owner}.{call.args[0].value!s}"] = value
        return self.environment

    def _do_assign(self, node: ast.Assign) -> Environment:
        value = self.evaluate(node.value)
        if isinstance(node.value, (ast.Name, ast.Attribute)) or len(node.targets) > 1:
            value = replace(value, unshared=False)
        if not value.unshared:
            self._share(node.value)
        for target in node.targets:
            self.bind(target, value)
            if isinstance(target, ast.Name):
                self.mode = self.mode.bound(target, node.value, self.compiling)
        return self.environment

    def _share(self, node: ast.expr) -> None:
        """Names that a value may share storage with are no longer the only way to it."""
        if node.__class__ is ast.Constant:
            return
        for inner in (node,) if node.__class__ is ast.Name else walk(node):
            if inner.__class__ is ast.Name and isinstance(inner.ctx, ast.Load):
                known = self.environment.get(inner.id)
                if known is not None and known.unshared:
                    self.environment[inner.id] = replace(known, unshared=False)

    def _do_annassign(self, node: ast.AnnAssign) -> Environment:
        if node.value is not None:
            value = self.evaluate(node.value)
            promised = self.annotation(node.annotation)
            if promised is not None and value.kinds & (Kind.UNKNOWN | Kind.MAYBE):
                value = promised
            if not value.unshared or isinstance(node.value, ast.Name):
                self._share(node.value)
                value = replace(value, unshared=False)
            self.bind(node.target, value)
        return self.environment

    def _do_augassign(self, node: ast.AugAssign) -> Environment:
        if isinstance(node.target, ast.Subscript):  # read before it is written
            self.analysis.places[node.target] = Place(self.statement, self.mode)
            self.evaluate(node.target.value)
            self.evaluate(node.target.slice)
            self.evaluate(node.value)
            return self.environment
        old = self.evaluate(_as_load(node.target))
        self.values[node.target] = old
        value = binary(node.op, old, self.evaluate(node.value))
        if old.tensor and not isinstance(node.op, ast.MatMult):  # changed in place
            value = replace(
                value,
                unshared=old.unshared,
                dtype=old.dtype,
                shape=old.shape,
                boolean=old.boolean,
                floating=old.floating,
                integer=old.integer,
                zero_dim=old.zero_dim,
            )
        self.bind(node.target, value)
        return self.environment

    def _do_return(self, node: ast.Return) -> None:
        self.returns.append(NONE if node.value is None else self.evaluate(node.value))

    def _do_raise(self, node: ast.Raise) -> None:
        for part in (node.exc, node.cause):
            if part is not None:
                self.evaluate(part)

    def _do_break(self, node: ast.Break) -> None:
        if self.breaks:
            self.breaks[-1].append(dict(self.environment))

    _do_continue = _do_break

    def _do_assert(self, node: ast.Assert) -> Environment:
        self.condition(node.test, node)
        if node.msg is not None:
            self.evaluate(node.msg)
        return narrow(self, self.environment, node.test, True)

    def _do_delete(self, node: ast.Delete) -> Environment:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.environment.pop(target.id, None)
        return self.environment

    def _do_if(self, node: ast.If) -> Environment | None:
        self.condition(node.test, node)
        outer, mode = self.environment, self.mode
        ends: list[Environment | None] = []
        modes: list[Mode] = []
        for body, truth in ((node.body, True), (node.orelse, False)):
            self.mode = self.assumed(mode, node.test, truth)
            modes.append(self.mode)
            end = self.block(body, dict(narrow(self, outer, node.test, truth)))
            ends.append(end)
            if end is not None:
                self.analysis.ends[node, truth] = dict(end)
        self.statement, self.mode = node, mode
        if ends[0] is None and ends[1] is not None:
            self.mode = modes[1]
            if leaves_to_operator(node, self.info.module, self.compiling):
                self.mode = Mode(self.mode.steps, self.mode.exclusions, eager=True)
        elif ends[1] is None and ends[0] is not None:
            self.mode = modes[0]
        return merge(ends)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> Environment | None:
        entry, mode = self.environment, self.mode
        state = dict(entry)
        left: list[Environment] = []
        for _ in range(2):
            self.environment = dict(state)
            if isinstance(node, ast.While):
                self.condition(node.test, node)
                self.environment = dict(narrow(self, self.environment, node.test, True))
            else:
                self.bind(node.target, item_of(self.evaluate(node.iter)))
            self.breaks.append([])
            end = self.block(node.body, self.environment)
            if end is not None:
                self.analysis.rounds[node] = dict(end)
            left = self.breaks.pop()
            self.statement, self.mode = node, mode
            state = merge([entry, end, *left]) or entry
        if node.orelse:
            return merge([self.block(node.orelse, dict(state)), *left])
        endless = (
            isinstance(node, ast.While)
            and isinstance(node.test, ast.Constant)
            and bool(node.test.value)
        )
        return merge(list(left)) if endless else state

    _do_for = _do_asyncfor = _do_while = _loop

    def _do_with(self, node: ast.With | ast.AsyncWith) -> Environment | None:
        for item in node.items:
            value = self.evaluate(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, replace(value, elements=None))
        return self.block(node.body, self.environment)

    _do_asyncwith = _do_with

    def _do_try(self, node: ast.Try) -> Environment | None:
        entry = dict(self.environment)
        end = self.block(node.body, dict(entry))
        partial = merge([entry, end]) or entry
        ends: list[Environment | None] = []
        for handler in node.handlers:
            start = dict(partial)
            if handler.name:
                start[handler.name] = Value(Kind.OBJECT)
            ends.append(self.block(handler.body, start))
        if end is not None and node.orelse:
            end = self.block(node.orelse, end)
        after = merge([end, *ends])
        if node.finalbody:
            final = self.block(node.finalbody, dict(after if after is not None else partial))
            return None if after is None else final
        return after

    _do_trystar = _do_try

    def _do_match(self, node: ast.Match) -> Environment | None:
        self.condition(node.subject, node)
        outer = self.environment
        ends: list[Environment | None] = [] if takes_all(node.cases[-1]) else [outer]
        for case in node.cases:
            self.environment = dict(outer)
            for pattern in walk(case.pattern):
                name = getattr(pattern, "name", None)
                if isinstance(name, str):
                    self.environment[name] = UNKNOWN
            if case.guard is not None:
                self.condition(case.guard, case)
            ends.append(self.block(case.body, self.environment))
        return merge(ends)

    def _do_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Environment:
        for decorator in node.decorator_list:
            self.evaluate(decorator)
        self.environment[node.name] = reference(f"{self.info.qualified}.<locals>.{node.name}")
        return self.environment

    _do_asyncfunctiondef = _do_functiondef

    def _do_classdef(self, node: ast.ClassDef) -> Environment:
        self.environment[node.name] = reference(f"{self.info.qualified}.{node.name}")
        return self.environment

    def _do_import(self, node: ast.Import | ast.ImportFrom) -> Environment:
        for name, target in import_bindings(node, self.module).items():
            self.environment[name] = self.facts.named(target)
        return self.environment

    _do_importfrom = _do_import


def _as_load(target: ast.expr) -> ast.expr:
    """A target read as an expression, at the same place."""
    if isinstance(target, ast.Name):
        made: ast.expr = ast.Name(target.id, ast.Load())
    elif isinstance(target, ast.Attribute):
        made = ast.Attribute(target.value, target.attr, ast.Load())
    else:
        return target
    return ast.copy_location(made, target)
