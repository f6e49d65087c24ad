"""A baseline: the findings that a code base had when it began, which are not reported again.

The file counts findings by content, for each file, so that moved lines change nothing. What files that
are gone held is known in files that the baseline does not name: there each stands for one in a function
of the same name, so that a renamed file stays known and a copy does not become it. A baseline is only
ever shortened: what was fixed is taken out, and what is new is reported.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gbfix.errors import UserError
from gbfix.findings import FileResult, Finding, RunResult
from gbfix.report.fingerprints import fingerprint

VERSION = 2
Counts = Mapping[str, Mapping[str, int]]
"""How often there is what, by file; a key is a fingerprint, and the function if that is known."""


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
    """The counts of a baseline file, with files relative to it.

    Raises:
        UserError: if it cannot be read or is no baseline.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] not in (1, VERSION):  # the first one did not tell functions
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
            found.setdefault(name, Counter())[_key(file, finding)] += 1
    return found


def compare(result: RunResult, known: Counts, path: Path) -> Compared:
    """Take out of a run what the baseline at this path knows."""
    named = [(_name(file.path, path), file) for file in result.files]
    looked_at = {name for name, _ in named}
    folder = Path(os.path.realpath(path.parent))
    lost = {n for n in known.keys() - looked_at if not os.path.lexists(folder / n)}
    left = {name: Counter(counts) for name, counts in known.items()}
    new = [list(file.findings) for _, file in named]
    for number, (name, file) in enumerate(named):
        for like in (_exactly, _wherever):
            new[number] = _taken(new[number], file, left.get(name, Counter()), like)
    remaining = {name: Counter(counts) - left[name] for name, counts in known.items()}
    remaining |= {name: left[name] for name in left.keys() - looked_at - lost}
    gone = sum(left[name].total() for name in looked_at & left.keys())
    pool = sum((left[name] for name in sorted(lost)), Counter[str]())
    # Who resembles a file that is gone comes first: it was renamed, others may share a line with it.
    unknown = [number for number, (name, _) in enumerate(named) if name not in known]
    for number in sorted(unknown, key=lambda n: -_resemblance(named[n][1], lost, known)):
        name, file = named[number]
        before = pool.copy()
        new[number] = _taken(new[number], file, pool, _exactly)
        remaining[name] = remaining.get(name, Counter()) + (before - pool)
    made = [replace(f, findings=tuple(n)) for (_, f), n in zip(named, new, strict=True)]
    accounted = sum(len(f.findings) for f in result.files) - sum(map(len, new))
    kept = {name: counts for name, counts in remaining.items() if counts}
    return Compared(replace(result, files=tuple(made)), accounted, gone + pool.total(), kept)


def _key(file: FileResult, finding: Finding) -> str:
    return f"{fingerprint(file, finding)} {finding.function}"


def _exactly(key: str, left: Counter[str]) -> Iterator[str]:
    """What a finding with a key is known as."""
    yield from (key, key.partition(" ")[0])


def _wherever(key: str, left: Counter[str]) -> Iterator[str]:
    """What a finding with a key is known as, if it may have been in another function."""
    content = key.partition(" ")[0]
    return (other for other in left if other.partition(" ")[0] == content)


def _taken(
    findings: Iterable[Finding],
    file: FileResult,
    left: Counter[str],
    like: Callable[[str, Counter[str]], Iterator[str]],
) -> list[Finding]:
    """The findings that are not among those left, from which the others are taken."""
    new: list[Finding] = []
    for finding in findings:
        known = next((k for k in like(_key(file, finding), left) if left[k] > 0), None)
        if known is None:
            new.append(finding)
        else:
            left[known] -= 1
    return new


def _resemblance(file: FileResult, lost: Iterable[str], known: Counts) -> int:
    """How many findings a file shares with the one of those gone that is most like it."""
    found = Counter(_key(file, finding) for finding in file.findings)
    return max(((found & Counter(known[name])).total() for name in lost), default=0)


def text(counts: Counts) -> str:
    """The content of a baseline file, in a stable order."""
    findings = {name: dict(sorted(counts[name].items())) for name in sorted(counts)}
    return json.dumps({"version": VERSION, "findings": findings}, indent=1) + "\n"


def _name(path: Path, baseline: Path) -> str:
    folder = os.path.realpath(baseline.parent)
    return os.path.relpath(os.path.realpath(path), folder).replace(os.sep, "/")
