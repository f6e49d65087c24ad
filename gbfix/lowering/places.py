"""Elements that an arm takes at a place which a tensor without dimensions holds: `rows[n]`.

Such an index is a read of the number, which `torch.cond` refuses in an arm; `rows[n.reshape(1)][0]`
takes the same element without one. Knows expressions and their texts, nothing of how arms are written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from gbfix.analysis.conditions import Refused, leaves
from gbfix.analysis.effects import effects
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.parameters import parameter_for
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat, operand
from gbfix.codegen.view import View
from gbfix.lowering.dense_gradients import Replacement


def element_reads(
    nodes: Iterable[ast.AST],
    analysis: Analysis,
    facts: Facts,
    view: View,
    asked: dict[str, None],
) -> list[Replacement]:
    """The texts of such elements, and what to write for them.

    `asked` takes the names that the compiled path has to ask for tensors.

    Raises:
        Refused: for one that has no other form here.
    """
    found: list[Replacement] = []
    nodes = list(nodes)
    check_given_places(nodes, analysis, facts)
    done = effects(nodes, analysis, facts)
    for node in done.placed:
        text = ast.unparse(node)
        refusal = Refused(
            "place-in-arm", f"`{text}` in an arm reads the number of a place from a tensor"
        )
        if not isinstance(node, ast.Subscript) or not _is_alone(node, analysis):
            raise refusal
        base = node.value
        if not _is_tensor(base, analysis):
            if not isinstance(base, ast.Name) or base.id in done.stores:
                raise refusal
            asked.setdefault(base.id)
        old = flat(view, node)
        new = f"{operand(view, node.value)}[{operand(view, node.slice)}.reshape(1)][0]"
        found.append((re.compile(rf"(?<![\w.]){re.escape(old)}"), new))
    return found


def check_places(test: ast.expr, nodes: Iterable[ast.AST], analysis: Analysis) -> None:
    """Refuse an arm that takes an element at the place that the test compares.

    What decides has one element, and as a rule no dimensions.

    Raises:
        Refused: naming the place.
    """
    compared = {
        ast.dump(side)
        for leaf in leaves(test)
        if isinstance(leaf, ast.Compare)
        for side in (leaf.left, *leaf.comparators)
        if not isinstance(side, ast.Constant)
    }
    for node in (n for top in nodes for n in walk(top)):
        value = analysis.values.get(node.slice) if isinstance(node, ast.Subscript) else None
        if value is None or not isinstance(node, ast.Subscript) or value.boolean:
            continue
        unknown = value.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN) and not value.zero_dim
        if unknown and ast.dump(node.slice) in compared:
            raise Refused(
                "place-in-arm",
                f"`{ast.unparse(node)}` in an arm may read the number of a place from a tensor",
            )


def check_given_places(nodes: Iterable[ast.AST], analysis: Analysis, facts: Facts) -> None:
    """Refuse an arm that calls a function with such a place, if that takes elements at it.

    Raises:
        Refused: naming the call.
    """
    for node in (n for top in nodes for n in walk(top)):
        function = analysis.values.get(node.func) if isinstance(node, ast.Call) else None
        info = facts.project.function_info(function.reference if function is not None else None)
        if info is None or not isinstance(node, ast.Call):
            continue
        for argument in (*node.args, *(k.value for k in node.keywords)):
            value = analysis.values.get(argument)
            if value is None or not value.zero_dim or value.boolean or value.floating:
                continue
            name = parameter_for(node, argument, info)
            if any(
                isinstance(n, ast.Name) and n.id == name
                for s in walk(info.node)
                if isinstance(s, ast.Subscript)
                for n in walk(s.slice)
            ):
                raise Refused(
                    "place-in-arm",
                    f"`{ast.unparse(node)}` in an arm reads the number of a place from a tensor",
                )


def _is_alone(node: ast.Subscript, analysis: Analysis) -> bool:
    """Whether the tensor is all that the index is, so that the first dimension is taken apart."""
    return _is_tensor(node.slice, analysis) and isinstance(node.ctx, ast.Load)


def _is_tensor(node: ast.expr, analysis: Analysis) -> bool:
    value = analysis.values.get(node)
    return value is not None and value.tensor
