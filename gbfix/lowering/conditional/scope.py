"""Where the statements of an arm stand, and what their names are called where they are written anew."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import flatten
from gbfix.fixes import Context


@dataclass(frozen=True)
class Scope:
    """The function that statements stand in, and what they are written under.

    Attributes:
        context: the function that is rewritten.
        analysis: of the function that the statements stand in, which that one may call.
        torch: the name of the module.
        predicate: the text of what decides whether an update counts.
        inside: the nodes that are written anew, so that the names they alone use are theirs.
        renamed: what the names of a called function are called here.
        depth: how many calls were written out around the statements.
    """

    context: Context
    analysis: Analysis
    torch: str
    predicate: str
    inside: frozenset[ast.AST]
    renamed: Mapping[str, str] = field(default_factory=dict)
    depth: int = 0

    def text(self, node: ast.expr) -> str:
        """An expression as it is written here."""
        view = self.context.view
        start = view.start(node)
        text = view.source.text[start : view.end(node)]
        names = [n for n in walk(node) if isinstance(n, ast.Name) and n.id in self.renamed]
        for name in sorted(names, key=view.start, reverse=True):
            at = view.start(name) - start
            text = text[:at] + self.renamed[name.id] + text[at + len(name.id) :]
        return flatten(text) if "\n" in text else text
