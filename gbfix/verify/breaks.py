"""Whether one capture breaks less than another, and how many breaks that is in words."""

from __future__ import annotations

from gbfix.dynamo.records import Capture


def fewer_breaks(before: Capture, after: Capture) -> bool:
    """Whether a capture is better: fewer places, or else fewer frames skipped, or fewer breaks."""

    def badness(capture: Capture) -> tuple[int, int, int]:
        skipped = len(capture.skips) + sum(b.kind != "splits" for b in capture.breaks)
        return len(capture.sites), skipped, len(capture.breaks)

    return badness(after) < badness(before)


def told(capture: Capture) -> str:
    """The number of breaks in words; none at all is only good if something was compiled."""
    if not capture.graphs and capture.whole:
        return "nothing compiled"
    count = len(capture.sites) or len(capture.skips)
    return f"{count or 'no'} break{'' if count == 1 else 's'}"
