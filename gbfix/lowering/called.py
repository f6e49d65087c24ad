"""Whether a function is only called, so that its mark or its name may change what a call does.

Reads every use of the function's name in the project. Knows names and calls, nothing of why one asks.
"""

from __future__ import annotations

import ast
import re

from gbfix.analysis.facts import Facts
from gbfix.analysis.project import FunctionInfo, Module


def is_only_called(info: FunctionInfo, facts: Facts) -> bool:
    """Whether every use of a function is a call of it, and one of them stands in the region."""
    reached = False
    name = info.node.name
    # Its own module has been read, and mostly says enough.
    for module in sorted(facts.project.naming(name), key=lambda m: m is not info.module):
        if module is not info.module and not _may_tell(info, module, reached=reached):
            continue
        for node in module.naming(name):
            if not _is_named(node, info, module):
                continue
            parent = module.parents[node]
            if not isinstance(parent, ast.Call) or parent.func is not node:
                return False
            around: ast.AST | None = parent
            while around is not None and not isinstance(around, ast.FunctionDef):
                around = module.parents.get(around)
            reached = reached or (around is not info.node and around in facts.region)
    return reached


def _may_tell(info: FunctionInfo, module: Module, *, reached: bool) -> bool:
    """Whether another module may use a function in a way that is not known yet, by its text."""
    text = module.source.text
    if info.owner is None:
        return info.module.imported_as in text
    # Defined and called is all that a method may be.
    return not reached or re.search(rf"{info.node.name}\b(?!\s*\()", text) is not None


def _is_named(node: ast.AST, info: FunctionInfo, module: Module) -> bool:
    if info.owner is not None:
        return isinstance(node, ast.Attribute) and node.attr == info.node.name
    is_name = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
    return is_name and module.qualify(node) == info.qualified
