"""Gets the inputs of a session: those that are given, or those that a worker finds.

It also says what they are to reach, which are the branches that the rewrite touches; the search itself
is in `gbfix.verify.inputs`.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, replace

from gbfix.verify.arms import Branch, concerned, rewritten_branches
from gbfix.verify.constants import decided_once
from gbfix.verify.messages import Generated, SearchSpec
from gbfix.verify.probing import job
from gbfix.verify.session import Session, Stop
from gbfix.verify.verdict import Status


@dataclass(frozen=True)
class Touched:
    """What a rewrite touches.

    Attributes:
        branches: those of the original of which both arms are wanted.
        files: those that the rewrite is about.
        decided: branches that are decided once, before any call.
    """

    branches: frozenset[Branch]
    files: frozenset[str]
    decided: frozenset[Branch]


def find_inputs(session: Session) -> None:
    """Have inputs searched for, if none are given or if stored ones may leave out arms.

    Raises:
        Stop: if there are none with which the original runs.
    """
    saved = session.inputs if session.inputs is not None and session.inputs.saved else None
    if session.inputs is not None and saved is None:
        return
    options, goal = session.options, touched(session)
    spec = SearchSpec(
        session.original,
        goal.branches,
        goal.files,
        "".join(text for _, text in session.rewritten.texts),
        goal.decided,
        options.search_seconds,
        options.device,
        options.dtype,
        session.most_dims,
        saved,
    )
    limits = replace(options.limits, seconds=options.limits.seconds + options.search_seconds)
    (outcome,) = session.workers.run([job("gbfix.verify.inputs:generate", limits, spec)])
    if outcome.result is None:
        if saved:  # what was stored is enough to run
            return
        raise Stop(Status.NOT_RUN, f"the search for inputs: {outcome.failure}")
    found: Generated = pickle.loads(outcome.result)
    if found.inputs is None:
        raise Stop(Status.NOT_RUN, str(found.failure))
    session.inputs = found.inputs
    session.generated = not saved
    session.halves = found.halves


def touched(session: Session) -> Touched:
    """What the rewrite touches, of what the target uses."""
    before, after = dict(session.original.texts), dict(session.rewritten.texts)
    versions = {path: (text, after.get(path, text)) for path, text in before.items()}
    mine, theirs = session.original.target.file, session.rewritten.target.file
    own = os.path.realpath(mine) if mine else None
    if own in before and theirs is not None:
        versions[own] = before[own], after.get(os.path.realpath(theirs), before[own])
    lines = concerned(before.items(), session.original.target.name.partition(".")[0])
    branches = {
        branch
        for path, (text, other) in versions.items()
        for branch in rewritten_branches(path, text, other)
        if any(branch.line in part for part in lines.get(path, ()))
    }
    changed = {path for path, (text, other) in versions.items() if text != other}
    decided = [decided_once(path, text, other) for path, (text, other) in versions.items()]
    return Touched(
        frozenset(branches),
        frozenset(changed | ({own} if own else set())),
        frozenset().union(*decided),
    )
