"""Which runs are made one after the other in one process, and having them made so.

What a run leaves behind in its process must not reach another, where it could make up for what that
one loses; so each has a process of its own, but for two cases. Both are for one file only, which is
imported anew, and last as long as a run is seen to leave nothing.

A run that has to be one graph comes after the same one that need not. Where nothing breaks Dynamo
traces both in the same way, so that what is lost is lost in the first as well, and where something
does, the second is not compared. And where there are fewer workers than processes to be started, the
eager runs of one side share one, and its compiled runs another, if its text shows that it leaves
nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

from gbfix.verify.jobs import Job, Limits, Outcome
from gbfix.verify.leftovers import leaves_nothing
from gbfix.verify.messages import RunSpec
from gbfix.verify.probing import job
from gbfix.verify.targets import Side
from gbfix.verify.worker import Workers


def make_runs(workers: Workers, specs: Sequence[RunSpec], limits: Limits) -> list[Outcome]:
    """Make runs, none of which changes what another one shows."""
    outcomes: dict[int, Outcome] = {}
    groups = _groups(specs)
    if len(groups) > workers.parallel:
        groups = _by_side(specs, groups)
    jobs = [_job([specs[number] for number in group], limits) for group in groups]
    for group, outcome in zip(groups, workers.run(jobs), strict=True):
        if len(group) == 1:
            outcomes[group[0]] = outcome
        elif outcome.result is not None:
            results: tuple[bytes, ...] = pickle.loads(outcome.result)
            outcomes |= zip(group, map(Outcome, results), strict=False)
    # One of a group may have ended its process, or left something there.
    missing = [number for number in range(len(specs)) if number not in outcomes]
    alone = [_job([specs[number]], limits) for number in missing]
    outcomes |= zip(missing, workers.run(alone), strict=True)
    return [outcomes[number] for number in range(len(specs))]


def _job(specs: Sequence[RunSpec], limits: Limits) -> Job:
    if len(specs) == 1:
        return job("gbfix.verify.execute:run", limits, specs[0])
    return job("gbfix.verify.consecutive:run_each", limits, *specs)


def _groups(specs: Sequence[RunSpec]) -> list[list[int]]:
    """The numbers of the runs that share a process, in the order in which they are made there."""
    first: dict[RunSpec, int] = {}
    for number, spec in enumerate(specs):
        if spec.backend is not None and not spec.fullgraph and _is_built_anew(spec):
            first.setdefault(_as_one_graph(spec), number)
    groups: dict[int, list[int]] = {}
    for number, spec in enumerate(specs):
        key = first.pop(_as_one_graph(spec), number) if spec.fullgraph else number
        groups.setdefault(key, []).append(number)
    return [sorted(group, key=lambda number: specs[number].fullgraph) for group in groups.values()]


def _by_side(specs: Sequence[RunSpec], groups: Sequence[list[int]]) -> list[list[int]]:
    """Groups put together, in their order: the eager runs of a side, and its compiled runs."""
    together: dict[tuple[Side, bool] | int, list[int]] = {}
    for group in groups:
        first = specs[group[0]]
        texts = [text for _, text in first.side.texts]
        shared = all(map(_is_built_anew, (specs[n] for n in group))) and leaves_nothing(*texts)
        key = (first.side, first.backend is None) if shared else group[0]
        together.setdefault(key, []).extend(group)
    return list(together.values())


def _as_one_graph(spec: RunSpec) -> RunSpec:
    return replace(spec, backend="", fullgraph=True)


def _is_built_anew(spec: RunSpec) -> bool:
    """Whether all that a run is made of is made again in each run: one file, and its arguments.

    What fails on a device takes it from the whole process.
    """
    if spec.device != "cpu":
        return False
    target, inputs = spec.side.target, spec.inputs
    kept = target.pickled or target.state or target.init or inputs.factory or inputs.saved
    return not kept and target.file is not None and len(spec.side.texts) == 1
