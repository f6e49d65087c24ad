"""Tensors that arms read and that share one storage, such as `x` and `x.view(-1)`.

`torch.cond` lifts every tensor that its arms close over to an input of the graph, and refuses two
inputs of one storage with a hard error. All but one of them have to go in as copies. A tensor under
two names is one input, and no hazard. Knows definitions and aliases, nothing of how arms are written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gbfix.analysis import torch_table
from gbfix.analysis.conditions import Refused
from gbfix.analysis.definitions import Definitions, definitions_of
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import loops_around, walk
from gbfix.analysis.values import Kind
from gbfix.lowering.aliases import shared_root
from gbfix.lowering.branch import Branch

_METADATA = frozenset("shape size dtype device dim ndim numel is_cuda requires_grad".split())
Key = tuple[str, int]


def shared_operands(branch: Branch, operands: Iterable[str], analysis: Analysis) -> tuple[str, ...]:
    """Names, and dotted names of attributes, that the arms of a branch need as copies."""
    handed = [o.name for o in branch.outputs if _is_left_alone(o.name, branch)]
    statements = [s for arm in branch.arms for s in arm.statements]
    return copies_needed(statements, [*operands, *handed], branch.node, analysis)


def _is_left_alone(name: str, branch: Branch) -> bool:
    """Whether an arm hands on what an output held before."""
    return any(
        name not in arm.effects.stores and name not in arm.effects.attributes for arm in branch.arms
    )


def copies_needed(
    nodes: Iterable[ast.AST], more: Iterable[str], at: ast.stmt, analysis: Analysis
) -> tuple[str, ...]:
    """Of what code reads, and of `more` names that it is handed, all but one of each storage.

    Raises:
        Refused: where it reads a sequence of views of one tensor, each of which would be an input.
    """
    origins = _Origins(analysis)
    more, nodes = list(more), list(nodes)
    for name in _sequences(nodes, at, analysis):
        if origins.holds_views(name, at):
            raise Refused(
                "shared-views", f"`{name}` holds views of one tensor, which arms cannot share"
            )
    handed = set(more)
    names = dict.fromkeys([*_read(nodes, at, analysis), *more])
    found: list[str] = []
    seen: list[tuple[frozenset[Key], frozenset[Key]]] = []
    # Where there is a choice, an attribute is left as it is, since its owner may reach it by itself,
    # and what is handed over anyway is handed over as a copy.
    for name in sorted(names, key=lambda n: (n in handed, "." not in n)):
        objects, storages = origins.before(name, at)
        others = [o for o, s in seen if s & storages]
        if others and objects not in others:
            found.append(name)
        seen.append((objects, storages))
    return tuple(found)


def _read(nodes: Iterable[ast.AST], at: ast.stmt, analysis: Analysis) -> Iterator[str]:
    """Tensors from before a branch whose data is read."""
    environment = analysis.before.get(at, {})
    parents = analysis.info.module.parents
    for node in (n for top in nodes for n in walk(top)):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        value, parent = analysis.values.get(node), parents.get(node)
        if value is None or not value.may_be_tensor:
            continue
        if isinstance(parent, ast.Attribute) and parent.attr in _METADATA:
            continue
        name = dotted(node)
        if isinstance(node, ast.Name):
            known = environment.get(node.id)
            if known is not None and known.may_be_tensor:
                yield node.id
        elif name is not None and name.count(".") == 1:
            base = analysis.values.get(node.value)
            if base is not None and not base.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.SCALAR):
                yield name


def _sequences(nodes: Iterable[ast.AST], at: ast.stmt, analysis: Analysis) -> Iterator[str]:
    """Names of sequences from before a branch that are read."""
    environment = analysis.before.get(at, {})
    for node in (n for top in nodes for n in walk(top)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            known = environment.get(node.id)
            if known is not None and known.kinds & Kind.OBJECT:
                yield node.id


@dataclass
class _Origins:
    """Where the tensors of a function come from: which object a name holds, and of which storage."""

    analysis: Analysis
    definitions: Definitions = field(init=False)

    def __post_init__(self) -> None:
        info = self.analysis.info
        self.definitions = definitions_of(info.node, info.module)

    def before(self, name: str, at: ast.stmt) -> tuple[frozenset[Key], frozenset[Key]]:
        """The objects that a name may hold before a statement, and their storages."""
        return self._of(name, at, frozenset())

    def holds_views(self, name: str, at: ast.AST) -> bool:
        """Whether a name may hold what an operation made of one tensor, as `x.split(2)` is."""
        for store in self._reaching(name, at):
            if store is None or store not in self.definitions.module.parents:
                continue
            value = getattr(self._statement(store), "value", None)
            if isinstance(value, ast.Call) and self._splits(value):
                return not isinstance(value.func, ast.Attribute) or self._of_torch(value.func)
        return False

    def _of(
        self, name: str, at: ast.AST, above: frozenset[ast.AST]
    ) -> tuple[frozenset[Key], frozenset[Key]]:
        if "." in name:
            return frozenset({(name, 0)}), frozenset({(name, 0)})
        objects: set[Key] = set()
        storages: set[Key] = set()
        for store in self._reaching(name, at):
            key = (name, id(store))
            source = self._source(store) if store is not None and store not in above else None
            if store is None or source is None:
                objects.add(key)
                storages.add(key)
                continue
            root, same = source
            statement = self._statement(store)
            inner = self._of(root, statement, above | {store})
            objects |= inner[0] if same else {key}
            storages |= inner[1]
        return frozenset(objects), frozenset(storages)

    def _reaching(self, name: str, at: ast.AST) -> list[ast.Name | None]:
        """The places that may have bound a name when a statement runs; None for before them all."""
        line = getattr(at, "lineno", 0)
        stores = sorted(self.definitions.stores.get(name, []), key=_line, reverse=True)
        found: list[ast.Name | None] = []
        for store in stores:
            if _line(store) >= line:
                if self._loops(store) & self._loops(at):
                    found.append(store)
                continue
            found.append(store)
            if store not in self.definitions.module.parents:  # bound by another scope as well
                continue
            if self.definitions.encloses(self._statement(store), at):
                return found
        return [*found, None]

    def _loops(self, node: ast.AST) -> set[ast.AST]:
        parents = self.definitions.module.parents
        return set(loops_around(parents.get(node), self.definitions.function, parents))

    def _statement(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.definitions.module.parents[node]
        return node

    def _source(self, store: ast.Name) -> tuple[str, bool] | None:
        """The older name whose storage a name was given, and whether it is the tensor itself."""
        if store not in self.definitions.module.parents:
            return None
        statement = self._statement(store)
        value = getattr(statement, "value", None)
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or value is None:
            return None
        if isinstance(statement, ast.Assign) and store not in statement.targets:
            return self._part(store, statement)
        root = shared_root(value, self.analysis, frozenset())
        return (root, isinstance(value, (ast.Name, ast.Attribute))) if root else None

    def _part(self, store: ast.Name, statement: ast.Assign) -> tuple[str, bool] | None:
        """The same for a name of several, `a, b = x.chunk(2)`."""
        target = self.definitions.module.parents[store]
        value = statement.value
        if target not in statement.targets or not isinstance(target, (ast.Tuple, ast.List)):
            return None
        if isinstance(value, (ast.Tuple, ast.List)):
            if len(value.elts) != len(target.elts):
                return None
            part = value.elts[target.elts.index(store)]
            root = shared_root(part, self.analysis, frozenset())
            return (root, isinstance(part, (ast.Name, ast.Attribute))) if root else None
        known = self.analysis.values.get(value)
        if known is None:
            return None
        if known.elements is not None and all(e.unshared for e in known.elements):
            return None
        if not known.tensor and not (isinstance(value, ast.Call) and self._splits(value)):
            return None
        root = shared_root(value, self.analysis, frozenset())
        return (root, False) if root else None

    def _of_torch(self, function: ast.Attribute) -> bool:
        """Whether a method is one of a tensor, and no `text.split(".")`."""
        receiver = self.analysis.values.get(function.value)
        return receiver is not None and bool(receiver.kinds & (Kind.TENSOR | Kind.REFERENCE))

    def _splits(self, call: ast.Call) -> bool:
        """Whether an operation of torch gives views of its first operand."""
        function = self.analysis.values.get(call.func)
        name = function.reference if function is not None else None
        operation = torch_table.function(name) if name else None
        if operation is None and isinstance(call.func, ast.Attribute):
            operation = torch_table.method(call.func.attr)
        return operation is not None and operation.alias


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)
