"""What a call of `torch.compile` or of a module's `compile` compiles.

Evaluates what the call is given, wherever in a module it stands. Knows values, nothing of what the
functions that it finds call in turn.
"""

from __future__ import annotations

import ast

from gbfix.analysis.bindings import binds
from gbfix.analysis.callees import callees
from gbfix.analysis.catching import function_of
from gbfix.analysis.decorators import COMPILE
from gbfix.analysis.evaluate import Evaluator
from gbfix.analysis.facts import Facts
from gbfix.analysis.project import FunctionInfo, Module
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value


def compiled_by(node: ast.Call, module: Module, facts: Facts) -> list[FunctionInfo] | None:
    """The functions that a call compiles; None if it compiles something that cannot be told."""
    if module.qualify(node.func) in COMPILE:
        return _target(node.args[0], module, facts) if node.args else []
    if isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
        value = _value(node.func.value, module, facts)
        if value is not None and value.kinds == Kind.MODULE:
            return list(callees(value, facts.project))
    return []


def makes_function(node: ast.Call, module: Module, facts: Facts) -> bool:
    """Whether a call of `torch.compile` gives a plain function."""
    if module.qualify(node.func) not in COMPILE:
        return False
    target = node.args[0]
    if isinstance(target, ast.Lambda):
        return True
    value = _value(target, module, facts)
    return (
        value is not None
        and value.kinds == Kind.REFERENCE
        and facts.project.function_info(value.reference) is not None
    )


def _target(target: ast.expr, module: Module, facts: Facts) -> list[FunctionInfo] | None:
    if isinstance(target, ast.Lambda):
        return [
            info
            for call in walk(target)
            if isinstance(call, ast.Call)
            for info in callees(_value(call.func, module, facts), facts.project)
        ]
    found = list(callees(_value(target, module, facts), facts.project))
    if not found and isinstance(target, ast.Name):
        found = [i for i in module.functions() if i.outer and i.node.name == target.id]
    return found or None


def _value(node: ast.expr, module: Module, facts: Facts) -> Value | None:
    """The value of an expression wherever in a module it stands."""
    is_local = not isinstance(node, ast.Name) or _is_local(node, module)  # not `re` of `re.compile`
    around = module.function_of.get(function_of(node, module)) if is_local else None
    if around is None:
        return Evaluator(facts, module).evaluate(node)
    analysis = facts.analysis(around)
    return analysis.values.get(node) if analysis else None


def _is_local(node: ast.Name, module: Module) -> bool:
    """Whether a function around a name binds it, as far as can be told without an analysis."""
    if not all(isinstance(bound, str) for bound in module.bindings.get(node.id, (node,))):
        return True
    parent = module.parents.get(node)
    while parent is not None:
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            if any(binds(inner, node.id) for inner in walk(parent)):
                return True
        parent = module.parents.get(parent)
    return False


__all__ = ["compiled_by", "makes_function"]
