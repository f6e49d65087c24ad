"""What is known of one target while it is verified, and the means to find out more.

A session has runs made in workers and has them compared; which runs are needed, and what they say of
the target, is decided by those who use it. It needs neither torch nor the user's code.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gbfix.dynamo.backends import default_backend
from gbfix.verify.arms import Seen
from gbfix.verify.jobs import Limits, Outcome
from gbfix.verify.messages import Findings, RunRecord, Runs, RunSpec
from gbfix.verify.options import Options
from gbfix.verify.probing import WAYS, Probe, job, record_of
from gbfix.verify.recipes import Inputs
from gbfix.verify.sharing import make_runs
from gbfix.verify.targets import Side
from gbfix.verify.verdict import Difference, Evidence, Kind, Status
from gbfix.verify.worker import Workers


class Stop(Exception):
    """The verdict is known before all runs are made.

    Attributes:
        shown: what a script should show: the difference, or the original's failure.
    """

    def __init__(
        self,
        status: Status,
        reason: str,
        differences: Sequence[Difference] = (),
        shown: Difference | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.differences = tuple(differences)
        self.shown = shown or next(iter(differences), None)


@dataclass
class Session:
    """One target, and the evidence that its runs have given so far.

    Attributes:
        inputs: those of all runs; found first, where none are given.
        generated: whether they were made up here.
        halves: types of half precision in which these reach more than they do otherwise.
        most_dims: how many dimensions tensors that are made up may have.
        ways: the original's eager calls, by the label of the way in which they were made.
        seen: the arms that the original's eager calls take, by the same label.
        varying: kinds and places in which the original differs from itself.
    """

    workers: Workers
    original: Side
    rewritten: Side
    inputs: Inputs | None = None
    options: Options = field(default_factory=Options)
    evidence: Evidence = field(default_factory=Evidence)
    remarks: tuple[Difference, ...] = ()
    ways: dict[str, Runs] = field(default_factory=dict)
    seen: dict[str, frozenset[Seen]] = field(default_factory=dict)
    generated: bool = False
    most_dims: int | None = None
    halves: tuple[str, ...] = ()
    varying: set[tuple[Kind, str]] = field(default_factory=set)

    @property
    def backend(self) -> str:
        """That of compiled runs."""
        return self.options.backend or default_backend()

    def spec(self, side: Side, way: str = "", **how: Any) -> RunSpec:
        """A run of one side in one of the ways of calling."""
        assert self.inputs is not None
        return RunSpec(
            side,
            self.inputs,
            dynamic=self.options.dynamic,
            device=self.options.device,
            **{"dtype": self.options.dtype, **WAYS[way], **how},
        )

    def run(self, specs: Iterable[RunSpec]) -> list[Outcome]:
        """Make runs, which cannot change what others show."""
        return make_runs(self.workers, list(specs), self.options.limits)

    def judged(self, runs: Sequence[tuple[Runs, str]]) -> tuple[Findings, ...]:
        """Have runs compared, each with what to add to the names of its modes."""
        if not runs:
            return ()
        limits = Limits(self.options.limits.seconds, None)
        comparing = job("gbfix.verify.judge:judge_all", limits, tuple(runs), self.options.leeway)
        comparing = replace(comparing, within=True)
        (outcome,) = self.workers.run([comparing])
        if outcome.result is None:
            raise Stop(Status.NOT_RUN, f"the comparison: {outcome.failure}")
        findings: tuple[Findings, ...] = pickle.loads(outcome.result)
        return findings

    def of_original(self, outcome: Outcome, mode: str) -> RunRecord:
        """The record of a run of the original; without one there is nothing to hold against it."""
        record = record_of(outcome)
        if record.failure is not None:
            raise Stop(Status.NOT_RUN, f"the original, {mode}: {record.failure}")
        return record

    def of_rewritten(self, outcome: Outcome, mode: str) -> RunRecord:
        """The record of a run of the rewritten side, which has to be one if the original's is."""
        record = record_of(outcome)
        if record.failure is None:
            return record
        sentence = f"the rewritten, {mode}: {record.failure}"
        if outcome.exhausted:
            raise Stop(Status.NOT_RUN, sentence)
        difference = Difference(mode, 0, Kind.EXCEPTION, "", record.failure)
        raise Stop(Status.DIFFERENT, sentence, [difference])

    def steady(self, differences: Iterable[Difference]) -> tuple[Difference, ...]:
        """Those that are not in a place where the original differs from itself."""
        return tuple(d for d in differences if (d.kind, d.place) not in self.varying)

    def probe(self, difference: Difference, *, alone: bool = False) -> Probe:
        """How to ask again for one difference; `alone` for one of the original to itself."""
        return Probe(
            self.original,
            None if alone else self.rewritten,
            difference.mode,
            self.spec(self.original),
            self.backend,
            self.options.leeway,
            self.options.limits,
        )
