"""In which order the files of a project are best looked at: those that import a file before it.

Reads the lines that import at the top of a file, as text, which is enough for an order. Knows module
names, nothing of what is imported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import inf

from gbfix.analysis.modules import Module


class Importers:
    """Who imports what, and who has not been looked at yet, of modules or of some among them."""

    def __init__(self, modules: Sequence[Module], among: Sequence[Module] | None = None) -> None:
        by_name = {module.name: module for module in modules}
        looked_at = modules if among is None else among
        self._imported = {m: frozenset(_imported(m, by_name)) - {m} for m in looked_at}
        self._left = dict.fromkeys(modules, 0)
        for imported in self._imported.values():
            for module in imported:
                self._left[module] += 1
        self._done: set[Module] = set()

    def left(self, module: Module) -> int:
        """How many of a module and those that import it have not been looked at."""
        waiting = module in self._imported and module not in self._done
        return self._left.get(module, 1) + waiting

    def done(self, module: Module) -> None:
        """Note that a module was looked at."""
        if module not in self._done:
            self._done.add(module)
            for other in self._imported[module]:
                self._left[other] -= 1

    @cached_property
    def order(self) -> Sequence[Module]:
        """The modules to look at, each after those that import it where that can be."""
        return tuple(self._order())

    def wait(self, module: Module, now: Module) -> float:
        """How many files after one the next comes that imports a module, or is it."""
        turns, at = self._turns.get(module, ()), self._place[now]
        following = bisect_right(turns, at)
        return turns[following] - at if following < len(turns) else inf

    @cached_property
    def _place(self) -> dict[Module, int]:
        return {module: at for at, module in enumerate(self.order)}

    @cached_property
    def _turns(self) -> dict[Module, list[int]]:
        """Where in the order a module and those that import it come."""
        turns: dict[Module, list[int]] = {module: [] for module in self._left}
        for module, at in self._place.items():
            turns[module].append(at)
        for module, imported in self._imported.items():
            for other in imported:
                turns[other].append(self._place[module])
        return {module: sorted(found) for module, found in turns.items()}

    def _order(self) -> Iterator[Module]:
        left = {module: self._left[module] for module in self._imported}
        # Those that import the same large files come together, so that these are parsed once.
        ready = [m for m, count in left.items() if not count]
        ready.sort(key=self._largest_imported, reverse=True)
        waiting = {m: None for m, count in left.items() if count}
        while ready or waiting:
            if not ready:  # they import each other
                ready.append(min(waiting, key=lambda m: left[m]))
                del waiting[ready[0]]
            module = ready.pop()
            yield module
            for other in self._imported[module] & left.keys():
                left[other] -= 1
                if not left[other] and other in waiting:
                    del waiting[other]
                    ready.append(other)

    def _largest_imported(self, module: Module) -> list[str]:
        """The names of what a module imports, the largest file first."""
        by_size = sorted(self._imported[module], key=lambda m: (-len(m.source.text), m.name))
        return [imported.name for imported in by_size]


def _imported(module: Module, by_name: dict[str, Module]) -> Iterator[Module]:
    for name in _names(module):
        while name:
            if name in by_name:
                yield by_name[name]
                break
            name = name.rpartition(".")[0]


def _names(module: Module) -> Iterator[str]:
    """What a module imports at the beginning of a line."""
    # Splitting is several times faster than a regular expression that begins at each line.
    text = "\n" + module.source.text
    for rest in text.split("\nimport ")[1:]:
        words = rest[: rest.find("\n")].split(",")
        yield from (module.known_as(word.split()[0]) for word in words if word.strip())
    for rest in text.split("\nfrom ")[1:]:
        path, _, imported = rest[: rest.find("\n")].partition(" import ")
        base = path.strip().lstrip(".")
        dots = len(path.strip()) - len(base)
        if dots:
            parts = module.name.split(".")
            keep = len(parts) - dots + (1 if module.is_package else 0)
            base = ".".join([*parts[: max(keep, 0)], *([base] if base else [])])
        else:
            base = module.known_as(base)
        names = [word.split()[0] for word in imported.strip(" (").split(",") if word.strip()]
        yield from (f"{base}.{name}" for name in names) if names else (base,)
