"""Where a text may use `torch.compile`, so that other files need not be parsed to look for it.

Knows words and lines, nothing of what they stand for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from gbfix.analysis.decorators import COMPILE
from gbfix.analysis.module_text import lines_with
from gbfix.analysis.modules import Module
from gbfix.analysis.trees import nodes_on

# What stands between backquotes is prose; `re.compile` is no business of ours.
_PROSE = re.compile(r"(?:\bre|\bregex|`torch)\Z")
_IMPORTED = re.compile(r"\bimport\b[^\n]*\bcompile\b|^\s*compile\s*(?:,|\bas\b|$)", re.MULTILINE)


@lru_cache(maxsize=1024)
def _may_compile_at(before: str, after: str) -> bool:
    return _PROSE.search(before) is None and not re.match(r"\w|`", after)


def _is_comment(before: str) -> bool:
    """Whether what follows on a line is surely no code."""
    return "#" in before and not any(c in before for c in "'\"\r")


def may_compile(text: str) -> bool:
    """Whether a source text could hold a use of `torch.compile`."""
    at = text.find("compile")
    while at >= 0:
        end = at + len("compile")
        if _is_comment(text[text.rfind("\n", 0, at) + 1 : at]):
            pass
        elif text[at - 1 : at] == ".":
            if _may_compile_at(text[max(0, at - 7) : at - 1], text[end : end + 1]):
                return True
        # An import names it on its own.
        elif not text[at - 1 : at].isidentifier() and not text[end : end + 1].isidentifier():
            first = text.rfind("\n", 0, at) + 1
            last = text.find("\n", end)
            if _IMPORTED.search(text[first : last if last >= 0 else len(text)]):
                return True
        at = text.find("compile", end)
    return "_dynamo" in text and "optimize" in text


def compile_lines(module: Module) -> Iterator[ast.AST]:
    """What stands on lines that could compile something."""
    aliases = [name for name, bound in module.bindings.items() if bound[-1] in COMPILE]
    lines = lines_with(module.source, rf"\b(?:{'|'.join(['compile', 'optimize', *aliases])})\b")
    return nodes_on(module.tree, lines) if lines else iter(())
