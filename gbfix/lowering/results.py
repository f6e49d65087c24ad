"""What each arm of a branch gives for each output, as expressions where that is possible.

An arm of plain assignments is the same as one expression per output, which is how a person would
write a short `torch.cond` or `torch.where`. Attribute writes, `register_buffer` and in-place
operations of buffers become values too, to be stored once after the branch. An arm that does more
has no such form, and is kept as statements.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.flow import Analysis
from gbfix.analysis.liveness import reads
from gbfix.analysis.operators import binary
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Value
from gbfix.lowering.arm_values import given_tensor, held_before
from gbfix.lowering.branch import Arm, Branch, Output
from gbfix.lowering.stores import Store

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """The value of one output at the end of an arm.

    Attributes:
        node: the expression; None for an output that the arm leaves alone.
        incoming: the name or attribute as it stands before the branch, where `node` is None.
        operator: for an augmented assignment, `incoming operator node`.
        store: for a buffer that is updated in place, the update.
    """

    node: ast.expr | None
    incoming: str = ""
    operator: str = ""
    store: Store | None = None


@dataclass(frozen=True)
class Straight:
    """An arm without control flow: statements to run first, and one result per output."""

    prelude: tuple[ast.stmt, ...]
    results: tuple[Result, ...]


def straighten(arm: Arm, branch: Branch, analysis: Analysis) -> Straight | None:
    """The arm as results, or None if it needs statements.

    Raises:
        Refused: for in-place changes that have no value form.
    """
    if branch.returns:
        return _returned(arm)
    assigned: dict[str, Result] = {}
    prelude: list[ast.stmt] = []
    outputs = {o.name: o for o in branch.outputs}
    for statement in arm.statements:
        store = arm.stores.get(statement)
        writes = (
            [(store.name, Result(None, store.name, store=store))]
            if store is not None
            else _writes(statement, outputs)
        )
        if writes is None:
            return None
        if reads(statement) & {n for n in assigned if "." not in n} or _reads_attributes(
            statement, assigned
        ):
            return None
        if not writes:
            if not _is_temporary(statement, outputs):
                return None
            prelude.append(statement)
            continue
        for name, result in writes:
            if name in assigned:
                return None
            assigned[name] = result
    results = tuple(assigned.get(o.name, Result(None, o.name)) for o in branch.outputs)
    return Straight(tuple(prelude), results)


def _returned(arm: Arm) -> Straight | None:
    value = arm.returned
    if value is None or not isinstance(arm.statements[-1], ast.Return):
        return None
    prelude = arm.statements[:-1]
    if not all(_is_temporary(s, {}) for s in prelude):
        return None
    elements = value.elts if isinstance(value, ast.Tuple) else [value]
    return Straight(tuple(prelude), tuple(Result(e) for e in elements))


def _is_temporary(statement: ast.stmt, outputs: dict[str, Output]) -> bool:
    """`name = expression`, for a name that is no output."""
    return (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id not in outputs
    )


def _writes(statement: ast.stmt, outputs: dict[str, Output]) -> list[tuple[str, Result]] | None:
    """The outputs that a statement sets; None if it is more than assignments."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return _assigned(statement.target, statement.value, outputs)
    if isinstance(statement, ast.Assign):
        found: list[tuple[str, Result]] = []
        for target in statement.targets:
            one = _assigned(target, statement.value, outputs)
            if one is None:
                return None
            found += one
        return found
    if isinstance(statement, ast.AugAssign):
        name = dotted(statement.target)
        if name not in outputs:
            return None
        symbol = _OPERATORS[type(statement.op)]
        return [(name, Result(statement.value, name, symbol))]
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Attribute) and call.func.attr == "register_buffer":
            name = f"{dotted(call.func.value)}.{call.args[0].value}"  # type: ignore[attr-defined]
            if name in outputs and len(call.args) >= 2:
                return [(name, Result(call.args[1]))]
    return None


def _assigned(
    target: ast.expr, value: ast.expr, outputs: dict[str, Output]
) -> list[tuple[str, Result]] | None:
    if isinstance(target, (ast.Tuple, ast.List)):
        if not isinstance(value, ast.Tuple) or len(value.elts) != len(target.elts):
            return None
        found: list[tuple[str, Result]] = []
        for one, part in zip(target.elts, value.elts, strict=True):
            inner = _assigned(one, part, outputs)
            if not inner:
                return None
            found += inner
        return found
    name = dotted(target)
    if name is None:
        return None
    return [(name, Result(value))] if name in outputs else []


def _reads_attributes(statement: ast.stmt, assigned: dict[str, Result]) -> bool:
    names = {dotted(n) for n in walk(statement) if isinstance(n, ast.Attribute)}
    return any(name in names for name in assigned if "." in name)


def before(name: str, branch: Branch, analysis: Analysis) -> Value | None:
    """What an output holds before the branch; None if it may hold nothing."""
    environment = analysis.before[branch.node]
    if name in environment:
        value = environment[name]
        return None if value.unbound else value
    if "." in name:
        owner, attr = name.rsplit(".", 1)
        base = environment.get(owner)
        if base is None or base.reference is None:
            return None
        return attribute_before(base, attr, analysis)
    return None


def attribute_before(base: Value, attr: str, analysis: Analysis) -> Value | None:
    """What an attribute holds according to its class."""
    evaluator = analysis.evaluator
    return evaluator.attribute_of(base, attr) if evaluator is not None else None


def result_value(result: Result, branch: Branch, analysis: Analysis) -> Value:
    """The abstract value of a result.

    Raises:
        Refused: if an output may have no value before the branch.
    """
    if result.node is not None and not result.operator:
        return analysis.values[result.node]
    value = before(result.incoming, branch, analysis)
    if value is None:
        raise Refused(
            "undefined-after-if",
            f"`{result.incoming}` has no value yet where an arm leaves it alone",
        )
    if result.operator and result.node is not None:
        operator = next(k for k, v in _OPERATORS.items() if v == result.operator)
        return binary(operator(), value, analysis.values[result.node])
    return value


def _name_of(result: Result, arm: Arm, branch: Branch, analysis: Analysis) -> str | None:
    """The name that holds a result before the branch."""
    if result.operator or result.store is not None:
        return None
    if result.node is None:
        return result.incoming
    return held_before(result.node, arm.effects.stores, analysis.before[branch.node])


def check_results(
    branch: Branch, arms: Sequence[Straight], analysis: Analysis
) -> list[tuple[Value, Value]]:
    """The values of the outputs in both arms, each proven to be a tensor.

    Raises:
        Refused: for an output that is not a tensor in both arms, or arms of different structure.
    """
    if len(arms[0].results) != len(arms[1].results):
        raise Refused("different-structure", "the arms return different numbers of values")
    values: list[tuple[Value, Value]] = []
    for position, (a, b) in enumerate(zip(arms[0].results, arms[1].results, strict=True)):
        if branch.returns:
            kept = [f"`{ast.unparse(target)}`" for target in branch.stored]
            what = kept[position] if position < len(kept) else "what the function returns"
        else:
            what = f"`{branch.outputs[position].name}`"
        names = [
            _name_of(result, arm, branch, analysis)
            for result, arm in zip((a, b), branch.arms, strict=True)
        ]
        one, other = result_value(a, branch, analysis), result_value(b, branch, analysis)
        one = given_tensor(one, what, names[0], branch.asked)
        values.append((one, given_tensor(other, what, names[1], branch.asked)))
    return values
