"""Joins a trace to the code: runs the static analysis where graphs broke and matches the two.

A place that the analysis knows becomes its finding, with the fixes on offer and the evidence of the
trace; any other becomes a finding with PyTorch's own name, explanation and hints. Neither torch nor the
user's code is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gbfix.analysis.observed import (
    Argument,
    FileSeen,
    FunctionSeen,
    Observed,
    TestSeen,
    arguments,
)
from gbfix.diagnoses import DIAGNOSES
from gbfix.findings import FileResult, Finding, Refusal, RunResult, Seen
from gbfix.trace.advice import advice
from gbfix.trace.model import Code, Effect, Frame, Known, Trace
from gbfix.trace.ownership import Owned, leads
from gbfix.trace.places import Place, places

# Breaks at which the value of a tensor decides: branching, and reading an element as a truth value.
_DECIDES = frozenset({"GB0170", "GB0171"})
# Breaks at which a tensor's data is read: for the shape of a result, or as a number or a list.
_READS = frozenset({"GB0033", "GB0036", "GB0109", "GB0124"})


@dataclass(frozen=True)
class Joined:
    """A trace as findings.

    Attributes:
        result: the files with a finding for each place, most costly first.
        unplaced: the places in files that were not looked at, or of which there is no source.
    """

    result: RunResult
    unplaced: tuple[Place, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all files, most costly first."""
        found = [finding for file in self.result.files for finding in file.findings]
        return tuple(sorted(found, key=lambda f: (-f.seen.cost if f.seen else 0, f.path, f.line)))

    @property
    def only(self) -> dict[Path, frozenset[tuple[int, int]]]:
        """The lines of the findings that fixes can be made for, for each file."""
        return {
            file.path.resolve(): frozenset((f.line, f.end_line) for f in file.findings)
            for file in self.result.files
        }


def observed(trace: Trace) -> Observed:
    """What the trace shows of the code, for the analysis."""
    tests: dict[Path, list[TestSeen]] = {}
    lines: dict[Path, set[int]] = {}
    reads: dict[Path, set[int]] = {}
    for one in trace.breaks:
        for frame in one.stack:
            lines.setdefault(Path(frame.file), set()).add(frame.line)
        # Where a line of PyTorch's decided (inside of `torch.equal`), the line that called it did.
        own = next((f for f in reversed(one.stack) if not leads(f.file)), None)
        if own is not None and one.reason.registry in _DECIDES and own is one.place:
            place = TestSeen(own.line, own.column, own.end_line, own.end_column)
            tests.setdefault(Path(own.file), []).append(place)
        if own is not None and one.reason.registry in _READS:
            reads.setdefault(Path(own.file), set()).add(own.line)
    functions = _functions(trace)
    files = {*tests, *lines, *functions}
    return Observed(
        {
            path: FileSeen(
                tuple(tests.get(path, ())),
                tuple(functions.get(path, ())),
                frozenset(lines.get(path, ())),
                frozenset(reads.get(path, ())),
            )
            for path in files
        }
    )


def join(trace: Trace, result: RunResult, owned: Owned) -> Joined:
    """Match the places of a trace with the findings of a run over the files at hand.

    The run has to have been given what was `observed`.
    """
    files = {file.path.resolve(): file for file in result.files}
    found: dict[Path, list[Finding]] = {}
    unplaced: list[Place] = []
    for place in places(trace, owned):
        matched = _match(place, files, owned)
        path = matched.path.resolve() if matched is not None else Path(place.frame.file)
        if matched is None and path in files:
            matched = _foreign(place, files[path])
        if matched is None:
            unplaced.append(place)
            continue
        _add(found.setdefault(path, []), replace(matched, seen=place.seen))
    for path, finding in _behind_skips(trace, files, owned):
        there = found.setdefault(path, [])
        if all(finding.place != other.place for other in there):
            there.append(finding)
    changed = [
        replace(file, findings=tuple(sorted(found.get(path, ()), key=_cost)))
        for path, file in files.items()
    ]
    return Joined(replace(result, files=tuple(changed)), tuple(unplaced))


def _behind_skips(
    trace: Trace, files: Mapping[Path, FileResult], owned: Owned
) -> Iterator[tuple[Path, Finding]]:
    """What reading alone finds in frames that were skipped, behind the break that Dynamo met."""
    for one in trace.breaks:
        skips = one.effect in (Effect.SKIPS_FRAME, Effect.SKIPS_REST)
        file = files.get(Path(one.code.file)) if skips and owned(one.code.file) else None
        frames = [f for f in one.stack if (f.file, f.function) == (one.code.file, one.code.name)]
        if file is None or not frames:
            continue
        span = _lines_of(file, one.code)
        for finding in file.findings:
            is_in = finding.function.rpartition(".")[2] == one.code.function
            if finding.certain and is_in and frames[0].line < finding.line in span:
                effect = f"not met: behind line {frames[0].line}, where the frame is skipped"
                calls = trace.calls.get(one.entry or "", 0)
                seen = Seen(None, "", "", (), effect, fragments=0, times=0, calls=calls)
                yield Path(one.code.file), replace(finding, seen=seen)


