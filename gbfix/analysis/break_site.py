"""Break sites: the places in a module at which Dynamo would end the graph, with their diagnosis.

Data only: `sites` finds them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.reads import Read
from gbfix.diagnosis import Diagnosis


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


def shortened(node: ast.AST) -> str:
    """The text of a node, as far as it fits in a message."""
    text = ast.unparse(node)
    return text if len(text) <= 70 else text[:67] + "..."
