"""Tells from a file's text that running it leaves nothing in its process that a next run would find.

A file is imported anew for each run, so what it keeps in its own names, classes and objects is gone. It
leaves something if it changes what it has imported. Only a text that shows that it does not passes:
one that imports little, stores only in what is its own, and asks for nothing that is set for a whole
process. No file is read and no code is run here.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections.abc import Iterator

# What keeps nothing that a file could set by using it as others do.
_MODULES = frozenset(
    {"__future__", "abc", "collections", "dataclasses", "enum", "functools", "itertools", "math"}
    | {"numbers", "operator", "torch", "torch.nn", "torch.nn.functional", "torch.utils.checkpoint"}
    | {"typing", "typing_extensions"}
)
# What looks names up, runs a text, or ends when it pleases.
_NAMES = frozenset(
    {"__builtins__", "__import__", "delattr", "eval", "exec", "globals", "setattr", "vars"}
    | {"__del__", "__delattr__", "__dict__", "__globals__", "__setattr__", "__subclasses__"}
)
_SETTING = re.compile(
    r"^(set|use|register|enable|disable|add|append|extend|insert|update|pop|remove|clear|install|load"
    r"|save)(_|$)|hook|library|config|backends|distributed|multiprocessing|generator"
    r"|^(_C|_dynamo|_inductor|_library|cuda|hub|jit|ops|overrides|package|utils)$"
)


@functools.lru_cache(maxsize=64)
def leaves_nothing(text: str) -> bool:
    """Whether a run of a file with this text is known to leave nothing that another would find."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    nodes = list(ast.walk(tree))
    imported = _imported(nodes)
    if imported is None or any(_named(node) & _NAMES for node in nodes):
        return False
    own = {node.name for node in nodes if isinstance(node, ast.ClassDef)} | {"self", "ctx"}
    return all(
        _is_own(target, own, imported) for node in nodes for target in _stores(node)
    ) and all(_is_plain_use(node, imported) for node in nodes if isinstance(node, ast.Attribute))


def _imported(nodes: list[ast.AST]) -> set[str] | None:
    """The names that stand for what is imported; None if a module is not one of the few."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name not in _MODULES:
                    return None
                names.add(alias.asname or alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module not in _MODULES:
                return None
            if any(alias.name == "*" or _SETTING.search(alias.name) for alias in node.names):
                return None
            names |= {alias.asname or alias.name for alias in node.names}
    # Other names of the same things, whatever the order in which they come about.
    known = -1
    while known < len(names):
        known = len(names)
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value:
                if _is_part(node.value, names):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _is_part(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression is something imported or an attribute of it, and not made by a call."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in names


def _named(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    return {node.name} if isinstance(node, ast.FunctionDef) else set()


def _stores(node: ast.AST) -> Iterator[ast.Attribute | ast.Subscript]:
    """The parts of other things that a node stores in or deletes."""
    if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        yield node


def _is_own(target: ast.Attribute | ast.Subscript, own: set[str], imported: set[str]) -> bool:
    root = _root(target)
    if root is None or root in imported or hasattr(builtins, root):
        return False
    if any("__class__" in _named(node) for node in ast.walk(target)):
        return False
    # An element is mostly one of a tensor; an attribute of another name can be one of anything.
    return isinstance(target, ast.Subscript) or root in own


def _root(node: ast.AST) -> str | None:
    """The name that a chain of attributes, elements and calls starts from."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return None
    return node.id


def _is_plain_use(node: ast.Attribute, imported: set[str]) -> bool:
    """Whether an attribute, if it is one of something imported, sets nothing for the process."""
    return not _is_part(node, imported) or not _SETTING.search(node.attr)
