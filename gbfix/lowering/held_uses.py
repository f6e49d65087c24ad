"""What is done with a tensor that is kept in a dict, an object or an argument: it may only be read.

Goes forward from where the tensor is made. Where it is computed with, handed to unknown code, or leaves
the functions of the file, nothing can be said of it. Knows where values go, nothing of what is written
instead.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from gbfix.analysis.annotations import annotated
from gbfix.analysis.calls_in_file import calls_in_file
from gbfix.analysis.conditions import Refused
from gbfix.analysis.facts import Facts
from gbfix.analysis.project import ClassInfo, FunctionInfo, Module
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.lowering.handed_on import (
    Path,
    bound,
    callee_of,
    is_parameter,
    key_of,
    parameter_for,
)
from gbfix.lowering.held_origins import Made

_NUMBERS = frozenset({"int", "float", "bool", "range", "len"})
_MOST_PLACES = 240


@dataclass
class Uses:
    """What is done with a tensor that is kept.

    Attributes:
        items: `t.item()` with `t`, one element.
        lists: `t.tolist()` with `t`.
        ways: what it goes through on the way, in words.
    """

    items: dict[ast.Call, ast.expr] = field(default_factory=dict)
    lists: dict[ast.Call, ast.expr] = field(default_factory=dict)
    ways: list[str] = field(default_factory=list)


def uses_of(made: Made, facts: Facts) -> Uses:
    """Everything that is done with a tensor.

    Raises:
        Refused: where it is needed as a tensor, or not all of it is seen.
    """
    followed = _Followed(facts)
    followed.follow(made.node, made.info, ())
    return followed.found


class _Followed:
    """Goes from where a tensor is made to all that is done with it."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.found = Uses()
        self._seen: set[tuple[ast.AST, Path]] = set()
        self._stores: set[ast.AST] = set()

    def follow(self, node: ast.expr, info: FunctionInfo, path: Path) -> None:
        """See what becomes of an expression that holds the tensor under a path of keys."""
        if (node, path) in self._seen:
            return
        self._seen.add((node, path))
        if len(self._seen) > _MOST_PLACES:
            raise Refused("needed-as-tensor", "the tensor is used in too many places")
        parent = info.module.parents[node]
        if isinstance(parent, ast.keyword):
            parent = info.module.parents[parent]
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and parent.value is node:
            self._assigned(parent.targets[0], info, path)
        elif isinstance(parent, ast.Return):
            self._returned(info, path)
        elif isinstance(parent, ast.Dict) and node in parent.values:
            key = key_of(parent.keys[parent.values.index(node)])
            if key is None:
                raise _needed(node)
            self.found.ways.append(f'`"{key}"` of a dict')
            self.follow(parent, info, (key, *path))
        elif isinstance(parent, ast.Call) and node is not parent.func:
            self._passed(node, parent, info, path)
        elif isinstance(parent, ast.Subscript) and node is parent.value:
            self._item(parent, info, path)
        elif isinstance(parent, ast.Attribute) and not path:
            self._method(node, parent, info)
        elif not (isinstance(parent, ast.Expr) or (not path and _reads(parent, info.module))):
            raise _needed(node)

    def _assigned(self, target: ast.expr, info: FunctionInfo, path: Path) -> None:
        if isinstance(target, ast.Name):
            if bound(target.id, info) is None:
                raise Refused("needed-as-tensor", f"`{target.id}` holds other values, too")
            self._named(target.id, info, path)
            return
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            name, key = target.value.id, key_of(target.slice)
            if key is None or bound(name, info) is None:
                raise _needed(target)
            self._stores.add(target)
            self.found.ways.append(f'`"{key}"` of a dict')
            self._named(name, info, (key, *path))
            return
        cls = info.owner
        mine = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
        if not mine or cls is None or self.facts.project.is_module_class(cls.qualified):
            raise _needed(target)
        assert isinstance(target, ast.Attribute)
        if ast.unparse(target.value) != info.node.args.args[0].arg:
            raise _needed(target)
        if len(self.facts.writes(cls).get(target.attr, ())) != 1:
            raise Refused("needed-as-tensor", f"`{target.attr}` is set in several places")
        self.found.ways.append(f"`{target.attr}` of an object")
        self._attribute(cls, target.attr, path)

    def _attribute(self, cls: ClassInfo, name: str, path: Path) -> None:
        """Every read of an attribute of a class, in all of the project."""
        for module in self.facts.project.naming(name):
            for node in module.naming(name):
                if not isinstance(node, ast.Attribute) or node.attr != name:
                    continue
                around = [*module.around(node)]
                analysis = self.facts.analysis(around[-1]) if around else None
                value = analysis.values.get(node.value) if analysis is not None else None
                if isinstance(node.ctx, ast.Store) and _is_method(around, cls):
                    continue
                if value is not None and value.only(Kind.TENSOR | Kind.STATIC | Kind.MODULE):
                    continue
                reference = value.reference if value is not None else None
                if reference != cls.qualified or module is not cls.module:
                    raise Refused("needed-as-tensor", f"`{ast.unparse(node)}` may be the same")
                self.follow(node, around[-1], path)

    def _named(self, name: str, info: FunctionInfo, path: Path) -> None:
        for node in walk(info.node):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                self.follow(node, info, path)

    def _returned(self, info: FunctionInfo, path: Path) -> None:
        name = info.node.name
        calls = calls_in_file(info, self.facts.project)
        for module in self.facts.project.given:
            if module is not info.module and name in module.source.text:
                raise Refused("needed-as-tensor", f"`{name}` is named in other files")
        if not calls:
            raise Refused("needed-as-tensor", f"what `{name}` returns leaves the file")
        for call, caller in calls:
            if caller is None:
                raise Refused("needed-as-tensor", f"`{name}` is called outside of functions")
            self.follow(call, caller, path)

    def _passed(self, node: ast.expr, call: ast.Call, info: FunctionInfo, path: Path) -> None:
        if not path and isinstance(call.func, ast.Name) and call.func.id in _NUMBERS:
            if not call.keywords:
                return
        callee = callee_of(call, info, self.facts)
        name = parameter_for(node, call, callee) if callee is not None else None
        if callee is None or name is None or not is_parameter(name, callee):
            raise _needed(call)
        if _is_promised(name, callee, self.facts):
            raise Refused("needed-as-tensor", f"`{name}` is annotated as a tensor")
        self.found.ways.append(f"`{name}` of `{callee.node.name}`")
        self._named(name, callee, path)

    def _item(self, node: ast.Subscript, info: FunctionInfo, path: Path) -> None:
        if node in self._stores:
            return
        if path:
            key = key_of(node.slice)
            if key is None or (key == path[0] and not isinstance(node.ctx, ast.Load)):
                raise _needed(node)
            if key == path[0]:
                self.follow(node, info, path[1:])
            return
        if not isinstance(node.ctx, ast.Load) or not _is_constant_index(node.slice):
            raise _needed(node)
        self.follow(node, info, path)

    def _method(self, node: ast.expr, attribute: ast.Attribute, info: FunctionInfo) -> None:
        call = info.module.parents[attribute]
        plain = isinstance(call, ast.Call) and not call.args and not call.keywords
        if not plain or attribute.attr not in {"item", "tolist"}:
            raise _needed(attribute)
        assert isinstance(call, ast.Call)
        where = self.found.items if attribute.attr == "item" else self.found.lists
        where[call] = node


