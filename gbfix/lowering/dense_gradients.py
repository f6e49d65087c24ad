"""What arms do with tensors from outside of them whose gradients would not be dense.

The gradient of a sum, such as the `x.sum() * 0` of an empty loss, is one number for all elements, a
tensor of stride 0; that of a part of `torch.stack([x, y], -1)` is a slice. `torch.cond` fails in the
backward pass where an arm gives one. `(x * 1).sum()` has the same value and a dense gradient. Knows
expressions and their texts, nothing of how arms are written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import flat
from gbfix.codegen.view import View
from gbfix.lowering.aliases import shared_root

Replacement = tuple[re.Pattern[str], str]
_JOINING = frozenset({"torch.stack", "torch.cat", "torch.concat", "torch.concatenate"})


def dense_gradients(
    nodes: Sequence[ast.AST], own: frozenset[str], analysis: Analysis, view: View
) -> list[Replacement]:
    """The texts in code whose gradients would not be dense, and what to write for them.

    `own` holds the names that the code has made from new storage.
    """
    return [*_sums(nodes, own, analysis, view), *_parts(nodes, own, analysis, view)]


def _sums(
    nodes: Sequence[ast.AST], own: frozenset[str], analysis: Analysis, view: View
) -> list[Replacement]:
    """The texts of sums that code computes with, and what to write for them."""
    found: list[Replacement] = []
    parents = analysis.info.module.parents
    for node in (n for top in nodes for n in walk(top)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr != "sum" or not isinstance(parents.get(node), (ast.BinOp, ast.UnaryOp)):
            continue
        function = analysis.values.get(node.func)
        of_torch = function is not None and function.reference == "torch.sum"
        summed = node.args[0] if of_torch and node.args else node.func.value
        value = analysis.values.get(summed)
        if value is None or not value.tensor or value.integer or value.boolean:
            continue
        if not shared_root(summed, analysis, own) or _counts(summed):
            continue
        text = flat(view, summed)
        before = rf"{re.escape(flat(view, node.func))}\(" if of_torch else r"(?<![\w.])"
        after = r"(?=[,)])" if of_torch else r"(?=\.sum\()"
        head = f"{flat(view, node.func)}(" if of_torch else ""
        new = f"{head}{text} * 1" if of_torch else f"({text} * 1)"
        found.append((re.compile(f"{before}{re.escape(text)}{after}"), new))
    return found


def _parts(
    nodes: Sequence[ast.AST], own: frozenset[str], analysis: Analysis, view: View
) -> list[Replacement]:
    """The texts of stacks and concatenations along inner dimensions, and what to write for them.

    `own` holds the names that the code has made from new storage.
    """
    found: list[Replacement] = []
    nodes = list(nodes)
    bound: dict[str, int] = {}
    for name in (n for top in nodes for n in walk(top)):
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
            bound[name.id] = min(name.lineno, bound.get(name.id, name.lineno))
    for node in (n for top in nodes for n in walk(top)):
        if not isinstance(node, ast.Call) or not node.args or not _along_inner(node):
            continue
        function, listed = analysis.values.get(node.func), node.args[0]
        if function is None or function.reference not in _JOINING:
            continue
        if not isinstance(listed, (ast.List, ast.Tuple)):
            continue
        # What is bound later on is still a tensor from outside here.
        here = own - {name for name, line in bound.items() if line >= node.lineno}
        texts = [_dense(e, here, analysis, view) for e in listed.elts]
        if all(new is None for new in texts):
            continue
        parts = [
            flat(view, e) if new is None else new for e, new in zip(listed.elts, texts, strict=True)
        ]
        tokens = re.findall(r"\w+|\S", flat(view, listed))
        pattern = r"\s*".join(map(re.escape, tokens))
        found.append((re.compile(pattern), f"[{', '.join(parts)}]"))
    return found


def _along_inner(node: ast.Call) -> bool:
    """Whether a call names another dimension than the first."""
    dims = [*node.args[1:2], *(k.value for k in node.keywords if k.arg in {"dim", "axis"})]
    return bool(dims) and not (isinstance(dims[0], ast.Constant) and dims[0].value == 0)


def _dense(node: ast.expr, own: frozenset[str], analysis: Analysis, view: View) -> str | None:
    """A tensor from outside with a gradient of its own; None for what needs none."""
    value = analysis.values.get(node)
    if value is None or not value.may_be_tensor or value.integer or value.boolean:
        return None
    if not shared_root(node, analysis, own):
        return None
    text = flat(view, node)
    return f"{text} * 1" if value.floating else f"{text} * 1 if {text}.requires_grad else {text}"


def _counts(node: ast.expr) -> bool:
    """Whether a sum counts the elements of a mask: `rows.expand_as(x).sum()`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"expand", "expand_as"}
    )


def with_replacements(text: str, replacements: Iterable[Replacement]) -> str:
    """A text with some expressions in it replaced."""
    for pattern, new in replacements:
        text = pattern.sub(lambda _, new=new: new, text)  # type: ignore[misc]
    return text
