"""Selecting with a tensor of one index in the place of a number, `x[i]` as `x[i].squeeze(0)`.

Follows a number to the subscripts that it selects with, and refuses where a copy could be told from
the view that the number selects. Knows names and subscripts, not where the number comes from.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from gbfix.analysis import torch_table
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.effects import function_effects
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat, operand
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix
from gbfix.lowering.doubling import in_compiled_path, twice
from gbfix.source.text import Edit

_REASON = "the tensor selects what the number does, as a copy that nothing tells from the view"
_INDICES = frozenset({"argmax", "argmin"})
_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp)


class Selection:
    """What the compiled path selects in place of what a number selects."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.view = context.view
        self.parents = context.info.module.parents
        self.definitions = definitions_of(context.info.node, context.info.module)
        self.texts: dict[ast.stmt, dict[ast.expr, str]] = {}

    def fix(self, node: ast.expr, tensor: ast.expr) -> Fix:
        """The fix for a number that is read by `node` from `tensor`."""
        index = self._index(node, tensor)
        if self._subscript(node) is not None:
            self._selected(node, index)
        else:
            self._named(node, tensor, index)
        return Fix("index-read", Safety.REVIEW, _REASON, self.edits(), self.context.needs_torch)

    def select(self, node: ast.expr, index: str) -> None:
        """Follow a number that is an index, or a name for one; `index` is a new row of one index.

        Raises:
            Refused: where the number is used for more, or the copy could be told from a view.
        """
        if self._subscript(node) is not None:
            self._selected(node, index)
        else:
            self._named(node, None, index)

    def edits(self, leads: Mapping[ast.stmt, Sequence[str]] | None = None) -> tuple[Edit, ...]:
        """The edits of all statements that select; `leads` go before them when compiling."""
        edits: list[Edit] = []
        both: dict[ast.stmt, dict[ast.expr, str]] = {}
        for statement, written in self.texts.items():
            changes = {n: t for n, t in written.items() if t != self.view.text(n)}
            if not changes:  # a store by the name of the index reads the same for a tensor
                continue
            led = leads is not None and statement in leads
            if in_compiled_path(statement, self.context) and not led:
                edits += [Edit(self.view.start(n), self.view.end(n), t) for n, t in changes.items()]
            else:
                both[statement] = changes
        edits += twice(both, self.context, leads) if both else ()
        return tuple(edits)

    def _index(self, node: ast.expr, tensor: ast.expr) -> str:
        """The text of the tensor as a row of one index."""
        text = operand(self.view, tensor)
        if node is tensor:  # the tensor itself is the index
            return f"{text}.reshape(1)"
        value = self.context.analysis.values.get(tensor)
        reads_item = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if isinstance(node, ast.Call) and not reads_item and ast.unparse(node.func) != "int":
            raise NotApplicable("no-index", "the number is no index")
        if reads_item and value is not None and (value.boolean or value.floating):
            raise NotApplicable("no-index", "the number is no index")
        found = tensor.func if isinstance(tensor, ast.Call) else None
        known = value is not None and value.integer and not value.boolean
        if known or (isinstance(found, ast.Attribute) and found.attr in _INDICES):
            return f"{text}.reshape(1)"
        return f"{text}.reshape(1).long()"

    def _named(self, node: ast.expr, tensor: ast.expr | None, index: str) -> None:
        """A number with a name, each use of which selects."""
        statement = self.parents[node]
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Name):
            raise NotApplicable("no-index", "the number is no index")
        uses = self.definitions.loads.get(target.id, [])
        if not any(self._subscript(self._shifted(use)) for use in uses):
            raise NotApplicable("no-index", "the number is no index")
        if len(self.definitions.stores[target.id]) != 1 or len(statement.targets) != 1:
            raise Refused("bound-twice", f"`{target.id}` is bound more than once")
        for use in uses:
            if not self.definitions.encloses(statement, use):
                raise Refused("bound-twice", f"`{target.id}` is read where it may not be bound")
            place = self._shifted(use)
            if self._subscript(place) is None:
                text = ast.unparse(self.parents[use])
                raise Refused("scalar-escapes", f"`{text}` needs `{target.id}` as a Python number")
            self._selected(place, flat(self.view, place))
        value = self.context.analysis.values.get(tensor) if tensor is not None else None
        fresh = tensor is None or (value is not None and value.unshared)
        if not fresh and self._changes():
            index = f"{index}.clone()"
        self.texts.setdefault(statement, {})[node] = index

    def _shifted(self, use: ast.expr) -> ast.expr:
        """A place some steps from another, `i + 1`, which is computed alike with a row of one."""
        parent = self.parents[use]
        if not isinstance(parent, ast.BinOp) or not isinstance(parent.op, (ast.Add, ast.Sub)):
            return use
        other = parent.right if parent.left is use else parent.left
        whole = isinstance(other, ast.Constant) and type(other.value) is int
        return parent if whole and parent.left is use else use

    def _changes(self) -> bool:
        """Whether the function changes anything in place, as far as can be told."""
        found = function_effects(self.context.info, self.context.facts)
        return found is None or bool(
            found.mutated or found.unknown or found.stateful or found.attributes
        )

    def _subscript(self, node: ast.expr) -> ast.Subscript | None:
        """The subscript of a tensor that has the number as an index."""
        parent = self.parents[node]
        if isinstance(parent, ast.Tuple):
            node, parent = parent, self.parents[parent]
        if not isinstance(parent, ast.Subscript) or parent.slice is not node:
            return None
        value = self.context.analysis.values.get(parent.value)
        return parent if value is not None and value.tensor else None

    def _selected(self, node: ast.expr, index: str) -> None:
        """Add the text of one subscript.

        Raises:
            Refused: where a copy in place of a view could be told.
        """
        subscript = self._subscript(node)
        assert subscript is not None
        parts = list(subscript.slice.elts) if isinstance(subscript.slice, ast.Tuple) else [node]
        dimension = self._dimension(parts, node)
        texts = [index if part is node else flat(self.view, part) for part in parts]
        text = f"{flat(self.view, subscript.value)}[{', '.join(texts)}]"
        if isinstance(subscript.ctx, ast.Load):
            self._check_unseen(subscript)
            text = f"{text}.squeeze({dimension})"
        else:
            self._check_stored(subscript, dimension)
        statement = self._statement(subscript)
        changes = self.texts.setdefault(statement, {})
        if any(_overlap(other, subscript) for other in changes):
            raise Refused("complex-expression", "one selection stands inside of another")
        changes[subscript] = text

    def _dimension(self, parts: list[ast.expr], node: ast.expr) -> int:
        """The dimension of the result that a row of one index adds."""
        at = parts.index(node)
        for part in parts:
            value = self.context.analysis.values.get(part)
            known = value is not None and value.only(Kind.STATIC | Kind.NONE)
            plain = isinstance(part, (ast.Slice, ast.Constant)) or known
            if part is not node and not plain:
                raise Refused("other-index", f"`{ast.unparse(part)}` may select by a tensor too")
        before, after = (sum(map(_keeps, p)) for p in (parts[:at], parts[at + 1 :]))
        dotted = any(isinstance(p, ast.Constant) and p.value is ... for p in parts[:at])
        return -1 - after if dotted else before

    def _check_stored(self, subscript: ast.Subscript, dimension: int) -> None:
        statement = self.parents[subscript]
        if not isinstance(statement, (ast.Assign, ast.AugAssign)):
            raise Refused("unusual-place", "the selection is deleted or bound by a loop")
        value = self.context.analysis.values.get(statement.value)
        number = value is not None and (value.only(Kind.STATIC) or value.zero_dim)
        if dimension != 0 and not number:
            raise Refused("shapes-unproven", "what is stored may broadcast in another way")

    def _check_unseen(self, node: ast.expr) -> None:
        """Whether nothing can tell a copy from the view that a number selects.

        Raises:
            Refused: where something could.
        """
        parent = self.parents[node]
        values = self.context.analysis.values
        if isinstance(parent, (ast.BinOp, ast.Compare, ast.UnaryOp)):
            return
        if isinstance(parent, ast.AugAssign) and parent.value is node:
            return
        if isinstance(parent, ast.Assign) and parent.value is node:
            if isinstance(parent.targets[0], ast.Subscript):
                stored = values.get(parent.targets[0].value)
                if stored is not None and stored.tensor:
                    return
            self._check_name(parent)
            return
        if isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is node:
            self._check_part(parent)
            return
        if isinstance(parent, (ast.List, ast.Tuple)):  # `torch.stack([x[i], y])`
            above = self.parents[parent]
            if isinstance(above, ast.Assign) and above.value is parent:  # `a, b = x[i], x[j]`
                self._check_unpacked(above, parent, node)
                return
            parent = above
        if isinstance(parent, ast.Call) and self._is_operation(parent):
            value = values.get(parent)
            if value is not None and value.unshared and not _alters(parent):
                return
        if isinstance(node, ast.Subscript) and self._is_last_of(node):
            return
        raise Refused(
            "view-kept", f"`{ast.unparse(node)}` is a view that is returned, stored or handed on"
        )

    def _is_last_of(self, node: ast.Subscript) -> bool:
        """Whether a row is all that is left of a tensor which nothing else holds."""
        base = node.value
        value = self.context.analysis.values.get(base)
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
        if value is None or not value.unshared or isinstance(first, (ast.Slice, ast.Constant)):
            return False
        if not isinstance(base, ast.Name):
            return isinstance(base, (ast.Call, ast.BinOp))
        once = len(self.definitions.stores.get(base.id, [])) == 1
        return once and len(self.definitions.loads.get(base.id, [])) == 1

    def _check_part(self, parent: ast.Attribute | ast.Subscript) -> None:
        """`row.sum()`, `row.shape`, `row[1:]`."""
        above = self.parents[parent]
        if isinstance(parent, ast.Attribute) and parent.attr in {"shape", "dtype", "device"}:
            return
        if isinstance(parent, ast.Attribute) and isinstance(above, ast.Call):
            if above.func is parent and not _alters(above):
                operation = torch_table.method(parent.attr)
                value = self.context.analysis.values.get(above)
                if parent.attr in {"item", "tolist"} or (value is not None and value.unshared):
                    return
                if operation is not None and operation.alias:
                    self._check_unseen(above)
                    return
        elif isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Load):
            self._check_unseen(parent)
            return
        raise Refused("view-kept", f"`{ast.unparse(parent)}` may tell a view from a copy")

    def _check_unpacked(
        self, statement: ast.Assign, row: ast.List | ast.Tuple, node: ast.expr
    ) -> None:
        """`a, b = x[i], x[j]`: each name holds one of the values."""
        target = statement.targets[0]
        plain = isinstance(target, (ast.List, ast.Tuple)) and len(target.elts) == len(row.elts)
        starred = any(isinstance(e, ast.Starred) for e in ast.walk(statement))
        if len(statement.targets) != 1 or not plain or starred:
            raise Refused("view-kept", f"`{ast.unparse(target)}` keeps a view")
        assert isinstance(target, (ast.List, ast.Tuple))
        self._check_held(target.elts[row.elts.index(node)])

    def _check_name(self, statement: ast.Assign) -> None:
        target = statement.targets[0]
        if len(statement.targets) != 1:
            raise Refused("view-kept", f"`{ast.unparse(target)}` keeps a view")
        self._check_held(target)

    def _check_held(self, target: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            raise Refused("view-kept", f"`{ast.unparse(target)}` keeps a view")
        if self._changes():
            raise Refused("may-change", "the function may change tensors while it holds a view")
        for use in self.definitions.loads.get(target.id, []):
            self._check_unseen(use)

    def _is_operation(self, call: ast.Call) -> bool:
        value = self.context.analysis.values.get(call.func)
        name = value.reference if value is not None else None
        if name is not None and name.startswith("torch."):
            return torch_table.function(name) is not None
        if isinstance(call.func, ast.Attribute):
            receiver = self.context.analysis.values.get(call.func.value)
            known = torch_table.method(call.func.attr) is not None
            return receiver is not None and receiver.tensor and known
        return False

    def _statement(self, node: ast.AST) -> ast.stmt:
        current = node
        while not isinstance(current, ast.stmt):
            if isinstance(current, _SCOPES):
                raise Refused("unusual-place", "it selects in a nested scope or condition")
            current = self.parents[current]
        return current


def _keeps(part: ast.expr) -> bool:
    """Whether an index leaves a dimension in the result."""
    return isinstance(part, ast.Slice) or (isinstance(part, ast.Constant) and part.value is None)


def _alters(call: ast.Call) -> bool:
    """Whether a call may change its tensors in place, or write to another."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or any(keyword.arg in {"out", "inplace", None} for keyword in call.keywords)


def _overlap(a: ast.AST, b: ast.AST) -> bool:
    return any(n is b for n in walk(a)) or any(n is a for n in walk(b))
