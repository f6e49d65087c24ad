"""The statements that exist only because of a value that is reported: a time, a count, a handle.

From one statement the search follows the names that it binds to every statement that reads them.
All of these have to end in something that nothing computed in the region depends on: an attribute
that only records, a log call, a method of the handle itself. Knows names and effects, not what
the value is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.effects import effects
from gbfix.analysis.expressions import dotted
from gbfix.analysis.logs import is_log_call
from gbfix.analysis.trees import walk
from gbfix.fixes import Context
from gbfix.lowering.views import walk_scope

_HARMLESS = frozenset(
    "float int round str repr len max min sum abs format divmod list tuple dict".split()
)
_SIZES = frozenset(
    {"untyped_storage", "storage", "element_size", "numel", "nelement", "size", "dim"}
)
_RECORDS = frozenset({"append", "update", "add", "extend", "setdefault", "observe", "record"})


def reporting_slice(start: ast.stmt, call: ast.expr, context: Context) -> list[ast.stmt]:
    """The statements that can be skipped together with `start`, which holds `call`.

    Raises:
        Refused: if the value of the call, or anything else in the statements, is needed.
    """
    search = _Search(context, call)
    search.take(start)
    return search.statements


def shown_slice(start: ast.Assign, context: Context) -> list[ast.stmt]:
    """The statements that can be skipped together with `start` because what it binds is only shown.

    Raises:
        NotApplicable: if a value is needed for more than output.
    """
    search = _Search(context, None)
    try:
        search.take(start)
    except Refused as error:
        raise NotApplicable("not-only-output", error.sentence) from None
    return search.statements


class _Search:
    """Follows names; without a call, values of any computation, which may only be shown."""

    def __init__(self, context: Context, call: ast.expr | None) -> None:
        self.context = context
        self.call = call
        self.names: set[str] = set()
        self.kept_in: set[str] = set()
        self.statements: list[ast.stmt] = []

    def take(self, statement: ast.stmt) -> None:
        """Add a statement, and with it everything that depends on what it binds."""
        if any(s is statement for s in self.statements):
            return
        self.statements.append(statement)
        if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            self._assignment(statement)
        elif isinstance(statement, ast.Expr):
            self._expression(statement.value)
        else:
            raise Refused("value-used", "the value decides or returns something")

    def _assignment(self, statement: ast.Assign | ast.AugAssign | ast.AnnAssign) -> None:
        if statement.value is None:
            raise Refused("value-used", "the value is declared and not read")
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        kept = [t.value for t in targets if isinstance(t, ast.Subscript)]
        self.kept_in |= {ast.unparse(t) for t in kept if self.call is not None}
        self._only_reports(statement.value)
        for target in targets:
            if isinstance(target, ast.Name):
                self._follow(target.id)
            elif self.call is None:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if not isinstance(part, ast.Name):
                        raise Refused("value-used", "the value is kept")
                    self._follow(part.id)
            elif isinstance(target, ast.Attribute):
                self._record(target.attr)
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Attribute):
                self._only_reports(target.slice)
                self._record(target.value.attr)
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                self._only_reports(target.slice)
                self._record_global(target.value)
            else:
                raise Refused("value-used", "the value is kept where it is not followed")

    def _expression(self, node: ast.expr) -> None:
        """A call for its effect: of the thing itself, of a handle, or one that records a value."""
        if node is self.call:
            self._arguments(node)
            return
        analysis, facts = self.context.analysis, self.context.facts
        if not isinstance(node, ast.Call):
            raise Refused("value-used", "the value is used in a way that is not followed")
        if is_log_call(node, analysis, facts):
            self._arguments(node)
            return
        if isinstance(node.func, ast.Attribute) and self.call is not None:
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in self.names:
                self._arguments(node)
                return
            if node.func.attr in _RECORDS and isinstance(owner, (ast.Attribute, ast.Subscript)):
                place = owner.value if isinstance(owner, ast.Subscript) else owner
                if isinstance(place, ast.Attribute):
                    self._arguments(node)
                    self._record(place.attr)
                    return
            if node.func.attr in _RECORDS and isinstance(owner, ast.Name):
                self._arguments(node)
                self._record_global(owner)
                return
        raise Refused("value-used", f"`{ast.unparse(node.func)}` is given the value")

    def _arguments(self, node: ast.expr) -> None:
        """What a skipped call is given may do nothing besides."""
        assert isinstance(node, ast.Call)
        for part in [*node.args, *(k.value for k in node.keywords)]:
            found = effects([part], self.context.analysis, self.context.facts)
            names = any(isinstance(n, ast.NamedExpr) for n in walk(part))
            if found.mutated or found.attributes or found.random or found.control or names:
                raise Refused("effectful-arguments", "an argument changes something that is needed")

    def _only_reports(self, node: ast.expr) -> None:
        """An expression made of the call, of names that hold such values, and of plain numbers."""
        found = effects([node], self.context.analysis, self.context.facts)
        if found.mutated or found.attributes or found.random or found.stateful or found.control:
            raise Refused("does-more", "the statement does more than report")
        if self.call is None and found.unknown:
            raise Refused("does-more", f"`{found.first_unknown}` is called in the statement")
        for inner in walk_scope(node):
            if isinstance(inner, (ast.NamedExpr, ast.Lambda, ast.Yield, ast.Await)):
                raise Refused("does-more", "the statement does more than report")
            if not isinstance(inner, ast.Call) or self.call is None:
                continue
            if inner is self.call or self._known(inner):
                continue
            raise Refused("does-more", f"`{ast.unparse(inner.func)}` is called in the statement")

    def _known(self, node: ast.Call) -> bool:
        """The same measurement once more, arithmetic, or text."""
        if isinstance(self.call, ast.Call):
            if ast.unparse(node.func) == ast.unparse(self.call.func):
                return True
        if isinstance(node.func, ast.Name) and node.func.id in _HARMLESS:
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            if ast.unparse(node.func.value) in self.kept_in:
                return True  # `times[name] = times.get(name, 0.0) + seconds`
        if isinstance(node.func, ast.Attribute):
            if node.func.value is self.call:
                return True  # `datetime.now().strftime("%H")`
            asked = self.context.analysis.values.get(node.func.value)
            if node.func.attr in _SIZES and asked is not None and asked.tensor:
                return True
        owner = dotted(node.func)
        return owner is not None and owner.split(".")[0] in self.names

    def _follow(self, name: str) -> None:
        """Every read of a local name has to be in a statement that can be skipped, too."""
        if name in self.names:
            return
        self.names.add(name)
        info = self.context.info
        parameters = {a.arg for a in walk(info.node.args) if isinstance(a, ast.arg)}
        if name in parameters:
            raise Refused("value-used", f"`{name}` is a parameter")
        for node in walk(info.node):
            if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
                raise Refused("value-used", f"`{name}` belongs to an outer scope")
            if not isinstance(node, ast.Name) or node.id != name:
                continue
            self._use(node)

    def _use(self, node: ast.Name) -> None:
        parents = self.context.info.module.parents
        current: ast.AST = node
        while not isinstance(current, ast.stmt):
            if current in self.context.analysis.eager:
                return
            current = parents[current]
            if isinstance(current, (ast.Lambda, ast.GeneratorExp)):
                raise Refused("value-used", f"`{node.id}` is read by a nested function")
        above: ast.AST = current
        while above is not self.context.info.node:
            if above in self.context.analysis.eager:
                return
            above = parents[above]
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if above is not self.context.info.node:
                    raise Refused("value-used", f"`{node.id}` is read by a nested function")
        self.take(current)

    def _record(self, attribute: str) -> None:
        """An attribute that takes the value may not be read by anything that is compiled."""
        for node in self._reads(attribute):
            raise Refused(
                "value-used", f"`{ast.unparse(node)}` is read by compiled code (line {node.lineno})"
            )

    def _record_global(self, owner: ast.Name) -> None:
        """A list or dictionary of the module that takes the value, and that nothing here reads."""
        module, name = self.context.info.module, owner.id
        bound = module.bindings.get(name, [])
        if name in self.context.analysis.before.get(self.statements[-1], {}) or len(bound) != 1:
            raise Refused("value-used", f"`{name}` is given the value")
        for info in module.functions():
            if not self.context.facts.runs_compiled(info):
                continue
            for node in walk(info.node):
                if isinstance(node, ast.Name) and node.id == name:
                    parent = module.parents[node]
                    if self._skipped(node, module.parents):
                        continue
                    if not (isinstance(parent, ast.Attribute) and parent.attr in _RECORDS):
                        raise Refused("value-used", f"`{name}` is read by compiled code")

    def _reads(self, attribute: str) -> Iterator[ast.Attribute]:
        for module in self.context.facts.project.naming(attribute):
            for info in module.functions():
                if not self.context.facts.runs_compiled(info):
                    continue
                analysis = self.context.facts.analysis(info)
                for node in walk(info.node):
                    if (
                        isinstance(node, ast.Attribute)
                        and node.attr == attribute
                        and isinstance(node.ctx, ast.Load)
                        and not self._skipped(node, module.parents)
                        and not (
                            analysis is not None and _eager(node, module.parents, analysis.eager)
                        )
                        and not _is_target(node, module.parents)
                    ):
                        yield node

    def _skipped(self, node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
        current: ast.AST | None = node
        while current is not None:
            if any(s is current for s in self.statements):
                return True
            current = parents.get(current)
        return False


def _eager(node: ast.AST, parents: dict[ast.AST, ast.AST], eager: set[ast.AST]) -> bool:
    current: ast.AST | None = node
    while current is not None:
        if current in eager:
            return True
        current = parents.get(current)
    return False


def _is_target(node: ast.Attribute, parents: dict[ast.AST, ast.AST]) -> bool:
    """`self.times` in `self.times["a"] = ...`: written through, not read."""
    parent = parents.get(node)
    return isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)
