"""What dividing a function gives: statements, whole or taken apart, and the runs that are compiled.

Knows nothing of how they are found or written.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """A statement, or one of those that it is taken apart into.

    Attributes:
        statement: the statement of the source.
        text: what replaces it; None where it stays as it is written.
        needs: names that it reads before it binds them.
        binds: names that it surely binds.
        may_bind: names that it binds on some path.
        stays: it has to run in Python.
        work: how many operations it computes tensors with; a layer counts as three.
        returns: it may end the function.
        later: names that what follows in the same statement reads.
    """

    statement: ast.stmt
    text: str | None
    needs: frozenset[str]
    binds: frozenset[str]
    may_bind: frozenset[str]
    stays: bool
    work: int
    returns: bool = False
    later: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Part:
    """A run of statements that is compiled as a function of its own."""

    items: tuple[Item, ...]
    place: str
    given: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def returns(self) -> bool:
        """Whether the part ends the function, and what it returns is returned."""
        return any(item.returns for item in self.items)


@dataclass(frozen=True)
class Divided:
    """The parts of a function in source order, and the statements that were taken apart."""

    parts: tuple[Part, ...]
    apart: tuple[tuple[Item, ...], ...]
