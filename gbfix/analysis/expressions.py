"""Abstract evaluation of names, attributes, items, displays and operators.

The half of the evaluator that needs no knowledge of what functions return; `evaluate` adds calls.
Names come from an environment that `flow` keeps.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import ClassVar

from gbfix.analysis.calls import item_of
from gbfix.analysis.facts import Facts
from gbfix.analysis.operators import binary, compared, unary
from gbfix.analysis.project import BUILTINS, Module
from gbfix.analysis.trees import children
from gbfix.analysis.values import (
    MAYBE,
    NONE,
    STATIC,
    UNKNOWN,
    Kind,
    Value,
    container,
    fresh_number,
    join,
    join_all,
    mapping,
    reference,
    replace,
    sequence,
    tensor,
)

Environment = dict[str, Value]
_STATIC_ATTRIBUTES = frozenset(
    "shape dtype device ndim layout names requires_grad is_cuda is_cpu is_sparse is_leaf "
    "itemsize is_quantized is_meta is_mps is_nested grad_fn".split()
)


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` as text, or None for anything that is not a dotted name."""
    if node.__class__ is ast.Name:
        return node.id
    if node.__class__ is not ast.Attribute:
        return None
    names: list[str] = []
    while node.__class__ is ast.Attribute:
        names.append(node.attr)
        node = node.value
    if node.__class__ is not ast.Name:
        return None
    names.append(node.id)
    names.reverse()
    return ".".join(names)


def _with_item(base: Value, key: ast.expr, value: Value) -> Value:
    """A dict or another container after a store."""
    value = replace(value, unshared=False, unbound=False)
    if base.fields is not None and isinstance(key, ast.Constant) and isinstance(key.value, str):
        return mapping([*base.fields, (key.value, value)])
    held = value if base.item is None else join(base.item, value)
    return replace(base, item=held, fields=None)


