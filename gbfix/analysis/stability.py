"""Whether a tensor that outlives a call ever changes: rebound, changed in place, or handed away.

The proof is by exclusion. Every use of the name in the project has to be one that cannot change the
tensor; a use that is not understood ends the proof.
"""

from __future__ import annotations

import ast

from gbfix.analysis import torch_table
from gbfix.analysis.conditions import Refused
from gbfix.analysis.facts import Facts
from gbfix.analysis.project import ClassInfo, FunctionInfo, Module
from gbfix.analysis.trees import walk

_SETUP = frozenset({"__init__", "reset_parameters"})


def check_stable_name(name: str, scope: ast.AST | None, info: FunctionInfo, facts: Facts) -> None:
    """Prove that a module-level name, or a name of an outer function, keeps its tensor.

    Raises:
        Refused: naming what may change it.
    """
    module = info.module
    tree = scope if scope is not None else module.tree
    stores = [
        n
        for n in walk(tree)
        if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
    ]
    if scope is None:
        bound = module.bindings.get(name, [])
        if len(bound) != 1 or not isinstance(bound[0], ast.expr):
            raise Refused("may-change", f"`{name}` is bound more than once")
        stores = [n for n in stores if _at_top(n, module)]
        _check_elsewhere(name, module, facts)
    if len(stores) > 1:
        raise Refused("may-change", f"`{name}` is bound more than once")
    for node in walk(tree):
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            raise Refused("may-change", f"a function rebinds `{name}`")
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            _check_use(node, name, module)


def _at_top(node: ast.AST, module: Module) -> bool:
    parent = module.parents.get(node)
    while parent is not None:
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
        parent = module.parents.get(parent)
    return True


def _check_elsewhere(name: str, module: Module, facts: Facts) -> None:
    qualified = f"{module.name}.{name}"
    for other in facts.project.naming(name):
        if other is module:
            continue
        for bound in other.bindings.values():
            if any(b == qualified for b in bound):
                raise Refused("may-change", f"`{name}` is imported by {other.name}")
        if any(
            isinstance(n, ast.Attribute) and n.attr == name and isinstance(n.ctx, ast.Store)
            for n in other.naming(name)
        ):
            raise Refused("may-change", f"{other.name} sets an attribute called `{name}`")


def _check_use(node: ast.Name, name: str, module: Module) -> None:
    """One use of the tensor has to be a read."""
    current: ast.AST = node
    parent = module.parents[node]
    if isinstance(parent, ast.AugAssign) and parent.target is node:
        raise Refused("may-change", f"`{name}` is changed in place")
    while isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is current:
        if not isinstance(parent.ctx, ast.Load):
            raise Refused("may-change", f"`{name}` is changed in place")
        above = module.parents[parent]
        if isinstance(above, ast.AugAssign) and above.target is parent:
            raise Refused("may-change", f"`{name}` is changed in place")
        if (
            isinstance(parent, ast.Attribute)
            and isinstance(above, ast.Call)
            and above.func is parent
        ):
            operation = torch_table.method(parent.attr)
            if operation is None or operation.mutates or parent.attr.endswith("_"):
                raise Refused("may-change", f"`{name}.{parent.attr}()` may change it")
            if not operation.alias:
                return
            current, parent = above, module.parents[above]
            continue
        current, parent = parent, above
    if isinstance(parent, ast.keyword):
        parent = module.parents[parent]
    if isinstance(parent, (ast.BinOp, ast.Compare, ast.UnaryOp, ast.BoolOp, ast.FormattedValue)):
        return
    if isinstance(parent, (ast.If, ast.While, ast.IfExp, ast.Assert)) and parent.test is current:
        return
    if isinstance(parent, (ast.Expr, ast.Slice)):
        return
    if isinstance(parent, ast.Subscript):
        return  # used as an index
    if isinstance(parent, ast.Call) and parent.func is not current:
        qualified = module.qualify(parent.func) or ""
        operation = torch_table.function(qualified)
        if operation is not None and not operation.mutates and not operation.alias:
            return
        if qualified in {"builtins.len", "builtins.print", "builtins.bool", "builtins.float"}:
            return
    raise Refused("may-change", f"`{name}` is handed to code that could change it")


def check_stable_attribute(name: str, owner: ClassInfo, facts: Facts) -> None:
    """Require that no code of the class changes an attribute outside of its construction.

    Raises:
        Refused: naming what changes it.
    """
    for cls in facts.project.mro(owner):
        for write in facts.writes(cls).get(name, ()):
            if write.method is not None and write.method.node.name not in _SETUP:
                raise Refused("may-change", f"`{write.method.node.name}` sets `self.{name}`")
        for method in cls.methods.values():
            if method.node.name in _SETUP:
                continue
            for node in walk(method.node):
                if changes_attribute(node, name):
                    raise Refused(
                        "may-change", f"`{method.node.name}` changes `self.{name}` in place"
                    )


def changes_attribute(node: ast.AST, name: str) -> bool:
    """Whether a node changes an attribute of this name in place."""

    def is_it(target: ast.AST) -> bool:
        while isinstance(target, (ast.Subscript, ast.Attribute, ast.Call)):
            if isinstance(target, ast.Attribute) and target.attr == name:
                return True
            target = target.func if isinstance(target, ast.Call) else target.value
        return False

    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr.endswith("_") and is_it(node.func.value)
    if isinstance(node, ast.AugAssign):
        return is_it(node.target)
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and is_it(node)
