"""Keeps of a run only what is verified, function by function and class by class.

Where one does not pass, the transforms that made its fixes are left out one after the other, so that a
site's next fix has its turn; in the end it stays as it was. What is kept is verified once more
without what was taken back, since one may use the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gbfix.delivery import withheld
from gbfix.findings import FileResult, Finding, RunResult
from gbfix.verify.checker import Options, verify_sides
from gbfix.verify.project import Pair, pairs
from gbfix.verify.recipes import Inputs
from gbfix.verify.splicing import splice
from gbfix.verify.verdict import Status, Verdict
from gbfix.verify.worker import Workers

# Runs the engine again on one file of the result, without some transforms; None if that is too dear.
Rerun = Callable[[FileResult, tuple[str, ...]], FileResult | None]
# The inputs to verify a target with; None to have them generated.
GivenInputs = Callable[[Pair], Inputs | None]
_OTHER_FIX_MAY_HELP = (Status.DIFFERENT, Status.NO_FEWER_BREAKS)
_MOST_ROUNDS = 12


def _generated(_: Pair) -> Inputs | None:
    return None


def keep_verified(
    workers: Workers,
    result: RunResult,
    options: Options,
    rerun: Rerun,
    inputs: GivenInputs = _generated,
) -> tuple[RunResult, tuple[Verdict, ...]]:
    """The result without what did not pass, and the verdicts; of a target that failed, the first."""
    files: list[FileResult] = []
    verdicts: list[Verdict] = []
    for file in result.files:
        if file.changed:
            choice = _Choice(workers, result, options, rerun, inputs, file)
            files.append(choice.best())
            verdicts += choice.told.values()
        else:
            files.append(file)
    return replace(result, files=tuple(files)), tuple(verdicts)


def most_passing(
    workers: Workers,
    file: FileResult,
    options: Options,
    rerun: Rerun,
    inputs: GivenInputs = _generated,
) -> tuple[FileResult, dict[str, Verdict]]:
    """The file without what does harm or no good, and the verdicts by function or class.

    What could not be run, or not in all arms, is kept: whoever asks has to look at the verdicts.

    Args:
        workers: where it is run.
        file: a changed file. Others are taken as they are on disk.
        options: how to verify.
        rerun: what makes the file again without some transforms.
        inputs: the inputs that are known of a target.
    """
    choice = _Choice(workers, RunResult((file,)), options, rerun, inputs, file)
    choice.enough = lambda verdict: verdict.status not in _OTHER_FIX_MAY_HELP
    return choice.best(), choice.told


def taken_back(file: FileResult, name: str, other: FileResult) -> FileResult | None:
    """The file with one definition at its top as in another version; None if it cannot be cut out."""
    text = splice(file.after, other.after, name)
    if text is None:
        return None
    findings = [f for f in file.findings if not _is_in(f, name)]
    findings += [f for f in other.findings if _is_in(f, name)]
    if not any(finding.applied for finding in findings):
        text = file.before.text
    findings.sort(key=lambda f: (f.line, f.column, f.code))
    return replace(file, after=text, findings=tuple(findings))


@dataclass
class _Choice:
    """The search for the best version of one file."""

    workers: Workers
    result: RunResult
    options: Options
    rerun: Rerun
    inputs: GivenInputs
    file: FileResult
    enough: Callable[[Verdict], bool] = lambda verdict: verdict.verified
    told: dict[str, Verdict] = field(default_factory=dict)
    left_out: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def best(self) -> FileResult:
        """The file with as many of its fixes as pass."""
        current = self.file
        for _ in range(_MOST_ROUNDS):
            verdicts = self._verify(current)
            passed = bool(verdicts) and all(map(self.enough, verdicts.values()))
            if passed or not current.changed:
                return current
            for name, verdict in verdicts.items():
                if not self.enough(verdict):
                    changed = self._without(current, name, verdict)
                    if changed is None:
                        return withheld(self.file, "not-verified", _reason(verdict))
                    current = changed
        return withheld(self.file, "not-verified", "no version of it passed")

    def _verify(self, file: FileResult) -> dict[str, Verdict]:
        verdicts: dict[str, Verdict] = {}
        for pair in pairs(self.result, file):
            name = pair.original.target.name
            verdicts[name] = verify_sides(
                self.workers, pair.original, pair.rewritten, self.inputs(pair), self.options
            )
            before = self.told.get(name)
            if before is None or self.enough(before) or self.enough(verdicts[name]):
                self.told[name] = verdicts[name]
        return verdicts

    def _without(self, file: FileResult, name: str, verdict: Verdict) -> FileResult | None:
        """The file with another fix for one of its definitions, or with none."""
        suspects = [
            finding.applied.transform
            for finding in file.findings
            if finding.applied is not None and _is_in(finding, name)
        ]
        other: FileResult | None = None
        if verdict.status in _OTHER_FIX_MAY_HELP and suspects:
            self.left_out[name] = (*self.left_out.get(name, ()), suspects[0])
            other = self.rerun(self.file, self.left_out[name])
        if other is None:
            other = withheld(self.file, "not-verified", _reason(self.told.get(name, verdict)))
        return taken_back(file, name, other)


def _is_in(finding: Finding, name: str) -> bool:
    return finding.function.partition(".")[0] == name


def _reason(verdict: Verdict) -> str:
    return f"{verdict.status.value}: {verdict.reason}"
