"""What takes part in gradients: whether they flow through a value to an input, a parameter or a layer.

Follows names, attributes and calls of the project to where their values come from. Knows nothing of
what is done about it.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gbfix.analysis.decorators import decorator_name
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import ClassInfo, FunctionInfo
from gbfix.analysis.trees import children, walk
from gbfix.analysis.values import Kind
from gbfix.lowering.bound_values import reaching, taken_apart

_NO_GRADIENT = frozenset(
    "zeros_like ones_like full_like empty_like rand_like randn_like detach isnan isinf "
    "isfinite eq ne lt le gt ge argmax argmin sign round floor ceil numel size dim".split()
)
_NO_GRADIENT_ATTRIBUTES = frozenset({"shape", "dtype", "device", "ndim", "requires_grad", "data"})
_DISABLING = frozenset({"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad"})
_ENABLING = frozenset({"torch.enable_grad", "torch.autograd.enable_grad"})
SETUP = frozenset({"__init__", "__post_init__", "reset_parameters", "__setstate__"})


@dataclass(frozen=True)
class _Seen:
    """What one question has come across.

    What was decided once, or is being decided, adds nothing more to the answer, which is the largest
    of all that is found; or else names that are bound on many ways would be followed on all of them.

    Attributes:
        decided: what has been followed.
        called: the functions that are being followed from a call, where their arguments are decided.
    """

    decided: set[tuple[int, str, bool]] = field(default_factory=set)
    called: frozenset[int] = frozenset()

    def is_new(self, node: ast.AST, part: str, info: FunctionInfo | None = None) -> bool:
        """Whether something is to be followed, which it then counts as."""
        key = (id(node), part, info is not None and id(info.node) in self.called)
        new = key not in self.decided
        self.decided.add(key)
        return new

    def within(self, info: FunctionInfo) -> _Seen:
        """The same inside of a function that is called."""
        return _Seen(self.decided, self.called | {id(info.node)})


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


def gradient_flow(node: ast.expr, analysis: Analysis, facts: Facts) -> Flow:
    """Whether gradients flow through a value to an input, a parameter or a layer."""
    return _flow(node, analysis, facts, _Seen())


def _flow(node: ast.expr, analysis: Analysis, facts: Facts, seen: _Seen) -> Flow:
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


def _attribute_flow(node: ast.Attribute, analysis: Analysis, facts: Facts, seen: _Seen) -> Flow:
    value, base = analysis.values.get(node), analysis.values.get(node.value)
    if value is None or not value.kinds & Kind.TENSOR:
        return Flow.NO
    cls = facts.project.class_info(base.reference) if base is not None else None
    if cls is not None:
        return _stored_flow(cls, node.attr, facts, seen)
    return Flow.NO if base is not None and base.kinds & Kind.TENSOR else Flow.UNKNOWN


def _call_flow(node: ast.Call, analysis: Analysis, facts: Facts, seen: _Seen) -> Flow:
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
    if not seen.is_new(info.node, "()"):
        return Flow.NO
    inside = facts.analysis(info)
    if inside is None:
        return Flow.UNKNOWN
    returned = [
        _flow(n.value, inside, facts, seen.within(info))
        for n in walk(info.node)
        if isinstance(n, ast.Return) and n.value is not None
    ]
    return max(returned, default=Flow.NO)


def _is_tensor_method(node: ast.Call, analysis: Analysis) -> bool:
    if not isinstance(node.func, ast.Attribute):
        return False
    receiver = analysis.values.get(node.func.value)
    return receiver is not None and receiver.may_be_tensor


def _name_flow(node: ast.Name, analysis: Analysis, facts: Facts, seen: _Seen) -> Flow:
    value = analysis.values.get(node)
    if value is not None and not value.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN):
        return Flow.NO
    found = Flow.NO
    for bound in reaching(node, analysis.info):
        if bound is None:
            if id(analysis.info.node) in seen.called:
                continue
            tensor = value is not None and value.may_be_tensor
            found = max(found, Flow.YES if tensor else Flow.UNKNOWN)
        elif seen.is_new(bound, "=", analysis.info):
            found = max(found, _flow(bound, analysis, facts, seen))
    return found


def attribute_flow(cls: ClassInfo, name: str, facts: Facts) -> Flow:
    """Whether an attribute may hold a tensor that gradients flow through, by what is put into it."""
    return _stored_flow(cls, name, facts, _Seen())


def _stored_flow(cls: ClassInfo, name: str, facts: Facts, seen: _Seen) -> Flow:
    if not seen.is_new(cls.node, name):
        return Flow.NO
    if facts.registered(cls, name) and not facts.registered(cls, name, parameters=False):
        return Flow.YES
    flows = (
        _store_flow(method, value, facts, seen) for method, value in stores_of(cls, name, facts)
    )
    return max(flows, default=Flow.UNKNOWN)


def store_flow(
    cls: ClassInfo, name: str, method: FunctionInfo | None, value: ast.expr | None, facts: Facts
) -> Flow:
    """Whether gradients flow through one of the values that are put into an attribute."""
    seen = _Seen()
    seen.is_new(cls.node, name)
    return _store_flow(method, value, facts, seen)


def _store_flow(
    method: FunctionInfo | None, value: ast.expr | None, facts: Facts, seen: _Seen
) -> Flow:
    if value is None or isinstance(value, ast.Constant):
        return Flow.NO
    analysis = facts.analysis(method) if method is not None else None
    return Flow.UNKNOWN if analysis is None else _flow(value, analysis, facts, seen)


def stores_of(
    cls: ClassInfo, name: str, facts: Facts
) -> Iterator[tuple[FunctionInfo | None, ast.expr | None]]:
    """What a class puts into an attribute, by assignment and in place, and the method that does.

    What a constructor registers as a buffer is left out: it is data.
    """
    for owner in facts.project.mro(cls):
        for write in facts.writes(owner).get(name, ()):
            setup = write.method is None or write.method.node.name in SETUP
            if write.registered and setup:
                yield write.method, None
            elif write.value is not None or not isinstance(write.node, ast.Assign):
                yield write.method, write.value
            else:
                for target in write.node.targets:
                    for one, value in taken_apart(target, write.node.value):
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


def reads_gradients(statements: Iterable[ast.AST], analysis: Analysis, facts: Facts) -> bool:
    """Whether code reads anything that may require a gradient, even if only to detach it."""
    parents, seen = analysis.info.module.parents, _Seen()
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
            if _name_flow(node, analysis, facts, seen) is not Flow.NO:
                return True
        elif _attribute_flow(node, analysis, facts, seen) is not Flow.NO:
            return True
    return False
