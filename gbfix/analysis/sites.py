"""Break sites: the places in a module at which Dynamo would end the graph, with their diagnosis.

Reads the results of abstract execution of the functions in the region. Says what is wrong where,
and for certain or possibly; knows nothing of treatment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from gbfix.analysis.checkers import checker_call
from gbfix.analysis.conditions import data_kind, leaves
from gbfix.analysis.decorators import disabled
from gbfix.analysis.dynamic import CAPTURE_SHAPES, shape_from_data, treated_beside
from gbfix.analysis.effects import function_effects
from gbfix.analysis.equality import asks_element, member
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis, Condition
from gbfix.analysis.log_settings import log_settings
from gbfix.analysis.logs import log_family
from gbfix.analysis.parameters import is_bare_parameter
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.reads import CAPTURE, Read, ReadKind, is_captured, reads
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import find_untraced
from gbfix.diagnoses import (
    LOGGING_CALL,
    LOOP_EXIT,
    PRINT_CALL,
    SCALAR_READ,
    TENSOR_ASSERT,
    TENSOR_BRANCH,
    TENSOR_LOOP,
    TENSOR_POSITION,
    TENSOR_RAISE,
    TENSOR_TO_LIST,
    WARNINGS_CALL,
    Diagnosis,
)

_READS = {
    ReadKind.NUMBER: (SCALAR_READ, "`{}` reads a number from a tensor"),
    ReadKind.LIST: (TENSOR_TO_LIST, "`{}` reads a list from a tensor"),
    ReadKind.POSITION: (TENSOR_POSITION, "`{}` is a tensor where an integer is needed"),
    ReadKind.INDEX: (TENSOR_POSITION, "a number is made of `{}`, a single index from the graph"),
}
_FAMILIES = {"print": PRINT_CALL, "logging": LOGGING_CALL, "warnings": WARNINGS_CALL}


@dataclass(frozen=True, eq=False)
class BreakSite:
    """A place at which the graph breaks.

    Attributes:
        node: what breaks: the `if`, conditional expression, `assert`, loop, or call.
        statement: the statement that `node` is or stands in.
        test: the tested expression, for a site of control flow.
        message: one line for the user.
        certain: False where the analysis could not prove that a tensor is involved.
        read: the read that breaks, for a site of that kind.
        shown: what breaks, where it is less than the whole statement.
    """

    diagnosis: Diagnosis
    function: FunctionInfo
    analysis: Analysis
    node: ast.AST
    statement: ast.stmt
    test: ast.expr | None
    message: str
    certain: bool = True
    read: Read | None = None
    shown: ast.expr | ast.stmt | None = None

    @property
    def span(self) -> ast.expr | ast.stmt:
        """The node whose place is shown: the test, the read, or the whole call or statement."""
        if self.read is not None:
            return self.read.node
        if self.shown is not None:
            return self.shown
        return self.test if self.test is not None else self.statement


def find_sites(analysis: Analysis, facts: Facts) -> list[BreakSite]:
    """The break sites of one analyzed function, in source order."""
    return [] if disabled(analysis.info) else break_sites(analysis, facts)


def break_sites(analysis: Analysis, facts: Facts) -> list[BreakSite]:
    """The same, also of a function that is kept from being traced."""
    found = [
        *_conditions(analysis, facts),
        *_log_calls(analysis, facts),
        *_reads(analysis, facts),
        *_data_shapes(analysis, facts),
        *_untraced(analysis, facts),
    ]
    return sorted(found, key=lambda s: (s.span.lineno, s.span.col_offset))


def _data_shapes(analysis: Analysis, facts: Facts) -> Iterator[BreakSite]:
    """Operations whose result has a shape that depends on data."""
    for node, place in analysis.places.items():
        if place.mode.eager or place.statement in analysis.eager:
            continue
        diagnosis = shape_from_data(node, analysis)
        if diagnosis is None or treated_beside(node, place.mode):
            continue
        if facts.is_made(CAPTURE_SHAPES, analysis.info):
            continue
        yield BreakSite(
            diagnosis,
            analysis.info,
            analysis,
            node,
            place.statement,
            node,
            f"the shape of `{_short(node)}` depends on tensor data",
        )


def _conditions(analysis: Analysis, facts: Facts) -> Iterator[BreakSite]:
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
    if member(leaf) is not None:
        return True
    info, name = analysis.info, asks_element(leaf)
    is_layer = (
        info.owner is not None
        and info.node.name == "forward"
        and facts.project.is_module_class(info.owner.qualified)
    )
    return is_layer and name is not None and is_bare_parameter(name, info)


def _asked(node: ast.BoolOp) -> list[ast.expr]:
    """The operands whose truth an `and` or `or` asks for: it hands on the last one as it is."""
    asked = [leaf for value in node.values[:-1] for leaf in leaves(value)]
    last = node.values[-1]
    if isinstance(last, ast.BoolOp):
        return asked + _asked(last)
    return asked + leaves(last) if isinstance(last, ast.UnaryOp) else asked


def _treated(test: ast.expr, analysis: Analysis) -> bool:
    """Whether a compiled path stands beside, for every tensor that the test may meet."""
    places = [(n, analysis.places.get(n)) for n in walk(test) if isinstance(n, ast.Call)]
    return any(place is not None and treated_beside(n, place.mode) for n, place in places)


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
    text = _short(test)
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


def _short(test: ast.AST) -> str:
    text = ast.unparse(test)
    return text if len(text) <= 70 else text[:67] + "..."


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
    asks = [
        (value := analysis.values.get(t.func)) is not None and facts.asks_compiling(value.reference)
        for t in test.values
        if isinstance(t, ast.Call)
    ]
    return test.values if any(asks) else []


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


def _log_calls(analysis: Analysis, facts: Facts) -> Iterator[BreakSite]:
    for statement, eager in analysis.statements.items():
        if eager or statement in analysis.eager:
            continue
        check = _check_call(statement, analysis, facts)
        if check is not None:
            yield check
            continue
        family = log_family(statement.value, analysis, facts)
        if family is None or _guarded_inside(statement.value, analysis, facts):
            continue
        diagnosis = _FAMILIES[family]
        call = statement.value
        if isinstance(call, ast.Call) and any(
            facts.is_made(setting, analysis.info)
            for setting in log_settings(call, family, analysis)
        ):
            continue
        text = _short(call.func) if isinstance(call, ast.Call) else ""
        yield BreakSite(
            diagnosis,
            analysis.info,
            analysis,
            call,
            statement,
            None,
            f"`{text}` cannot be part of a graph",
        )


def _reads(analysis: Analysis, facts: Facts) -> Iterator[BreakSite]:
    for read in reads(analysis):
        if facts.is_made(CAPTURE, analysis.info) and is_captured(read, analysis):
            continue
        diagnosis, message = _READS[read.kind]
        yield BreakSite(
            diagnosis,
            analysis.info,
            analysis,
            read.node,
            read.statement,
            None,
            message.format(_short(read.node)),
            read=read,
        )


def _check_call(statement: ast.Expr, analysis: Analysis, facts: Facts) -> BreakSite | None:
    """A call of a checking helper with a condition on tensor data."""
    call = statement.value
    if not isinstance(call, ast.Call):
        return None
    check = checker_call(call, analysis, facts)
    if check is None:
        return None
    kinds = {k for leaf in leaves(check.condition) if (k := data_kind(leaf, analysis))}
    if not kinds & {"tensor", "scalar"}:
        return None
    text = _short(check.condition)
    return BreakSite(
        TENSOR_RAISE,
        analysis.info,
        analysis,
        call,
        statement,
        check.condition,
        f"whether `{_short(call.func)}` raises depends on tensor data: `{text}`",
    )


def _guarded_inside(call: ast.expr, analysis: Analysis, facts: Facts) -> bool:
    """A call of a plain helper of the project: the site is the call inside the helper."""
    value = analysis.values.get(call.func) if isinstance(call, ast.Call) else None
    if value is None or value.reference is None:
        return False
    info = facts.project.function_info(value.reference)
    if info is None:
        return False
    return not info.node.decorator_list and function_effects(info, facts) is not None


def _untraced(analysis: Analysis, facts: Facts) -> Iterator[BreakSite]:
    """Calls and statements that Dynamo does not trace, outside of what only runs in eager mode."""
    for found in find_untraced(analysis, facts):
        yield BreakSite(
            found.diagnosis,
            analysis.info,
            analysis,
            found.node,
            found.statement,
            None,
            found.message,
            shown=found.node,
        )
