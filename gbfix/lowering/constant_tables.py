"""Dicts and lists of numbers that are made once: at module level, in a class, or in `__init__`.

A table counts where it is a display of constants or a comprehension over `range`, bound once, and
only ever read. Says what its keys and values are, nothing of what is looked up.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused
from gbfix.analysis.facts import Facts
from gbfix.analysis.project import FunctionInfo, Module
from gbfix.analysis.trees import walk

_READS = frozenset({"get", "items", "keys", "values", "index", "count", "copy"})
_READERS = frozenset(
    f"builtins.{n}" for n in ("len", "list", "tuple", "sorted", "min", "max", "sum", "enumerate")
)


@dataclass(frozen=True)
class Table:
    """What is known of a table of numbers.

    Attributes:
        keyed: whether it is a dict.
        textual: whether its keys are integers written as text.
        floats: whether all values are floats.
        integers: whether all values are integers.
    """

    keyed: bool
    textual: bool
    floats: bool
    integers: bool


def table(node: ast.expr, info: FunctionInfo, facts: Facts) -> Table:
    """The table that a name or an attribute of `self` holds.

    Raises:
        Refused: where it is not a table of numbers, or may change.
    """
    module = info.module
    if isinstance(node, ast.Name):
        value = _of_name(node.id, info)
        modules: Sequence[Module] = [module]
        name = node.id
    elif (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and info.owner is not None
    ):
        name = node.attr
        value = _of_attribute(name, info, facts)
        modules = facts.project.naming(name)
    else:
        raise Refused("unknown-table", f"it is not known what `{ast.unparse(node)}` holds")
    check_only_read(name, isinstance(node, ast.Attribute), modules)
    found = _described(value, module)
    if found is None:
        raise Refused("unknown-table", f"`{ast.unparse(node)}` is no table of constant numbers")
    return found


def _of_name(name: str, info: FunctionInfo) -> ast.expr:
    """What a module-level name is bound to, once."""
    local = any(
        isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
        for n in walk(info.node)
    )
    parameters = {a.arg for a in walk(info.node.args) if isinstance(a, ast.arg)}
    bound = info.module.bindings.get(name, [])
    if local or name in parameters or len(bound) != 1 or not isinstance(bound[0], ast.expr):
        raise Refused("unknown-table", f"`{name}` is not bound once, at module level")
    return bound[0]


def _of_attribute(name: str, info: FunctionInfo, facts: Facts) -> ast.expr:
    """What an attribute of `self` is bound to, once, in `__init__` or in the class."""
    assert info.owner is not None
    found: list[ast.expr] = []
    for cls in facts.project.mro(info.owner):
        for node in walk(cls.node):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            for target in targets:
                plain = isinstance(target, ast.Name) and node in cls.node.body
                own = isinstance(target, ast.Attribute) and ast.unparse(target) == f"self.{name}"
                same = isinstance(target, ast.Name) and target.id == name
                if own or (plain and same):
                    assert isinstance(node, (ast.Assign, ast.AnnAssign))
                    found += [node.value] if node.value is not None else []
    if len(found) != 1:
        raise Refused("unknown-table", f"`self.{name}` is not bound once, in its class")
    return found[0]


def check_only_read(name: str, attribute: bool, modules: Sequence[Module]) -> None:
    """Every use of the name is one that leaves the table as it is.

    Raises:
        Refused: naming a use that may change it.
    """
    stores = 0
    for module in modules:
        for node in module.naming(name):
            is_name = isinstance(node, ast.Name) and node.id == name and not attribute
            is_attribute = isinstance(node, ast.Attribute) and node.attr == name and attribute
            if not (is_name or is_attribute):
                continue
            assert isinstance(node, (ast.Name, ast.Attribute))
            if isinstance(node.ctx, ast.Load):
                if not _reads(node, module):
                    raise Refused("may-change", f"`{name}` is handed to code that may change it")
            else:
                stores += 1
    if stores > 1:
        raise Refused("may-change", f"`{name}` is bound more than once")


def _reads(node: ast.expr, module: Module) -> bool:
    parent = module.parents[node]
    if isinstance(parent, ast.Subscript):
        return parent.slice is node or isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _READS
    if isinstance(parent, ast.Call):
        called = module.qualify(parent.func) or ""
        return called in _READERS or called.startswith("torch.")
    return isinstance(parent, (ast.Compare, ast.comprehension, ast.For))


def _described(node: ast.expr, module: Module) -> Table | None:
    if isinstance(node, (ast.List, ast.Tuple)):
        kinds = {_number(e) for e in node.elts}
        if not kinds or None in kinds:
            return None
        return Table(False, False, floats=kinds == {float}, integers=kinds == {int})
    if isinstance(node, ast.Dict):
        if not node.keys or any(k is None for k in node.keys):
            return None
        keys = {_key(k) for k in node.keys if k is not None}
        kinds = {_number(v) for v in node.values}
        if None in keys or None in kinds or len(keys) != 1:
            return None
        return Table(True, keys == {str}, floats=kinds == {float}, integers=kinds == {int})
    if isinstance(node, ast.DictComp):
        return _comprehension(node, module)
    return None


def _comprehension(node: ast.DictComp, module: Module) -> Table | None:
    """`{v: k for k, v in enumerate(range(...))}` and `{str(v): k for ...}`: integers all."""
    if len(node.generators) != 1:
        return None
    loop = node.generators[0]
    given, target = loop.iter, loop.target
    integers: set[str] = set()
    if isinstance(given, ast.Call) and module.qualify(given.func) == "builtins.enumerate":
        if not (isinstance(target, ast.Tuple) and len(target.elts) == 2 and len(given.args) == 1):
            return None
        if isinstance(target.elts[0], ast.Name):
            integers.add(target.elts[0].id)
        given, target = given.args[0], target.elts[1]
    if isinstance(target, ast.Name) and _integers(given, module):
        integers.add(target.id)
    key = node.key
    text = isinstance(key, ast.Call) and module.qualify(key.func) == "builtins.str"
    if text:
        assert isinstance(key, ast.Call)
        if len(key.args) != 1:
            return None
        key = key.args[0]
    if not (_computed(key, integers) and _computed(node.value, integers)):
        return None
    return Table(True, text, floats=False, integers=True)


def _integers(node: ast.expr, module: Module) -> bool:
    if isinstance(node, ast.Call):
        return module.qualify(node.func) == "builtins.range"
    if isinstance(node, (ast.List, ast.Tuple)):
        return bool(node.elts) and all(_number(e) is int for e in node.elts)
    return False


def _computed(node: ast.expr, integers: set[str]) -> bool:
    """Whether an expression is an integer made of loop variables and constants."""
    if isinstance(node, ast.Name):
        return node.id in integers
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        return _computed(node.left, integers) and _computed(node.right, integers)
    return _number(node) is int


def _number(node: ast.expr) -> type | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _number(node.operand)
    if isinstance(node, ast.Constant) and type(node.value) in {int, float}:
        return type(node.value)
    return None


def _key(node: ast.expr) -> type | None:
    """`int`, or `str` for an integer as Python writes it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        digits = node.value.removeprefix("-")
        exact = digits.isdecimal() and str(int(node.value)) == node.value
        return str if exact else None
    return int if _number(node) is int else None
