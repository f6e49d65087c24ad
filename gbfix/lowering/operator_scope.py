"""What the names of a function hold while its results are told, and what it does to its parameters.

Knows names, not what calls and operators make of values.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from gbfix.analysis.conditions import Refused
from gbfix.analysis.trees import walk
from gbfix.fixes import Context
from gbfix.lowering.operator_sizes import named_sizes
from gbfix.lowering.operator_values import NUMBER, Holds, Known, of

Environment = dict[str, Known]
_DTYPES = frozenset("float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 bool".split())
_ALIASES = {
    "long": "int64",
    "int": "int32",
    "float": "float32",
    "double": "float64",
    "half": "float16",
}
_SIZES = (
    ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.BinOp,
    ast.operator, ast.expr_context, ast.UnaryOp, ast.unaryop, ast.Slice,
)  # fmt: skip


@dataclass
class Results:
    """What a function returns, on each way out, and what it changes.

    Attributes:
        returned: for each `return`, the values and the expressions.
        mutated: parameters that are changed in place.
        unknown: calls of which nothing is known.
        untracked: parameters whose arrays are read, which only works without gradients.
        autocast: whether it calls what autocast gives another dtype.
    """

    returned: list[list[tuple[Known, ast.expr]]] = field(default_factory=list)
    mutated: set[str] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    untracked: set[str] = field(default_factory=set)
    autocast: bool = False


class Scope:
    def __init__(self, context: Context, parameters: Environment) -> None:
        self.context = context
        self.parameters = parameters
        self.results = Results()
        self.environment: Environment = {}
        self.rebound = {
            n.id
            for n in walk(context.info.node)
            if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
        }
        self.sizes = named_sizes(context.info.node, parameters)

    def qualified(self, node: ast.expr) -> str | None:
        """The name of a function or constant of a module."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in self.environment:
            return None
        if isinstance(node, ast.Name) and node.id not in self.context.info.module.bindings:
            return f"builtins.{node.id}"
        return self.context.info.module.qualify(node)

    def written(self, target: ast.expr, value: Known) -> None:
        """A tensor or array that is changed in place takes the gradients of what it is given."""
        while isinstance(target, ast.Subscript):
            target = target.value
        if not isinstance(target, ast.Name):
            raise Refused("keeps-state", f"`{ast.unparse(target)}` is changed in place")
        old = self.environment.get(target.id)
        if old is None:
            raise Refused("keeps-state", f"`{target.id}` is changed and outlives the call")
        self.results.mutated |= old.bases
        if old.bases and old.holds is not Holds.TENSOR and old.grads is None:
            raise Refused("keeps-state", f"it cannot be told what `{target.id}` shares")
        grads, _ = of(old, value)
        for name, other in list(self.environment.items()):
            if other.ident == old.ident:
                self.environment[name] = replace(other, grads=grads)

    def dtype(self, node: ast.expr) -> str | None:
        name = self.qualified(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if name is None or name.partition(".")[0] not in ("torch", "numpy"):
            return None
        short = name.rpartition(".")[2]
        if name.startswith("torch."):
            short = _ALIASES.get(short, short)
        return short if short in _DTYPES else None

    def fixed(self, node: ast.expr) -> bool:
        """Whether an expression reads only parameters that are never bound anew."""
        if isinstance(node, ast.Call):
            return False
        for inner in walk(node):
            if not isinstance(inner, _SIZES):
                return False
            if isinstance(inner, ast.Attribute) and inner.attr != "shape":
                return False
            if isinstance(inner, ast.Name):
                if inner.id in self.sizes:
                    continue
                parameter = self.parameters.get(inner.id)
                if parameter is None or inner.id in self.rebound:
                    return False
                around = self.context.info.module.parents[inner]
                if parameter is not NUMBER and not isinstance(around, ast.Attribute):
                    return False
        return True
