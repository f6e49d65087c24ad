"""Which calls leave what Dynamo traces, and by which diagnosis: clocks, files, generators, addresses.

Names are looked up in the table of `untraced_names`; there are a few rules for methods beside.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from gbfix.analysis.decorators import MARKS, compiled_directly, decorator_name, wrapped_by
from gbfix.analysis.draws import draw, is_computed_with
from gbfix.analysis.dynamo_settings import TRACE_AUTOGRAD
from gbfix.analysis.facts import Facts
from gbfix.analysis.logs import is_log_call
from gbfix.analysis.project import ClassInfo, FunctionInfo, Module
from gbfix.analysis.record import Analysis
from gbfix.analysis.trees import children, walk
from gbfix.analysis.untraced_names import BUILT, UNTRACED
from gbfix.analysis.values import Kind
from gbfix.diagnosis import Diagnosis
from gbfix.python_diagnoses import (
    AUTOGRAD_CALL,
    CLASS_DEFINITION,
    DISABLED_FUNCTION,
    LIBRARY_CHECK,
    OBJECT_COPY,
    RANDOM_CALL,
    RECURRENT_LAYER,
    SPARSE_TENSOR,
    STORAGE_QUERY,
    UNTRACED_CALL,
)

RECURRENT = frozenset({"torch.nn.RNN", "torch.nn.GRU", "torch.nn.LSTM"})
_BACKWARD_HOOKS = (
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
)
LOSS_CHECKS = frozenset({"torch.nn.utils.clip_grad_norm_"})
# Tensor methods whose answer Dynamo cannot give (`data_ptr` alone is traced, arithmetic on it is not).
_STORAGE_METHODS = frozenset({"is_inference", "is_pinned", "is_shared", "storage_offset"})
# Tensor methods that make a sparse tensor, or take one.
_SPARSE_METHODS = frozenset(
    "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc coalesce sparse_mask".split()
)
_GENERATORS = frozenset(
    {"random.Random", "random.SystemRandom", "numpy.random.RandomState"}
    | {"numpy.random.default_rng", "numpy.random.Generator"}
)
_VARIABLES = frozenset({"contextvars.ContextVar"})
# Tensor methods that Dynamo does not put into a graph.
_TENSOR_METHODS = frozenset({"resize_", "resize_as_", "apply_", "map_", "share_memory_"})
_DRAWS = frozenset(
    name.rpartition(".")[2] for name, found in UNTRACED.items() if found is RANDOM_CALL
) | {"uniform", "randint", "randrange", "random"}


@dataclass(frozen=True)
class Untraced:
    """A call or a `class` statement that Dynamo does not trace."""

    diagnosis: Diagnosis
    node: ast.expr | ast.stmt
    statement: ast.stmt
    message: str


def find_untraced(analysis: Analysis, facts: Facts) -> Iterator[Untraced]:
    """All of them in one function, outside of what only runs in eager mode.

    Constructors are left out: they make what is compiled later.
    """
    if analysis.info.node.name == "__init__" or not _may_hold(analysis, facts):
        return
    asked = _asked(analysis)
    for statement in scope_statements(analysis.info.node):
        if statement in analysis.eager:
            continue
        if isinstance(statement, ast.ClassDef):
            yield Untraced(
                CLASS_DEFINITION, statement, statement, f"`class {statement.name}` is not traced"
            )
            continue
        if isinstance(statement, ast.Expr) and is_log_call(statement.value, analysis, facts):
            continue  # skipping the line skips what is measured for it
        for call in own_calls(statement):
            if call in analysis.eager or call not in analysis.values:
                continue
            diagnosis = untraced(call, analysis, facts)
            if diagnosis is RECURRENT_LAYER and _beside_compiled(statement, analysis, facts):
                continue
            if call in asked and draw(call, analysis) is not None:
                continue  # what breaks is the branch that the number decides
            if diagnosis is AUTOGRAD_CALL and _autograd_traced(call, analysis, facts):
                continue
            if diagnosis is not None:
                text = ast.unparse(call.func)
                if diagnosis is DISABLED_FUNCTION:
                    yield Untraced(
                        diagnosis, call, statement, f"`{text}` is left to Python by its mark"
                    )
                    continue
                what = "cannot be part of a graph"
                if diagnosis is AUTOGRAD_CALL and has_backward_hook(call, analysis, facts):
                    what = "has a hook of the backward pass"
                yield Untraced(diagnosis, call, statement, f"`{text}` {what}")


def _may_hold(analysis: Analysis, facts: Facts) -> bool:
    """Whether a function can hold any: most do not, and need no look at where their calls stand."""
    if analysis.info.module.has_inner_classes:
        return True
    return any(
        node.__class__ is ast.Call and untraced(node, analysis, facts) is not None
        for node in analysis.values
    )


def _asked(analysis: Analysis) -> set[ast.AST]:
    """Every node of a test that decides control flow."""
    return {
        inner
        for condition in analysis.conditions.values()
        if not isinstance(condition.owner, (ast.BoolOp, ast.UnaryOp))
        for inner in walk(condition.test)
    }


def _autograd_traced(call: ast.Call, analysis: Analysis, facts: Facts) -> bool:
    """Whether Dynamo has been told to trace `backward` and `torch.autograd.grad` here."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "retain_grad":
        return False
    return facts.is_made(TRACE_AUTOGRAD, analysis.info)


