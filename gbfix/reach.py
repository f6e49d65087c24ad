"""Which functions of which files are reached, as the looks at single files tell it.

Keeps what every file said of others: functions that it calls there, and methods of `self` that others
may override. From that it says what a file's part of the region starts from, and which files have to
be looked at again. Knows names and paths, neither trees nor findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gbfix.analysis.catching import catching
from gbfix.analysis.modules import Module
from gbfix.analysis.regions import Plan
from gbfix.asked import MayCall, Whole, callers_of, calls_to, whole_of
from gbfix.survey import ClassNotes, Notes


@dataclass(frozen=True)
class Task:
    """What a file's part of the region starts from, and the whole region if it is known."""

    plan: Plan
    whole: Whole | None = None


class Reach:
    """What is known of the region of a project."""

    def __init__(self, modules: Sequence[Module], plan: Plan, may_call: MayCall) -> None:
        self.plan = plan
        self._may_call = may_call
        self.notes: dict[Path, Notes] = {}
        self.consulted: set[Path] = set()
        self.absent: set[Path] = set()
        self._paths = {module.name: module.source.path for module in modules}
        self._modules = {module.source.path: module for module in modules}
        self._entered: dict[Path, set[str]] = {}
        self._given: dict[Path, frozenset[str]] = {}
        self._self_calls: dict[str, set[str]] = {}
        self._with: dict[str, list[tuple[Path, ClassNotes]]] = {}
        self._again: set[Path] = set()

    @property
    def anything(self) -> bool:
        """Whether any function is reached."""
        return any(notes.reached for notes in self.notes.values())

    def task(self, path: Path, whole: Whole | None = None) -> Task:
        """What a file's part of the region starts from, as far as it is known."""
        entered = self._given[path] = frozenset(self._entered.get(path, ()))
        return Task(
            replace(
                self.plan,
                roots=self.plan.roots | entered,
                self_calls=frozenset(self._overridable(path)),
            ),
            whole,
        )

    def _overridable(self, path: Path) -> Iterator[tuple[str, str]]:
        """Methods called on `self`, of those whose names a file defines."""
        for method in self._modules[path].defined & self._self_calls.keys():
            yield from ((owner, method) for owner in self._self_calls[method])

    def add(self, path: Path, notes: Notes) -> None:
        """Take up what a look at a file has found."""
        first = path not in self.notes
        self.replace(path, notes)
        self._again.discard(path)
        late = self._entered.get(path, set()) - self._given.get(path, frozenset())
        if late - notes.reached and notes.error is None:
            self._again.add(path)  # it was entered while another process looked at it
        for module, name in notes.elsewhere:
            self._enter(self._paths[module], name)
        for owner, method in notes.self_calls:
            owners = self._self_calls.setdefault(method, set())
            if owner in owners:
                continue
            owners.add(owner)
            for where, cls in self._with.get(method, ()):
                if owner in cls.above:
                    self._enter(where, f"{cls.name}.{method}")
        if first:
            # What was called while this file was looked at elsewhere.
            for cls in notes.classes:
                for method in cls.methods:
                    self._with.setdefault(method, []).append((path, cls))
                    if not cls.above.isdisjoint(self._self_calls.get(method, ())):
                        self._enter(path, f"{cls.name}.{method}")

    def replace(self, path: Path, notes: Notes) -> None:
        """Take up a look that only differs in what it says of sites."""
        self.notes[path] = notes
        # What an earlier look has found out is not looked up again.
        self.consulted |= notes.consulted
        self.absent |= notes.absent

    def _enter(self, path: Path, name: str) -> None:
        entered = self._entered.setdefault(path, set())
        if name in entered:
            return
        notes = self.notes.get(path)
        if notes is not None and name not in notes.reached and notes.error is None:
            self._again.add(path)
        entered.add(name)

    def again(self, order: Sequence[Path]) -> list[Path]:
        """The files that have to be looked at again, since more of them is reached."""
        return [path for path in order if path in self._again]

    def whole(self) -> Whole:
        """The region of the project, as it is known now."""
        reached = frozenset().union(*(notes.reached for notes in self.notes.values()))
        named = ((m.name, self.notes[path].named) for path, m in self._modules.items())
        return whole_of(reached, self._callers(), named)

    def is_unsure(self, path: Path, whole: Whole) -> bool:
        """Whether what was said of a file's sites is not what the whole region says."""
        notes = self.notes[path]
        if notes.unsure:
            return True
        for function, found in notes.caught:
            if catching(function, lambda called: calls_to(called, whole, self._may_call)) != found:
                return True
        if not notes.asked:
            return False
        # Who sets attributes around a call matters; it was only asked for inside of the file.
        callers, storing = self._callers(), self._storing()
        seen = set(notes.asked)
        todo = list(notes.asked)
        while todo:
            for caller in callers.get(todo.pop(), ()):
                if caller in storing and caller not in notes.reached:
                    return True
                if caller not in seen:
                    seen.add(caller)
                    todo.append(caller)
        return False

    def _callers(self) -> dict[str, set[str]]:
        """By function, those that call it; found once all files were looked at."""
        if not hasattr(self, "_known_callers"):
            edges = (edge for notes in self.notes.values() for edge in notes.edges)
            self._known_callers = callers_of(edges)
        return self._known_callers

    def _storing(self) -> set[str]:
        """The functions that set attributes, by themselves or in a method of `self` they call."""
        if not hasattr(self, "_known_storing"):
            own = [e for notes in self.notes.values() for e in notes.edges if e.own]
            storing = set().union(*(notes.storing for notes in self.notes.values()))
            size = -1
            while size != len(storing):
                size = len(storing)
                storing |= {edge.caller for edge in own if edge.callee in storing}
            self._known_storing = storing
        return self._known_storing
