"""What takes part in gradients, and whether an attribute carries a graph from one call to the next.

A graph that is compiled as a whole runs its backward pass as a whole. Where it reads what an earlier
call stored with its graph, the backward pass goes through that graph again, although nothing that
the call returned needs it, and fails: its buffers are gone. A branch that is skipped over in eager
reads nothing, and a `torch.cond` or `torch.where` in its place does. (Seen on torch 2.13.)
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable, Iterator

from gbfix.analysis.decorators import decorator_name
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import ClassInfo, FunctionInfo
from gbfix.analysis.trees import children, walk
from gbfix.analysis.values import Kind

_NO_GRADIENT = frozenset(
    "zeros_like ones_like full_like empty_like rand_like randn_like detach isnan isinf "
    "isfinite eq ne lt le gt ge argmax argmin sign round floor ceil numel size dim".split()
)
_NO_GRADIENT_ATTRIBUTES = frozenset({"shape", "dtype", "device", "ndim", "requires_grad", "data"})
_DISABLING = frozenset({"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad"})
_ENABLING = frozenset({"torch.enable_grad", "torch.autograd.enable_grad"})
_SETUP = frozenset({"__init__", "__post_init__", "reset_parameters", "__setstate__"})
Seen = frozenset[tuple[int, str]]


def with_gradients(node: ast.AST, analysis: Analysis) -> Iterator[ast.AST]:
    """A node and what is below it, without the parts that no gradient flows through."""
    if _stops_gradients(node, analysis):
        return
    yield node
    for child in children(node):
        yield from with_gradients(child, analysis)


def _stops_gradients(node: ast.AST, analysis: Analysis) -> bool:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        return name in _NO_GRADIENT
    if isinstance(node, ast.Attribute):
        return node.attr in _NO_GRADIENT_ATTRIBUTES
    if isinstance(node, ast.expr):
        value = analysis.values.get(node)
        return value is not None and value.tensor and (value.boolean or value.integer)
    return False


def gradients_are_off(node: ast.AST, info: FunctionInfo) -> bool:
    """Whether a node runs under `torch.no_grad` or `torch.inference_mode`, by block or decorator."""
    parents = info.module.parents
    while node is not info.node:
        if isinstance(node, ast.With):
            names = {decorator_name(item.context_expr, info.module) for item in node.items}
            if names & _ENABLING:
                return False
            if names & _DISABLING:
                return True
        above = parents.get(node)
        if above is None:
            return False
        node = above
    decorators = {decorator_name(d, info.module) for d in info.node.decorator_list}
    return bool(decorators & _DISABLING)


class Flow(enum.IntEnum):
    """Whether a value takes part in gradients."""

    NO = 0
    UNKNOWN = 1
    YES = 2


def without_gradient(node: ast.expr, analysis: Analysis, facts: Facts) -> bool:
    """Whether a value surely requires no gradient: made of buffers, detached values and constants."""
    return gradient_flow(node, analysis, facts) is Flow.NO


def gradient_flow(
    node: ast.expr, analysis: Analysis, facts: Facts, seen: Seen = frozenset()
) -> Flow:
    """Whether gradients flow through a value to an input, a parameter or a layer.

    `seen` holds what is being decided, which adds nothing to itself, and the functions whose
    arguments are decided where they are called.
    """
    if gradients_are_off(node, analysis.info):
        return Flow.NO
    found = Flow.NO
    for inner in with_gradients(node, analysis):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            found = max(found, _name_flow(inner, analysis, facts, seen))
        elif isinstance(inner, ast.Attribute):
            found = max(found, _attribute_flow(inner, analysis, facts, seen))
        elif isinstance(inner, ast.Call):
            found = max(found, _call_flow(inner, analysis, facts, seen))
        if found is Flow.YES:
            break
    return found


def _attribute_flow(node: ast.Attribute, analysis: Analysis, facts: Facts, seen: Seen) -> Flow:
    value, base = analysis.values.get(node), analysis.values.get(node.value)
    if value is None or not value.kinds & Kind.TENSOR:
        return Flow.NO
    cls = facts.project.class_info(base.reference) if base is not None else None
    if cls is not None:
        return attribute_flow(cls, node.attr, facts, seen)
    return Flow.NO if base is not None and base.kinds & Kind.TENSOR else Flow.UNKNOWN


def _call_flow(node: ast.Call, analysis: Analysis, facts: Facts, seen: Seen) -> Flow:
    """What a call adds to the gradients of its arguments: those of a layer, or of a method's `self`."""
    function = analysis.values.get(node.func)
    if function is None:
        return Flow.UNKNOWN
    reference = function.reference
    cls = facts.project.class_info(reference) if reference else None
    if function.kinds & (Kind.MODULE | Kind.OBJECT):
        info = facts.project.method(cls, "forward") if cls is not None else None
        if info is None:
            return Flow.YES if function.kinds & Kind.MODULE else Flow.UNKNOWN
    else:
        info = facts.project.function_info(reference) if reference else None
        if info is None:
            known = function.kinds & Kind.REFERENCE or _is_tensor_method(node, analysis)
            return Flow.NO if known else Flow.UNKNOWN
    key = (id(info.node), "()")
    inside = facts.analysis(info) if key not in seen else None
    if inside is None:
        return Flow.NO if key in seen else Flow.UNKNOWN
    returned = [
        gradient_flow(n.value, inside, facts, seen | {key})
        for n in walk(info.node)
        if isinstance(n, ast.Return) and n.value is not None
    ]
    return max(returned, default=Flow.NO)


