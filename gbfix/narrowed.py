"""A region of which only the part around one place was looked for: the rest, when somebody asks.

An editor waits for what is said of one line. What a transform asks of the whole region is answered as
it would be if all of it had been looked for, but by looking at no more than the question needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gbfix.analysis.call_index import calls
from gbfix.analysis.facts import Facts
from gbfix.analysis.project import FunctionInfo, Module
from gbfix.analysis.regions import Regions
from gbfix.analysis.word_index import words

# One that began with what may stand before an `import` would be tried at every line.
_IMPORTED = re.compile(r"import\b\s*(\([^)]*\)|[^\n]*)")
_BEFORE = re.compile(r"(?:^|[:;])[ \t]*(?:from\s+([.\w]+)\s+)?$")


class _Everything:
    """All functions."""

    def __contains__(self, _: object) -> bool:
        return True


class _Narrowed:
    """The functions of a region of which some were looked for; others when they are asked for."""

    def __init__(self, found: Mapping[ast.AST, FunctionInfo], regions: Regions) -> None:
        self._found = set(found)
        self._regions = regions
        self._whole = False

    def __contains__(self, node: object) -> bool:
        if node not in self._found and not self._whole and isinstance(node, ast.AST):
            known = node in self._regions.functions
            self._look_for(frozenset({node}) if known else None)
            self._whole = node not in self._found  # all was looked at in vain
        return node in self._found

    def complete(self) -> None:
        """Look for all functions."""
        if not self._whole:
            self._look_for(None)
            self._whole = True

    def _look_for(self, wanted: frozenset[ast.AST] | None) -> None:
        self._found.update(self._regions.reached(wanted))


def narrow(facts: Facts, found: Mapping[ast.AST, FunctionInfo], regions: Regions) -> None:
    """Let facts answer for a whole region of which only a part was looked for yet."""
    region = _Narrowed(found, regions)

    def caught_by(info: FunctionInfo) -> str | None:
        if facts.caught_among(info, _Everything()) is None:
            return None  # as a rule, and then the region does not matter
        return facts.caught_among(info, region)

    def led_to_by(info: FunctionInfo, wanted: Callable[[FunctionInfo], bool]) -> bool:
        given = facts.project.given
        if any(_may_call_back(m, given) for m in facts.project.modules.values() if m not in given):
            region.complete()  # with the analyses that tell who calls whom
            return True
        own = (i for i in regions.functions.values() if i.module in given and wanted(i))
        return _lead_to(info, own, facts)

    facts.region, facts.caught_by, facts.led_to_by = region, caught_by, led_to_by


def _lead_to(info: FunctionInfo, callers: Iterable[FunctionInfo], facts: Facts) -> bool:
    """Whether functions call another one, directly or not, wherever they are called themselves.

    If they are few, following what they call is cheaper than finding all that call the other one.
    """
    found = False
    given = facts.project.given
    seen: set[ast.AST] = set()
    todo = list(callers)
    while todo:
        current = todo.pop()
        if current.node in seen:
            continue
        seen.add(current.node)
        analysis = facts.analysis(current)
        for callee, _ in calls(analysis, facts) if analysis is not None else ():
            found = found or callee.node is info.node
            if callee.module in given:
                todo.append(callee)
    return found


def _may_call_back(module: Module, given: Sequence[Module]) -> bool:
    """Whether functions of another module may call those of given ones, by what it imports."""
    if not module.defined:
        return False
    imports = list(_imports(module.source.text))
    for own in given:
        *packages, last = own.name.split(".")
        defined = {n for n, bound in own.bindings.items() if not isinstance(bound[-1], str)}
        for package, imported in imports:
            names = words(imported)
            if last in names:
                return True
            if package.rpartition(".")[2] in ("", last, *packages):
                if "*" in imported or not names.isdisjoint(defined):
                    return True
    return False


def _imports(text: str) -> Iterator[tuple[str, str]]:
    """What seems to be imported: from where, if that stands on the same line, and the names."""
    for found in _IMPORTED.finditer(text):
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        before = _BEFORE.search(line)
        if before is not None:
            yield before[1] or "", found[1]
