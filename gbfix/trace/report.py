"""The report of a trace for people, and as JSON: what broke where, what it costs, whose failures.

It turns a joined trace into lines and knows nothing of terminals.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gbfix import __version__
from gbfix.findings import Finding
from gbfix.report.spans import Line, Span, line
from gbfix.trace.encoding import encode
from gbfix.trace.joining import Joined
from gbfix.trace.model import Failure, Recompile, Trace, Verdict
from gbfix.trace.places import Place, unplaced_skips

VERSION = 1
_MOST_GUARDS = 3
HIDDEN = (
    "A frame that is skipped is not compiled at all, so what else breaks in it was not met. What "
    "reading finds there comes last; trace again once it is fixed."
)


def lines(trace: Trace, joined: Joined) -> Iterator[Line]:
    """Every place with its cost, then failures, recompiles and what else was noted."""
    findings = joined.findings
    for finding in findings:
        yield from _finding(finding)
    for place in joined.unplaced:
        yield from _place(place)
    if any(finding.seen is not None and finding.seen.hides for finding in findings):
        yield line(HIDDEN)
    if findings or joined.unplaced:
        yield line()
    names = {entry.id: entry.name for entry in trace.entries}
    for failure in trace.failures:
        yield from _failure(failure, names)
    yield from _recompiles(trace)
    for sentence in unplaced_skips(trace):
        yield line(sentence)
    for note in trace.notes:
        yield line(Span("note: ", "yellow"), note)
    yield from _summary(trace, joined)


def _finding(finding: Finding) -> Iterator[Line]:
    seen = finding.seen
    assert seen is not None
    offers = ", ".join(f"{o.transform} ({o.safety.label})" for o in finding.offers)
    place = f"{_short(str(finding.path))}:{finding.line}:{finding.column}:"
    entry = f" {seen.registry}" if seen.registry and seen.registry != finding.code else ""
    yield line(
        Span(place, "bold"), " ", Span(finding.code, "bold red"), f"{entry} ",
        Span(finding.name, "cyan"), f" {finding.message} ",
        f"[{seen.cost_in_words}; {'fixable: ' + offers if offers else 'not fixable'}]",
    )  # fmt: skip
    if finding.offers:
        return
    for refusal in finding.refusals:
        yield line(
            f"    {refusal.transform}: ", Span(refusal.code, "yellow"), f": {refusal.sentence}"
        )


def _place(place: Place) -> Iterator[Line]:
    from gbfix.trace.advice import advice

    frame = place.frame
    column = f":{frame.column}" if frame.column else ""
    behind = f" in {_short(str(place.library))}" if place.library is not None else ""
    yield line(
        Span(f"{_short(frame.file)}:{frame.line}{column}:", "bold"), " ",
        Span(place.reason.registry or "GB????", "bold red"), " ",
        Span(place.reason.name, "cyan"), f"{behind} [{place.seen.cost_in_words}]",
    )  # fmt: skip
    for code, sentence in advice(place):
        if code != "no-diagnosis":
            yield line("    ", Span(code, "yellow"), f": {sentence}")


def _failure(failure: Failure, names: dict[str, str]) -> Iterator[Line]:
    whose = {
        Verdict.USER_ERROR: "the program's own error",
        Verdict.GRAPH_BREAK: "a graph break where none is allowed",
        Verdict.RECOMPILE: "a recompilation where the stance allows none",
        Verdict.COMPILER_FAILURE: "a failure of the compiler",
        Verdict.UNKNOWN: "of unknown origin",
    }[failure.verdict]
    yield line(
        Span(f"{names.get(failure.entry, failure.entry)}", "bold"),
        f" raised {failure.type}{_times(failure.times)}: ",
        Span(whose, "bold"),
        f" ({failure.evidence}): {failure.message}",
    )


def _recompiles(trace: Trace) -> Iterator[Line]:
    """Each function that was compiled again, the parts that are resumed counted with it."""
    functions: dict[tuple[str, str], list[Recompile]] = {}
    for one in trace.recompiles:
        functions.setdefault((one.code.file, one.code.function), []).append(one)
    for (file, function), found in functions.items():
        first = min(one.code.line for one in found)
        # Behind the sign stands the line of the program that asked, cut off at some column.
        asked = (guard.partition("  # ")[0].rstrip() for one in found for guard in one.guards)
        guards = list(dict.fromkeys(asked))
        more = f" and {len(guards) - _MOST_GUARDS} more" if len(guards) > _MOST_GUARDS else ""
        yield line(
            Span(f"{_short(file)}:{first}:", "bold"),
            f" {function} was compiled again{_times(sum(one.times for one in found))}: "
            f"{'; '.join(guards[:_MOST_GUARDS])}{more}",
        )


def _summary(trace: Trace, joined: Joined) -> Iterator[Line]:
    found = [finding for finding in joined.findings if finding.seen and finding.seen.met]
    places = len(found) + len(joined.unplaced)
    fixable = sum(bool(finding.offers) for finding in found)
    met = sum(one.times for one in trace.breaks)
    calls = sum(entry.calls for entry in trace.entries)
    if not places:
        what = "No graph breaks" if trace.entries or trace.source != "gbfix" else "Nothing compiled"
        yield line(Span(what, "bold green"), f" in {_count(calls, 'compiled call')}.")
        return
    yield line(
        Span(f"{_count(places, 'place')} broke the graph", "bold"),
        f" ({_count(met, 'break')} in {_count(calls, 'compiled call')}); {fixable} fixable.",
    )


def document(trace: Trace, joined: Joined) -> str:
    """The same as one JSON document, described in docs/trace.md."""
    from gbfix.report.json import finding_entry as encoded

    content: dict[str, Any] = {
        "version": VERSION,
        "gbfix": __version__,
        "command": "trace",
        "findings": [encoded(finding) for finding in joined.findings],
        "unplaced": [
            {
                "path": place.frame.file,
                "line": place.frame.line,
                "column": place.frame.column,
                "library": str(place.library) if place.library is not None else None,
                "reason": encode(place.reason),
                "effect": place.effect.value,
                "fragments": place.fragments,
                "times": place.times,
                "calls": place.calls,
            }
            for place in joined.unplaced
        ],
        "failures": [encode(failure) for failure in trace.failures],
        "recompiles": [encode(recompile) for recompile in trace.recompiles],
        "skips": [encode(skip) for skip in trace.skips],
        "entries": [encode(entry) for entry in trace.entries],
        "notes": list(trace.notes),
    }
    return json.dumps(content, indent=2) + "\n"


def _short(path: str) -> str:
    """A path relative to the current folder, if it is in it."""
    own = str(Path.cwd()) + os.sep
    return path.removeprefix(own)


def _times(number: int) -> str:
    return f" {number} times" if number > 1 else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
