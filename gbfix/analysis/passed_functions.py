"""Functions that a module gives to the constructors of layers, whose forwards may call them.

Looks at lines on which a function's name is followed by something else than a call. Knows names,
nothing of what the layers do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from gbfix.analysis.project import FunctionInfo, Module, Project
from gbfix.analysis.trees import nodes_on


def passed_to_modules(module: Module, project: Project) -> Iterator[FunctionInfo]:
    """Functions given to the constructor of a module, which its forward may call."""
    functions = sorted({i.node.name for i in module.functions()} & module.bindings.keys())
    lines = _passed_on(functions, module)
    for node in nodes_on(module.tree, lines) if lines else ():
        if not isinstance(node, ast.Call):
            continue
        passed = [*node.args, *(k.value for k in node.keywords)]
        names = [a for a in passed if isinstance(a, ast.Name) and a.id in functions]
        if names and project.is_module_class(module.qualify(node.func)):
            for name in names:
                info = project.function_info(module.qualify(name))
                if info is not None:
                    yield info


def _passed_on(names: Iterable[str], module: Module) -> list[int]:
    """The lines on which a name stands that something else than a call or an item may follow."""
    text = module.source.text
    found: set[int] = set()
    for name in names:
        if text.count(name) > 1:  # more than its definition
            for match in re.finditer(rf"{name}\s*(?:[,)#\\]|$)", text, re.MULTILINE):
                before = text[match.start() - 1 : match.start()]
                if not (before == "." or before == "_" or before.isalnum()):
                    found.add(module.source.position(match.start())[0])
    return sorted(found)


__all__ = ["passed_to_modules"]
