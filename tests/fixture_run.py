"""What a fixture asks of the equivalence checker, and the verdict that the checker gives for it.

A case becomes two sides, inputs and what its fixes may change when compiled. Nothing is run or
compared here.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from gbfix.dynamo.records import Capture
from gbfix.source.text import SourceFile
from gbfix.verify.checker import capture_of, verify_sides
from gbfix.verify.options import Options
from gbfix.verify.recipes import Inputs
from gbfix.verify.targets import Side, of_file
from gbfix.verify.verdict import Difference, Kind, Status, Verdict
from gbfix.verify.worker import Workers
from tests.fixture_case import FixtureCase

STUBS = Path(__file__).parent / "stubs"


def verdict(case: FixtureCase, workers: Workers) -> Verdict:
    """The checker's verdict on a fixture that is rewritten."""
    options = Options(
        "eager",
        ("aot_eager",),
        fullgraph_before=False,
        leeway=leeway(case),
        both_dynamic=False,
        shrink_seconds=0,
    )
    return verify_sides(
        workers, side(case, case.before), side(case, case.after), inputs(case), options
    )


def captured(case: FixtureCase, workers: Workers) -> Capture:
    """What Dynamo makes of the original."""
    return capture_of(workers, side(case, case.before), inputs(case), Options("eager"))


def side(case: FixtureCase, path: Path) -> Side:
    """A file of the case in the place of `before.py`, in a project of its own."""
    name = re.match(r"\w+", case.target)
    assert name is not None, case.target
    target = of_file(case.before, name.group())
    folders = (*target.folders, str(STUBS))
    text = SourceFile.decode(path, path.read_bytes()).text
    return Side(
        replace(target, folders=folders, expression=case.target),
        ((os.path.realpath(case.before), text),),
    )


def inputs(case: FixtureCase) -> Inputs:
    """The case's expressions."""
    return Inputs(expressions=case.inputs, once=True)


def leeway(case: FixtureCase) -> frozenset[Kind]:
    """What compiled runs may change: what compiling itself may, and what the case says."""
    allowed = {Kind.STATE_ADDED, Kind.STRIDE, Kind.ALIAS_LOST}
    if case.exceptions == "review":
        allowed |= {Kind.EXCEPTION_TYPE}
    if case.gradients == "review":
        allowed |= {Kind.GRADIENT_ZERO, Kind.REQUIRES_GRAD_GAINED}
    if case.settings.get("check") == "skip":
        allowed |= {Kind.EXCEPTION_SKIPPED}
    if case.may_drop_effects:
        allowed |= {Kind.EFFECT_DROPPED}
    return frozenset(allowed)


def complaints(case: FixtureCase, found: Verdict) -> list[str]:
    """What a verdict leaves to be desired; nothing, for a good fixture."""
    partly = case.arms == "some" and found.status is Status.PARTLY_VERIFIED
    stale = found.status is Status.DIFFERENT and all(_is_stale(d, case) for d in found.differences)
    if found.status is not Status.VERIFIED and not partly and not stale:
        return [f"{found.status.value}: {found.reason}", *map(str, found.differences)]
    before, after = found.evidence.before, found.evidence.after
    assert before is not None and after is not None
    said = []
    if len(before.breaks) != case.breaks_before:
        said.append(f"{len(before.breaks)} breaks before, not {case.breaks_before}")
    if len(after.breaks) >= len(before.breaks):
        said.append(f"{len(before.breaks)} breaks before, {len(after.breaks)} after")
    if not after.graphs:
        said.append("nothing is compiled")
    if case.expects_fullgraph and not (after.fullgraph and after.whole):
        said.append(f"no full graph: {after.fullgraph_error or after.breaks}")
    for remark in found.remarks:
        attribute = remark.place.removeprefix("state self.")
        if remark.kind is Kind.STATE_ADDED and remark.place != attribute:
            if not any(attribute.partition("[")[0].endswith(n) for n in case.new_state):
                said.append(str(remark))
    return list(dict.fromkeys(said))


def _is_stale(difference: Difference, case: FixtureCase) -> bool:
    """Whether it is in state that the case says compiled code no longer writes."""
    name = re.match(r"state (?:self\.|global )(\w+)", difference.place)
    compiled = difference.mode.startswith("compiled")
    return compiled and name is not None and name.group(1) in case.stale_state
