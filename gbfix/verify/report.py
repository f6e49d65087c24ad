"""Verdicts as lines for people and as JSON for tools."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gbfix import __version__
from gbfix.dynamo.records import Break, Capture
from gbfix.report.spans import Line, Span, line
from gbfix.verify.latency import Timing
from gbfix.verify.launches import Launches
from gbfix.verify.verdict import Difference, Reproduction, Status, Verdict

VERSION = 1
_MOST_LINES = 6
_STYLES = {Status.VERIFIED: "bold green", Status.PARTLY_VERIFIED: "bold yellow"}


def lines(verdicts: Sequence[Verdict]) -> Iterator[Line]:
    """Each verdict with its evidence, and how many are verified."""
    for verdict in verdicts:
        style = _STYLES.get(verdict.status, "bold red")
        status = Span(verdict.status.value, style)
        yield line(
            Span(_short(verdict.target), "bold"), ": ", status, f": {_short(verdict.reason)}"
        )
        for text in _details(verdict):
            yield line("    " + text)
    good = sum(verdict.verified for verdict in verdicts)
    yield line(f"{good} of {len(verdicts)} verified.")


def _details(verdict: Verdict) -> Iterator[str]:
    evidence = verdict.evidence
    if evidence.calls:
        ways = ", with gradients" if evidence.gradients else ""
        ways += ", in inference" if evidence.inference else ""
        ways += "".join(f", in {name}" for name in evidence.halves)
        yield (
            f"{evidence.calls} calls with {len(evidence.inputs)} inputs{ways}, backend "
            f"{evidence.backend} on {evidence.device}, {evidence.seconds:.1f} s"
        )
    if evidence.made_with is not None:
        yield f"constructed with {evidence.made_with}, which were guessed"
    for name, capture, static in (
        ("before", evidence.before, evidence.before_static),
        ("after", evidence.after, evidence.after_static),
    ):
        if capture is not None:
            yield f"{name}: {_captured(capture)}"
            yield from _places(capture)
        if static is not None:
            yield f"{name}, dynamic=False: {_captured(static)}"
            if capture is None or static.sites != capture.sites:
                yield from _places(static)
    if evidence.timing is not None:
        yield from _timed(evidence.timing)
    for name, launches in (
        ("before", evidence.launches_before),
        ("after", evidence.launches_after),
    ):
        if launches is not None:
            yield f"{name}: {_launched(launches)}"
    for arm in evidence.arms.missing:
        yield f"arm not run: {_short(arm)}"
    yield from _grouped("differs", verdict.differences, evidence.inputs)
    if verdict.reproduction is not None:
        yield from _reproduced(verdict.reproduction)
    yield from _grouped("compiled only", verdict.remarks, evidence.inputs)


def _reproduced(found: Reproduction) -> Iterator[str]:
    tries = f"after {_count(found.tries, 'try', 'tries')}"
    more = "" if found.complete else ", perhaps not the smallest"
    if len(found.calls) == 1:
        yield f"shown by {_arguments(found.calls[0])} ({tries}{more})"
    elif found.calls:
        yield f"shown by {len(found.calls)} calls in turn ({tries}{more}):"
        yield from (f"  {_arguments(call)}" for call in found.calls)
    if found.path is not None:
        yield f"script: {_short(found.path)}"


def _arguments(code: str) -> str:
    """The code of `(args, kwargs)`, without the names if there are none."""
    return code[1:-5] if code.endswith(", {})") else code


def _timed(timing: Timing) -> Iterator[str]:
    rounds = f"median and range of {_count(len(timing.before), 'pair')} of processes"
    for name, ratio, before, after in (
        ("first call", timing.first, timing.before[0].first, timing.after[0].first),
        ("later calls", timing.steady, timing.before[0].steady, timing.after[0].steady),
    ):
        seconds = f"{_time(before)} and {_time(after)} in the first"
        yield f"{name}: {ratio} times the original's, {rounds}; {seconds}"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _places(capture: Capture) -> Iterator[str]:
    """Where it broke, and the frames that were skipped."""
    breaks = {found.site: found for found in capture.breaks}
    yield from (f"  break at {_broken(found)}" for found in breaks.values())
    yield from (f"  {_short(str(skip))}" for skip in dict.fromkeys(capture.skips))


def _broken(found: Break) -> str:
    """A break in one line; PyTorch's explanation is in the JSON."""
    entry = "".join(f"{name} " for name in (found.diagnosis, found.registry) if name)
    return f"{_short(found.file)}:{found.line}: {entry}{found.reason.partition(':')[0]}"


