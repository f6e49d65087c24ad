"""Abstract evaluation of expressions: what kind of value each one has.

`Evaluator.evaluate` records a value for every expression node it meets. Names come from an
environment that `flow` keeps; everything else comes from the facts of the project and the table of
torch's operations. Nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Literal

from gbfix.analysis import torch_table
from gbfix.analysis.annotations import annotated
from gbfix.analysis.calls import builtin_result, item_of, layer_result, operation_result
from gbfix.analysis.decorators import disabled
from gbfix.analysis.dtypes import FLOATING_DTYPES, INTEGER_DTYPES
from gbfix.analysis.expressions import Environment, Expressions, dotted
from gbfix.analysis.usage import proves_tensor
from gbfix.analysis.values import (
    ARRAY,
    MAYBE,
    OBJECT,
    SCALAR,
    STATIC,
    UNKNOWN,
    Kind,
    Value,
    container,
    join,
    join_all,
    replace,
    sequence,
    tensor,
)

__all__ = ["Environment", "Evaluator", "dotted"]

_IN_PLACE_LAYERS = frozenset(
    "ReLU ReLU6 SELU CELU ELU SiLU Mish Hardswish Hardsigmoid Hardtanh LeakyReLU RReLU Threshold "
    "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout".split()
)
# Tell of a tensor's memory, never of its values.
_MEMORY_METHODS = frozenset(
    "data_ptr is_inference is_pinned is_shared storage_offset element_size".split()
)
# Dynamo draws them outside of the graph; what they decide is decided by data.
DRAWN_NUMBERS = frozenset({"random.uniform", "random.randint", "random.randrange", "random.random"})
_UNPROVEN = Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN
_DATA = Kind.TENSOR | Kind.SCALAR | Kind.MAYBE


def _works_in_place(node: ast.Call, reference: str) -> bool:
    """Whether a layer is made to change its input: `nn.ReLU(inplace=True)`, `nn.ReLU(True)`."""
    if not reference.startswith("torch.nn."):
        return False
    if any(k.arg == "inplace" and not _is_false(k.value) for k in node.keywords):
        return True
    return reference.rsplit(".", 1)[-1] in _IN_PLACE_LAYERS and any(
        isinstance(a, ast.Constant) and a.value is True for a in node.args
    )


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


_LITERALS: Mapping[bool | None, Literal["true", "false", "none"]] = {
    True: "true",
    False: "false",
    None: "none",
}


class Evaluator(Expressions):
    """Evaluates expressions of one module in an environment, recording a value per node."""

    def _call(self, node: ast.Call) -> Value:
        arguments = [self.evaluate(a) for a in node.args]
        keywords = {k.arg or "**": self._given(k.value) for k in node.keywords}
        if isinstance(node.func, ast.Attribute):
            self.values[node.func] = self._attribute(node.func)
            receiver = self.values[node.func.value]
            made = self._method_call(node.func, receiver, arguments, keywords)
            if made is not None:
                return made
            function = self.values[node.func]
        else:
            function = self.evaluate(node.func)
        self._learn(node, function)
        if function.reference == "torch.tensor" and node.args:
            return self._literal_tensor(node.args[0], keywords.get("dtype"))
        if function.reference == "torch.cond" and len(node.args) >= 3:
            return join(self._branch_result(node.args[1]), self._branch_result(node.args[2]))
        made = self.call(function, arguments, keywords)
        if made.kinds == Kind.MODULE and _works_in_place(node, made.reference or ""):
            return replace(made, changes_input=True)
        return made

    def _literal_tensor(self, node: ast.expr, dtype: Value | None) -> Value:
        """`torch.tensor(3.0)` has one element, and the dtype of its Python value unless told."""
        content: object = node.value if isinstance(node, ast.Constant) else None
        made = tensor(unshared=True, zero_dim=content is not None)
        if dtype is not None:
            return replace(
                made,
                boolean=dtype.reference == "torch.bool",
                floating=dtype.reference in FLOATING_DTYPES,
                integer=dtype.reference in INTEGER_DTYPES,
            )
        if content is None:
            return made
        return replace(
            made,
            boolean=isinstance(content, bool),
            floating=isinstance(content, float),
            integer=isinstance(content, int) and not isinstance(content, bool),
        )

    def _given(self, node: ast.expr) -> Value:
        """The value of an argument given by name; a constant can select what is called."""
        value = self.evaluate(node)
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool)):
            return replace(value, literal=_LITERALS[node.value])
        return value

    def _learn(self, node: ast.Call, function: Value) -> None:
        """A name that is passed where torch takes nothing but a tensor is a tensor from then on."""
        operation = torch_table.function(function.reference) if function.reference else None
        if operation is None or operation.params[:1] == ("size",):  # sizes in all positions
            return
        names = [
            a.id
            for a, parameter in zip(node.args, operation.params, strict=False)
            if isinstance(a, ast.Name) and parameter in operation.only_tensor_params
        ]
        for name in names:
            known = self.environment.get(name)
            if known is not None and known.kinds & (Kind.MAYBE | Kind.UNKNOWN):
                if not known.kinds & (Kind.STATIC | Kind.SCALAR):
                    self.environment[name] = replace(known, kinds=Kind.TENSOR)

    def _branch_result(self, node: ast.expr) -> Value:
        """What a branch of `torch.cond` gives: tensors that share nothing."""
        if isinstance(node, ast.Lambda):
            value = self.values.get(node.body, UNKNOWN)
            if value.elements is not None:
                return sequence(tensor(unshared=True, like=e) for e in value.elements)
            return tensor(unshared=True, like=value)
        return self.branch_of(dotted(node) or "")

    def branch_of(self, name: str) -> Value:
        """What a local function gives as a branch; `flow` knows the function."""
        return tensor(unshared=True)

    def _method_call(
        self,
        function: ast.Attribute,
        receiver: Value,
        arguments: list[Value],
        keywords: dict[str, Value],
    ) -> Value | None:
        method = torch_table.method(function.attr)
        if receiver.array:
            return SCALAR if function.attr in {"item", "tolist"} else receiver
        if function.attr in _MEMORY_METHODS and receiver.kinds & _UNPROVEN:
            return STATIC
        if receiver.may_be_tensor or (
            receiver.kinds & Kind.MAYBE and proves_tensor(function.attr, self.module)
        ):
            if function.attr == "numpy":
                return ARRAY
            if method is None:
                return UNKNOWN
            it = receiver if receiver.tensor else replace(receiver, kinds=Kind.TENSOR)
            return operation_result(method, [it, *arguments], keywords, is_method=True)
        if receiver.kinds == Kind.OBJECT and receiver.reference is None:
            return self._container_call(function.attr, receiver)
        if function.attr == "randrange" and not receiver.kinds & Kind.MODULE:
            return SCALAR  # of Python's generators, whichever this one is
        if receiver.kinds & Kind.MAYBE and function.attr in {"size", "dim"}:
            return STATIC
        if receiver.kinds & Kind.MAYBE and function.attr in {"item", "tolist"}:
            return MAYBE
        return None

    def _container_call(self, attr: str, receiver: Value) -> Value | None:
        if attr in {"pop", "get", "setdefault"}:
            return item_of(receiver)
        if attr == "items":
            return container(sequence([STATIC, item_of(receiver)]))
        if attr in {"values", "copy"}:
            return container(receiver.item)
        return STATIC if attr in {"keys", "index", "count", "format", "join", "split"} else None

    def call(self, function: Value, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """The value of calling a value."""
        name = function.reference
        if name is not None and name.startswith("numpy.") and any(a.array for a in arguments):
            return ARRAY
        data = any(v.kinds & _DATA for v in [*arguments, *keywords.values()])
        unknown = MAYBE if data else UNKNOWN
        if name is None:
            return unknown
        if function.kinds & (Kind.MODULE | Kind.OBJECT):
            return self._instance_call(name, arguments, unknown)
        if name.startswith("builtins."):
            return builtin_result(name.removeprefix("builtins."), arguments)
        if name in DRAWN_NUMBERS:
            return SCALAR
        if name.startswith("math.") or name == "copy.deepcopy":
            if any(v.kinds & (Kind.TENSOR | Kind.SCALAR) for v in arguments):
                return SCALAR
            return MAYBE if data else STATIC
        operation = torch_table.function(name)
        if operation is not None:
            return operation_result(operation, arguments, keywords, is_method=False)
        if name in torch_table.TENSOR_CLASSES:
            return tensor(floating=name.endswith("Parameter"))
        cls = self.facts.project.class_info(name)
        if cls is not None:
            return self.facts.instance(cls)
        info = self.facts.project.function_info(name)
        if info is not None:
            return self._function_call(name, unknown, data=data)
        last = name.rsplit(".", 1)[-1]
        if name.startswith("torch."):
            if name.startswith("torch.sparse."):
                return tensor(unshared=True)
            if last in {"ModuleList", "Sequential", "ModuleDict"} and arguments:
                held = [a if a.kinds & Kind.MODULE else item_of(a) for a in arguments]
                known = tuple(arguments) if all(a.kinds == Kind.MODULE for a in arguments) else None
                return Value(Kind.MODULE, reference=name, item=join_all(held), elements=known)
            if last[:1].isupper():
                kind = Kind.MODULE if name.startswith("torch.nn.") else Kind.OBJECT
                return Value(kind, reference=name)
            return STATIC
        return unknown if last[:1].islower() or last[:1] == "_" else OBJECT

    def _function_call(self, name: str, unknown: Value, *, data: bool) -> Value:
        info = self.facts.project.function_info(name)
        if info is None:
            return unknown
        if self.facts.asks_compiling(name):
            return STATIC
        value = self.facts.returned(info)
        if value.kinds & Kind.SCALAR and disabled(info):
            # A graph is given what Python computes before it.
            value = replace(value, kinds=(value.kinds & ~Kind.SCALAR) | Kind.STATIC)
        if not data and value.kinds & Kind.MAYBE:
            # What may be a tensor is so because of an argument that may be one.
            value = replace(value, kinds=(value.kinds & ~Kind.MAYBE) | Kind.UNKNOWN)
        return value if value.kinds != Kind.UNKNOWN else unknown

    def _instance_call(self, name: str, arguments: list[Value], unknown: Value) -> Value:
        cls = self.facts.project.class_info(name)
        if cls is None:
            return layer_result(name, arguments) or unknown
        method = self.facts.project.method(cls, "forward") or self.facts.project.method(
            cls, "__call__"
        )
        if method is None:
            return unknown
        value = self.facts.returned(method)
        return value if value.kinds != Kind.UNKNOWN else unknown

    def annotation(self, node: ast.expr | None) -> Value | None:
        """The value that an annotation promises in this module."""
        return annotated(node, self.module, self.facts.project)
