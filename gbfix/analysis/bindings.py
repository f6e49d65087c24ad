"""What binds names, and what the statements at the top of a module bind its names to.

Knows statements and how imports are written, nothing of what the names stand for elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gbfix.analysis.trees import walk

if TYPE_CHECKING:
    from gbfix.analysis.modules import Module

_NAMED = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.ExceptHandler,
    ast.MatchAs,
    ast.MatchStar,
)


def top_bindings(module: Module) -> dict[str, list[ast.AST | str]]:
    """Each top-level name with what binds it: a definition, an assigned node, or an import."""
    found: dict[str, list[ast.AST | str]] = {}
    for node in top_level(module.tree.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for name, target in import_bindings(node, module).items():
                found.setdefault(name, []).append(target)
        elif isinstance(node, ast.Assign):
            for target_node in node.targets:
                for name in stored_names(target_node):
                    simple = isinstance(target_node, ast.Name)
                    found.setdefault(name, []).append(node.value if simple else node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).append(node.value or node)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).append(node)
        elif isinstance(node, (ast.For, ast.With)):
            for inner in walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    found.setdefault(inner.id, []).append(node)
    return found


def top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that bind module-level names, also under `if` and `try`."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            blocks = [node.body, node.orelse]
            if isinstance(node, ast.Try):
                blocks += [node.finalbody, *(h.body for h in node.handlers)]
            for block in blocks:
                yield from top_level(block)


def stored_names(target: ast.AST) -> Iterator[str]:
    """The names that an assignment target binds."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from stored_names(element)
    elif isinstance(target, ast.Starred):
        yield from stored_names(target.value)


def binds(node: ast.AST, name: str) -> bool:
    """Whether a node by itself gives a name a value: as a target, parameter, import or definition."""
    if isinstance(node, ast.Name):
        return node.id == name and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.arg):
        return node.arg == name
    if isinstance(node, ast.alias):
        return (node.asname or node.name.split(".")[0]) == name
    if isinstance(node, ast.MatchMapping):
        return node.rest == name
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return name in node.names
    return isinstance(node, _NAMED) and node.name == name


def import_bindings(node: ast.Import | ast.ImportFrom, module: Module) -> dict[str, str]:
    """Local name to qualified name for an import statement."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.split(".")[0]: module.known_as(
                alias.name if alias.asname else alias.name.split(".")[0]
            )
            for alias in node.names
        }
    base = imported_from(node, module)
    return {
        alias.asname or alias.name: f"{base}.{alias.name}" if base else module.known_as(alias.name)
        for alias in node.names
        if alias.name != "*"
    }


def imported_from(node: ast.ImportFrom, module: Module) -> str:
    """The qualified name of the module that names are imported from; empty for the outermost folder."""
    parts: list[str] = []
    if node.level:
        parts = module.name.split(".")
        keep = len(parts) - node.level + (1 if module.is_package else 0)
        parts = parts[: max(keep, 0)]
    base = ".".join([*parts, *([node.module] if node.module else [])])
    return base if parts else module.known_as(base)
