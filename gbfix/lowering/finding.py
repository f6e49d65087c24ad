"""A place found in a tensor of one dimension: `idx = (table == t).nonzero()`, then `idx[pos].item()`.

Follows the indices that are found to the one that is read, and says where it is as a tensor: the first
place at which more elements than `pos` have been true. That a number was read proves that the mask has
one dimension. Knows how such reads are written, nothing of what the place is used for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.definitions import definitions_of
from gbfix.codegen.comparisons import SYMBOLS
from gbfix.codegen.expressions import flat, operand
from gbfix.fixes import Context
from gbfix.lowering.routing import counted_mask

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module, ast.Lambda)
_SOME = frozenset({"> 0", ">= 1", "!= 0"})


@dataclass
class Found:
    """A place that is read.

    Attributes:
        place: the expression that is the place, a Python number in the original.
        text: the same as a tensor without dimensions.
        texts: what stands in the place of other expressions, by statement.
        leads: lines that go before the statement of the read.
    """

    place: ast.expr
    text: str
    texts: dict[ast.stmt, dict[ast.expr, str]] = field(default_factory=dict)
    leads: list[str] = field(default_factory=list)


class Finder:
    """Looks for the one read of what an operation finds."""

    def __init__(self, context: Context, torch: str) -> None:
        self.context = context
        self.torch = torch
        self.view = context.view
        self.parents = context.info.module.parents
        self.definitions = definitions_of(context.info.node, context.info.module)

    def found(self, node: ast.expr) -> Found:
        """The place that is read of what `node` finds.

        Raises:
            Refused: where more is done with the indices than to count them and read one.
        """
        if (
            isinstance(self.parents[node], ast.Subscript)
            and counted_mask(node, self.context.analysis) is None
        ):
            outer = self.parents[node]  # `torch.where(mask)[0]`
            assert isinstance(outer, ast.Subscript)
            node = outer
        mask = counted_mask(node, self.context.analysis)
        if mask is None:
            raise NotApplicable("no-place", "no place is looked up here")
        statement = self.parents[node]
        name = self.context.names.take("found")
        text = flat(self.view, mask)
        value = self.context.analysis.values.get(mask)
        if value is None or not (value.tensor and value.boolean):
            text = f"{operand(self.view, mask)} != 0"
        if isinstance(statement, ast.Assign) and statement.value is node:
            target = statement.targets[0]
            if len(statement.targets) != 1 or not isinstance(target, ast.Name):
                raise NotApplicable("no-place", "no place is looked up here")
            if len(self.definitions.stores[target.id]) != 1:
                raise Refused("bound-twice", f"`{target.id}` is bound more than once")
            made = self._place(self.definitions.loads.get(target.id, []), name)
            made.texts[statement] = {target: name, node: text}
            return made
        made = self._place([node], name)
        made.leads.insert(0, f"{name} = {text}")
        return made

    def _place(self, uses: list[ast.expr] | list[ast.Name], name: str) -> Found:
        reads: list[ast.expr] = []
        counts: list[ast.expr] = []
        for use in uses:
            count = self._count(use)
            read = self._read(use) if count is None else None
            if count is not None:
                counts.append(count)
            elif read is not None:
                reads.append(read)
            else:
                raise NotApplicable("no-place", "the indices are used for more than one place")
        if len(reads) != 1:
            raise NotApplicable("no-place", "no place, or more than one, is read")
        position = self._position(reads[0])
        texts: dict[ast.stmt, dict[ast.expr, str]] = {}
        at = self._at(position, counts, name, texts)
        place, leads = reads[0], []
        if at == "-1":
            text = f"{name}.shape[0] - 1 - {name}.flip(0).int().argmax()"
            enough = f"{name}.any()"
        elif at in {"0", ""}:
            text = f"{name}.int().argmax()"
            enough = f"{name}.any()" if at else f"{name}.sum() == 1"
        else:
            text = f"({name}.cumsum(0) > {at}).int().argmax()"
            enough = f"{name}.sum() > {at}"
        chosen = self.parents[place]
        if isinstance(chosen, ast.IfExp) and chosen.body is place:
            asked = self._asked(chosen.test, counts)
            other = chosen.orelse
            whole = isinstance(other, (ast.UnaryOp, ast.Constant))
            if asked not in _SOME or at not in {"0", "-1"} or not whole:
                raise Refused(
                    "place-unproven", f"`{ast.unparse(chosen)}` does more than ask for one"
                )
            text = f"{self.torch}.where({name}.any(), {text}, {flat(self.view, other)})"
            place = chosen
        else:
            leads.append(f'{self.torch}._assert_async({enough}, "no such element was found")')
        if counts:
            raise Refused("count-leaves", f"`{ast.unparse(counts[0])}` is used as a Python number")
        return Found(place, text, texts, leads)

    def _count(self, use: ast.expr) -> ast.expr | None:
        """`len(idx)`, `idx.numel()`, `idx.shape[0]`, `idx.size(0)`."""
        parent = self.parents[use]
        if isinstance(parent, ast.Call) and parent.args == [use]:
            return parent if ast.unparse(parent.func) == "len" else None
        if not isinstance(parent, ast.Attribute):
            return None
        above = self.parents[parent]
        if parent.attr == "shape" and isinstance(above, ast.Subscript):
            return above if ast.unparse(above.slice) == "0" else None
        if parent.attr in {"size", "numel"} and isinstance(above, ast.Call):
            wanted = ["0"] if parent.attr == "size" else []
            return above if [ast.unparse(a) for a in above.args] == wanted else None
        return None

    def _read(self, use: ast.expr) -> ast.expr | None:
        """The read of one number: `idx[pos].item()`, `int(idx[0])`, `idx.item()`."""
        node = use
        for _ in range(2):
            parent = self.parents[node]
            if isinstance(parent, ast.Subscript) and parent.value is node:
                node = parent
        parent = self.parents[node]
        if isinstance(parent, ast.Attribute) and parent.attr == "item":
            above = self.parents[parent]
            return above if isinstance(above, ast.Call) and not above.args else None
        if isinstance(parent, ast.Call) and parent.args == [node] and not parent.keywords:
            return parent if ast.unparse(parent.func) == "int" else None
        return None

    def _position(self, read: ast.expr) -> ast.expr | None:
        """Which of the indices is read; None for the only one."""
        assert isinstance(read, ast.Call)
        node = read.args[0] if read.args else read.func
        node = node.value if isinstance(node, ast.Attribute) else node
        parts: list[ast.expr] = []
        while isinstance(node, ast.Subscript) and counted_mask(node, self.context.analysis) is None:
            parts.insert(0, node.slice)
            node = node.value
        if len(parts) == 2 and ast.unparse(parts[1]) != "0":
            raise NotApplicable("no-place", "another part of the indices is read")
        if parts and isinstance(parts[0], ast.Tuple):
            first, *rest = parts[0].elts
            if [ast.unparse(r) for r in rest] != ["0"]:
                raise NotApplicable("no-place", "another part of the indices is read")
            return first
        return parts[0] if parts else None

    def _at(
        self,
        position: ast.expr | None,
        counts: list[ast.expr],
        name: str,
        texts: dict[ast.stmt, dict[ast.expr, str]],
    ) -> str:
        """The text of the position: a number, or the name that it has."""
        if position is None:
            return ""
        text = ast.unparse(position)
        if text.isdecimal() or text == "-1":
            return text
        definition = self.definitions.of(position) if isinstance(position, ast.Name) else None
        if definition is None or len(self.definitions.loads[text]) != 1:
            raise Refused("place-unproven", f"`{text}` is not bound once, for this place")
        chosen = definition.value
        if not isinstance(chosen, ast.IfExp) or not all(
            isinstance(c, ast.Constant) and type(c.value) is int
            for c in (chosen.body, chosen.orelse)
        ):
            raise Refused("place-unproven", f"`{text}` is no choice between two numbers")
        asked = self._asked(chosen.test, counts)
        if asked is None:
            raise Refused("place-unproven", f"`{text}` does not depend on how many are found alone")
        a, b = ast.unparse(chosen.body), ast.unparse(chosen.orelse)
        texts[definition] = {chosen: f"{self.torch}.where({name}.sum() {asked}, {a}, {b})"}
        return text

    def _asked(self, test: ast.expr, counts: list[ast.expr]) -> str | None:
        """What a test asks of how many are found, such as `> 1`; the count is taken from `counts`."""
        if test in counts:
            counts.remove(test)
            return "> 0"
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and test.left in counts:
            symbol = SYMBOLS.get(type(test.ops[0]))
            limit = test.comparators[0]
            if symbol is not None and isinstance(limit, ast.Constant) and type(limit.value) is int:
                counts.remove(test.left)
                return f"{symbol} {limit.value}"
        return None


def callers_of(context: Context) -> Iterator[tuple[ast.Call, ast.AST]]:
    """The calls of the context's function, each with the function that it stands in.

    Raises:
        Refused: where the function is used otherwise, or in another file.
    """
    info = context.info
    for module in context.facts.project.naming(info.node.name):
        for node in module.naming(info.node.name):
            named = isinstance(node, ast.Name) and node.id == info.node.name and info.owner is None
            owned = (
                isinstance(node, ast.Attribute)
                and node.attr == info.node.name
                and (info.owner is not None or module.qualify(node) == info.qualified)
            )
            if not (named or owned):
                continue
            parent = module.parents[node]
            if (
                module is not info.module
                or not isinstance(parent, ast.Call)
                or parent.func is not node
            ):
                raise Refused(
                    "consumer-unknown", f"`{info.node.name}` is used where it is not followed"
                )
            scope: ast.AST = parent
            while not isinstance(
                scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module, ast.Lambda)
            ):
                scope = module.parents[scope]
            yield parent, scope
