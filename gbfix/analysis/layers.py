"""Parameters that a method feeds to layers: what `nn.Linear` or a block takes is a tensor.

Reads the syntax of the places that set an attribute, so that the answer does not depend on the order in
which functions are analysed. Knows classes and names, runs no analysis of the method itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gbfix.analysis import torch_table
from gbfix.analysis.project import ClassInfo, FunctionInfo, Module
from gbfix.analysis.trees import of_kind, walk

if TYPE_CHECKING:
    from gbfix.analysis.facts import Facts

_LISTS = frozenset({"torch.nn.ModuleList", "torch.nn.Sequential"})
_ANYTHING = frozenset({"torch.nn.Identity", "torch.nn.ModuleDict", *_LISTS})
# What makes a tensor of something else: the parameter itself need not be one.
_MAKING = frozenset("tensor as_tensor from_numpy asarray stack cat Tensor".split())


def fed_to_layers(info: FunctionInfo, facts: Facts) -> frozenset[str]:
    """Parameters without annotation that a method passes to layers of its own object."""
    if info.owner is None:
        return frozenset()
    arguments = info.node.args
    names = {
        a.arg
        for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs][1:]
        if a.annotation is None
    }
    found: set[str] = set()
    if not names:
        return frozenset()
    loops = _loop_names(info.node)
    for node in of_kind(info.node, ast.Call):
        if not node.args or not isinstance(node.args[0], ast.Name):
            continue
        name = node.args[0].id
        if name not in names or name in found:
            continue
        attribute = _own_attribute(node.func, loops)
        if attribute is not None and _take_tensors(info.owner, attribute, facts):
            if not _is_made(name, info.node):
                found.add(name)
    return frozenset(found)


def _loop_names(function: ast.AST) -> dict[str, ast.expr]:
    """Names of loops over attributes: `for layer in self.layers`, with or without `enumerate`."""
    found: dict[str, ast.expr] = {}
    for node in of_kind(function, ast.For):
        target, over = node.target, node.iter
        if isinstance(over, ast.Call) and getattr(over.func, "id", "") == "enumerate" and over.args:
            over = over.args[0]
            target = target.elts[-1] if isinstance(target, ast.Tuple) else target
        if isinstance(target, ast.Name):
            found[target.id] = over
    return found


def _own_attribute(function: ast.expr, loops: dict[str, ast.expr]) -> str | None:
    """The attribute of `self` that is called, or whose items are."""
    if isinstance(function, ast.Name):
        function = loops.get(function.id, function)
    if isinstance(function, ast.Subscript):
        function = function.value
    is_own = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "self"
    return function.attr if is_own and isinstance(function, ast.Attribute) else None


def _take_tensors(cls: ClassInfo, attribute: str, facts: Facts) -> bool:
    """Whether all that an attribute may hold are layers that take a tensor first."""
    writes = [
        (owner.module, w)
        for owner in facts.project.mro(cls)
        for w in facts.writes(owner).get(attribute, ())
    ]
    return bool(writes) and all(
        write.value is not None and _takes(write.value, module, facts) for module, write in writes
    )


def _takes(node: ast.expr, module: Module, facts: Facts) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = module.qualify(node.func)
    if name is None:
        return False
    if name in _LISTS:
        parts = list(_items(node))
        first = parts[:1] if name.endswith("Sequential") else parts
        return bool(first) and all(_takes(part, module, facts) for part in first)
    if name in _ANYTHING:
        return False
    if torch_table.module_class(name) is not None:
        return True
    cls = facts.project.class_info(name)
    method = facts.project.method(cls, "forward") if cls is not None else None
    if method is None or len(method.node.args.args) < 2:
        return False
    value = facts.parameters(method).get(method.node.args.args[1].arg)
    return value is not None and value.tensor


def _items(node: ast.Call) -> Iterator[ast.expr]:
    """The layers that a list of layers is made of."""
    for argument in node.args:
        if isinstance(argument, (ast.List, ast.Tuple)):
            yield from argument.elts
        elif isinstance(argument, (ast.ListComp, ast.GeneratorExp)):
            yield argument.elt
        else:
            yield argument


def _is_made(name: str, function: ast.AST) -> bool:
    """Whether the function binds the name to a tensor that it makes of something."""
    for node in of_kind(function, ast.Assign):
        if any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            called = [n.func for n in walk(node.value) if isinstance(n, ast.Call)]
            if any(getattr(f, "attr", getattr(f, "id", "")) in _MAKING for f in called):
                return True
    return False