def _lines_of(file: FileResult, code: Code) -> range:
    """The lines of the function that was compiled."""
    for node in ast.walk(ast.parse(file.before.text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.function:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first <= code.line <= node.lineno:
                return range(first, (node.end_lineno or node.lineno) + 1)
    return range(0)


def with_evidence(result: RunResult, joined: Joined) -> RunResult:
    """The findings of a rewriting run with what the trace tells of each, most costly first."""
    told = {
        (f.path, f.line, f.column, f.code): f.seen for f in joined.findings if f.seen is not None
    }
    files: list[FileResult] = []
    for file in result.files:
        findings = [
            replace(f, seen=told.get((f.path, f.line, f.column, f.code))) for f in file.findings
        ]
        foreign = [f for f in joined.findings if f.path == file.path and not _is_known(f)]
        files.append(replace(file, findings=tuple(sorted([*findings, *foreign], key=_cost))))
    return replace(result, files=tuple(files))


def _is_known(finding: Finding) -> bool:
    return finding.code in DIAGNOSES


def _cost(finding: Finding) -> tuple[int, int, int]:
    return (-finding.seen.cost if finding.seen else 0, finding.line, finding.column)


def _add(findings: list[Finding], new: Finding) -> None:
    """Add a finding, or what it costs to one for the same site that is there already."""
    for number, old in enumerate(findings):
        if (old.line, old.column, old.code) == (new.line, new.column, new.code) and (
            old.seen is not None and new.seen is not None and old.seen.library == new.seen.library
        ):
            together = replace(
                old.seen,
                fragments=max(old.seen.fragments, new.seen.fragments),
                times=old.seen.times + new.seen.times,
            )
            findings[number] = replace(old, seen=together)
            return
    findings.append(new)


def _match(place: Place, files: Mapping[Path, FileResult], owned: Owned) -> Finding | None:
    """The finding at a place, or at a call that leads to it and is a site by itself."""
    for depth, frame in enumerate(place.path):
        file = files.get(Path(frame.file))
        if file is None:
            continue
        there = [f for f in file.findings if _covers(f, frame)]
        if depth:
            # Further out, only a call that cannot be part of a graph is what breaks.
            there = [f for f in there if f.code.startswith("GBF2") and _speaks_of(f, place)]
        if there:
            return min(there, key=lambda f: (not _speaks_of(f, place), _size(f)))
    return None


def _speaks_of(finding: Finding, place: Place) -> bool:
    diagnosis = DIAGNOSES.get(finding.code)
    return diagnosis is not None and place.reason.registry in diagnosis.registry


def _covers(finding: Finding, frame: Frame) -> bool:
    if not finding.line <= frame.line <= finding.end_line:
        return False
    if frame.column is None or frame.end_column is None:
        return True
    start, end = (finding.line, finding.column), (finding.end_line, finding.end_column)
    first = (frame.line, frame.column)
    last = (frame.end_line or frame.line, frame.end_column)
    return start < last and first < end


def _size(finding: Finding) -> tuple[int, int]:
    return finding.end_line - finding.line, finding.end_column - finding.column


def _foreign(place: Place, file: FileResult) -> Finding:
    """A finding in PyTorch's own words, for a place that the analysis has no site for."""
    frame = place.frame
    last = len(file.before.line_starts)
    line = min(max(frame.line, 1), last)
    text = file.before.line_text(line)
    start = frame.column or len(text) - len(text.lstrip()) + 1
    end = frame.end_column if frame.end_column and frame.end_line in (None, line) else len(text) + 1
    reason = place.reason
    name = re.sub(r"[^a-z0-9]+", "-", reason.name.lower()).strip("-")[:60] or "graph-break"
    where = f" in {place.library}" if place.library is not None else ""
    said = reason.explanation.splitlines()[0] if reason.explanation else reason.name
    return Finding(
        file.path,
        line,
        start,
        line,
        max(end, start + 1),
        reason.registry or "GB????",
        name,
        f"the graph breaks{where}: {said}",
        frame.function,
        True,
        refusals=tuple(Refusal("trace", code, text) for code, text in advice(place)),
    )


def _functions(trace: Trace) -> dict[Path, list[FunctionSeen]]:
    """What the parameters of functions held, over all recorded calls."""
    calls: dict[tuple[str, str, int], list[Mapping[str, Argument]]] = {}
    for signature in trace.signatures:
        code = signature.code
        if code.name == code.function:
            held = _held(signature.parameters)
            calls.setdefault((code.file, code.name, code.line), []).append(held)
    found: dict[Path, list[FunctionSeen]] = {}
    for (file, name, line), seen in calls.items():
        found.setdefault(Path(file), []).append(FunctionSeen(name, line, arguments(seen)))
    return found


def _held(known: Sequence[Known]) -> dict[str, Argument]:
    return {
        one.name: Argument(one.kind, frozenset({one.dtype} if one.dtype else ())) for one in known
    }


def files_of(trace: Trace, owned: Owned) -> Iterable[Path]:
    """The user's files that stacks of breaks went through."""
    names = {frame.file for one in trace.breaks for frame in one.stack if owned(frame.file)}
    return sorted(path for path in map(Path, names) if path.is_file())
