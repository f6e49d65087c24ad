"""Splits the body of a function into parts that are compiled and what stays between them in Python.

A part is a run of statements in one block, with the names that it takes and gives. What holds a break,
uses a value that must not enter a graph, or decides where control goes stays. A statement that stays is
taken apart around the call that breaks, so that what is computed for it and with it is compiled. Knows
statements and names; what stays is told by the caller.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gbfix.analysis.conditions import Refused
from gbfix.analysis.liveness import reads
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import called
from gbfix.analysis.values import Kind
from gbfix.fixes import Context
from gbfix.lowering.bindings import needed_names, stored, surely_bound

_LEAVES = (ast.Return, ast.Break, ast.Continue)
_UNUSUAL = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global,
    ast.Nonlocal, ast.Delete, ast.Yield, ast.YieldFrom, ast.Await, ast.Try, ast.Match, ast.NamedExpr,
)  # fmt: skip
_CONDITIONAL = (
    ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
_FILLED = frozenset("zeros ones full empty arange tensor eye linspace".split())


@dataclass(frozen=True)
class Item:
    """A statement, or one of those that it is taken apart into.

    Attributes:
        statement: the statement of the source.
        text: what replaces it; None where it stays as it is written.
        needs: names that it reads before it binds them.
        binds: names that it surely binds.
        may_bind: names that it binds on some path.
        stays: it has to run in Python.
        works: it computes with tensors.
        returns: it may end the function.
        later: names that what follows in the same statement reads.
    """

    statement: ast.stmt
    text: str | None
    needs: frozenset[str]
    binds: frozenset[str]
    may_bind: frozenset[str]
    stays: bool
    works: bool
    returns: bool = False
    later: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Part:
    """A run of statements that is compiled as a function of its own."""

    items: tuple[Item, ...]
    place: str
    given: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def returns(self) -> bool:
        """Whether the part ends the function, and what it returns is returned."""
        return any(item.returns for item in self.items)


@dataclass(frozen=True)
class Divided:
    """The parts of a function in source order, and the statements that were taken apart."""

    parts: tuple[Part, ...]
    apart: tuple[tuple[Item, ...], ...]


class Divider:
    """Divides one function.

    Attributes:
        context: the function.
        broken: the nodes that cannot be part of a graph.
        draws: those of them that draw a number in Python.
        kept: names whose values cannot enter a graph.
        kept_calls: the calls of `broken` that give such a value.
    """

    def __init__(
        self,
        context: Context,
        broken: Sequence[ast.AST],
        draws: Sequence[ast.AST],
        kept: frozenset[str],
        kept_calls: frozenset[ast.AST],
    ) -> None:
        self.context = context
        self.broken = broken
        self.draws = draws
        self.kept = kept
        self.kept_calls = kept_calls
        self.parts: list[Part] = []
        self.apart: list[tuple[Item, ...]] = []
        spec = context.info.node.args
        self.own = {a.arg for a in walk(spec) if isinstance(a, ast.arg)} | {
            n.id
            for n in walk(context.info.node)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }

    def divide(self) -> Divided:
        """Find the parts.

        Raises:
            Refused: where a part would take or give what may have no value.
        """
        self._block(self.context.info.node.body, "")
        return Divided(tuple(self.parts), tuple(self.apart))

    def _block(self, block: Sequence[ast.stmt], loop: str) -> None:
        ending = 0 if loop else self._ending(block)
        run: list[Item] = []
        for index, statement in enumerate(block):
            final = not loop and index >= len(block) - ending
            items = self._items(statement, final=final)
            if len(items) > 1:
                self.apart.append(items)
            for item in items:
                if not item.stays:
                    run.append(item)
                    continue
                self._flush(run, loop or ("start" if not self.parts else "part"))
                run = []
            if items[-1].stays and isinstance(statement, (ast.For, ast.While)):
                if self._is_broken(statement):
                    self._block(statement.body, "round")
        self._flush(run, loop or ("end" if ending else "part"))

    def _ending(self, block: Sequence[ast.stmt]) -> int:
        """How many statements at the end of a function stay nowhere, whatever they return."""
        count = 0
        for statement in reversed(block):
            if self._stays(statement, final=True):
                count += isinstance(statement, ast.Return)
                break
            count += 1
        return count

    def _items(self, statement: ast.stmt, *, final: bool) -> tuple[Item, ...]:
        stays = self._stays(statement, final=final)
        parts = self._split(statement, final=final) if stays else None
        if parts is not None:
            return parts
        return (self._item(statement, stays=stays),)

    def _item(self, statement: ast.stmt, *, stays: bool) -> Item:
        sure = surely_bound(statement)
        return Item(
            statement,
            None,
            needed_names(statement),
            sure,
            stored(statement),
            stays,
            self._works(statement),
            any(isinstance(n, ast.Return) for n in walk(statement)),
        )

    def _stays(self, statement: ast.stmt, *, final: bool) -> bool:
        if self._is_broken(statement):
            return True
        nodes = list(walk(statement))
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return True
        if any(isinstance(n, _UNUSUAL) for n in nodes):
            return True
        if any(isinstance(n, ast.Name) and n.id in {*self.kept, "super"} for n in nodes):
            return True
        return self._leaves(statement, final=final)

    def _leaves(self, statement: ast.stmt, *, final: bool) -> bool:
        """Whether a statement leaves the function or the loop that it stands in."""
        nodes = list(walk(statement))
        leaves = [n for n in nodes if isinstance(n, _LEAVES) and not _in_own_loop(n, nodes)]
        return any(not (final and isinstance(n, ast.Return)) for n in leaves)

    def _is_broken(self, statement: ast.stmt) -> bool:
        inside = {id(n) for n in walk(statement)}
        return any(id(b) in inside for b in self.broken)

    def _works(self, node: ast.AST) -> bool:
        """Whether something computes with tensors that it is given."""
        values = self.context.analysis.values
        for inner in walk(node):
            value = values.get(inner)
            if value is None or not value.kinds & (Kind.TENSOR | Kind.MAYBE):
                continue
            if isinstance(inner, (ast.BinOp, ast.UnaryOp, ast.Subscript)):
                return True
            if isinstance(inner, ast.Call):
                name = ast.unparse(inner.func).rpartition(".")[2]
                if name not in _FILLED:
                    return True
        return False

    def _split(self, statement: ast.stmt, *, final: bool) -> tuple[Item, ...] | None:
        """A statement taken apart around the one expression in it that stays in Python."""
        value = _evaluated(statement)
        pivot = self._pivot(statement, value) if value is not None else None
        if value is None or pivot is None:
            return None
        view, names = self.context.view, self.context.names
        returns = any(isinstance(n, ast.Return) for n in walk(statement))
        before = [a for a in _computed(pivot) if self._works(a) and not self._is_kept(a)]
        after = isinstance(statement, ast.If) or (
            pivot is not value and self._works_around(value, pivot)
        )
        if not before and not after:
            return None
        if pivot in self.kept_calls and pivot is not value:
            return None
        if isinstance(statement, ast.If) and self._leaves(statement, final=final):
            return None
        if not self._may_part(value, pivot) or "\n" in view.text(value):
            return None
        taken = set(names.taken)
        items: list[Item] = []
        base, text = view.start(pivot), view.text(pivot)
        for argument in reversed(before):
            name = names.take("given")
            start = view.start(argument) - base
            text = f"{text[:start]}{name}{text[start + len(view.text(argument)) :]}"
            items.insert(
                0, self._made(statement, f"{name} = {view.text(argument)}", argument, name)
            )
        made = frozenset(n for i in items for n in i.binds)
        moved = {id(n) for a in before for n in walk(a)}
        needs = made | frozenset(
            n.id for n in walk(pivot) if isinstance(n, ast.Name) and id(n) not in moved
        )
        name = text
        if after:
            name = names.take("drawn" if isinstance(statement, ast.If) else "made")
            item = self._made(statement, f"{name} = {text}", pivot, name)
            items.append(replace(item, needs=needs, stays=True))
            needs = frozenset({name})
        whole = view.slice(view.start(statement), base) + name
        whole += view.slice(view.end(pivot), view.end(statement))
        inner = view.indent(statement)
        left = _reads_without(statement, pivot)
        stays = not after or bool(left & self.kept) or self._leaves(statement, final=final)
        items.append(
            Item(
                statement,
                "\n".join(line.removeprefix(inner) for line in whole.split("\n")),
                left | needs,
                surely_bound(statement),
                stored(statement),
                stays,
                after,
                returns,
            )
        )
        self.own |= {n for i in items[:-1] for n in i.binds}
        names.taken = taken | self.own
        for index, item in enumerate(items):
            later = frozenset(n for i in items[index + 1 :] for n in i.needs)
            items[index] = replace(item, later=later)
        return tuple(items)

    def _pivot(self, statement: ast.stmt, value: ast.expr) -> ast.expr | None:
        """The one expression that breaks, or that uses what must not enter a graph."""
        inside = {id(n) for n in walk(statement)}
        found = [b for b in self.broken if id(b) in inside]
        if found:
            only = found[0]
            if len(found) > 1 or not isinstance(only, ast.Call):
                return None
            return self._whole(only) if any(n is only for n in walk(value)) else None
        using = [n for n in walk(value) if isinstance(n, ast.expr) and self._uses_kept(n)]
        named = [n for n in walk(statement) if isinstance(n, ast.Name) and n.id in self.kept]
        loads = [n for n in named if isinstance(n.ctx, ast.Load)]
        if len(using) != 1 or len(loads) != len(named):
            return None
        return using[0] if all(any(n is m for m in walk(using[0])) for n in loads) else None

    def _whole(self, call: ast.Call) -> ast.expr:
        """A call with the methods that are called on what it gives, where that may enter no graph."""
        parents = self.context.info.module.parents
        while call in self.kept_calls:
            attribute = parents.get(call)
            above = parents.get(attribute) if isinstance(attribute, ast.Attribute) else None
            if not isinstance(above, ast.Call):
                break
            call = above
        return call

    def _uses_kept(self, node: ast.expr) -> bool:
        """Whether an operand of an expression is a name of what must not enter a graph."""
        operands: list[ast.expr] = []
        if isinstance(node, ast.Call):
            operands = [*node.args, *(k.value for k in node.keywords)]
            if isinstance(node.func, ast.Attribute):
                operands.append(node.func.value)
        elif isinstance(node, ast.BinOp):
            operands = [node.left, node.right]
        return any(isinstance(o, ast.Name) and o.id in self.kept for o in operands)

    def _made(self, statement: ast.stmt, text: str, node: ast.expr, name: str) -> Item:
        names = frozenset({name})
        return Item(statement, text, frozenset(reads(node)), names, names, False, True)

    def _works_around(self, value: ast.expr, call: ast.expr) -> bool:
        """Whether an expression computes with tensors besides a call in it, and calls no part."""
        around = [n for n in _above(value, call) if isinstance(n, (ast.BinOp, ast.Call))]
        calls = [n for n in around if isinstance(n, ast.Call)]
        if len(around) == 1 and calls and self._is_own_function(calls[0]):
            return False
        values = self.context.analysis.values
        return any(
            (v := values.get(n)) is not None and v.kinds & (Kind.TENSOR | Kind.MAYBE)
            for n in around
        )

    def _is_own_function(self, call: ast.Call) -> bool:
        """Whether a call is one that Dynamo compiles by itself, of what is at hand."""
        value = self.context.analysis.values.get(call.func)
        facts = self.context.facts
        if value is None or value.reference is None:
            return False
        known = facts.project.function_info(value.reference) or facts.project.class_info(
            value.reference
        )
        plain = (ast.Name, ast.Attribute, ast.Constant)
        arguments = [*call.args, *(k.value for k in call.keywords)]
        return known is not None and all(
            isinstance(a, plain) or any(n in self.broken for n in walk(a)) for a in arguments
        )

    def _may_part(self, value: ast.expr, call: ast.expr) -> bool:
        """Whether an expression can be evaluated before the one that it stands in."""
        above = list(_above(value, call))
        if any(
            isinstance(n, _CONDITIONAL) or (isinstance(n, ast.Compare) and len(n.ops) > 1)
            for n in above
        ):
            return False
        inside = {id(n) for n in walk(call)} | {id(n) for n in above}
        start = self.context.view.start(call)
        draws = isinstance(call, ast.Call) and call in self.draws
        return not any(
            isinstance(n, ast.Call)
            and id(n) not in inside
            and self.context.view.start(n) < start
            and not (draws and self._is_of_torch(n))
            for n in walk(value)
        )

    def _is_of_torch(self, call: ast.Call) -> bool:
        """Whether a call is one of a function of torch or of a tensor: it draws nothing in Python."""
        values = self.context.analysis.values
        layer = values.get(call.func)
        if layer is not None and layer.only(Kind.MODULE):
            return (layer.reference or "").startswith("torch.nn.")
        name = called(call, self.context.analysis)
        if name is not None:
            return name.startswith("torch.")
        receiver = values.get(call.func.value) if isinstance(call.func, ast.Attribute) else None
        return receiver is not None and receiver.tensor

    def _is_kept(self, node: ast.AST) -> bool:
        return any(isinstance(n, ast.Name) and n.id in self.kept for n in walk(node))

    def _flush(self, run: Sequence[Item], place: str) -> None:
        items = list(run)
        while items and not items[0].works:
            del items[0]
        while items and not items[-1].works and not any(i.returns for i in items):
            del items[-1]
        if not any(i.works for i in items):
            return
        if len(items) == 1 and items[0].text is None and self._is_call(items[0].statement):
            return
        only = items[0].statement
        if len(items) == 1 and isinstance(only, ast.If) and items[0].text is None:
            arms = [any(map(self._works, arm)) for arm in (only.body, only.orelse)]
            # A graph that does nothing makes Dynamo give up the function for good.
            if not items[0].returns and not all(arms):
                self._block(only.body, place)
                self._block(only.orelse, place)
                return
        given, results = self._interface(items)
        self.parts.append(Part(tuple(items), place, given, results))

    def _is_call(self, statement: ast.stmt) -> bool:
        """`h = self.encode(x)`: the function is compiled by itself."""
        if not isinstance(statement, (ast.Assign, ast.Return, ast.Expr)):
            return False
        return isinstance(statement.value, ast.Call) and self._is_own_function(statement.value)

    def _interface(self, items: Sequence[Item]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        context = self.context
        last = items[-1]
        live = (
            context.liveness.after.get(last.statement, frozenset())
            | context.liveness.captured
            | last.later
        )
        sure: set[str] = set()
        bound: set[str] = set()
        needed: list[str] = []
        for item in items:
            needed += [n for n in sorted(item.needs) if n not in sure and n in self.own]
            sure |= item.binds
            bound |= item.may_bind
        results = [] if any(i.returns for i in items) else sorted(bound & live, key=_order(items))
        needed += [n for n in results if n not in sure]
        before = context.analysis.before.get(items[0].statement, {})
        given = list(dict.fromkeys(needed))
        for name in given:
            value = before.get(name)
            made = name not in before and items[0].text is not None
            if not made and (value is None or value.unbound):
                raise Refused("unbound-before", f"`{name}` may have no value yet")
        order = [a.arg for a in walk(context.info.node.args) if isinstance(a, ast.arg)]
        given.sort(key=lambda n: order.index(n) if n in order else len(order))
        return tuple(given), tuple(results)


def _order(items: Sequence[Item]) -> Callable[[str], int]:
    """The order in which names are first bound."""
    names = [n for i in items for n in (_in_order(i.statement) if i.text is None else i.binds)]
    return lambda name: names.index(name) if name in names else len(names)


def _in_order(statement: ast.stmt) -> list[str]:
    found = [n for n in walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return [n.id for n in sorted(found, key=lambda n: (n.lineno, n.col_offset))]


def _evaluated(statement: ast.stmt) -> ast.expr | None:
    """The expression that a statement evaluates before it does anything else."""
    if isinstance(statement, (ast.Assign, ast.Return, ast.Expr)):
        return statement.value
    return statement.test if isinstance(statement, ast.If) else None


def _computed(node: ast.expr) -> Iterator[ast.expr]:
    """The operands of an expression that are more than a name or a constant."""
    operands: list[ast.expr] = []
    if isinstance(node, ast.Call):
        operands = [*node.args, *(k.value for k in node.keywords)]
    elif isinstance(node, ast.BinOp):
        operands = [node.left, node.right]
    for argument in operands:
        if not isinstance(argument, (ast.Name, ast.Attribute, ast.Constant, ast.Starred)):
            yield argument


def _above(value: ast.expr, call: ast.expr) -> Iterator[ast.AST]:
    """The nodes of an expression that a part of it stands in."""
    for node in walk(value):
        if node is not call and any(n is call for n in walk(node)):
            yield node


def _reads_without(statement: ast.stmt, call: ast.expr) -> frozenset[str]:
    inside = {id(n) for n in walk(call)}
    return frozenset(
        n.id
        for n in walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in inside
    )


def _in_own_loop(node: ast.AST, nodes: Sequence[ast.AST]) -> bool:
    return not isinstance(node, ast.Return) and any(
        isinstance(loop, (ast.For, ast.While)) and any(n is node for n in walk(loop))
        for loop in nodes
    )
