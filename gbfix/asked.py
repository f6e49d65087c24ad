"""What transforms ask of a region when only some of its files are looked at.

Who calls a function, who may catch what it raises, and what is reached elsewhere is told by name: as it
was found when every file was looked at, before any was changed. Fixes move calls into functions that
they make, and those are called where the function around them was. Knows names and calls, no sites.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gbfix.analysis.catching import Callee, NamedCall, NamedCalls, callee, catching
from gbfix.analysis.facts import Facts
from gbfix.analysis.modules import FunctionInfo, Module
from gbfix.analysis.record import Analysis
from gbfix.analysis.regions import Edge

MayCall = Callable[[Callee, str], bool]
"""Whether a module may call a function, as far as its text tells."""


@dataclass(frozen=True)
class Whole:
    """The region of the whole project, once it is known: functions, who calls whom, and by which names.

    `named` has the calls of a name by module.
    """

    reached: frozenset[str]
    callers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    named: Mapping[str, list[tuple[str, tuple[NamedCall, ...]]]] = field(default_factory=dict)

    def is_reached(self, info: FunctionInfo) -> bool:
        """Whether a function is in the region, or a fix has put it into one that is."""
        if info.qualified in self.reached:
            return True
        return info.outer is not None and self.is_reached(info.outer)


def whole_of(
    reached: frozenset[str],
    callers: Mapping[str, Iterable[str]],
    named: Iterable[tuple[str, NamedCalls]],
) -> Whole:
    """The region of functions, with who calls whom and what each module calls by name."""
    by_name: dict[str, list[tuple[str, tuple[NamedCall, ...]]]] = {}
    for module, calls in named:
        for name, of_name in calls.items():
            by_name.setdefault(name, []).append((module, of_name))
    return Whole(reached, {c: frozenset(names) for c, names in callers.items()}, by_name)


def callers_of(edges: Iterable[Edge]) -> dict[str, set[str]]:
    """By function, those that call it."""
    found: dict[str, set[str]] = {}
    for edge in edges:
        found.setdefault(edge.callee, set()).add(edge.caller)
    return found


def callable_names(modules: Iterable[Module]) -> frozenset[str]:
    """The names that functions of modules can be called by."""
    return frozenset().union(*(m.defined | m.classes.keys() for m in modules))


class Asked:
    """The region as transforms see it while some files are looked at.

    What they ask of other files cannot be answered before all have been looked at. It is noted then,
    and the file is looked at once more in the end.
    """

    def __init__(
        self,
        modules: Collection[Module],
        own: Mapping[ast.AST, FunctionInfo],
        facts: Facts,
        edges: Iterable[Edge],
        named: NamedCalls,
        may_call: MayCall,
        whole: Whole | None,
    ) -> None:
        self._modules = modules
        self._known = {node for module in modules for node in module.function_of}
        self._own = own
        self._facts = facts
        self._named = named
        self._may_call = may_call
        self._whole = whole
        self._names = {info.qualified: info for info in own.values()}
        self._callers = callers_of(edges)
        self.called: set[str] = set()
        self.caught: dict[Callee, str | None] = {}
        self.unsure = False

    def __contains__(self, node: object) -> bool:
        if node in self._own:
            return True
        if node in self._known:
            return False
        for module in list(self._facts.project.modules.values()):
            info = module.function_of.get(node) if module.parsed else None  # type: ignore[call-overload]
            if info is not None and self._whole is not None:
                return self._whole.is_reached(info)
        self.unsure = True
        return False

    def caught_by(self, info: FunctionInfo) -> str | None:
        """The name of a function of the region that may catch what a function raises."""
        whole, own, may_call = self._whole, self._named, self._may_call
        if whole is not None:
            function = callee(self._as_it_was(info))
            return catching(function, lambda called: calls_to(called, whole, may_call))
        function = callee(info)
        found = catching(function, lambda called: own.get(called.called, ()))
        self.caught[function] = found
        return found

    def calling(self, info: FunctionInfo) -> Iterable[Analysis]:
        """The analyses of functions of the region that may call a function."""
        info = info.module.function_of.get(info.node, info)
        called = info.qualified
        self.called.add(called)
        callers = set(self._callers.get(called, ()))
        if self._whole is not None:
            callers |= self._whole.callers.get(called, frozenset())
            if called not in self._whole.reached and info.outer is not None:
                callers.add(info.outer.qualified)
        for name in sorted(callers):
            caller = self._names.get(name) or self._facts.project.function_info(name)
            if caller is not None and (self._whole is not None or caller.module in self._modules):
                analysis = self._facts.analysis(caller)
                if analysis is not None:
                    yield analysis

    def _as_it_was(self, info: FunctionInfo) -> FunctionInfo:
        """A function, or for one that a fix has made, the one around it."""
        assert self._whole is not None
        info = info.module.function_of.get(info.node, info)
        while info.outer is not None and info.qualified not in self._whole.reached:
            info = info.outer
        return info


def calls_to(called: Callee, whole: Whole, may_call: MayCall) -> Iterator[NamedCall]:
    """The calls in a region that may run a function."""
    for module, calls in whole.named.get(called.called, ()):
        if may_call(called, module):
            yield from calls
