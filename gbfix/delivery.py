"""Hands the outcome of a run over: into the files, or as diffs.

A file that cannot be delivered is an error of its own; its findings go back to being unfixed, with
that as the reason, and the other files are delivered. The module knows nothing of fixes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gbfix.findings import FileError, FileResult, Finding, Refusal, RunResult
from gbfix.source.diffing import diff_root, unified_diff
from gbfix.source.text import SourceError
from gbfix.source.writing import WriteError, write_atomically


@dataclass(frozen=True)
class Diffs:
    """The diffs of a run, by file, and the folder that their paths are relative to."""

    by_file: dict[Path, bytes]
    root: Path

    def joined(self) -> bytes:
        """One patch for `git apply`."""
        return b"".join(self.by_file.values())


def write_files(result: RunResult) -> RunResult:
    """Write every changed file; what comes back is what is now in the files."""

    def write(file: FileResult) -> None:
        before, after = _contents(file)
        write_atomically(file.path, before, after)

    return _deliver(result, write)


def make_diffs(result: RunResult, cwd: Path) -> tuple[RunResult, Diffs]:
    """The diff of every changed file, in path order."""
    root = diff_root([file.path for file in result.files if file.changed], cwd)
    by_file: dict[Path, bytes] = {}

    def diff(file: FileResult) -> None:
        before, after = _contents(file)
        by_file[file.path] = unified_diff(file.path, before, after, root)

    return _deliver(result, diff), Diffs(by_file, root)


def make_sources(result: RunResult) -> tuple[RunResult, bytes]:
    """The new content of every file, changed or not, for a pipe."""
    # Every file has to be encoded, for a filter passes on also what it leaves as it is.
    pieces: dict[Path, bytes] = {
        file.path: file.before.encode(file.before.text) for file in result.files
    }

    def encode(file: FileResult) -> None:
        pieces[file.path] = file.before.encode(file.after)

    return _deliver(result, encode), b"".join(pieces.values())


def _contents(file: FileResult) -> tuple[bytes, bytes]:
    return file.before.encode(file.before.text), file.before.encode(file.after)


def _deliver(result: RunResult, deliver: Callable[[FileResult], None]) -> RunResult:
    files: list[FileResult] = []
    errors: list[FileError] = list(result.errors)
    for file in result.files:
        kept = file
        if file.changed:
            try:
                deliver(file)
            except (SourceError, WriteError) as error:
                sentence = str(error)
                errors.append(FileError(file.path, sentence))
                kept = withheld(file, "not-written", sentence)
        files.append(kept)
    return replace(result, files=tuple(files), errors=tuple(errors))


def withheld(file: FileResult, code: str, sentence: str) -> FileResult:
    """The file as it was, with every fix turned into a refusal that says why."""
    findings = tuple(_unfixed(finding, code, sentence) for finding in file.findings)
    return replace(file, after=file.before.text, findings=findings)


def _unfixed(finding: Finding, code: str, sentence: str) -> Finding:
    if finding.applied is None:
        return finding
    refusal = Refusal(finding.applied.transform, code, sentence)
    return replace(finding, applied=None, refusals=(*finding.refusals, refusal))
