"""Keeps of a run only the files whose every fix is verified.

Where a target does not pass, the transforms that made its fixes are left out one after the other, so
that a site's next fix has its turn; a file for which nothing passes stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gbfix.delivery import withheld
from gbfix.findings import FileResult, RunResult
from gbfix.verify.checker import Options, verify_sides
from gbfix.verify.project import pairs
from gbfix.verify.verdict import Status, Verdict, all_verified
from gbfix.verify.worker import Workers

# Runs the engine again on one file of the result, without some transforms.
Rerun = Callable[[FileResult, tuple[str, ...]], FileResult]
_OTHER_FIX_MAY_HELP = (Status.DIFFERENT, Status.NO_FEWER_BREAKS)


def keep_verified(
    workers: Workers, result: RunResult, options: Options, rerun: Rerun
) -> tuple[RunResult, tuple[Verdict, ...]]:
    """The result with all that did not pass withheld, and the verdicts, the last for each target."""
    files: list[FileResult] = []
    verdicts: list[Verdict] = []
    for file in result.files:
        if file.changed:
            file, found = _best(workers, result, file, options, rerun)
            verdicts += found
        files.append(file)
    return replace(result, files=tuple(files)), tuple(verdicts)


def _best(
    workers: Workers, result: RunResult, file: FileResult, options: Options, rerun: Rerun
) -> tuple[FileResult, list[Verdict]]:
    left_out: tuple[str, ...] = ()
    first: list[Verdict] | None = None
    current = file
    while current.changed:
        asked = pairs(result, current)
        verdicts = [
            verify_sides(workers, pair.original, pair.rewritten, None, options) for pair in asked
        ]
        if all_verified(verdicts):
            return current, verdicts
        first = first or verdicts
        failed = {
            pair.original.target.name
            for pair, verdict in zip(asked, verdicts, strict=True)
            if verdict.status in _OTHER_FIX_MAY_HELP
        }
        suspects = [
            finding.applied.transform
            for finding in current.findings
            if finding.applied is not None and finding.function.partition(".")[0] in failed
        ]
        if not suspects:
            break
        left_out = (*left_out, suspects[0])
        current = rerun(file, left_out)
    # What is told is why the first choice did not pass.
    told = first or []
    worst = next((verdict for verdict in told if not verdict.verified), None)
    reason = f"{worst.status.value}: {worst.reason}" if worst else "nothing could be run"
    return withheld(file, "not-verified", reason), told
