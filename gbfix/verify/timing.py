"""How long the first call and later ones take, original against rewritten, measured in alternation.

Every measurement is a process of its own, A B A B and so on, one at a time, so that a machine that gets
slower or faster meanwhile does it to both. Nothing is compared here but times.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

from gbfix.verify.jobs import Limits
from gbfix.verify.latency import Latency, Timing
from gbfix.verify.messages import RunSpec
from gbfix.verify.probing import job
from gbfix.verify.targets import Side
from gbfix.verify.worker import Workers

ROUNDS = 5


def timing(
    workers: Workers, spec: RunSpec, rewritten: Side, limits: Limits, rounds: int = ROUNDS
) -> Timing | None:
    """Measure the side of a spec and the rewritten one; None if a measurement fails."""
    (found,) = timings(workers, spec, [rewritten], limits, rounds)
    return found


def timings(
    workers: Workers,
    spec: RunSpec,
    rewritten: Sequence[Side],
    limits: Limits,
    rounds: int = ROUNDS,
    *,
    cached: bool = False,
) -> list[Timing | None]:
    """Measure the side of a spec and several rewritten ones in turn; None for one that fails.

    With `cached`, what was compiled before is taken from the disk, where only later calls count.
    """
    before: list[Latency] = []
    after: list[list[Latency] | None] = [[] for _ in rewritten]
    for _ in range(rounds):
        original = _measured(workers, spec, limits, cached)
        if original is None:
            return [None for _ in rewritten]
        before.append(original)
        for number, side in enumerate(rewritten):
            latencies = after[number]
            if latencies is not None:
                latency = _measured(workers, replace(spec, side=side), limits, cached)
                after[number] = None if latency is None else [*latencies, latency]
    return [None if found is None else Timing(tuple(before), tuple(found)) for found in after]


def _measured(workers: Workers, spec: RunSpec, limits: Limits, cached: bool) -> Latency | None:
    # A batch of one has the machine for itself.
    (outcome,) = workers.run([job("gbfix.verify.stopwatch:measure", limits, spec, cached)])
    if outcome.result is None:
        return None
    latency: Latency | None = pickle.loads(outcome.result)
    return latency