def _captured(capture: Capture) -> str:
    parts = [
        _count(capture.graphs, "graph"),
        _count(capture.operators, "operator"),
        f"{_count(len(capture.breaks), 'break')} at {_count(len(capture.sites), 'place')}",
    ]
    if capture.skips:
        parts.append(f"{_count(len(capture.skips), 'frame')} skipped")
    if capture.recompiles:
        parts.append(f"{_count(capture.recompiles, 'recompile')} in four calls")
    if capture.ran is not None:
        left = capture.ran.number_left_out
        names = [name for name, _ in capture.ran.left_out]
        told = f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""
        parts.append(f"{left} of {left + capture.ran.captured} operator runs left out{told}")
    if capture.fullgraph is not None:
        parts.append(f"fullgraph {_whole(capture)}")
    return ", ".join(parts)


def _whole(capture: Capture) -> str:
    """Whether there is one graph: yes, no, or in how many of the calls."""
    taken = sum(capture.fullgraph_calls)
    if capture.fullgraph or not taken:
        return "yes" if capture.fullgraph else "no"
    return f"in {taken} of {_count(len(capture.fullgraph_calls), 'call')}"


def _launched(launches: Launches) -> str:
    """What a call asks of the device."""
    return (
        f"{launches.syncs_a_call:g} host syncs and {launches.graphs_a_call:g} CUDA-graph launches "
        "a call"
    )


def _grouped(title: str, differences: Sequence[Difference], inputs: Sequence[str]) -> Iterator[str]:
    """One line for what is the same in several calls."""
    groups: dict[tuple[str, str, str], list[Difference]] = {}
    for difference in differences:
        key = difference.mode, difference.kind.value, difference.place
        groups.setdefault(key, []).append(difference)
    for number, (first, *rest) in enumerate(groups.values()):
        if number == _MOST_LINES:
            yield f"{title}: {len(groups) - number} more"
            return
        given = inputs[first.call % len(inputs)] if inputs else ""
        others = f"; and in {_count(len(rest), 'more call')}" if rest else ""
        yield f"{title}: {first}, for {given}{others}"


def _count(number: int, name: str, names: str = "") -> str:
    return f"{number} {name if number == 1 else names or name + 's'}"


def _short(text: str) -> str:
    """A text without the current folder in its paths."""
    return text.replace(f"{Path.cwd()}/", "")


def document(verdicts: Sequence[Verdict]) -> str:
    """All verdicts with all their evidence, as JSON."""
    content = {
        "version": VERSION,
        "gbfix": __version__,
        "command": "verify",
        "verdicts": [_verdict(verdict) for verdict in verdicts],
        "summary": {
            status.value: sum(verdict.status is status for verdict in verdicts) for status in Status
        },
    }
    return json.dumps(content, indent=2) + "\n"


def _verdict(verdict: Verdict) -> dict[str, Any]:
    evidence = verdict.evidence
    return {
        "target": verdict.target,
        "status": verdict.status.value,
        "verified": verdict.verified,
        "reason": verdict.reason,
        "differences": [asdict(difference) for difference in verdict.differences],
        "remarks": [asdict(difference) for difference in verdict.remarks],
        "reproduction": asdict(verdict.reproduction) if verdict.reproduction else None,
        "evidence": {
            "backend": evidence.backend,
            "device": evidence.device,
            "inputs": list(evidence.inputs),
            "made_with": evidence.made_with,
            "calls": evidence.calls,
            "gradients": evidence.gradients,
            "inference": evidence.inference,
            "halves": list(evidence.halves),
            "arms": {
                "covered": evidence.arms.covered,
                "total": evidence.arms.total,
                "missing": list(evidence.arms.missing),
            },
            "before": _capture(evidence.before),
            "after": _capture(evidence.after),
            "before_static": _capture(evidence.before_static),
            "after_static": _capture(evidence.after_static),
            "timing": _timing(evidence.timing),
            "launches_before": _launches(evidence.launches_before),
            "launches_after": _launches(evidence.launches_after),
            "seconds": round(evidence.seconds, 3),
        },
    }


def _timing(timing: Timing | None) -> dict[str, Any] | None:
    """The ratios, and the seconds that they are made of."""
    if timing is None:
        return None
    return {"first": asdict(timing.first), "steady": asdict(timing.steady), **asdict(timing)}


def _capture(capture: Capture | None) -> dict[str, Any] | None:
    return None if capture is None else asdict(capture)


def _launches(found: Launches | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {"syncs": found.syncs_a_call, "cuda_graph_launches": found.graphs_a_call}
