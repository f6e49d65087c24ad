"""Splits the body of a function into parts that are compiled and what stays between them in Python.

A part is a run of statements in one block, with the names that it takes and gives. Knows statements and
names; what stays is told by the caller.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.trees import walk
from gbfix.lowering.bindings import defined, needed_names, stored, surely_bound
from gbfix.lowering.output import only_speaks
from gbfix.lowering.stages.apart import taken_apart
from gbfix.lowering.stages.parts import Divided, Item, Part
from gbfix.lowering.stages.staying import (
    Staying,
    gives_tensors,
    is_broken,
    is_compiled_alone,
    stays,
    work,
)

# Two operations are not worth a function, and nobody follows more functions than these.
_LEAST_WORK = 3
_MOST_PARTS = 4


def divide(staying: Staying) -> Divided:
    """The parts of a function.

    Raises:
        Refused: where a part would take or give what may have no value.
    """
    divider = _Divider(staying)
    divider.block(staying.context.info.node.body, "")
    if len(divider.parts) > _MOST_PARTS:
        raise Refused("many-stages", f"it would take {len(divider.parts)} functions")
    moved = {id(item) for part in divider.parts for item in part.items}
    apart = tuple(a for a in divider.apart if any(id(item) in moved for item in a))
    return Divided(tuple(divider.parts), apart)


class _Divider:
    """Follows the blocks of one function and keeps what was found in them."""

    def __init__(self, staying: Staying) -> None:
        self._staying = staying
        self.parts: list[Part] = []
        self.apart: list[tuple[Item, ...]] = []
        node = staying.context.info.node
        self._defined = defined(node)
        self._own = {a.arg for a in walk(node.args) if isinstance(a, ast.arg)} | {
            n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }

    def block(self, block: Sequence[ast.stmt], loop: str) -> None:
        """Find the parts of a block; `loop` is what they are called in a loop."""
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
                if is_broken(statement, self._staying):
                    if loop:
                        raise Refused("nested-loops", "a loop inside of a loop would be divided")
                    self.block(statement.body, "round")
        self._flush(run, loop or ("end" if ending else "part"))

    def _ending(self, block: Sequence[ast.stmt]) -> int:
        """How many statements at the end of a function stay nowhere, whatever they return."""
        count = 0
        for statement in reversed(block):
            if stays(statement, self._staying, final=True):
                count += isinstance(statement, ast.Return)
                break
            count += 1
        return count

    def _items(self, statement: ast.stmt, *, final: bool) -> tuple[Item, ...]:
        staying = stays(statement, self._staying, final=final)
        context = self._staying.context
        # What is shown is computed where it is shown: it is seldom worth a result of its own.
        whole = not staying or only_speaks(statement, context.analysis, context.facts)
        items = None if whole else taken_apart(statement, self._staying, final=final)
        if items is not None:
            self._own |= {n for i in items[:-1] for n in i.binds}
            return items
        return (self._whole(statement, staying=staying),)

    def _whole(self, statement: ast.stmt, *, staying: bool) -> Item:
        return Item(
            statement,
            None,
            needed_names(statement),
            surely_bound(statement),
            stored(statement),
            staying,
            work(statement, self._staying),
            any(isinstance(n, ast.Return) for n in walk(statement)),
        )

    def _flush(self, run: Sequence[Item], place: str) -> None:
        items = list(run)
        while items and not self._concerns_tensors(items[0]):
            del items[0]
        while items and not self._concerns_tensors(items[-1]):
            if any(i.returns for i in items):
                break
            del items[-1]
        if sum(i.work for i in items) < _LEAST_WORK:
            return
        if len(items) == 1 and items[0].text is None and self._is_call(items[0].statement):
            return
        only = items[0].statement
        if len(items) == 1 and isinstance(only, ast.If) and items[0].text is None:
            arms = [any(work(s, self._staying) for s in a) for a in (only.body, only.orelse)]
            # A graph that does nothing makes Dynamo give up the function for good.
            if not items[0].returns and not all(arms):
                self.block(only.body, place)
                self.block(only.orelse, place)
                return
        given, results = self._interface(items)
        self.parts.append(Part(tuple(items), place, given, results))

    def _concerns_tensors(self, item: Item) -> bool:
        return bool(item.work) or (
            item.text is None and gives_tensors(item.statement, self._staying)
        )

    def _is_call(self, statement: ast.stmt) -> bool:
        """`h = self.encode(x)`: the function is compiled by itself."""
        if not isinstance(statement, (ast.Assign, ast.Return, ast.Expr)):
            return False
        return isinstance(statement.value, ast.Call) and is_compiled_alone(
            statement.value, self._staying
        )

    def _interface(self, items: Sequence[Item]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names that a part takes, and those that it gives."""
        context = self._staying.context
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
            needed += [n for n in sorted(item.needs) if n not in sure and n in self._own]
            sure |= item.binds
            bound |= item.may_bind
            if lost := sorted(item.needs & self._defined):
                raise Refused("closes-over", f"`{lost[0]}` is defined inside of the function")
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
