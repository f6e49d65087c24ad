"""Calls of functions that are made for nothing but their updates, to be written out in place.

Knows the function and how its parameters are bound, nothing of how its statements are written.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from gbfix.analysis.conditions import Refused
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.trees import walk
from gbfix.lowering.conditional.checks import check_computed
from gbfix.lowering.conditional.scope import Scope

_MODES = frozenset({"no_grad", "enable_grad"})
_DEEPEST = 3


@dataclass(frozen=True)
class WrittenOut:
    """A call with the statements of its function in its place.

    Attributes:
        lead: lines that name the arguments.
        body: the statements of the function.
        scope: where they stand.
        modes: what is entered around them, the outermost first.
    """

    lead: tuple[str, ...]
    body: tuple[ast.stmt, ...]
    scope: Scope
    modes: tuple[str, ...]


def is_mode(text: str) -> bool:
    """Whether a decorator or what a `with` enters only says whether gradients are recorded."""
    return text.removesuffix("()").rsplit(".", 1)[-1] in _MODES


def written_out(node: ast.expr, scope: Scope) -> WrittenOut:
    """A call that is made for the updates of a function of the same module.

    Raises:
        Refused: where it cannot be written out.
    """
    call = node
    function = scope.analysis.values.get(call.func) if isinstance(call, ast.Call) else None
    name = function.reference if function is not None else None
    info = scope.context.facts.project.function_info(name) if name is not None else None
    text = ast.unparse(call.func if isinstance(call, ast.Call) else call)
    if info is None or not isinstance(call, ast.Call):
        raise Refused("impure-arm", f"what `{text}` does under a tensor test cannot be undone")
    analysis = scope.context.facts.analysis(info)
    decorators = [ast.unparse(d) for d in info.node.decorator_list]
    plain = isinstance(info.node, ast.FunctionDef) and all(is_mode(d) for d in decorators)
    if analysis is None or not plain or info.module is not scope.context.info.module:
        raise Refused("call-in-arm", f"`{text}` cannot be written out here")
    if scope.depth == _DEEPEST or any(
        isinstance(n, (ast.Return, ast.Global, ast.Nonlocal, ast.FunctionDef, ast.Lambda))
        for s in info.node.body
        for n in walk(s)
    ):
        raise Refused("call-in-arm", f"`{text}` cannot be written out here")
    check_computed([*call.args, *(k.value for k in call.keywords)], scope)
    renamed, lead = _bound(call, info, scope)
    inner = replace(scope, analysis=analysis, renamed=renamed, depth=scope.depth + 1)
    modes = tuple(d if d.endswith(")") else f"{d}()" for d in decorators)
    return WrittenOut(tuple(lead), tuple(info.node.body), inner, modes)


def _bound(call: ast.Call, info: FunctionInfo, scope: Scope) -> tuple[dict[str, str], list[str]]:
    """What the names of a called function are called here, and the arguments that get a name."""
    spec = info.node.args
    parameters = [*spec.posonlyargs, *spec.args]
    given: dict[str, str] = {}
    simple: set[str] = set()
    arguments = list(call.args)
    if info.owner is not None and isinstance(call.func, ast.Attribute):
        arguments.insert(0, call.func.value)
    if spec.vararg or spec.kwarg or any(isinstance(a, ast.Starred) for a in arguments):
        raise Refused("call-in-arm", f"`{info.node.name}` takes any number of arguments")
    pairs = [(p.arg, a) for p, a in zip(parameters, arguments, strict=False)]
    pairs += [(k.arg or "", k.value) for k in call.keywords]
    for parameter, argument in pairs:
        given[parameter] = scope.text(argument)
        if isinstance(argument, (ast.Name, ast.Constant)):
            simple.add(parameter)
    defaults = [*zip(reversed(parameters), reversed(spec.defaults), strict=False)]
    defaults += [(p, d) for p, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d]
    for argument_, default in defaults:
        if argument_.arg not in given:
            if not isinstance(default, ast.Constant):
                raise Refused("call-in-arm", f"`{info.node.name}` has a computed default")
            given[argument_.arg] = ast.unparse(default)
            simple.add(argument_.arg)
    wanted = [p.arg for p in [*parameters, *spec.kwonlyargs]]
    stored = {
        n.id for n in walk(info.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    if set(given) != set(wanted) or stored & set(wanted):
        raise Refused("call-in-arm", f"`{info.node.name}` cannot be written out here")
    renamed, lead = {}, []
    for parameter in wanted:
        if parameter in simple:
            renamed[parameter] = given[parameter]
        else:
            renamed[parameter] = scope.context.names.take(parameter)
            lead.append(f"{renamed[parameter]} = {given[parameter]}")
    renamed |= {name: scope.context.names.take(name) for name in sorted(stored)}
    return renamed, lead
