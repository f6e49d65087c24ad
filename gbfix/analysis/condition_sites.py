"""Conditions that depend on tensor data: branches, loops, assertions, and what raises.

Reads the results of abstract execution. What stands beside a compiled path of its own is left out;
knows nothing of treatment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.analysis.break_site import BreakSite, shortened
from gbfix.analysis.conditions import data_kind, leaves
from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.dynamic import treated_beside
from gbfix.analysis.equality import asks_element, member
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis, Condition
from gbfix.analysis.parameters import is_bare_parameter
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.diagnoses import (
    LOOP_EXIT,
    TENSOR_ASSERT,
    TENSOR_BRANCH,
    TENSOR_LOOP,
    TENSOR_RAISE,
    Diagnosis,
)


def condition_sites(analysis: Analysis, facts: Facts) -> Iterator[BreakSite]:
    """The conditions of a function that depend on tensor data, for certain or possibly."""
    for condition in analysis.conditions.values():
        if condition.eager or condition.statement in analysis.eager:
            continue
        operands = leaves(condition.test)
        if isinstance(condition.owner, ast.BoolOp):
            operands = _asked(condition.owner)
        kinds = {leaf: k for leaf in operands if (k := data_kind(leaf, analysis))}
        if not kinds or _treated(condition.test, analysis):
            continue
        certain = any(
            kind != "possible" or _says_enough(leaf, analysis, facts)
            for leaf, kind in kinds.items()
        )
        made = _condition_site(condition, analysis, facts, certain=certain)
        if made is not None:
            yield made


def _says_enough(leaf: ast.expr, analysis: Analysis, facts: Facts) -> bool:
    """Whether a test is one of a tensor, as a rule, so that fixes ask for one while compiling.

    No list or dict is asked for a float, `0.0 in x`, and what a layer is given and asks an element of,
    `position[0] > 0`, is a tensor.
    """
    if member(leaf) is not None or _is_flag(leaf, analysis):
        return True
    info, name = analysis.info, asks_element(leaf)
    is_layer = (
        info.owner is not None
        and info.node.name == "forward"
        and facts.project.is_module_class(info.owner.qualified)
    )
    return is_layer and name is not None and is_bare_parameter(name, info)


def _is_flag(leaf: ast.expr, analysis: Analysis) -> bool:
    """Whether a name holds a tensor on some path, and a constant on all others."""
    value = analysis.values.get(leaf) if isinstance(leaf, ast.Name) else None
    definitions = definitions_of(analysis.info.node, analysis.info.module)
    if value is None or not isinstance(leaf, ast.Name) or definitions.of(leaf) is not None:
        return False  # bound in one place, where what decides which it is may be asked
    return value.may_be_tensor and value.only(Kind.TENSOR | Kind.STATIC | Kind.NONE)


def _asked(node: ast.BoolOp) -> list[ast.expr]:
    """The operands whose truth an `and` or `or` asks for: it hands on the last one as it is."""
    asked = [leaf for value in node.values[:-1] for leaf in leaves(value)]
    last = node.values[-1]
    if isinstance(last, ast.BoolOp):
        return asked + _asked(last)
    return asked + leaves(last) if isinstance(last, ast.UnaryOp) else asked


def _treated(test: ast.expr, analysis: Analysis) -> bool:
    """Whether a compiled path stands beside, for every tensor that the test may meet."""
    places = [analysis.places.get(n) for n in walk(test) if isinstance(n, ast.Call)]
    return any(place is not None and treated_beside(place.mode) for place in places)


def _condition_site(
    condition: Condition, analysis: Analysis, facts: Facts, *, certain: bool
) -> BreakSite | None:
    owner, test = condition.owner, condition.test
    diagnosis: Diagnosis = TENSOR_BRANCH
    what = "this `if`"
    if _is_beside_compiled(owner, analysis, facts) or _is_for_other_types(owner, analysis):
        return None
    if _is_for_gradients(owner, analysis, facts):
        return None
    if isinstance(owner, ast.If):
        if _exits_loop(owner, analysis):
            diagnosis, what = LOOP_EXIT, "whether the loop goes on"
        elif raises(owner.body) or (owner.orelse and raises(owner.orelse)):
            diagnosis, what = TENSOR_RAISE, "whether this raises"
    elif isinstance(owner, ast.While):
        diagnosis, what = TENSOR_LOOP, "how often this loop runs"
    elif isinstance(owner, ast.Assert):
        if _graph_native(owner, analysis):
            return None
        diagnosis, what = TENSOR_ASSERT, "this assertion"
    elif isinstance(owner, ast.IfExp):
        what = "this conditional expression"
    elif isinstance(owner, ast.BoolOp):
        what = "this `and`/`or`"
    elif isinstance(owner, (ast.Match, ast.match_case)):
        what = "this `match`"
    else:
        what = "this condition"
    possibly = "" if certain else "may "
    verb = "depends" if certain else "depend"
    text = shortened(test)
    return BreakSite(
        diagnosis,
        analysis.info,
        analysis,
        owner,
        condition.statement,
        test,
        f"{what} {possibly}{verb} on tensor data: `{text}`",
        certain,
    )


def _is_beside_compiled(owner: ast.AST, analysis: Analysis, facts: Facts) -> bool:
    """Whether a loop is what is left for gradients beside a compiled path of its own."""
    parents = analysis.info.module.parents
    loop = parents.get(owner) if isinstance(owner, ast.If) else owner
    outer = parents.get(loop) if isinstance(loop, (ast.For, ast.While)) else None
    if not isinstance(outer, ast.If):
        return False
    return outer.orelse == [loop] and bool(_beside_compiling(outer.test, analysis, facts))


def _beside_compiling(test: ast.expr, analysis: Analysis, facts: Facts) -> list[ast.expr]:
    """The operands of `compiling and a and b`; none of a test that asks for something else."""
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
        return []
    return test.values if any(facts.is_asked(t, analysis) for t in test.values) else []


def _is_for_gradients(owner: ast.AST, analysis: Analysis, facts: Facts) -> bool:
    """Whether a branch is what is left, where gradients pass, beside a compiled path of its own."""
    above = analysis.info.module.parents.get(owner)
    if not isinstance(above, ast.If) or above.orelse != [owner]:
        return False
    return any(
        isinstance(t, ast.UnaryOp) and isinstance(t.op, ast.Not) and "requires_grad" in ast.dump(t)
        for t in _beside_compiling(above.test, analysis, facts)
    )


def _is_for_other_types(owner: ast.AST, analysis: Analysis) -> bool:
    """Whether a branch is what is left beside a select for values of another shape or dtype."""
    above = analysis.info.module.parents.get(owner)
    if not isinstance(above, ast.If) or above.orelse != [owner]:
        return False
    asked = above.test.values if isinstance(above.test, ast.BoolOp) else []
    named = [
        t.left.attr
        for t in asked
        if isinstance(t, ast.Compare) and isinstance(t.left, ast.Attribute)
    ]
    return named == ["shape", "dtype"]


def _exits_loop(node: ast.If, analysis: Analysis) -> bool:
    """Whether an `if` directly in a loop leaves it or skips the rest of a round."""
    parent = analysis.info.module.parents.get(node)
    return isinstance(parent, (ast.For, ast.While)) and any(
        body and isinstance(body[-1], (ast.Break, ast.Continue))
        for body in (node.body, node.orelse)
    )


def raises(body: list[ast.stmt]) -> bool:
    """Whether a block ends by raising."""
    return bool(body) and isinstance(body[-1], ast.Raise)


def _graph_native(node: ast.Assert, analysis: Analysis) -> bool:
    """Whether Dynamo itself turns the assertion into one inside the graph (seen on 2.13).

    It does for a test that is a tensor by itself, with no message or a literal one.
    """
    literal = node.msg is None or (
        isinstance(node.msg, ast.Constant) and isinstance(node.msg.value, str)
    )
    tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
    data = [t for t in tests if any(data_kind(leaf, analysis) for leaf in leaves(t))]
    if isinstance(node.test, ast.BoolOp) and not (
        isinstance(node.test.op, ast.And) and data == tests[-1:]
    ):
        return False
    value = analysis.values.get(data[0]) if data else None
    plain = bool(data) and not isinstance(data[0], (ast.BoolOp, ast.UnaryOp))
    return literal and plain and value is not None and value.tensor
