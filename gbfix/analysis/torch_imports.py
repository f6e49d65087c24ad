"""Whether importing a file imports torch as well, so that one more `import torch` changes nothing.

A package that serves several frameworks, or that has to start fast, imports torch where it is used.
Follows the imports at the top of files through the project, and knows nothing of other packages.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from gbfix.analysis.bindings import imported_from
from gbfix.analysis.modules import Module
from gbfix.analysis.project import Project
from gbfix.analysis.trees import walk

_STANDARD = sys.stdlib_module_names


def imports_torch(module: Module, project: Project) -> bool:
    """Whether the import of a module imports torch, as far as can be told.

    Other packages, and files that are in none, are taken to, unless the module itself puts it off.
    """
    deferred, packages = _defers(module), list(_packages(module.name, project))
    if not deferred and not packages:
        return True
    todo, seen = [module, *packages], {module.name}
    while todo:
        current = todo.pop()
        for name in _imported(current):
            top = name.partition(".")[0]
            if top == "torch":
                return True
            found = [m for m in (*_packages(name, project), project.module(name)) if m is not None]
            if not found and top not in _STANDARD and not deferred:
                return True
            todo += [m for m in found if m.name not in seen]
            seen |= {m.name for m in found}
    return False


def _packages(name: str, project: Project) -> Iterator[Module]:
    """The packages around a module, which are imported before it."""
    while name := name.rpartition(".")[0]:
        found = project.module(name)
        if found is not None:
            yield found


def _imported(module: Module) -> Iterator[str]:
    """The names that a module imports whatever happens."""
    for node in module.tree.body:
        if isinstance(node, ast.Import):
            yield from (module.known_as(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = imported_from(node, module)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if base)


def _defers(module: Module) -> bool:
    """Whether a module imports torch later, or only for its annotations."""
    first = set(module.tree.body)
    return any(
        n not in first and isinstance(n, (ast.Import, ast.ImportFrom)) and of_torch(n)
        for n in walk(module.tree)
    )


def of_torch(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether an import is one of torch, or from it."""
    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and (node.module or "").split(".")[0] == "torch"
    return any(alias.name.split(".")[0] == "torch" for alias in node.names)