def _is_tensor_method(node: ast.Call, analysis: Analysis) -> bool:
    if not isinstance(node.func, ast.Attribute):
        return False
    receiver = analysis.values.get(node.func.value)
    return receiver is not None and receiver.may_be_tensor


def _name_flow(node: ast.Name, analysis: Analysis, facts: Facts, seen: Seen) -> Flow:
    value = analysis.values.get(node)
    if value is not None and not value.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN):
        return Flow.NO
    found = Flow.NO
    for bound in _reaching(node, analysis.info):
        if bound is None:
            if (id(analysis.info.node), "()") in seen:
                continue
            tensor = value is not None and value.may_be_tensor
            found = max(found, Flow.YES if tensor else Flow.UNKNOWN)
        elif (id(bound), "=") not in seen:
            found = max(found, gradient_flow(bound, analysis, facts, seen | {(id(bound), "=")}))
    return found


def _reaching(node: ast.Name, info: FunctionInfo) -> Iterator[ast.expr | None]:
    """What a name may have been bound to where it is read; None for what has no expression."""
    parents, name = info.module.parents, node.id
    here: ast.AST = node
    while here is not info.node:
        above = parents.get(here)
        if above is None:
            break
        if isinstance(above, (ast.For, ast.AsyncFor, ast.While)):
            yield from _bound(name, above)
        for statement in _before(here, above):
            values = list(_bound(name, statement))
            yield from values
            if values and isinstance(statement, (ast.Assign, ast.AnnAssign)):
                return
        here = above
    arguments = {a.arg for a in walk(info.node.args) if isinstance(a, ast.arg)}
    if name in arguments or not any(_bound(name, info.node)):
        yield None


def _before(node: ast.AST, above: ast.AST) -> Iterator[ast.stmt]:
    """The statements before one in its block, the last first."""
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(above, block, None)
        if isinstance(statements, list) and any(s is node for s in statements):
            place = next(i for i, s in enumerate(statements) if s is node)
            yield from reversed(statements[:place])


def _bound(name: str, function: ast.AST) -> Iterator[ast.expr | None]:
    """What code binds to a name; None for a parameter, a loop and the like."""
    plain: set[ast.AST] = set()
    for node in walk(function):
        if isinstance(node, ast.arg) and node.arg == name:
            yield None
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for one, value in _taken_apart(target, node.value):
                    if isinstance(one, ast.Name) and one.id == name:
                        plain.add(one)
                        yield value
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            if isinstance(node.target, ast.Name) and node.target.id == name:
                plain.add(node.target)
                if node.value is not None:
                    yield node.value
        elif isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            if node not in plain:
                yield None


