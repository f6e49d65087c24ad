"""What compiled paths inside of an arm ask before they do without a selection.

Beside `if torch.compiler.is_compiling() and x.dtype != torch.float16:` rows are selected as before, at
which Dynamo ends the graph in other code, but fails within an arm of `torch.cond`. So the path
around the arm asks the same.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import shape_from_data
from gbfix.analysis.modes import OF_OTHERS
from gbfix.analysis.trees import of_kind, walk
from gbfix.codegen.names import used_names
from gbfix.fixes import Context
from gbfix.lowering.bindings import stored
from gbfix.lowering.branch import Arm, Branch


def asked_inside(branch: Branch, context: Context) -> list[str]:
    """The tests that the compiled path around a branch has to make as well.

    Raises:
        Refused: where a test asks for something that only the arm knows.
    """
    found: dict[str, None] = {}
    for arm in branch.arms:
        if not _selects(arm, context):
            continue
        bound = frozenset().union(*map(stored, arm.statements))
        for test in _tests(arm, context):
            text = context.view.text(test)
            if not used_names(test).isdisjoint(bound):
                raise Refused(
                    "dynamic-shape-in-arm", f"rows are selected in an arm unless `{text}`"
                )
            found[text] = None
    return list(found)


def _selects(arm: Arm, context: Context) -> bool:
    """Whether an arm still selects rows, for what a path beside does not take."""
    analysis = context.analysis
    nodes = (n for s in arm.statements for n in walk(s) if isinstance(n, (ast.Subscript, ast.Call)))
    return any(
        shape_from_data(n, analysis) is not None
        for n in nodes
        if (place := analysis.places.get(n)) is not None and not place.mode.eager
    )


def _tests(arm: Arm, context: Context) -> list[ast.expr]:
    """What is asked beside the question whether the code is compiled, but not of the mask itself.

    What is no mask selects as many rows as it says.
    """
    found: list[ast.expr] = []
    for node in (n for s in arm.statements for n in of_kind(s, ast.If)):
        operands = node.test.values if isinstance(node.test, ast.BoolOp) else []
        others = [o for o in operands if not context.facts.is_asked(o, context.analysis)]
        if len(others) < len(operands):
            found += others
    return [test for test in found if OF_OTHERS.search(ast.dump(test))]
