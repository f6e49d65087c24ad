"""Attributes that nothing in the project reads, so that it may not matter whether they are set.

Reads by name (`obj.flag`, `getattr(obj, "flag")`) count whatever the object is. Code outside of the
project is not known, and neither is what goes through `__dict__`.
"""

from __future__ import annotations

import ast

from gbfix.analysis.facts import Facts
from gbfix.analysis.values import Value


def is_never_read(name: str, owner: Value | None, facts: Facts) -> bool:
    """Whether an attribute of an object of the project is set and nowhere read.

    Args:
        name: the attribute.
        owner: the object that it is set on.
        facts: the facts of the project.
    """
    project = facts.project
    cls = project.class_info(owner.reference) if owner is not None else None
    if cls is None or facts.registered(cls, name):
        return False
    if any(project.method(cls, n) is not None for n in (name, "__setattr__")):
        return False
    return not any(
        _reads(node, name) for module in project.naming(name) for node in module.naming(name)
    )


def _reads(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == name and not isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.AugAssign):
        return getattr(node.target, "attr", "") == name
    return isinstance(node, ast.Constant) and node.value == name
