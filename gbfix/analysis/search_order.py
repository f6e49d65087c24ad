"""In which order a region is searched for a few functions, so that the search ends soon.

Knows the texts of functions and their names; the order never decides what is found.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.trees import first_line
from gbfix.analysis.word_index import words

_NEVER_NAMED = frozenset({"forward", "__call__", "__init__"})  # where they are called


def leading_to(
    wanted: frozenset[ast.AST], functions: Mapping[ast.AST, FunctionInfo]
) -> dict[ast.AST, int]:
    """How promising it is to look into a function: the wanted ones, then who names them.

    Args:
        wanted: the nodes of the functions that are searched for, which are among `functions`.
        functions: the functions of the files that are looked at.
    """
    found = dict.fromkeys(wanted, 2)
    names = {functions[node].node.name for node in wanted} - _NEVER_NAMED
    if not names:
        return found
    texts = {info.node: words(_text(info)) for info in functions.values()}
    size = -1
    while size != len(found):
        size = len(found)
        for node, text in texts.items():
            if not names.isdisjoint(text):
                found.setdefault(node, 1)
        names = {functions[node].node.name for node in found} - _NEVER_NAMED
    return found


def _text(info: FunctionInfo) -> str:
    last = info.node.end_lineno or info.node.lineno
    return info.module.source.lines_text(first_line(info.node), last)
