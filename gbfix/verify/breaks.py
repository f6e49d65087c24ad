"""Whether one capture breaks less than another, and how many breaks that is in words."""

from __future__ import annotations

from gbfix.dynamo.records import Capture


def fewer_breaks(before: Capture, after: Capture) -> bool:
    """Whether a capture is better: fewer places, or else fewer frames skipped, or fewer breaks.

    A frame that is skipped hides the places behind the break, so that more places may come to light
    where it no longer is. It is better if fewer are skipped and fewer operators are left out.
    """
    if _skipped(after) < _skipped(before) and before.ran is not None and after.ran is not None:
        if after.ran.number_left_out < before.ran.number_left_out:
            return True

    def badness(capture: Capture) -> tuple[int, int, int]:
        return len(capture.sites), _skipped(capture), len(capture.breaks)

    return badness(after) < badness(before)


def told(capture: Capture) -> str:
    """The number of breaks in words; none at all is only good if something was compiled."""
    if not capture.graphs and capture.whole:
        return "nothing compiled"
    count = len(capture.sites) or len(capture.skips)
    skipped = len(capture.skips) if capture.sites else 0
    frames = f", {skipped} frame{'' if skipped == 1 else 's'} skipped" if skipped else ""
    return f"{count or 'no'} break{'' if count == 1 else 's'}{frames}"


def _skipped(capture: Capture) -> int:
    return len(capture.skips) + sum(b.kind != "splits" for b in capture.breaks)
