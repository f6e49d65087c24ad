"""Where the result of a project function goes: every place that calls it, and what it does with it.

A function is followed through being returned by another, being a method, and being passed as an
argument to a function of the project that only calls it. Any use that is not understood ends the
search. Knows names and calls, nothing of tensors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused
from gbfix.analysis.facts import Facts
from gbfix.analysis.project import FunctionInfo, Module
from gbfix.analysis.trees import walk


@dataclass(frozen=True)
class Consumer:
    """An assignment of a call's result: the function it stands in, and the assigned targets."""

    scope: ast.AST
    module: Module
    targets: tuple[str | None, ...]
    statement: ast.Assign


def consumers(info: FunctionInfo, facts: Facts, depth: int = 4) -> list[Consumer]:
    """All consumers of a function's result in the project.

    Raises:
        Refused: if a use of the function or of its result is not understood.
    """
    if depth == 0:
        raise Refused("consumer-unknown", "the result is handed on too often to be followed")
    found: list[Consumer] = []
    for module in facts.project.naming(info.node.name):
        for node in module.naming(info.node.name):
            if not isinstance(node, (ast.Name, ast.Attribute)) or not _names(node, info, module):
                continue
            found += _use(node, info, module, facts, depth)
    return found


def _names(node: ast.Name | ast.Attribute, info: FunctionInfo, module: Module) -> bool:
    """Whether a node refers to the function: by its name, or as a method of any object."""
    if not isinstance(node.ctx, ast.Load):
        return False
    if info.owner is not None:
        return isinstance(node, ast.Attribute) and node.attr == info.node.name
    if isinstance(node, ast.Attribute):
        return node.attr == info.node.name and module.qualify(node) == info.qualified
    return node.id == info.node.name and module.qualify(node) == info.qualified


def _use(
    node: ast.expr, info: FunctionInfo, module: Module, facts: Facts, depth: int
) -> Iterator[Consumer]:
    parent = module.parents[node]
    if isinstance(parent, ast.Call) and parent.func is node:
        yield from _call(parent, module, facts, depth)
        return
    if isinstance(parent, (ast.Call, ast.keyword)):
        yield from _passed(node, parent, module, facts, depth)
        return
    raise Refused("consumer-unknown", f"`{info.node.name}` is used in a way that is not followed")


def _call(call: ast.Call, module: Module, facts: Facts, depth: int) -> Iterator[Consumer]:
    parent = module.parents[call]
    scope = _scope(call, module)
    if isinstance(parent, ast.Return) and isinstance(
        scope, (ast.FunctionDef, ast.AsyncFunctionDef)
    ):
        outer = next((i for i in module.functions() if i.node is scope), None)
        if outer is not None:
            yield from consumers(outer, facts, depth - 1)
            return
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        target = parent.targets[0]
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        names = tuple(p.id if isinstance(p, ast.Name) else None for p in parts)
        yield Consumer(scope, module, names, parent)
        return
    raise Refused("consumer-unknown", "a caller uses the result in a way that is not followed")


def _passed(
    node: ast.expr, parent: ast.AST, module: Module, facts: Facts, depth: int
) -> Iterator[Consumer]:
    """The function as an argument: the receiving function may only call its parameter."""
    call = module.parents[parent] if isinstance(parent, ast.keyword) else parent
    assert isinstance(call, ast.Call)
    receiver = facts.project.function_info(module.qualify(call.func))
    if receiver is None:
        raise Refused("consumer-unknown", "the function is passed to code that is not followed")
    names = [a.arg for a in [*receiver.node.args.posonlyargs, *receiver.node.args.args]]
    if isinstance(parent, ast.keyword):
        name = parent.arg
    else:
        at = call.args.index(node)
        name = names[at] if at < len(names) else None
    inner = receiver.module
    for use in walk(receiver.node):
        if isinstance(use, ast.Name) and use.id == name and isinstance(use.ctx, ast.Load):
            above = inner.parents[use]
            if not (isinstance(above, ast.Call) and above.func is use):
                raise Refused("consumer-unknown", "the function is handed on and not followed")
            yield from _call(above, inner, facts, depth)


def _scope(node: ast.AST, module: Module) -> ast.AST:
    current = module.parents[node]
    while not isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)):
        current = module.parents[current]
    return current