def _needed(node: ast.AST) -> Refused:
    return Refused("needed-as-tensor", f"`{ast.unparse(node)}` is used for more than its numbers")


def _is_constant_index(node: ast.expr) -> bool:
    parts = [node]
    if isinstance(node, ast.Slice):
        parts = [p for p in (node.lower, node.upper, node.step) if p is not None]
    return all(
        isinstance(p.operand if isinstance(p, ast.UnaryOp) else p, ast.Constant) for p in parts
    )


def _is_promised(name: str, info: FunctionInfo, facts: Facts) -> bool:
    """Whether the annotation of a parameter says that it is a tensor."""
    arguments = info.node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    node = next((a.annotation for a in every if a.arg == name), None)
    value = annotated(node, info.module, facts.project)
    return value is not None and value.may_be_tensor


def _reads(node: ast.AST, module: Module) -> bool:
    """Whether a bound of a slice, or a comparison that only decides what runs."""
    if not isinstance(node, ast.Compare):
        return isinstance(node, ast.Slice)
    parent = module.parents[node]
    while isinstance(parent, (ast.BoolOp, ast.UnaryOp)):
        node, parent = parent, module.parents[parent]
    return isinstance(parent, (ast.If, ast.While, ast.Assert, ast.IfExp)) and parent.test is node


def _is_method(around: Sequence[FunctionInfo], cls: ClassInfo) -> bool:
    """Whether the innermost function is a method of a class."""
    owner = around[-1].owner if around else None
    return owner is not None and owner.node is cls.node
