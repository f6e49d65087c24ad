"""From a difference that was found to the smallest calls that show it, and a script that makes them.

Joins probing, shrinking and the script; how much may be spent on it is the caller's to say.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, replace

from gbfix.dynamo.backends import BACKENDS
from gbfix.verify.jobs import Limits
from gbfix.verify.probing import EXCEPTIONS, Probe, alike, job, probe
from gbfix.verify.recipes import CallRecipe, Inputs
from gbfix.verify.script import script
from gbfix.verify.shrink import Budget, Calls, Shrinker
from gbfix.verify.verdict import Difference, Reproduction
from gbfix.verify.worker import Workers

_MOST_TRIES = 200


@dataclass
class _Search:
    """Tries calls for one difference, and keeps how the last that showed it did."""

    workers: Workers
    how: Probe
    wanted: Difference
    tries: int = 0
    shown: Difference | None = None

    def shows(self, calls: Calls) -> bool:
        """Whether these calls show the difference."""
        return self.shows_with(Inputs(recipes=calls, once=True))

    def shows_with(self, inputs: Inputs) -> bool:
        """Whether these inputs show the difference."""
        self.tries += 1
        for difference in probe(self.workers, self.how, inputs).differences:
            if alike(difference, self.wanted):
                self.shown = difference
                return True
        return False

    def as_literals(self, calls: Calls) -> Calls | None:
        """The same calls element by element."""
        return literals(self.workers, self.how, Inputs(recipes=calls))


def literals(workers: Workers, how: Probe, inputs: Inputs) -> Calls | None:
    """The calls that inputs stand for, element by element; None if they have no literals."""
    (outcome,) = workers.run(
        [job("gbfix.verify.literals:literals", how.limits, how.original, inputs)]
    )
    if outcome.result is None:
        return None
    found: tuple[CallRecipe, ...] | None = pickle.loads(outcome.result)
    return found


def reproduction(
    workers: Workers, how: Probe, difference: Difference, inputs: Inputs, seconds: float
) -> Reproduction:
    """The smallest calls that show a difference, as far as the time allows.

    A compiled difference is shrunk with the fastest backend that shows it, and told with the one
    that was asked for if what is left shows it there as well.
    """
    until = time.monotonic() + seconds
    limits = Limits(min(how.limits.seconds, seconds), how.limits.memory)
    how = replace(how, limits=limits, raising=difference.kind in EXCEPTIONS)
    made = inputs.recipes if not inputs.saved else ()
    recipes = made or literals(workers, how, inputs)
    if not recipes:
        text = script(how, difference, inputs, ())
        return Reproduction((), difference, _backend(how), 0, False, text)
    order = inputs.order(len(recipes))
    calls = tuple(recipes[number] for number in order)[: difference.call + 1]
    search = _fastest(_Search(workers, how, difference), calls)
    shrinker = Shrinker(calls, search.shows, search.as_literals, Budget(_MOST_TRIES, until))
    small = shrinker.run()
    if search.how.backend != how.backend:
        asked = _Search(workers, how, difference, search.tries)
        search = asked if asked.shows(small) else search
    found = search.shown or difference
    return Reproduction(
        tuple(call.code for call in small),
        found,
        _backend(search.how),
        search.tries,
        not shrinker.spent,
        script(search.how, found, Inputs(recipes=small, once=True), small),
    )


def _fastest(search: _Search, calls: Calls) -> _Search:
    """The same search with the simplest backend that shows the difference."""
    for backend in BACKENDS if search.how.compiled else ():
        if backend == search.how.backend:
            break
        other = replace(search, how=replace(search.how, backend=backend))
        if other.shows(calls):
            return other
    return search


def _backend(how: Probe) -> str:
    return how.backend if how.compiled else ""
