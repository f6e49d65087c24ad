"""What a piece of code does besides computing: names, attributes, in-place changes, output, control.

`Effects` of an arm decide whether it can be traced as a branch of `torch.cond` or run
unconditionally. Calls into the project are followed; a call that cannot be resolved is an unknown
effect. Knows nothing of rewriting.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from gbfix.analysis import torch_table
from gbfix.analysis.bindings import stored_names
from gbfix.analysis.changed_arguments import changed_by
from gbfix.analysis.counted import counted
from gbfix.analysis.dynamic import selected_by, treated_beside
from gbfix.analysis.effect_set import (
    CONTAINER_CHANGES,
    PARTIAL,
    PURE_BUILTINS,
    PURE_PREFIXES,
    PURE_TORCH,
    Effects,
)
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.integer_places import needs_integer
from gbfix.analysis.logs import is_log_call
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value

__all__ = ["Effects", "effects", "function_effects"]


def effects(nodes: Iterable[ast.AST], analysis: Analysis, facts: Facts) -> Effects:
    """Effects of running all of the nodes once, both ways of inner branches included."""
    collector = _Collector(analysis, facts)
    for node in nodes:
        collector.visit(node)
    return collector.effects


_CONTROL = (
    ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await,
    ast.Global, ast.Nonlocal, ast.Delete, ast.AsyncFor, ast.AsyncWith, ast.Try, ast.Import,
    ast.ImportFrom, ast.ClassDef,
)  # fmt: skip


class _Collector(ast.NodeVisitor):
    def __init__(self, analysis: Analysis, facts: Facts) -> None:
        self.analysis = analysis
        self.facts = facts
        self.effects = Effects()
        self.called: set[ast.AST] = set()

    def value(self, node: ast.AST) -> Value | None:
        return self.analysis.values.get(node)

    def _unknown(self, called: str) -> None:
        self.effects.unknown.setdefault(called, called)

    def visit(self, node: ast.AST) -> None:
        # What only runs in eager mode has no effect on what is traced.
        if not (isinstance(node, ast.stmt) and node in self.analysis.eager):
            super().visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        condition = self.analysis.conditions.get(node)
        if condition is not None and not condition.eager:
            self.effects.conditions.setdefault(condition)
        if isinstance(node, _CONTROL):
            self.effects.control.append(node)
        super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        where = self.effects.loads if isinstance(node.ctx, ast.Load) else self.effects.stores
        where.setdefault(node.id)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.effects.stores.setdefault(node.name)
        bound = {a.arg for a in walk(node.args) if isinstance(a, ast.arg)}
        inner = _Collector(self.analysis, self.facts)
        for statement in node.body:
            inner.visit(statement)
        for name in inner.effects.loads:
            if name not in bound and name not in inner.effects.stores:
                self.effects.loads.setdefault(name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        bound = {a.arg for a in walk(node.args) if isinstance(a, ast.arg)}
        inner = _Collector(self.analysis, self.facts)
        inner.visit(node.body)
        for name in inner.effects.loads:
            if name not in bound:
                self.effects.loads.setdefault(name)

    def _comprehension(self, node: ast.AST) -> None:
        inner = _Collector(self.analysis, self.facts)
        inner.generic_visit(node)
        bound = {name for g in getattr(node, "generators", ()) for name in stored_names(g.target)}
        for name in inner.effects.loads:
            if name not in bound:
                self.effects.loads.setdefault(name)
        for called, text in inner.effects.unknown.items():
            self.effects.unknown.setdefault(called, text)
        for attribute in (
            "output",
            "random",
            "dynamic",
            "scalar",
            "partial",
            "stateful",
            "placed",
        ):
            getattr(self.effects, attribute).extend(getattr(inner.effects, attribute))
        self.effects.mutated.extend(inner.effects.mutated)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = self.value(node.value)
        if node.attr.endswith("_") and node not in self.called and base is not None:
            operation = torch_table.method(node.attr)
            if base.may_be_tensor and operation is not None and operation.mutates:
                self.effects.mutated.append((node.value, node))  # a bound method, called later
        if isinstance(node.ctx, ast.Store):
            self.effects.attributes.setdefault(dotted(node) or ast.unparse(node), []).append(node)
        self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            self.effects.mutated.append((node.value, node))
        else:
            base, index = self.value(node.value), self.value(node.slice)
            if index is not None and any(
                p.tensor and p.zero_dim and not p.boolean for p in index.elements or (index,)
            ):
                self.effects.placed.append(node)
            if base is not None and base.may_be_tensor and index is not None:
                parts = index.elements or (index,)
                if any(p.may_be_tensor for p in parts):
                    booleans = any(p.boolean for p in parts if p.may_be_tensor)
                    booleans = booleans or selected_by(node, self.analysis) is not None
                    place = self.analysis.places.get(node)
                    # What is left to a path beside this one is no mask here.
                    if place is not None and treated_beside(place.mode):
                        booleans = False
                    (self.effects.dynamic if booleans else self.effects.partial).append(node)
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        self._positions([p for p in (node.lower, node.upper, node.step) if p is not None])
        self.generic_visit(node)

    def _positions(self, nodes: Sequence[ast.expr]) -> None:
        """Tensors from which an integer is taken, without being asked."""
        for node in nodes:
            value = self.value(node)
            if value is not None and value.tensor and needs_integer(node, self.analysis):
                self.effects.scalar.append(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self.effects.loads.setdefault(node.target.id)
        old = self.value(node.target)
        if isinstance(node.target, ast.Subscript) or (
            old is not None and old.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.OBJECT)
        ):
            target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
            if not isinstance(node.target, ast.Subscript):
                self.effects.mutated.append((target, node))

    def visit_Call(self, node: ast.Call) -> None:
        self.called.add(node.func)
        self._positions([*node.args, *counted(node, self.analysis)])
        self.generic_visit(node)
        self._call(node)

    def _call(self, node: ast.Call) -> None:
        found = self.effects
        if is_log_call(node, self.analysis, self.facts):
            found.output.append(node)
            return
        if isinstance(node.func, ast.Attribute):
            receiver = self.value(node.func.value)
            attr = node.func.attr
            if receiver is not None and receiver.kinds & (Kind.TENSOR | Kind.MAYBE):
                if not receiver.kinds & Kind.MAYBE or torch_table.method(attr) is not None:
                    self._method(node, node.func, receiver)
                    return
            if receiver is not None and receiver.only(Kind.OBJECT | Kind.UNKNOWN | Kind.STATIC):
                if attr in CONTAINER_CHANGES and receiver.reference is None:
                    found.mutated.append((node.func.value, node))
                    return
                if receiver.reference is None and not receiver.kinds & Kind.UNKNOWN:
                    return  # get, items, keys, format and the like
            if attr in {"register_buffer", "register_parameter"} and node.args:
                name = node.args[0]
                if isinstance(name, ast.Constant):
                    owner = dotted(node.func.value)
                    found.attributes.setdefault(f"{owner}.{name.value!s}", []).append(node)
                    return
        self._named_call(node)

    def _method(self, node: ast.Call, function: ast.Attribute, receiver: Value) -> None:
        operation = torch_table.method(function.attr)
        found = self.effects
        if operation is None:
            self._unknown(ast.unparse(function))
            return
        if operation.mutates or (function.attr.endswith("_") and not function.attr.endswith("__")):
            found.mutated.append((function.value, node))
        self._operation(node, operation, len(node.args) + 1)

    def _operation(self, node: ast.Call, operation: torch_table.Operation, given: int) -> None:
        found = self.effects
        last = operation.name.rsplit(".", 1)[-1].rstrip("_")
        if operation.random or "dropout" in last:
            found.random.append(node)
        if operation.dynamic_shape and not (last == "where" and given >= 3):
            found.dynamic.append(node)
        if operation.data_dependent or last in {"item", "tolist", "numpy", "equal", "allclose"}:
            found.scalar.append(node)
        if last in PARTIAL:
            found.partial.append(node)
        if last in {"backward", "register_hook", "requires_grad", "retain_grad", "share_memory"}:
            self._unknown(ast.unparse(node.func))
        if any(
            k.arg == "inplace"
            and not (isinstance(k.value, ast.Constant) and k.value.value is False)
            for k in node.keywords
        ):
            found.mutated.append((node.args[0] if node.args else node, node))
        if any(k.arg == "out" for k in node.keywords):
            found.mutated.append((next(k.value for k in node.keywords if k.arg == "out"), node))

    def _named_call(self, node: ast.Call) -> None:
        found = self.effects
        function = self.value(node.func)
        name = function.reference if function is not None else None
        if function is None or name is None:
            self._unknown(ast.unparse(node.func))
            return
        if function.kinds & (Kind.MODULE | Kind.OBJECT):
            if name == "torch.nn.Sequential" and function.elements is not None:
                untouched = True
                for layer in function.elements:
                    if layer.changes_input and untouched and node.args:
                        found.mutated.append((node.args[0], node))
                    known = torch_table.module_class(layer.reference or "")
                    # Behind a layer that makes a new tensor, in place is not in place any more.
                    untouched = untouched and not (
                        known is not None and known.fresh and not layer.changes_input
                    )
                    if layer.reference is not None:
                        self._instance(node, layer.reference)
                    else:
                        self._unknown(ast.unparse(node.func))
                return
            if function.changes_input and node.args:
                found.mutated.append((node.args[0], node))
            self._instance(node, name)
            return
        if name.startswith("builtins."):
            builtin = name.removeprefix("builtins.")
            if builtin == "super" and not node.args:
                found.zero_super = True
            if builtin in {"float", "int", "bool"} and node.args:
                value = self.value(node.args[0])
                if value is not None and value.may_be_tensor:
                    found.scalar.append(node)
            if builtin not in PURE_BUILTINS and not builtin[:1].isupper():
                self._unknown(builtin)
            return
        if name == "torch._assert_async":
            found.partial.append(node)
            return
        operation = torch_table.function(name)
        if operation is not None:
            if operation.mutates and node.args:
                found.mutated.append((node.args[0], node))
            self._operation(node, operation, len(node.args))
            return
        if name.startswith("torch.distributed.") and node.args:
            found.mutated.append((node.args[0], node))
            return
        if name in PURE_TORCH or name.startswith(PURE_PREFIXES):
            return
        info = self.facts.project.function_info(name)
        if info is not None:
            self._merge(info, node)
            return
        if self.facts.project.class_info(name) is not None:
            init = self.facts.project.function_info(f"{name}.__init__")
            if init is not None:
                self._unknown(ast.unparse(node.func))
            return
        self._unknown(ast.unparse(node.func))

    def _instance(self, node: ast.Call, name: str) -> None:
        cls = self.facts.project.class_info(name)
        if cls is not None:
            method = self.facts.project.method(cls, "forward") or self.facts.project.method(
                cls, "__call__"
            )
            if method is not None:
                self._merge(method, node)
                return
        layer = torch_table.module_class(name)
        if layer is None:
            self._unknown(ast.unparse(node.func))
            return
        if layer.stateful or layer.breaks:
            self.effects.stateful.append(node)
        if layer.random:
            self.effects.random.append(node)
        if name.endswith((".Sequential", ".ModuleList", ".ModuleDict")):
            self._unknown(ast.unparse(node.func))

    def _merge(self, info: FunctionInfo, node: ast.Call) -> None:
        """Take over what a called function of the project does beyond its own locals."""
        if self.facts.asks_compiling(info.qualified):
            return
        inner = function_effects(info, self.facts)
        found = self.effects
        if inner is None:
            self._unknown(ast.unparse(node.func))
            return
        for attribute in ("output", "random", "dynamic", "scalar", "partial", "stateful", "placed"):
            if getattr(inner, attribute):
                getattr(found, attribute).append(node)
        for called, text in inner.unknown.items():  # many ways may lead to the same call
            found.unknown.setdefault(called, f"{info.node.name}: {text}")
        if inner.attributes:
            self._unknown(f"{info.node.name} (sets {', '.join(inner.attributes)})")
        arguments, outside = changed_by(node, info, [target for target, _ in inner.mutated])
        found.mutated.extend((argument, node) for argument in arguments)
        if outside:
            changed = dict.fromkeys(ast.unparse(t) for t in outside)
            self._unknown(f"{info.node.name} (changes {', '.join(changed)})")
        if any(
            isinstance(c, (ast.Yield, ast.YieldFrom, ast.Await, ast.Global)) for c in inner.control
        ):
            self._unknown(info.node.name)
        if any(isinstance(c, ast.Raise) for c in inner.control):
            found.partial.append(node)
        found.conditions.update(inner.conditions)


def function_effects(info: FunctionInfo, facts: Facts) -> Effects | None:
    """Effects of a whole function of the project, kept; None while it is under way."""
    cache = facts.kept(info.module).effects
    if info.node in cache:
        return cache[info.node]
    cache[info.node] = None
    analysis = facts.analysis(info)
    made = effects(info.node.body, analysis, facts) if analysis is not None else None
    cache[info.node] = made
    return made
