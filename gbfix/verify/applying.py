"""Keeps of a run only what is verified, function by function and class by class.

Where one does not pass, the transforms that made its fixes are left out one after the other, so that a
site's next fix has its turn; in the end it stays as it was. What is kept is verified once more
without what was taken back, since one may use the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from gbfix.delivery import withheld
from gbfix.findings import FileResult, Finding, Refusal, RunResult
from gbfix.verify.checker import verify_sides
from gbfix.verify.options import Options
from gbfix.verify.project import Pair, pairs
from gbfix.verify.recipes import Inputs
from gbfix.verify.splicing import splice
from gbfix.verify.targets import Side
from gbfix.verify.unaffected import carried_over
from gbfix.verify.verdict import Status, Verdict
from gbfix.verify.worker import Workers

# Runs the engine again on one file of the result, without some transforms; None if that is too dear.
Rerun = Callable[[FileResult, tuple[str, ...]], FileResult | None]
# Says what is found for an original and a rewritten side, with inputs that may be given.
Verify = Callable[[Side, Side, Inputs | None], Verdict]
# The pairs to verify in the place of one, each with its inputs; None has these generated.
Prepare = Callable[[Pair], Sequence[tuple[Pair, Inputs | None]]]
_OTHER_FIX_MAY_HELP = (Status.DIFFERENT, Status.NO_FEWER_BREAKS)
_MOST_ROUNDS = 12
_WORST = (
    Status.DIFFERENT,
    Status.FAILS_EAGER,
    Status.FAILS_COMPILED,
    Status.NOT_RUN,
    Status.NO_FEWER_BREAKS,
    Status.PARTLY_VERIFIED,
    Status.VERIFIED,
)


def _generated(pair: Pair) -> Sequence[tuple[Pair, Inputs | None]]:
    return [(pair, None)]


def keep_verified(
    workers: Workers,
    result: RunResult,
    options: Options,
    rerun: Rerun,
    prepare: Prepare = _generated,
) -> tuple[RunResult, tuple[Verdict, ...]]:
    """The result without what did not pass, and the verdicts; of a target that failed, the first."""
    files: list[FileResult] = []
    verdicts: list[Verdict] = []
    for file in result.files:
        if file.changed:
            choice = _Choice(verifying(workers, options), result, rerun, prepare, file)
            files.append(choice.best())
            verdicts += choice.told.values()
        else:
            files.append(file)
    return replace(result, files=tuple(files)), tuple(verdicts)


def verifying(workers: Workers, options: Options) -> Verify:
    """The plain way to find a verdict: by running both sides."""
    return lambda original, rewritten, inputs: verify_sides(
        workers, original, rewritten, inputs, options
    )


def most_passing(
    file: FileResult, verify: Verify, rerun: Rerun, prepare: Prepare = _generated
) -> tuple[FileResult, dict[str, Verdict]]:
    """The file without what does harm or no good, and the verdicts by function or class.

    What could not be run, or not in all arms, is kept: whoever asks has to look at the verdicts.

    Args:
        file: a changed file. Others are taken as they are on disk.
        verify: what finds each verdict; it is asked once for the same sides and inputs.
        rerun: what makes the file again without some transforms.
        prepare: how each pair is run.
    """
    choice = _Choice(verify, RunResult((file,)), rerun, prepare, file)
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


def verify_pair(
    workers: Workers, prepared: Sequence[tuple[Pair, Inputs | None]], options: Options
) -> Verdict:
    """The verdict on a definition that is run through each of some callables: the worst of theirs."""
    verify = verifying(workers, options)
    return _worst(verify(pair.original, pair.rewritten, inputs) for pair, inputs in prepared)


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=lambda verdict: _WORST.index(verdict.status))


@dataclass
class _Choice:
    """The search for the best version of one file."""

    verify: Verify
    result: RunResult
    rerun: Rerun
    prepare: Prepare
    file: FileResult
    enough: Callable[[Verdict], bool] = lambda verdict: verdict.verified
    told: dict[str, Verdict] = field(default_factory=dict)
    left_out: dict[str, dict[str, str]] = field(default_factory=dict)
    ran: dict[tuple[Side, Side, Inputs | None], Verdict] = field(default_factory=dict)

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
        every = pairs(self.result, file)
        together = {pair.name: self._run(pair) for pair in every}
        for name, verdict in self._by_culprit(every, together).items():
            verdicts[name] = verdict
            before = self.told.get(name)
            if before is None or self.enough(before) or self.enough(verdicts[name]):
                self.told[name] = verdicts[name]
        return verdicts

    def _run(self, pair: Pair) -> Verdict:
        """The verdict on a pair; definitions that one callable leads to share its run."""
        verdicts: list[Verdict] = []
        for ready, inputs in self.prepare(pair):
            key = ready.original, ready.rewritten, inputs
            if key not in self.ran:
                self.ran[key] = self._carried_over(*key) or self.verify(*key)
            verdicts.append(self.ran[key])
        return _worst(verdicts)

    def _carried_over(
        self, original: Side, rewritten: Side, inputs: Inputs | None
    ) -> Verdict | None:
        """The verdict on an earlier version that differs only in what is not used; None without one."""
        for (first, second, given), verdict in self.ran.items():
            if (first, given) == (original, inputs):
                found = carried_over(verdict, second, rewritten)
                if found is not None:
                    return found
        return None

    def _by_culprit(
        self, every: Sequence[Pair], together: dict[str, Verdict]
    ) -> dict[str, Verdict]:
        """Where one definition uses another, whose rewrite it is that makes the difference.

        Each is run as the only one that is rewritten. What passes alone is run with the others once
        more when the culprits are gone.
        """
        different = [pair for pair in every if together[pair.name].status is Status.DIFFERENT]
        if len(different) < 2:
            return together
        alone = {pair.name: self._run(other) for pair in different if (other := _alone(pair))}
        if all(map(self.enough, alone.values())):  # it takes several of them
            return together
        return together | alone

    def _without(self, file: FileResult, name: str, verdict: Verdict) -> FileResult | None:
        """The file with another fix for one of its definitions, or with none."""
        suspects = [
            finding.applied.transform
            for finding in file.findings
            if finding.applied is not None and _is_in(finding, name)
        ]
        other: FileResult | None = None
        if verdict.status in _OTHER_FIX_MAY_HELP and suspects:
            left_out = self.left_out.setdefault(name, {})
            left_out.setdefault(suspects[0], _reason(verdict))
            other = self.rerun(self.file, tuple(left_out))
            other = other and replace(other, findings=tuple(self._with_reasons(other, name)))
        if other is None:
            other = withheld(self.file, "not-verified", _reason(self.told.get(name, verdict)))
        return taken_back(file, name, other)

    def _with_reasons(self, other: FileResult, name: str) -> Iterator[Finding]:
        """The findings of a run without some transforms; where a fix is gone, with the reason."""
        fixed = {f.place: f.applied.transform for f in self.file.findings if f.applied is not None}
        reasons = self.left_out[name]
        for finding in other.findings:
            gone = fixed.get(finding.place, "") if finding.applied is None else ""
            if _is_in(finding, name) and gone in reasons:
                refusal = Refusal(gone, "not-verified", reasons[gone])
                finding = replace(finding, refusals=(*finding.refusals, refusal))
            yield finding


def _alone(pair: Pair) -> Pair | None:
    """A pair in whose rewritten texts nothing else is rewritten; None if it cannot be cut out."""
    after = dict(pair.rewritten.texts)
    for path, text in pair.original.texts:
        if after[path] != text:
            cut = splice(text, after[path], pair.name)
            if cut is None:
                return None
            after[path] = cut
    return replace(pair, rewritten=replace(pair.rewritten, texts=tuple(after.items())))


def _is_in(finding: Finding, name: str) -> bool:
    return finding.function.partition(".")[0] == name


def _reason(verdict: Verdict) -> str:
    return f"{verdict.status.value}: {verdict.reason}"