def _beside_compiled(statement: ast.stmt, analysis: Analysis, facts: Facts) -> bool:
    """Whether a statement is left for what a compiled path beside it does not take."""
    parents = analysis.info.module.parents
    above = parents.get(statement)
    if not isinstance(above, ast.If) or not any(s is statement for s in above.orelse):
        return False
    tests = above.test.values if isinstance(above.test, ast.BoolOp) else [above.test]
    return any(
        isinstance(t, ast.Call) and facts.asks_compiling(analysis.info.module.qualify(t.func))
        for t in tests
    )


def scope_statements(function: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function, outer before inner; nested functions are not entered."""
    for child in children(function):
        if isinstance(child, ast.stmt):
            yield child
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from scope_statements(child)


def own_calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in a statement's own expressions: not those of statements below it, or of lambdas."""
    for child in children(node):
        kind = child.__class__
        if kind is ast.Name or kind is ast.Constant:
            continue
        if isinstance(child, (ast.stmt, ast.Lambda, ast.ExceptHandler, ast.match_case)):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from own_calls(child)


def untraced(node: ast.Call, analysis: Analysis, facts: Facts) -> Diagnosis | None:
    """The diagnosis of a call that Dynamo does not trace; None for every other call."""
    name = called(node, analysis)
    found = UNTRACED.get(name) if name is not None else None
    if found is not None:
        return found
    if name in BUILT and (analysis.info.node.name == "forward" or compiled_directly(analysis.info)):
        return UNTRACED_CALL
    if draw(node, analysis) is not None:
        return RANDOM_CALL if is_computed_with(node, analysis) else None
    if name == "random.Random":  # Dynamo makes one of a constant, and fails for other seeds
        constant = all(isinstance(a, ast.Constant) for a in node.args) and not node.keywords
        return None if constant else RANDOM_CALL
    if name == "copy.deepcopy" and node.args:
        value = analysis.values.get(node.args[0])
        return OBJECT_COPY if value is not None and value.tensor else None
    if name in LOSS_CHECKS:
        return LIBRARY_CHECK if _checks_finite(node) else None
    if disabled_function(node, analysis, facts) is not None:
        return DISABLED_FUNCTION
    function = analysis.values.get(node.func)
    if has_backward_hook(node, analysis, facts):
        return AUTOGRAD_CALL
    if function is not None and function.kinds == Kind.MODULE:
        return RECURRENT_LAYER if function.reference in RECURRENT else None
    if isinstance(node.func, ast.Attribute):
        if node.func.attr in _DRAWS and _is_made(node.func.value, _GENERATORS, analysis, facts):
            return RANDOM_CALL
        if node.func.attr in {"get", "set", "reset"} and _is_made(
            node.func.value, _VARIABLES, analysis, facts
        ):
            return UNTRACED_CALL
        return _method(node.func, analysis)
    return None


def _is_made(node: ast.expr, makers: frozenset[str], analysis: Analysis, facts: Facts) -> bool:
    """Whether an attribute or a variable of the module holds what one of some calls makes.

    Of a generator, Dynamo draws from a copy, whose state is the same in every call.
    """
    info = analysis.info
    made: list[tuple[Module, ast.expr | None]] = []
    if isinstance(node, ast.Attribute) and info.owner is not None:
        if getattr(node.value, "id", "") == "self":
            made = [
                (cls.module, write.value)
                for cls in facts.project.mro(info.owner)
                for write in facts.writes(cls).get(node.attr, ())
            ]
    elif isinstance(node, ast.Name):
        bound = info.module.bindings.get(node.id, ())
        made = [(info.module, b if isinstance(b, ast.expr) else None) for b in bound]
    return bool(made) and all(
        isinstance(value, ast.Call) and module.qualify(value.func) in makers
        for module, value in made
    )


def disabled_function(node: ast.AST, analysis: Analysis, facts: Facts) -> FunctionInfo | None:
    """The function of the project that a call runs, if it is marked to be left to Python."""
    value = analysis.values.get(node.func) if isinstance(node, ast.Call) else None
    if value is None or value.reference is None:
        return None
    if value.kinds & (Kind.MODULE | Kind.OBJECT):
        cls = facts.project.class_info(value.reference)
        methods = (facts.project.method(cls, n) for n in ("forward", "__call__")) if cls else ()
        info = next((m for m in methods if m is not None), None)
    else:
        info = facts.project.function_info(value.reference)
    if info is not None and wrapped_by(info) is not None:
        return info
    if info is None or not info.node.decorator_list:
        return None
    marks = {decorator_name(d, info.module) for d in info.node.decorator_list}
    return info if marks & MARKS else None


def has_backward_hook(node: ast.Call, analysis: Analysis, facts: Facts) -> bool:
    """Whether a call runs a layer to which its own class gives a hook of the backward pass."""
    return bool(backward_hooks(node, analysis, facts))


def backward_hooks(
    node: ast.Call, analysis: Analysis, facts: Facts
) -> list[tuple[ClassInfo, ast.Call]]:
    """The calls that give a layer its hooks of the backward pass, with the classes they stand in."""
    layer, owner = node.func, analysis.info.owner
    own = isinstance(layer, ast.Attribute) and getattr(layer.value, "id", "") == "self"
    if owner is None or not own:
        return []
    return [
        (cls, call)
        for cls in facts.project.mro(owner)
        for name in _BACKWARD_HOOKS
        for call in cls.module.uses(name).calls
        if cls.node.lineno <= call.lineno <= (cls.node.end_lineno or call.lineno)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Attribute)
        and getattr(call.func.value.value, "id", "") == "self"
        and isinstance(layer, ast.Attribute)
        and call.func.value.attr == layer.attr
    ]


