"""The types that a function's parameters have as arguments of an operator.

They come from annotations, and where there are none from what the analysis knows and from defaults.
"""

from __future__ import annotations

import ast

from gbfix.analysis.annotations import annotated
from gbfix.analysis.conditions import Refused
from gbfix.analysis.values import Kind
from gbfix.fixes import Context

TENSOR = "Tensor"
_PLAIN = frozenset({"int", "float", "bool", "str"})
_LISTS = frozenset({"list", "List", "Sequence"})


def parameter_types(context: Context) -> dict[str, str]:
    """The type of each parameter: `Tensor`, `int`, `list[int]`, `float | None` and the like.

    Raises:
        Refused: for a parameter whose type is not known, or that no operator takes.
    """
    arguments = context.info.node.args
    if arguments.vararg or arguments.kwarg:
        raise Refused("open-signature", "the function takes `*args` or `**kwargs`")
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: dict[str, ast.expr | None] = dict(
        zip([a.arg for a in reversed(positional)], reversed(arguments.defaults), strict=False)
    )
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        defaults[argument.arg] = default
    return {
        a.arg: _type(a, defaults.get(a.arg), context) for a in [*positional, *arguments.kwonlyargs]
    }


def _type(argument: ast.arg, default: ast.expr | None, context: Context) -> str:
    if argument.annotation is not None:
        found = _annotation(argument.annotation, context)
        if found is None:
            said = ast.unparse(argument.annotation)
            raise Refused("unknown-type", f"no operator takes `{argument.arg}: {said}`")
        missing = isinstance(default, ast.Constant) and default.value is None
        return f"{found} | None" if missing and not found.endswith("None") else found
    known = context.facts.parameters(context.info)[argument.arg]
    if known.only(Kind.TENSOR):
        return TENSOR
    if isinstance(default, ast.Constant) and type(default.value).__name__ in _PLAIN:
        return type(default.value).__name__
    raise Refused("unknown-type", f"the type of `{argument.arg}` is not written down")


def parameter_type(argument: ast.arg, context: Context) -> str | None:
    """The plain type that a parameter of any function is annotated with; None if there is none."""
    return _annotation(argument.annotation, context) if argument.annotation is not None else None


def constant_type(node: ast.expr) -> str | None:
    """The type of a constant, if it is one that an operator takes."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    if not isinstance(node, ast.Constant):
        return None
    name = type(node.value).__name__
    return name if name in _PLAIN else None


def _annotation(node: ast.expr, context: Context) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except SyntaxError:
            return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _optional([node.left, node.right], context)
    info = context.info
    if isinstance(node, ast.Subscript):
        last = (info.module.qualify(node.value) or ast.unparse(node.value)).rpartition(".")[2]
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if last == "Optional":
            return _optional([*parts, ast.Constant(None)], context)
        if last == "Union":
            return _optional(parts, context)
        if last in _LISTS and len(parts) == 1:
            inner = _annotation(parts[0], context)
            return f"list[{inner}]" if inner in _PLAIN - {"str"} else None
    name = (info.module.qualify(node) or "").removeprefix("builtins.")
    if isinstance(node, ast.Name) and node.id in _PLAIN and node.id not in info.module.bindings:
        return node.id
    if name in _PLAIN:
        return name
    value = annotated(node, info.module, context.facts.project)
    return TENSOR if value is not None and value.only(Kind.TENSOR) else None


def _optional(parts: list[ast.expr], context: Context) -> str | None:
    """`T | None`; no other union is a type of an operator."""
    some = [p for p in parts if not (isinstance(p, ast.Constant) and p.value is None)]
    if len(some) != 1 or len(some) == len(parts):
        return None
    inner = _annotation(some[0], context)
    return None if inner is None or inner.endswith("None") else f"{inner} | None"