class Expressions:
    """Evaluates expressions of one module in an environment, recording a value per node."""

    _handlers: ClassVar[dict[type[ast.expr], Callable[..., Value]]] = {}

    def __init_subclass__(cls) -> None:
        cls._handlers = {}

    def __init__(
        self, facts: Facts, module: Module, environment: Environment | None = None
    ) -> None:
        self.facts = facts
        self.module = module
        self.environment: Environment = environment if environment is not None else {}
        self.values: dict[ast.AST, Value] = {}

    def evaluate(self, node: ast.expr) -> Value:
        """The value of an expression; recorded, and joined with what an earlier visit found."""
        kind = node.__class__
        handlers = self._handlers
        try:
            handler = handlers[kind]
        except KeyError:
            named = getattr(self.__class__, f"_{kind.__name__.lower()}", Expressions._other)
            handler = handlers[kind] = named
        value: Value = handler(self, node)
        values = self.values
        earlier = values.get(node)
        values[node] = value if earlier is None or earlier is value else join(earlier, value)
        return value

    def _other(self, node: ast.expr) -> Value:
        for child in children(node):
            if isinstance(child, ast.expr):
                self.evaluate(child)
        return UNKNOWN

    def qualified(self, node: ast.AST) -> str | None:
        """Qualified name of a dotted expression, local bindings first."""
        name = dotted(node)
        if name is None:
            return None
        head, _, rest = name.partition(".")
        local = self.environment.get(head)
        if local is not None:
            if local.kinds != Kind.REFERENCE or local.reference is None:
                return None
            return f"{local.reference}.{rest}" if rest else local.reference
        return self.module.qualify(node)

    # Names, attributes and items

    def _constant(self, node: ast.Constant) -> Value:
        return NONE if node.value is None else STATIC

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.evaluate(part.value)
        return STATIC

    def _name(self, node: ast.Name) -> Value:
        known = self.environment.get(node.id)
        if known is not None:
            return known
        if node.id in self.module.bindings:
            return self.facts.global_value(self.module, node.id)
        if node.id in BUILTINS:
            return reference(f"builtins.{node.id}")
        return UNKNOWN

    def _attribute(self, node: ast.Attribute) -> Value:
        base = self.evaluate(node.value)
        name = dotted(node)
        if name is not None:
            known = self.environment.get(name)
            if known is not None:
                return known
        return self.attribute_of(base, node.attr)

    def attribute_of(self, base: Value, attr: str) -> Value:
        """The value of `base.attr`."""
        if base.array:
            return STATIC if attr in {"shape", "ndim", "size", "dtype", "itemsize"} else base
        if base.may_be_tensor:
            if attr in _STATIC_ATTRIBUTES:
                return container(STATIC) if attr == "shape" else STATIC
            if attr == "data":
                return replace(base, unshared=False)
            if attr in {"T", "mT", "H", "mH", "real", "imag", "grad"}:
                made = tensor(floating=base.floating, boolean=base.boolean)
                return replace(made, turned=attr not in {"real", "imag", "grad"})
            return reference(None)
        if base.kinds == Kind.REFERENCE and base.reference:
            cls = self.facts.project.class_info(base.reference)
            if cls is not None:
                return self.facts.attribute(cls, attr)
            return self.facts.named(f"{base.reference}.{attr}")
        if base.kinds & (Kind.MODULE | Kind.OBJECT) and base.reference:
            cls = self.facts.project.class_info(base.reference)
            if cls is not None:
                found = self.facts.attribute(cls, attr)
                own = cls.is_record or not base.kinds & Kind.MODULE
                if own and found.may_be_tensor:  # each instance holds tensors of its own
                    return replace(found, shape=fresh_number(), dtype=fresh_number())
                return found
            return self._library_attribute(base.reference, attr)
        if base.fields is not None and base.elements is not None:
            return dict(base.fields).get(attr, UNKNOWN)
        if base.only(Kind.STATIC):
            return STATIC
        if base.kinds & Kind.MAYBE and attr in _STATIC_ATTRIBUTES:
            return container(STATIC) if attr == "shape" else STATIC
        return UNKNOWN

    def _library_attribute(self, name: str, attr: str) -> Value:
        if attr in {"weight", "bias"} and name.startswith("torch.nn."):
            return tensor(floating=True)
        if attr in {"running_mean", "running_var", "num_batches_tracked"}:
            return tensor()
        return STATIC if name.startswith("torch.nn.") else UNKNOWN

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.evaluate(node.value)
        index = self.evaluate(node.slice)
        if base.array:
            return base
        if base.tensor:
            plain = index.only(Kind.STATIC | Kind.NONE | Kind.OBJECT)
            made = tensor(floating=base.floating, boolean=base.boolean, unshared=not plain)
            return replace(made, integer=True) if base.integer else made
        if base.fields is not None and isinstance(node.slice, ast.Constant):
            key = node.slice.value
            held = next((v for name, v in base.fields if name == key), None)
            if held is not None:
                return held
        if base.elements is not None:
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
                if -len(base.elements) <= node.slice.value < len(base.elements):
                    return base.elements[node.slice.value]
            if isinstance(node.slice, ast.UnaryOp) and isinstance(node.slice.operand, ast.Constant):
                at = node.slice.operand.value
                if isinstance(at, int) and 0 < at <= len(base.elements):
                    return base.elements[-at]
            return container(base.item) if isinstance(node.slice, ast.Slice) else item_of(base)
        if base.item is not None:
            return container(base.item) if isinstance(node.slice, ast.Slice) else base.item
        if base.may_be_tensor:
            return tensor()
        return base if base.only(Kind.STATIC | Kind.SCALAR | Kind.MAYBE) else UNKNOWN

    def _slice(self, node: ast.Slice) -> Value:
        parts = [self.evaluate(p) for p in (node.lower, node.upper, node.step) if p is not None]
        return STATIC if not parts else replace(join_all(parts), elements=None)

    def _starred(self, node: ast.Starred) -> Value:
        return self.evaluate(node.value)

    # Displays

    def _tuple(self, node: ast.Tuple | ast.List) -> Value:
        values = [self.evaluate(e) for e in node.elts]
        if any(isinstance(e, ast.Starred) for e in node.elts):
            return container(
                join_all(
                    item_of(v) if isinstance(e, ast.Starred) else v
                    for e, v in zip(node.elts, values, strict=True)
                )
            )
        return sequence(values)

    _list = _tuple

    def _dict(self, node: ast.Dict) -> Value:
        for key in node.keys:
            if key is not None:
                self.evaluate(key)
        values = [self.evaluate(v) for v in node.values]
        keys = [k.value for k in node.keys if isinstance(k, ast.Constant)]
        names = [k for k in keys if isinstance(k, str)]
        if len(names) == len(node.keys):
            return mapping(zip(names, values, strict=True))
        return container(join_all(values) if values else None)

    def _set(self, node: ast.Set) -> Value:
        return container(join_all([self.evaluate(e) for e in node.elts]))

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        return container(self._generated(node.generators, node.elt))

    _listcomp = _setcomp = _generatorexp = _comprehension

    def _dictcomp(self, node: ast.DictComp) -> Value:
        return container(self._generated(node.generators, node.key, node.value))

    def _generated(self, generators: Sequence[ast.comprehension], *parts: ast.expr) -> Value:
        outer = self.environment
        self.environment = dict(outer)
        try:
            for generator in generators:
                self.bind(generator.target, item_of(self.evaluate(generator.iter)))
                for condition in generator.ifs:
                    self.condition(condition, condition)
            return [self.evaluate(p) for p in parts][-1]
        finally:
            self.environment = outer

    def bind(self, target: ast.AST, value: Value) -> None:
        """Bind an assignment target in the environment."""
        if isinstance(target, ast.Name):
            self.environment[target.id] = replace(value, unbound=False)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for position, element in enumerate(target.elts):
                if isinstance(element, ast.Starred):
                    self.bind(element.value, container(item_of(value)))
                elif value.elements is not None and len(value.elements) == len(target.elts):
                    self.bind(element, value.elements[position])
                else:
                    self.bind(element, item_of(value))
        elif isinstance(target, ast.Attribute):
            self.evaluate(target.value)
            name = dotted(target)
            if name is not None:
                self.environment[name] = replace(value, unbound=False)
        elif isinstance(target, ast.Subscript):
            base = self.evaluate(target.value)
            self.evaluate(target.slice)
            name = target.value.id if isinstance(target.value, ast.Name) else ""
            if name in self.environment and base.kinds == Kind.OBJECT and base.elements is None:
                if base.fields is not None or base.item is not None:
                    self.environment[name] = _with_item(base, target.slice, value)

    # Operators

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        return unary(node.op, self.evaluate(node.operand))

    def _binop(self, node: ast.BinOp) -> Value:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        return binary(node.op, left, right)

    def _compare(self, node: ast.Compare) -> Value:
        return compared(node, [self.evaluate(n) for n in (node.left, *node.comparators)])

    def _boolop(self, node: ast.BoolOp) -> Value:
        self.condition(node, node)
        return join_all(self.values.get(v, UNKNOWN) for v in node.values)

    def _ifexp(self, node: ast.IfExp) -> Value:
        self.condition(node.test, node)
        return join(self.evaluate(node.body), self.evaluate(node.orelse))

    def _namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        self.bind(node.target, value)
        return value

    def _lambda(self, node: ast.Lambda) -> Value:
        outer = self.environment
        self.environment = dict(outer)
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            self.environment[argument.arg] = MAYBE
        try:
            self.evaluate(node.body)
        finally:
            self.environment = outer
        return Value(Kind.REFERENCE)

    def condition(self, test: ast.expr, owner: ast.AST) -> None:
        """Evaluate a test; `flow` overrides this to know what holds on each edge."""
        if isinstance(test, ast.BoolOp):
            for value in test.values:
                self.condition(value, owner)
            self.values[test] = join_all(self.values.get(v, UNKNOWN) for v in test.values)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.condition(test.operand, owner)
            self.evaluate(test)
        else:
            self.evaluate(test)
