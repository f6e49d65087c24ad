"""What the parameters of a function hold, by annotation, default and use, and by who calls it.

Asks `facts` for classes and for what callers give. Knows nothing of what the function does with them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gbfix.analysis.annotations import annotated
from gbfix.analysis.decorators import compiled_directly
from gbfix.analysis.modules import Function, FunctionInfo, last_name
from gbfix.analysis.parameters import declared
from gbfix.analysis.usage import (
    array_parameters,
    is_returned,
    is_tested,
    presumed_tensors,
    tensor_parameters,
)
from gbfix.analysis.values import MAYBE, STATIC, UNKNOWN, Kind, Value, container, replace, tensor

if TYPE_CHECKING:
    from gbfix.analysis.facts import Facts


def parameter_values(info: FunctionInfo, facts: Facts) -> Iterator[tuple[str, Value]]:
    """Each parameter of a function with what it holds."""
    used: frozenset[str] | None = None
    arguments = info.node.args
    for position, (name, (argument, default)) in enumerate(declared(info.node).items()):
        if position == 0 and info.owner is not None and not _is_static(info.node):
            yield name, facts.instance(info.owner)
            continue
        value = annotated(argument.annotation, info.module, facts.project)
        if value is not None:
            yield name, _promised(value, info, name, default, facts)
            continue
        if used is None:  # annotations say it all, as a rule
            used = tensor_parameters(info.node, info.module) | presumed(info, facts)
            used |= facts.fed_to_layers(info)
        if name in used:
            other = Kind.NONE if _is_none(default) else Kind.STATIC
            yield name, tensor() if default is None else Value(Kind.TENSOR | other)
        elif default is None:
            yield name, _given(info, name, facts)
        else:
            is_constant = isinstance(default, ast.Constant) and not _is_none(default)
            yield name, STATIC if is_constant else UNKNOWN
    if arguments.vararg:
        yield arguments.vararg.arg, container(MAYBE)
    if arguments.kwarg:
        yield arguments.kwarg.arg, container(UNKNOWN)


def presumed(info: FunctionInfo, facts: Facts) -> frozenset[str]:
    """Parameters that are taken to be tensors because the function is there to be compiled."""
    found: frozenset[str] = frozenset()
    if compiled_directly(info):
        found = presumed_tensors(info.node, info.module)
    elif info.node.name == "forward" and _is_of_layer(info, facts):
        # What a layer returns is a tensor; what else it calculates with may well be a number.
        calculated = presumed_tensors(info.node, info.module)
        returned = (n for n in calculated if is_returned(info.node, n))
        found = frozenset(n for n in returned if not is_tested(info.node, n))
    return found | presumed_arrays(info, facts)


def presumed_arrays(info: FunctionInfo, facts: Facts) -> frozenset[str]:
    """Parameters that are used as an array of numpy could be, too, and are taken to be tensors.

    Files that use numpy have functions that take arrays; that a layer is given one is rare.
    """
    if not info.module.uses_numpy or info.node.name == "__init__":
        return frozenset()
    if not _is_of_layer(info, facts) and not compiled_directly(info):
        return frozenset()
    proven = tensor_parameters(info.node, info.module)
    found = array_parameters(info.node, info.module) - proven
    return found - facts.fed_to_layers(info) if found else found


def _is_of_layer(info: FunctionInfo, facts: Facts) -> bool:
    return info.owner is not None and facts.project.is_module_class(info.owner.qualified)


def _promised(
    value: Value, info: FunctionInfo, name: str, default: ast.expr | None, facts: Facts
) -> Value:
    """What an annotation says; of a dict, callers may say more."""
    if default is not None:
        return replace(value, kinds=value.kinds | Kind.NONE) if _is_none(default) else value
    if value.kinds == Kind.OBJECT and value.reference is None and value.elements is None:
        held = facts.callers.given(info, name)
        return held if held is not None and held.fields is not None else value
    return value


def _given(info: FunctionInfo, name: str, facts: Facts) -> Value:
    """What callers give for a parameter of which nothing else is known."""
    if info.node.name == "__init__":  # configuration, as a rule
        return facts.callers.constructed(info, name) or UNKNOWN
    return facts.callers.given(info, name) or facts.records.passed(info, name) or MAYBE


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_static(node: Function) -> bool:
    return any(last_name(d) == "staticmethod" for d in node.decorator_list)
