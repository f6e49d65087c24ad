"""The table of `apply --tune`: what was tried at each site, how fast it is, and what was chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gbfix.dynamo.records import Capture
from gbfix.report.spans import Line, Span, line
from gbfix.verify.breaks import told
from gbfix.verify.choosing import Candidate
from gbfix.verify.tuning import Tried

_HEADER = ("site", "candidate", "verdict", "breaks", "later calls, times the original", "")


def lines(tried: Sequence[Tried], backend: str, device: str) -> Iterator[Line]:
    """The table, and a sentence for each site that stays as it is since fixes are slower."""
    if not tried:
        yield line("No site has fixes to choose between.")
        return
    rows: list[tuple[str, ...]] = [_HEADER]
    for site in tried:
        for number, candidate in enumerate(site.candidates):
            place = _short(site.place) if not number else ""
            rows.append((place, *_row(candidate, site.chosen)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    for number, row in enumerate(rows):
        text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield line(Span(text.rstrip(), "bold" if not number or row[-1] else ""))
    yield line(
        "Medians and ranges over pairs of processes, measured in alternation with the original, "
        f"backend {backend} on {device}."
    )
    for site in tried:
        if site.why_left:
            yield line(f"{_short(site.place)}: left as it is: {site.why_left}.")


def _row(candidate: Candidate, chosen: Candidate | None) -> tuple[str, ...]:
    verdict = candidate.verdict
    latency = candidate.latency
    return (
        candidate.name,
        "the original" if candidate.original else verdict.status.value if verdict else "",
        "" if verdict is None else _breaks(verdict.evidence.before, verdict.evidence.after),
        "1" if candidate.original else str(latency) if latency is not None else "not measured",
        "chosen" if candidate is chosen else "",
    )


def _breaks(before: Capture | None, after: Capture | None) -> str:
    if before is None or after is None:
        return ""
    return f"{told(before)} -> {told(after)}"


def _short(text: str) -> str:
    """A text without the current folder in its paths."""
    return text.replace(f"{Path.cwd()}/", "")
