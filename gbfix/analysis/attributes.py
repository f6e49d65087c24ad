"""What an attribute of a class holds, by the places that set it.

Joins the values that a class and its bases give an attribute. Knows what functions of the project
return from `facts`, which keeps what is found here.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gbfix.analysis.attribute_writes import AttributeWrite, changes_in_place, is_registered
from gbfix.analysis.modules import last_name
from gbfix.analysis.project import ClassInfo, Module
from gbfix.analysis.records import field_value
from gbfix.analysis.values import (
    NOTHING,
    OBJECT,
    STATIC,
    UNKNOWN,
    Kind,
    Value,
    join_all,
    reference,
    replace,
    settled,
    tensor,
)

if TYPE_CHECKING:
    from gbfix.analysis.facts import Facts

Writes = Sequence[tuple[ClassInfo, AttributeWrite]]
_NUMBERS = frozenset({"builtins.bool", "builtins.int", "builtins.float", "builtins.complex"})
_MODULE_STATIC = {"training", "device", "dtype"}


def writes_above(cls: ClassInfo, name: str, facts: Facts) -> Writes:
    """The places that set an attribute, in a class and its bases, each with its class."""
    return [
        (owner, write)
        for owner in facts.project.mro(cls)
        for write in facts.writes(owner).get(name, ())
    ]


def attribute_value(cls: ClassInfo, name: str, writes: Writes, facts: Facts) -> Value:
    """What an attribute of instances of a class holds, by its method or property or what sets it."""
    method = facts.project.method(cls, name)
    if method is not None:
        if any(
            _decorator(d) in {"property", "cached_property"} for d in method.node.decorator_list
        ):
            return facts.returned(method)
        return reference(method.qualified)
    if writes:
        held = is_registered(writes)
        return join_all(
            promised
            if owner.is_record and (promised := field_value(w.node, owner, facts.project))
            else _written(w, facts)
            for owner, w in writes
            if not (held and changes_in_place(w.node))
        )
    if name in _MODULE_STATIC and facts.project.is_module_class(cls.qualified):
        return STATIC
    return UNKNOWN


def _written(write: AttributeWrite, facts: Facts) -> Value:
    if write.registered:
        if isinstance(write.value, ast.Constant) and write.value.value is None:
            return Value(Kind.TENSOR | Kind.NONE)
        return _evaluated(write, tensor(), facts)
    if isinstance(write.node, ast.AnnAssign) and write.method is None and write.value is None:
        return UNKNOWN
    return _evaluated(write, UNKNOWN, facts)


def _evaluated(write: AttributeWrite, otherwise: Value, facts: Facts) -> Value:
    if write.value is None:
        return otherwise
    if write.method is None:
        return STATIC if isinstance(write.value, ast.Constant) else OBJECT
    analysis = facts.analysis(write.method)
    if analysis is None:  # under way: what it finds is being joined already
        return otherwise if write.registered else NOTHING
    value = analysis.values.get(write.value)
    if value is None or (write.registered and not value.may_be_tensor):
        return otherwise
    if value.kinds & Kind.MAYBE and _makes_number(write.value, write.method.module):
        return STATIC  # of whatever was given
    return settled(replace(value, unshared=False, unbound=False))


def _makes_number(node: ast.expr, module: Module) -> bool:
    """Whether an expression calls one of Python's classes of numbers."""
    return isinstance(node, ast.Call) and module.qualify(node.func) in _NUMBERS


def _decorator(node: ast.expr) -> str | None:
    return last_name(node.func if isinstance(node, ast.Call) else node)
