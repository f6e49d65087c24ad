"""Which functions under `torch.compile` call a function, with the statements that do.

Reads the analyses that were made so far. Knows calls, nothing of what they mean.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gbfix.analysis.modules import FunctionInfo
from gbfix.analysis.values import Kind

if TYPE_CHECKING:
    from gbfix.analysis.facts import Facts
    from gbfix.analysis.record import Analysis


class CallIndex:
    """The callers of functions, among the analyses that facts hold."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._seen: dict[object, int] = {}
        self._callers: dict[ast.AST, dict[ast.AST, Analysis]] = {}

    def calling(self, info: FunctionInfo) -> Iterable[Analysis]:
        """The analyses of functions that call a function."""
        for module, kept in list(self.facts.all_kept()):
            known = self._seen.get(module, 0)
            for analysis in list(islice(kept.analyses.values(), known, None)):
                for callee, _ in calls(analysis, self.facts):
                    found = self._callers.setdefault(callee.node, {})
                    found[analysis.info.node] = analysis
            self._seen[module] = len(kept.analyses)
        callers = list(self._callers.get(info.node, {}).items())
        return [analysis for node, analysis in callers if node in self.facts.region]


def calls(analysis: Analysis, facts: Facts) -> Iterator[tuple[FunctionInfo, ast.Call]]:
    """The functions of the project that a function calls."""
    for node in analysis.values:
        if not isinstance(node, ast.Call):
            continue
        value = analysis.values.get(node.func)
        if value is None or value.reference is None:
            continue
        cls = facts.project.class_info(value.reference)
        if cls is not None and value.kinds & (Kind.MODULE | Kind.OBJECT):
            info = facts.project.method(cls, "forward") or facts.project.method(cls, "__call__")
        else:
            info = facts.project.function_info(value.reference)
        if info is not None:
            yield info, node
