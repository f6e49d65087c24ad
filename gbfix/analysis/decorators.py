"""What decorators say of a function: their qualified names, and whether one compiles or disables it."""

from __future__ import annotations

import ast
from collections.abc import Callable

from gbfix.analysis.project import FunctionInfo, Module

COMPILE = frozenset({"torch.compile", "torch._dynamo.optimize", "torch.compiler.compile"})

MARKS = frozenset({"torch.compiler.disable", "torch._dynamo.disable"})
DISABLE = MARKS | frozenset(
    {"torch.compiler.allow_in_graph"}
    | {"torch._dynamo.allow_in_graph", "torch._dynamo.nonstrict_trace", "torch.library.custom_op"}
    | {"torch.compiler.assume_constant_result", "torch._dynamo.assume_constant_result"}
    | {"torch.jit.ignore", "torch.jit.unused"}
    # TorchScript compiles these by itself and knows neither `cond` nor nested functions.
    | {"torch.jit.script", "torch.jit.script_method", "torch.jit.script_if_tracing"}
)


def compiled_directly(info: FunctionInfo) -> bool:
    """Whether a function carries `@torch.compile` itself, and so has no eager callers."""
    return any(decorator_name(d, info.module) in COMPILE for d in info.node.decorator_list)


def decorator_name(node: ast.expr, module: Module) -> str | None:
    """The qualified name of a decorator, with or without arguments; None if it is not known."""
    if isinstance(node, ast.Call):
        name = module.qualify(node.func)
        if name == "functools.partial" and node.args:
            return module.qualify(node.args[0])
        return name
    return module.qualify(node)


def leaves_to_operator(node: ast.If, module: Module, compiling: Callable[[ast.expr], bool]) -> bool:
    """Whether a test leaves a function for a custom operator of the module when compiling.

    Where its other conditions do not hold, the rest is traced after all; that is as it was meant.
    """
    tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
    if (isinstance(node.test, ast.BoolOp) and not isinstance(node.test.op, ast.And)) or not any(
        compiling(test) for test in tests
    ):
        return False
    for statement in node.body:
        call = getattr(statement, "value", None)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            bound = module.bindings.get(call.func.id, [])
            if len(bound) == 1 and isinstance(bound[0], ast.FunctionDef):
                names = {decorator_name(d, module) for d in bound[0].decorator_list}
                return bool(names & {"torch.library.custom_op", "torch.library.triton_op"})
    return False


def wrapped_by(info: FunctionInfo) -> ast.Call | None:
    """The mark that code outside gives a function: `Layer.forward = disable(Layer.forward)`."""
    if info.outer is not None:
        return None
    name = info.node.name if info.owner is None else f"{info.owner.node.name}.{info.node.name}"
    call = info.module.wrapped.get(name)
    return call if call is not None and decorator_name(call, info.module) in MARKS else None


def disabled(info: FunctionInfo) -> bool:
    """Whether a function, or one around it, carries a mark that keeps Dynamo from tracing it."""
    outer: FunctionInfo | None = info
    while outer is not None:
        if wrapped_by(outer) is not None or any(
            decorator_name(d, outer.module) in DISABLE for d in outer.node.decorator_list
        ):
            return True
        outer = outer.outer
    return False


def traces_callees(info: FunctionInfo) -> bool:
    """Whether a function is kept from being traced by a mark that does not reach what it calls."""
    return any(
        isinstance(d, ast.Call)
        and decorator_name(d, info.module) in MARKS
        and any(k.arg == "recursive" and ast.unparse(k.value) == "False" for k in d.keywords)
        for d in info.node.decorator_list
    )
