"""Questions whether gradients pass through what an arm of updates reads.

An update that is not stored sends zeros to what it was computed from, or NaN where that is infinite,
and what it is stored in keeps the graph of the call. Neither happens where nothing that is read
requires a gradient, which the compiled path can ask while it is traced. Knows names and kinds, no
updates.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value
from gbfix.fixes import Context
from gbfix.lowering.gradients import Flow, gradient_flow

_PROVEN = "t.requires_grad"
_UNPROVEN = 'getattr(t, "requires_grad", False)'
_METADATA = frozenset("shape size dtype device dim ndim numel".split())


def gradient_guard(
    statements: Iterable[ast.stmt], torch: str, context: Context, *, only_lists: bool
) -> tuple[str, bool]:
    """The test that holds where no gradient passes, and whether it asks of all that is read.

    The test is empty if nothing that is known can pass any.
    """
    asked: dict[str, None] = {}
    lists: dict[str, bool] = {}
    whole = True
    statements = list(statements)
    own = {
        n.id
        for s in statements
        for n in walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    for node in _reads(statements, context):
        value = context.analysis.values.get(node)
        if isinstance(node, ast.Name) and node.id in own:
            continue
        if value is None or value.only(Kind.STATIC | Kind.NONE | Kind.REFERENCE | Kind.SCALAR):
            continue
        if value.tensor:
            flow = gradient_flow(node, context.analysis, context.facts)
            if flow is not Flow.NO and not only_lists:
                asked[f"{ast.unparse(node)}.requires_grad"] = None
        elif value.only(Kind.OBJECT) and (value.fields is None or value.elements is not None):
            lists[ast.unparse(node)] = _holds_tensors(value)
        else:
            whole = False
    if lists:
        each = _PROVEN if all(lists.values()) else _UNPROVEN
        over = f"({', '.join(f'*{name}' for name in lists)})" if len(lists) > 1 else min(lists)
        asked[f"any({each} for t in {over})"] = None
    any_of = f"({' or '.join(asked)})" if len(asked) > 1 else "".join(asked)
    return (f"not ({torch}.is_grad_enabled() and {any_of})" if asked else ""), whole


def _reads(statements: Iterable[ast.stmt], context: Context) -> Iterator[ast.Name | ast.Attribute]:
    """Names and attributes that are read as they are, and not to reach something else."""
    parents = context.info.module.parents
    for node in (n for s in statements for n in walk(s)):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        value, above = context.analysis.values.get(node), parents.get(node)
        if isinstance(above, ast.Call) and above.func is node:
            continue
        base = context.analysis.values.get(node.value) if isinstance(node, ast.Attribute) else None
        if base is not None and base.kinds & Kind.TENSOR:  # `x.T`, where `x` is read
            continue
        if isinstance(above, ast.Attribute):
            reaches = value is None or not (value.kinds & Kind.TENSOR)
            if reaches or above.attr in _METADATA:
                continue
        yield node


def _holds_tensors(value: Value) -> bool:
    """Whether a value is a list or tuple of tensors and nothing else."""
    if value.elements is not None:
        return bool(value.elements) and all(e.tensor for e in value.elements)
    return value.item is not None and value.item.tensor
