"""A list of Python integers that is at hand wherever a tensor made of it is.

`sizes = torch.as_tensor(sizes_list)`, and both are passed on: what iterates over the tensor could as
well iterate over the list. Knows the calls of one file, nothing of where text goes.
"""

from __future__ import annotations

import ast

from gbfix.analysis.definitions import Definitions, definitions_of
from gbfix.analysis.project import Function, Module
from gbfix.analysis.trees import of_kind

_MADE = frozenset({"torch.as_tensor", "torch.tensor", "torch.LongTensor"})
_WHOLE_DTYPES = frozenset({"long", "int64", "int32", "int"})
_WHOLE = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)
_MOST_STEPS = 6


class PairedLists:
    """Finds the list that a tensor of one module was made of."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.calls = of_kind(module.tree, ast.Call)

    def function_of(self, node: ast.AST) -> Function | None:
        """The function around a node."""
        current = self.module.parents.get(node)
        while current is not None and not isinstance(current, (ast.FunctionDef, ast.Lambda)):
            current = self.module.parents.get(current)
        return current if isinstance(current, ast.FunctionDef) else None

    def partner(self, use: ast.Name) -> str | None:
        """The list that holds the same numbers as a tensor, by its name where the tensor is used."""
        function = self.function_of(use)
        if function is None:
            return None
        definitions = definitions_of(function, self.module)
        made = self._made_of(use, definitions)
        if made is not None:
            return made
        if use.id not in definitions.parameters or use.id in definitions.stores:
            return None
        others = definitions.parameters - {use.id, "self"} - definitions.stores.keys()
        return next((n for n in sorted(others) if self._is_list(use.id, n)), None)

    def _is_list(self, tensor: str, given: str) -> bool:
        made: list[ast.Call] = []
        return self._together(tensor, given, {(tensor, given)}, made) and bool(made)

    def _made_of(self, use: ast.Name, definitions: Definitions) -> str | None:
        statement = definitions.of(use)
        if statement is None or not isinstance(statement.value, ast.Call):
            return None
        call = statement.value
        name = self.module.qualify(call.func)
        if name not in _MADE or len(call.args) != 1 or not isinstance(call.args[0], ast.Name):
            return None
        dtype = next((k.value for k in call.keywords if k.arg == "dtype"), None)
        whole = isinstance(dtype, ast.Attribute) and dtype.attr in _WHOLE_DTYPES
        if dtype is not None and not whole:
            return None
        given = call.args[0]
        return given.id if self._holds_sizes(given, statement, definitions) else None

    def _holds_sizes(self, use: ast.Name, at: ast.stmt, definitions: Definitions) -> bool:
        """Whether a list of integers from shapes is complete when a statement is reached."""
        stores = definitions.stores.get(use.id, [])
        if len(stores) != 1 or use.id in definitions.parameters:
            return False
        start, value = self._first(stores[0])
        if start is None:
            return False
        if isinstance(value, ast.List):
            if not all(self._is_size(e, definitions) for e in value.elts):
                return False
        elif not (isinstance(value, ast.ListComp) and self._is_size(value.elt, definitions)):
            return False
        for load in definitions.loads.get(use.id, []):
            parent = self.module.parents[load]
            if isinstance(parent, ast.Attribute):
                call = self.module.parents[parent]
                if parent.attr != "append" or not isinstance(call, ast.Call):
                    return False
                if load.lineno > at.lineno or not self._is_size(call.args[0], definitions):
                    return False
                if not definitions.encloses(start, load):
                    return False
            elif isinstance(getattr(parent, "ctx", ast.Load()), (ast.Store, ast.Del)):
                return False
        return True

    def _first(self, store: ast.Name) -> tuple[ast.Assign | None, ast.expr | None]:
        """The assignment that makes a list, `a = []` or `a, b = [], []`, and what it makes."""
        parent = self.module.parents[store]
        if isinstance(parent, ast.Assign) and parent.targets == [store]:
            return parent, parent.value
        above = self.module.parents.get(parent)
        if isinstance(parent, ast.Tuple) and isinstance(above, ast.Assign):
            if isinstance(above.value, ast.Tuple) and above.targets == [parent]:
                return above, above.value.elts[parent.elts.index(store)]
        return None, None

    def _is_size(self, node: ast.expr, definitions: Definitions, depth: int = 0) -> bool:
        """Whether an expression is an integer that shapes give, or a sequence of such."""
        if depth > _MOST_STEPS:
            return False
        if isinstance(node, ast.Constant):
            return type(node.value) is int
        if isinstance(node, (ast.Tuple, ast.List)):
            return all(self._is_size(e, definitions, depth + 1) for e in node.elts)
        if isinstance(node, ast.Attribute):
            return node.attr == "shape"
        if isinstance(node, ast.Subscript):
            return self._is_size(node.value, definitions, depth + 1)
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Attribute) and node.func.attr == "size"
        if isinstance(node, ast.BinOp):
            sides = (node.left, node.right)
            return isinstance(node.op, _WHOLE) and all(
                self._is_size(side, definitions, depth + 1) for side in sides
            )
        if not isinstance(node, ast.Name) or node.id in definitions.parameters:
            return False
        stores = definitions.stores.get(node.id, [])
        return bool(stores) and all(self._stores_size(s, definitions, depth) for s in stores)

    def _stores_size(self, store: ast.Name, definitions: Definitions, depth: int) -> bool:
        parent = self.module.parents.get(store)
        if isinstance(parent, ast.Tuple):
            parent = self.module.parents[parent]
        if not isinstance(parent, ast.Assign):
            return False
        return self._is_size(parent.value, definitions, depth + 1)

    def _together(
        self, tensor: str, given: str, seen: set[tuple[str, str]], made: list[ast.Call]
    ) -> bool:
        """Whether every call of the file that names the tensor names its list too.

        `made` gets the calls where both are made.
        """
        passing = [c for c in self.calls if any(k.arg == tensor for k in c.keywords)]
        for call in passing:
            by_name = {k.arg: k.value for k in call.keywords}
            first, second = by_name[tensor], by_name.get(given)
            if _is_none(first) and (second is None or _is_none(second)):
                continue
            around = self.function_of(call)
            if not isinstance(first, ast.Name) or not isinstance(second, ast.Name):
                return False
            if around is None:
                return False
            definitions = definitions_of(around, self.module)
            if self._made_of(first, definitions) == second.id:
                made.append(call)
                continue
            both = {first.id, second.id}
            if not both <= definitions.parameters or both & definitions.stores.keys():
                return False
            if (first.id, second.id) not in seen:
                seen.add((first.id, second.id))
                if not self._together(first.id, second.id, seen, made):
                    return False
        return True


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
