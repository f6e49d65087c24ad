"""What a function's callers in its own file give for a parameter without annotation or default.

`maybe_pad(self, x, height, width)` says nothing of `height`; that every caller in the file passes a
size read from a shape does. Sizes, configuration values and tensors are told apart by reading the
callers' syntax, so that the answer depends on neither the order in which functions are analysed nor
on other files. What is passed on from a parameter is followed to the callers of the caller.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gbfix.analysis import torch_table
from gbfix.analysis.agreement import NAMED, agreed, is_static
from gbfix.analysis.annotations import annotated
from gbfix.analysis.calls_in_file import calls_in_file
from gbfix.analysis.modules import FunctionInfo, Module, last_name
from gbfix.analysis.parameter_values import presumed
from gbfix.analysis.parameters import (
    argument_for,
    binding_statements,
    declared,
    is_bare_parameter,
    tests_itself,
)
from gbfix.analysis.trees import of_kind
from gbfix.analysis.usage import tensor_parameters
from gbfix.analysis.values import (
    MAYBE,
    STATIC,
    UNKNOWN,
    Value,
    container,
    mapping,
    tensor,
)

if TYPE_CHECKING:
    from gbfix.analysis.facts import Facts

_MAX_CALLERS = 40
_MAX_DEPTH = 12
_OF_TENSORS = frozenset("shape dtype device ndim layout requires_grad is_cuda training".split())
_SIZES = frozenset({"size", "dim", "numel", "stride", "ndimension", "nelement", "randrange"})
_NUMBERS = frozenset("len int float bool min max abs round sum range str sorted tuple list".split())
_TESTS = frozenset({"isinstance", "hasattr", "issubclass", "callable"})


class Callers:
    """Finds what callers give, for the functions of one project."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._active: set[tuple[ast.AST, str]] = set()
        # What is found while a recursion is cut off holds no longer than the question lasts.
        self._cuts = 0
        self._given_meanwhile: dict[tuple[ast.AST, str], Value | None] = {}
        self._names_meanwhile: dict[tuple[ast.AST, str], Value | None] = {}

    def given(self, info: FunctionInfo, name: str) -> Value | None:
        """A static value or a tensor, if all callers in the file give such; else None."""
        key = (info.node, name)
        known = self.facts.kept(info.module).given
        if key in known:
            return known[key]
        if key in self._given_meanwhile:
            return self._given_meanwhile[key]
        if len(self._active) >= _MAX_DEPTH:
            self._cut()
            return None
        cuts = self._cuts
        self._active.add(key)
        try:
            found = self._given(info, name)
        finally:
            self._active.discard(key)
        if not self._active:
            self._given_meanwhile.clear()
            self._names_meanwhile.clear()
        held = known if not self._active or self._cuts == cuts else self._given_meanwhile
        held[key] = found
        return found

    def _cut(self) -> None:
        """Leave out what is being found out already, or lies too deep."""
        self._cuts += 1

    def constructed(self, info: FunctionInfo, name: str) -> Value | None:
        """What a constructor is given: a tensor, a dict with known keys, or what may be a tensor.

        Plain objects are made of what a function was given itself; of configuration nothing is said.
        Of what a layer is given, only classes, functions and other objects of the file are told.
        """
        given = self.given(info, name)
        if given is not None and given.only(NAMED) and given.reference is not None:
            return given
        if info.owner is None or self.facts.project.is_module_class(info.owner.qualified):
            return None
        if given is not None and (given.tensor or given.fields is not None):
            return given
        for call, caller in calls_in_file(info, self.facts.project):
            passed = argument_for(call, name, info)
            if isinstance(passed, ast.Name) and caller is not None:
                if is_bare_parameter(passed.id, caller):
                    return MAYBE
        return None

    def _given(self, info: FunctionInfo, name: str) -> Value | None:
        calls = calls_in_file(info, self.facts.project)
        if not calls or len(calls) > _MAX_CALLERS:
            return None
        values: list[Value] = []
        for call, caller in calls:
            passed = argument_for(call, name, info)
            if passed is None or caller is None:
                return None
            if self._recurs(passed, caller):
                self._cut()
                continue
            value = self._value(passed, caller)
            if value is None:
                return None
            values.append(value)
        found = agreed(values)
        # `check(bool)` is looked at where it is called.
        return (
            None if found is not None and found.tensor and tests_itself(info.node, name) else found
        )

    def _recurs(self, argument: ast.expr, caller: FunctionInfo) -> bool:
        """Whether an argument is the parameter itself, passed on unchanged."""
        return (
            isinstance(argument, ast.Name)
            and (caller.node, argument.id) in self._active
            and not binding_statements(caller.node, argument.id)
        )

    def _value(self, node: ast.expr, caller: FunctionInfo) -> Value | None:
        """A static value or a tensor, as far as syntax tells; None for anything else."""
        if isinstance(node, ast.Constant):
            return None if node.value is None else STATIC
        if isinstance(node, ast.JoinedStr):
            return STATIC
        if isinstance(node, ast.Name):
            return self._name(node.id, caller)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, caller)
        if isinstance(node, ast.Subscript):
            base = self._value(node.value, caller)
            if base is None or base.tensor:
                return base
            if base.fields is not None:
                return _field(base, node.slice)
            return base.item if base.item is not None else STATIC
        if isinstance(node, ast.Dict):
            return self._dict(node, caller)
        if isinstance(node, ast.Call):
            return self._call(node, caller)
        if isinstance(node, ast.UnaryOp):
            return self._value(node.operand, caller)
        if isinstance(node, ast.Compare):
            if all(isinstance(o, (ast.Is, ast.IsNot)) for o in node.ops):
                return STATIC
            return self._combined([node.left, *node.comparators], caller)
        if isinstance(node, ast.BinOp):
            return self._combined([node.left, node.right], caller)
        if isinstance(node, ast.IfExp):
            test = node.test.func if isinstance(node.test, ast.Call) else None
            if test is not None and self.facts.asks_compiling(caller.module.qualify(test)):
                return self._value(node.body, caller)  # what is traced gets the first
            return agreed([self._value(node.body, caller), self._value(node.orelse, caller)])
        if isinstance(node, (ast.Tuple, ast.List)):
            items = agreed([self._value(e, caller) for e in node.elts])
            return container(items) if items is not None and not items.tensor else None
        return None

    def _dict(self, node: ast.Dict, caller: FunctionInfo) -> Value | None:
        """A dict display with known keys; of what syntax does not tell, nothing is known."""
        names = [k.value for k in node.keys if isinstance(k, ast.Constant)]
        keys = [k for k in names if isinstance(k, str)]
        if not keys or len(keys) != len(node.keys):
            return None
        held = [
            self._value(v, caller)
            or (MAYBE if isinstance(v, ast.Name) and is_bare_parameter(v.id, caller) else UNKNOWN)
            for v in node.values
        ]
        return mapping(zip(keys, held, strict=True))

    def _combined(self, parts: Sequence[ast.expr], caller: FunctionInfo) -> Value | None:
        values = [self._value(p, caller) for p in parts]
        if any(v is not None and v.tensor for v in values):
            return tensor()
        return STATIC if all(v is not None for v in values) else None

    def _name(self, name: str, caller: FunctionInfo) -> Value | None:
        key = (caller.node, name)
        if key in self._active:
            self._cut()
            return None
        if key not in self._names_meanwhile:
            self._names_meanwhile[key] = self._bound(name, caller)
        return self._names_meanwhile[key]

    def _bound(self, name: str, caller: FunctionInfo) -> Value | None:
        """What a function or its module binds a name to."""
        key = (caller.node, name)
        stores = binding_statements(caller.node, name)
        is_parameter = name in declared(caller.node)
        if not stores and not is_parameter:
            return None if caller.outer is not None else self._global(name, caller.module)
        self._active.add(key)
        try:
            found = [self._stored(node, name, caller) for node in stores]
        finally:
            self._active.discard(key)
        if is_parameter:
            found.append(self._parameter(name, caller))
        return agreed(found)

    def _global(self, name: str, module: Module) -> Value | None:
        bound = module.bindings.get(name, ())
        if len(bound) == 1 and isinstance(bound[0], (ast.ClassDef, ast.FunctionDef)):
            return self.facts.named(f"{module.name}.{name}")
        literal = bool(bound) and all(isinstance(b, ast.Constant) and b.value for b in bound)
        return STATIC if literal else None

    def _parameter(self, name: str, caller: FunctionInfo) -> Value | None:
        argument, default = declared(caller.node)[name]
        promised = annotated(argument.annotation, caller.module, self.facts.project)
        if promised is not None:
            return promised if promised.tensor or is_static(promised) else None
        if default is not None:
            number = isinstance(default, ast.Constant) and default.value is not None
            return STATIC if number else None
        if argument.annotation is not None:
            return None
        if name in tensor_parameters(caller.node, caller.module):
            return tensor()
        if name in presumed(caller, self.facts):
            return tensor()
        if caller.node.name == "__init__":
            return STATIC  # what a constructor is given is configuration, as a rule
        return self.given(caller, name)

    def _stored(
        self, node: ast.stmt | ast.comprehension, name: str, caller: FunctionInfo
    ) -> Value | None:
        if isinstance(node, ast.Assign):
            return agreed([self._unpacked(t, node.value, name, caller) for t in node.targets])
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return self._value(node.value, caller)
        if isinstance(node, ast.AugAssign):
            return self._value(node.value, caller)
        if isinstance(node, ast.For):
            return self._iterated(node.target, node.iter, name, caller)
        return None

    def _unpacked(
        self, target: ast.expr, value: ast.expr, name: str, caller: FunctionInfo
    ) -> Value | None:
        """What a name in an assignment's target gets."""
        if isinstance(target, ast.Name):
            return self._value(value, caller)
        if not isinstance(target, (ast.Tuple, ast.List)):
            return None
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            for inner, given in zip(target.elts, value.elts, strict=True):
                if isinstance(inner, ast.Name) and inner.id == name:
                    return self._value(given, caller)
            return None
        whole = self._value(value, caller)
        if whole is None or whole.tensor:
            return whole
        if whole.elements is not None and len(whole.elements) == len(target.elts):
            for inner, part in zip(target.elts, whole.elements, strict=True):
                if isinstance(inner, ast.Name) and inner.id == name:
                    return part
        return whole.item if whole.item is not None else STATIC

    def _iterated(
        self, target: ast.expr, over: ast.expr, name: str, caller: FunctionInfo
    ) -> Value | None:
        if isinstance(over, ast.Call) and last_name(over.func) == "enumerate" and over.args:
            if isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
                if target.elts[0].id == name:
                    return STATIC
            return None
        value = self._value(over, caller)
        if value is None or value.tensor:
            return value
        return value.item if value.item is not None else STATIC

    def _attribute(self, node: ast.Attribute, caller: FunctionInfo) -> Value | None:
        if node.attr in _OF_TENSORS:
            return STATIC
        base = node.value
        if isinstance(base, ast.Name) and base.id == "self" and caller.owner is not None:
            return self._own(node.attr, caller)
        text = last_name(base)
        if text in {"config", "cfg", "configuration", "hparams", "args"}:
            return STATIC
        return None

    def _own(self, attr: str, caller: FunctionInfo) -> Value | None:
        """What an attribute of the caller's own object holds, by the places that set it."""
        assert caller.owner is not None
        key = (caller.owner.node, attr)
        if key in self._active:
            self._cut()
            return None
        writes = [
            (cls, write)
            for cls in self.facts.project.mro(caller.owner)
            for write in self.facts.writes(cls).get(attr, ())
        ]
        if any(write.registered for _, write in writes):
            return tensor()
        self._active.add(key)
        try:
            return agreed(
                self._value(write.value, write.method)
                if write.value is not None and write.method is not None
                else None
                for _, write in writes
            )
        finally:
            self._active.discard(key)

    def _callee(self, node: ast.Call, caller: FunctionInfo) -> FunctionInfo | None:
        """The function or method of the caller's own class that a call runs."""
        function = node.func
        if isinstance(function, ast.Attribute) and last_name(function.value) == "self":
            owner = caller.owner
            return self.facts.project.method(owner, function.attr) if owner is not None else None
        qualified = caller.module.qualify(function)
        return self.facts.project.function_info(qualified) if qualified else None

    def _returned(self, callee: FunctionInfo) -> Value | None:
        """What a function gives back, by what stands behind its `return`."""
        key = (callee.node, "return")
        returned = of_kind(callee.node, ast.Return)
        if not returned:
            return None
        if key in self._active or len(self._active) >= _MAX_DEPTH:
            self._cut()
            return None
        self._active.add(key)
        try:
            return agreed(
                self._value(n.value, callee) if n.value is not None else None for n in returned
            )
        finally:
            self._active.discard(key)

    def _call(self, node: ast.Call, caller: FunctionInfo) -> Value | None:
        if isinstance(node.func, ast.Name):
            if node.func.id in _TESTS or node.func.id == "len":
                return STATIC
            if node.func.id in _NUMBERS:
                values = [self._value(a, caller) for a in node.args]
                return STATIC if all(v is not None and not v.tensor for v in values) else None
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SIZES:
            return STATIC
        callee = self._callee(node, caller)
        if callee is not None:
            return self._returned(callee)
        qualified = caller.module.qualify(node.func)
        made = self.facts.project.class_info(qualified)
        if made is not None:
            return self.facts.instance(made)
        operation = torch_table.function(qualified) if qualified else None
        if operation is not None:
            return _made_by(operation, node)
        method = (
            torch_table.method(node.func.attr) if isinstance(node.func, ast.Attribute) else None
        )
        if method is not None and isinstance(node.func, ast.Attribute):
            base = self._value(node.func.value, caller)
            if base is not None and base.tensor:
                return _made_by(method, node)
        return None


def _made_by(operation: torch_table.Operation, call: ast.Call) -> Value | None:
    """A tensor, where an operation of torch gives one, whatever its arguments are."""
    given = frozenset(k.arg or "**" for k in call.keywords)
    word = operation.result(len(call.args), given, ["unknown"] * len(call.args))
    return tensor() if word == "tensor" else None


def _field(base: Value, key: ast.expr) -> Value | None:
    """What a dict of known keys holds under one of them."""
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return None
    held = dict(base.fields or ()).get(key.value)
    return held if held is not None and (held.tensor or is_static(held)) else None
