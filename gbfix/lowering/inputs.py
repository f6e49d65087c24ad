"""In-place changes in an arm, and whether giving a new value instead could be noticed.

`x += y` on a tensor changes the storage that others may hold. A functional form makes a new tensor,
which is the same only if nobody else can see the old one.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.trees import walk
from gbfix.fixes import Context
from gbfix.lowering.aliases import check_attributes_not_changed
from gbfix.lowering.branch import Branch
from gbfix.lowering.results import Straight


def check_in_place(
    branch: Branch, arms: tuple[Straight, Straight] | None, context: Context
) -> frozenset[str]:
    """Names whose augmented assignments may become plain ones.

    Raises:
        Refused: for any other in-place change of something older than the arm.
    """
    names: set[str] = set()
    for arm in branch.arms:
        for target, node in arm.effects.mutated:
            if not isinstance(node, ast.AugAssign):
                if arms is not None:
                    what = ast.unparse(target)
                    raise Refused("mutates-operand", f"an arm changes `{what}` in place")
                continue
            name = dotted(target)
            value = context.analysis.before[branch.node].get(name or "")
            own = name in _bound_in(arm.statements, node)
            if name is None or not (own or (value is not None and value.unshared)):
                raise Refused(
                    "mutates-operand",
                    f"an arm changes `{name}` in place, and something else may hold the same tensor",
                )
            names.add(name)
    return frozenset(names)


def _bound_in(statements: tuple[ast.stmt, ...], node: ast.AugAssign) -> set[str]:
    """Names that the arm has bound before an augmented assignment."""
    return {
        t.id
        for s in statements
        for n in walk(s)
        if isinstance(n, ast.Assign) and n.lineno < node.lineno
        for t in n.targets
        if isinstance(t, ast.Name)
    }


def check_stored(branch: Branch, roots: Sequence[str], context: Context) -> None:
    """Refuse to store a copy in an attribute where eager stores what another call changes.

    Raises:
        Refused: naming the attribute.
    """
    stored = [o.name for o in branch.outputs if o.is_attribute and not o.place]
    if stored and roots:
        info = context.info
        names = [*stored, *(r for r in roots if "." in r)]
        check_attributes_not_changed(names, info.owner, info.module, context.facts)