def _taken_apart(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
        return
    apart = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
    for position, one in enumerate(target.elts):
        part = value.elts[position] if apart else value  # type: ignore[attr-defined]
        yield from _taken_apart(one, part)


def attribute_flow(cls: ClassInfo, name: str, facts: Facts, seen: Seen = frozenset()) -> Flow:
    """Whether an attribute may hold a tensor that gradients flow through, by what is put into it."""
    key = (id(cls.node), name)
    if key in seen:
        return Flow.NO
    if facts.registered(cls, name) and not facts.registered(cls, name, parameters=False):
        return Flow.YES
    stores = list(_stores(cls, name, facts))
    flows = (_store_flow(method, value, facts, seen | {key}) for method, value in stores)
    return max(flows, default=Flow.UNKNOWN)


def _store_flow(
    method: FunctionInfo | None, value: ast.expr | None, facts: Facts, seen: Seen
) -> Flow:
    if value is None or isinstance(value, ast.Constant):
        return Flow.NO
    analysis = facts.analysis(method) if method is not None else None
    return Flow.UNKNOWN if analysis is None else gradient_flow(value, analysis, facts, seen)


def _stores(
    cls: ClassInfo, name: str, facts: Facts
) -> Iterator[tuple[FunctionInfo | None, ast.expr | None]]:
    """What a class puts into an attribute, by assignment and in place, and the method that does.

    What a constructor registers as a buffer is left out: it is data.
    """
    for owner in facts.project.mro(cls):
        for write in facts.writes(owner).get(name, ()):
            setup = write.method is None or write.method.node.name in _SETUP
            if write.registered and setup:
                yield write.method, None
            elif write.value is not None or not isinstance(write.node, ast.Assign):
                yield write.method, write.value
            else:
                for target in write.node.targets:
                    for one, value in _taken_apart(target, write.node.value):
                        if isinstance(one, ast.Attribute) and one.attr == name:
                            yield write.method, value
        for method in owner.methods.values():
            for argument in _changed_in_place(method.node, name):
                yield method, argument


def _changed_in_place(function: ast.AST, name: str) -> Iterator[ast.expr]:
    """Arguments of in-place methods called on an attribute of `self`, such as `self.mean.copy_(x)`."""
    for node in walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        method, place = node.func.attr, node.func.value
        while isinstance(place, ast.Call) and isinstance(place.func, ast.Attribute):
            place = place.func.value
        if not method.endswith("_") or method.endswith("__"):
            continue
        if isinstance(place, ast.Attribute) and place.attr == name:
            yield from node.args


def stale_graph(
    attributes: Iterable[str], place: ast.stmt, analysis: Analysis, facts: Facts
) -> str:
    """The first of some attributes that may hold the graph of an earlier call; "" for none.

    One that the call itself has set before `place` holds no older graph.
    """
    environment = analysis.before[place]
    for attribute in attributes:
        here = environment.get(attribute)
        if here is not None and not here.unbound:
            continue
        base = environment.get(attribute.split(".", 1)[0])
        cls = facts.project.class_info(base.reference) if base is not None else None
        if cls is None or attribute.count(".") != 1:
            continue
        name = attribute.rsplit(".", 1)[1]
        if not gradients_are_off(place, analysis.info) and any(
            method is not None
            and method.node.name not in _SETUP
            and not _is_given(value, method, analysis.info)
            and _store_flow(method, value, facts, frozenset({(id(cls.node), name)})) is Flow.YES
            for method, value in _stores(cls, name, facts)
        ):
            return attribute
    return ""


def _is_given(value: ast.expr | None, method: FunctionInfo, here: FunctionInfo) -> bool:
    """Whether another method stores what it is given, as a setter does: nothing is known of that."""
    if not isinstance(value, ast.Name) or method.node is here.node or method.node.name == "forward":
        return False
    return all(bound is None for bound in _bound(value.id, method.node))


def held_attributes(nodes: Iterable[ast.AST], analysis: Analysis) -> Iterator[str]:
    """Attributes that code reads, by name: there, or through a local name that stands for one."""
    for node in nodes:
        for inner in walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Load):
                name = dotted(inner)
                if name is not None:
                    yield name
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                yield from standing_for(inner.id, analysis)


def standing_for(name: str, analysis: Analysis) -> Iterator[str]:
    """The attributes that a function gives a local name to, as in `last = self.last`."""
    for value in _bound(name, analysis.info.node):
        attribute = dotted(value) if isinstance(value, ast.Attribute) else None
        if attribute is not None:
            yield attribute


def reads_gradients(statements: Iterable[ast.AST], analysis: Analysis, facts: Facts) -> bool:
    """Whether code reads anything that may require a gradient, even if only to detach it."""
    parents = analysis.info.module.parents
    for node in (n for s in statements for n in walk(s)):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        above = parents.get(node)
        if isinstance(above, ast.Attribute) and above.attr in _NO_GRADIENT_ATTRIBUTES - {"data"}:
            continue
        value = analysis.values.get(node)
        if value is None:
            continue
        if value.kinds & Kind.MODULE:
            if not isinstance(above, ast.Attribute):
                return True
        elif isinstance(node, ast.Name):
            if _name_flow(node, analysis, facts, frozenset()) is not Flow.NO:
                return True
        elif _attribute_flow(node, analysis, facts, frozenset()) is not Flow.NO:
            return True
    return False


def stale_reason(attribute: str) -> str:
    """Why a fix that reads such an attribute in every call is unsafe."""
    return (
        f"`{attribute}` keeps the graph of the call that set it, and the compiled backward pass "
        "would go through it a second time, which fails; it is right where nothing is trained"
    )
