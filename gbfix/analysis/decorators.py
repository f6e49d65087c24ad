"""What decorators say of a function: their qualified names, and whether one of them compiles it."""

from __future__ import annotations

import ast

from gbfix.analysis.project import FunctionInfo, Module

COMPILE = frozenset({"torch.compile", "torch._dynamo.optimize", "torch.compiler.compile"})


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
