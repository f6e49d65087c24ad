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
        if reached and info.owner is not None and _only_calls(name, module.source.text):
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


def _only_calls(name: str, text: str) -> bool:
    """Whether all that a text does with the name of a method is to define and to call it."""
    return re.search(rf"{name}\b(?!\s*\()", text) is None


def _is_named(node: ast.AST, info: FunctionInfo, module: Module) -> bool:
    if info.owner is not None:
        return isinstance(node, ast.Attribute) and node.attr == info.node.name
    is_name = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
    return is_name and module.qualify(node) == info.qualified
