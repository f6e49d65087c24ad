"""Names for new variables and functions that collide with nothing in scope.

A name is taken if the function, anything nested in it, the module or the builtins use it, or if an
earlier fix of the same function took it. What a function around it binds and it does not read may
be shadowed.
"""

from __future__ import annotations

import ast
import keyword
import re

from gbfix.analysis.project import BUILTINS, FunctionInfo
from gbfix.analysis.trees import walk

_NAMING = frozenset(
    {ast.Name, ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global}
    | {ast.Nonlocal, ast.ExceptHandler, ast.alias}
)


class Names:
    """Hands out names for one function."""

    def __init__(self, info: FunctionInfo) -> None:
        self.taken: set[str] = set(BUILTINS) | set(info.module.bindings) | used_names(info.node)

    def take(self, wanted: str) -> str:
        """The wanted name, or it with the first free number."""
        base = re.sub(r"\W", "_", wanted)
        if not base.isidentifier() or keyword.iskeyword(base):
            base = f"_{base}"
        name, number = base, 1
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return name


def used_names(node: ast.AST) -> set[str]:
    """Every identifier that a piece of code binds or reads."""
    found: set[str] = set()
    for inner in walk(node):
        if inner.__class__ not in _NAMING:
            continue
        if isinstance(inner, ast.Name):
            found.add(inner.id)
        elif isinstance(inner, ast.arg):
            found.add(inner.arg)
        elif isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(inner.name)
        elif isinstance(inner, (ast.Global, ast.Nonlocal)):
            found |= set(inner.names)
        elif isinstance(inner, ast.ExceptHandler) and inner.name:
            found.add(inner.name)
        elif isinstance(inner, ast.alias):
            found.add((inner.asname or inner.name).split(".")[0])
    return found