def _checks_finite(node: ast.Call) -> bool:
    """Whether `clip_grad_norm_` is told to raise for a norm that is not finite."""
    told = [k.value for k in node.keywords if k.arg == "error_if_nonfinite"] + node.args[3:4]
    return any(not isinstance(v, ast.Constant) or bool(v.value) for v in told)


def called(node: ast.Call, analysis: Analysis) -> str | None:
    """The qualified name of what a call calls, if it is known."""
    value = analysis.values.get(node.func)
    if value is not None and value.reference and not value.kinds & (Kind.MODULE | Kind.OBJECT):
        return value.reference
    return analysis.info.module.qualify(node.func)


def _method(function: ast.Attribute, analysis: Analysis) -> Diagnosis | None:
    receiver = analysis.values.get(function.value)
    if receiver is None:
        return None
    # No other class has methods of these names, as a rule.
    telling = bool(receiver.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN))
    if function.attr == "data_ptr":
        parent = analysis.info.module.parents.get(analysis.info.module.parents[function])
        used = isinstance(parent, (ast.BinOp, ast.Compare))
        return STORAGE_QUERY if used and telling else None
    if function.attr in _STORAGE_METHODS:
        return STORAGE_QUERY if telling else None
    if function.attr in _SPARSE_METHODS:
        return SPARSE_TENSOR if telling else None
    if function.attr in _TENSOR_METHODS and receiver.kinds & Kind.TENSOR:
        return UNTRACED_CALL
    if function.attr == "retain_grad" and telling:
        return AUTOGRAD_CALL
    data = bool(receiver.kinds & (Kind.TENSOR | Kind.MAYBE))
    return AUTOGRAD_CALL if function.attr == "backward" and data else None
