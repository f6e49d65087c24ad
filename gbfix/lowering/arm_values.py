"""What the arms of a branch give: the values at their ends, and whether those are tensors.

A name of which nothing is known is asked for by the compiled path. Knows branches and abstract values,
nothing of how the choice is written.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.evaluate import Environment
from gbfix.analysis.flow import Analysis
from gbfix.analysis.values import UNKNOWN, Kind, Value, tensor
from gbfix.lowering.branch import Branch
from gbfix.lowering.views import skips


def value_after(name: str, branch: Branch, truth: bool, analysis: Analysis) -> Value:
    """What an output holds at the end of an arm."""
    end = analysis.ends.get((branch.node, truth))
    if branch.leaves == "continue":
        end = _end_of_round(branch, truth, analysis)
    if end is None:
        return UNKNOWN
    if name in end:
        return end[name]
    return UNKNOWN


def _end_of_round(branch: Branch, truth: bool, analysis: Analysis) -> Environment | None:
    """What names hold where an arm goes on to the next round of the loop."""
    body = branch.node.body if truth else branch.node.orelse
    if skips(body):
        return analysis.before.get(body[-1])
    loop = analysis.info.module.parents[branch.node]
    while isinstance(loop, ast.If):
        loop = analysis.info.module.parents[loop]
    return analysis.rounds.get(loop) if isinstance(loop, ast.stmt) else None


def check_kept(branch: Branch, roots: Sequence[str]) -> None:
    """Refuse to store a copy in a container where eager stores the tensor itself.

    Raises:
        Refused: naming the tensor.
    """
    if branch.stored and roots:
        raise Refused(
            "stored-alias",
            f"`{roots[0]}` itself is stored in one of the arms, and a copy would be when compiled",
        )


def given_tensor(value: Value, what: str, name: str | None, asked: dict[str, None]) -> Value:
    """A result that is a tensor; one of which nothing is known is asked for, if it has a name.

    Args:
        value: what is known of the result.
        what: how a message names it.
        name: the name that holds it before the branch, if there is one.
        asked: takes the names that have to be asked.

    Raises:
        Refused: as `check_tensor` does.
    """
    unknown = value.kinds & (Kind.UNKNOWN | Kind.MAYBE) and not value.unbound
    if name is None or "." in name or not unknown:
        check_tensor(value, what)
        return value
    asked.setdefault(name)
    return tensor()


def held_before(
    node: ast.expr, stores: Mapping[str, object], environment: Environment
) -> str | None:
    """The name that an expression is, if it holds before the branch what it holds in an arm."""
    known = isinstance(node, ast.Name) and node.id in environment and node.id not in stores
    return node.id if known and isinstance(node, ast.Name) else None


def check_tensor(value: Value, what: str) -> None:
    """Refuse a result that is not a tensor on every path.

    Raises:
        Refused: with a reason that names the result.
    """
    if value.unbound:
        raise Refused("undefined-after-if", f"{what} may have no value when the branch is left")
    if value.tensor:
        return
    if value.kinds & Kind.NONE:
        raise Refused("none-result", f"{what} is None in one of the arms")
    if value.kinds & (Kind.UNKNOWN | Kind.MAYBE):
        raise Refused("unknown-result", f"it could not be proven that {what} is a tensor")
    raise Refused(
        "non-tensor-result", f"{what} is a Python value, not a tensor, in one of the arms"
    )
