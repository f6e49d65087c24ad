"""A baseline: the findings that a code base had when it began, which are not reported again.

The file counts findings by content, for each file, so that moved lines change nothing. It is only
ever shortened: what was fixed is taken out, and what is new is reported.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gbfix.errors import UserError
from gbfix.findings import Finding, RunResult
from gbfix.report.fingerprints import fingerprint

VERSION = 1
Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Compared:
    """A run held against a baseline.

    Attributes:
        result: the run with only its new findings.
        known: how many findings the baseline accounts for.
        gone: how many findings of the baseline are no more, in files that were looked at and in those
            that are not there any more.
        remaining: the baseline without what is gone.
    """

    result: RunResult
    known: int
    gone: int
    remaining: Counts


def read(path: Path) -> Counts:
    """The counts of a baseline file, by file (relative to the baseline) and fingerprint.

    Raises:
        UserError: if it cannot be read or is no baseline.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise UserError(f"{path}: was written by another version of gbfix; write it again.")
        return {
            str(name): {str(key): int(count) for key, count in counts.items()}
            for name, counts in content["findings"].items()
        }
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: is no baseline of gbfix.") from None


def counted(result: RunResult, path: Path) -> Counts:
    """The counts of all findings of a run, for a baseline at this path."""
    found: dict[str, Counter[str]] = {}
    for file in result.files:
        for finding in file.findings:
            name = _name(file.path, path)
            found.setdefault(name, Counter())[fingerprint(file, finding)] += 1
    return found


def compare(result: RunResult, known: Counts, path: Path) -> Compared:
    """Take out of a run what the baseline at this path knows."""
    files = []
    remaining: dict[str, Mapping[str, int]] = dict(known)
    accounted = gone = 0
    for file in result.files:
        name = _name(file.path, path)
        left = Counter(known.get(name, {}))
        new: list[Finding] = []
        for finding in file.findings:
            key = fingerprint(file, finding)
            if left[key] > 0:
                left[key] -= 1
                accounted += 1
            else:
                new.append(finding)
        gone += sum(left.values())
        remaining[name] = Counter(known.get(name, {})) - left
        files.append(replace(file, findings=tuple(new)))
    folder = Path(os.path.realpath(path.parent))
    for name in remaining.keys() - {_name(file.path, path) for file in result.files}:
        if not os.path.lexists(folder / name):
            gone += sum(remaining[name].values())
            remaining[name] = {}
    kept = {name: counts for name, counts in remaining.items() if counts}
    return Compared(replace(result, files=tuple(files)), accounted, gone, kept)


def text(counts: Counts) -> str:
    """The content of a baseline file, in a stable order."""
    findings = {name: dict(sorted(counts[name].items())) for name in sorted(counts)}
    return json.dumps({"version": VERSION, "findings": findings}, indent=1) + "\n"


def _name(path: Path, baseline: Path) -> str:
    folder = os.path.realpath(baseline.parent)
    return os.path.relpath(os.path.realpath(path), folder).replace(os.sep, "/")
