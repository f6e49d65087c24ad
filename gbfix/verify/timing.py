"""How long the first call and later ones take, original against rewritten, measured in alternation.

Every measurement is a process of its own, A B A B and so on, one at a time, so that a machine that gets
slower or faster meanwhile does it to both. Nothing is compared here but times.
"""

from __future__ import annotations

import pickle
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
    found: tuple[list[Latency], list[Latency]] = ([], [])
    for _ in range(rounds):
        for side, latencies in zip((spec.side, rewritten), found, strict=True):
            # A batch of one has the machine for itself.
            work = job("gbfix.verify.stopwatch:measure", limits, replace(spec, side=side))
            (outcome,) = workers.run([work])
            if outcome.result is None:
                return None
            latency: Latency | None = pickle.loads(outcome.result)
            if latency is None:
                return None
            latencies.append(latency)
    return Timing(tuple(found[0]), tuple(found[1]))
