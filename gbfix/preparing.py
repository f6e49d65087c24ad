"""Takes back what was only changed so that something else could be treated, where nothing did.

A name that holds a tensor in place of a truth value is of use where the test that asks for it is
then treated. Where no fix treats it, the graph breaks as often as before and eager code asks the tensor
once for each test, so the file is looked at again without that change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gbfix.codegen.view import View
from gbfix.findings import Finding, Refusal
from gbfix.fixes import Fix
from gbfix.planning import Outcome

Place = tuple[int, int]
"""A line and column, from 1, of a file as it was before the run."""


@dataclass(frozen=True)
class Prepared:
    """A change of a site for the sake of tests that stand elsewhere, by the places of all."""

    site: tuple[Place, str]
    tests: frozenset[Place]


def prepared(
    picked: Sequence[tuple[Outcome, Fix]], view: View, before: Callable[[int], Place]
) -> list[Prepared]:
    """The changes among some fixes that only prepare others."""
    return [
        Prepared(
            (before(view.start(outcome.site.span)), outcome.site.diagnosis.code),
            frozenset(before(view.start(test)) for test in fix.prepares),
        )
        for outcome, fix in picked
        if fix.prepares and fix in outcome.fixes
    ]


def in_vain(
    changes: Iterable[Prepared], left: Iterable[Finding], before: Callable[[Finding], Place]
) -> set[tuple[Place, str]]:
    """The sites that were changed for tests of which all are left."""
    places = {before(finding) for finding in left}
    return {change.site for change in changes if change.tests <= places}


def without(outcome: Outcome) -> None:
    """Refuse the fixes of a site that prepared others in vain."""
    for fix in [f for f in outcome.fixes if f.prepares]:
        outcome.fixes.remove(fix)
        outcome.refusals.insert(
            0, Refusal(fix.transform, "in-vain", "no fix treats the test that would ask the tensor")
        )
