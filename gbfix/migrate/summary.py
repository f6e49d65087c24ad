"""From what the engine made and what was written to the values that reports show.

It counts and names; it decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gbfix.findings import FileResult, Finding, RunResult
from gbfix.migrate.outcome import (
    Arms,
    Change,
    Checked,
    Declined,
    Error,
    FixMade,
    MigratedFile,
    Offered,
    Site,
    State,
    Totals,
)
from gbfix.source.diffing import unified_diff

# The statuses of the checker, the weakest first.
_WEAKEST = (
    "different",
    "no fewer breaks",
    "original fails in eager",
    "original fails compiled but not eager",
    "not run",
    "partly verified",
    "verified",
)


def relative(path: Path, root: Path) -> str:
    """How reports name a file."""
    try:
        return path.absolute().relative_to(root).as_posix()
    except ValueError:
        return path.as_posix()


def file_entries(
    made: RunResult, final: RunResult, checked: Sequence[Checked], root: Path
) -> tuple[MigratedFile, ...]:
    """What is said of the files with break sites.

    Args:
        made: what the engine made.
        final: the same with only what is to be written.
        checked: what was run.
        root: what paths are relative to.
    """
    before = {file.path: file for file in made.files}
    by_path: dict[str, list[Checked]] = {}
    for run in checked:
        by_path.setdefault(run.path, []).append(run)
    entries = []
    for file in final.files:
        if file.findings or before[file.path].changed:
            name = relative(file.path, root)
            entries.append(_entry(before[file.path], file, by_path.get(name, []), name, root))
    return tuple(entries)


def _entry(
    made: FileResult, final: FileResult, runs: Sequence[Checked], name: str, root: Path
) -> MigratedFile:
    state = State.UNCHANGED
    if made.changed:
        state = State.PLANNED if final.changed else State.WITHHELD
    shown = final if final.changed else made
    diff = unified_diff(
        shown.path, shown.before.encode(shown.before.text), shown.before.encode(shown.after), root
    )
    reasons = (r.sentence for f in final.findings for r in f.refusals if r.code == "not-verified")
    return MigratedFile(
        path=name,
        package=package_of(made.path, root),
        lines=len(made.before.line_starts),
        state=state,
        reason=next(reasons, "") if state is State.WITHHELD else "",
        diff=diff.decode(shown.before.encoding, "replace"),
        sites=tuple(_site(finding) for finding in final.findings),
        verdict=min((run.status for run in runs), key=_strength, default=None),
        arms=_arms(runs),
        breaks=breaks_of(runs),
        fragments=fragments_of(runs),
    )


def _strength(status: str) -> int:
    return _WEAKEST.index(status) if status in _WEAKEST else -1


def package_of(path: Path, root: Path) -> str:
    """The folder of the package that a file is in, relative to the root."""
    name = relative(path.absolute().parent, root)
    return "" if name == "." else name


def _site(finding: Finding) -> Site:
    made = finding.applied
    return Site(
        finding.line,
        finding.column,
        finding.end_line,
        finding.end_column,
        finding.code,
        finding.name,
        finding.message,
        finding.function,
        finding.certain,
        FixMade(made.transform, made.safety.label, made.reason) if made else None,
        tuple(Declined(r.transform, r.code, r.sentence) for r in finding.refusals),
        finding.seen.cost if finding.seen else None,
        tuple(
            Offered(offer.transform, offer.safety.label, offer.reason, offer.setting)
            for offer in finding.offers
            if made is None or offer.transform != made.transform
        ),
    )


def _arms(runs: Sequence[Checked]) -> Arms | None:
    if not runs:
        return None
    arms = [run.arms for run in runs]
    missing = tuple(dict.fromkeys(arm for one in arms for arm in one.missing))
    return Arms(sum(a.covered for a in arms), sum(a.total for a in arms), missing)


def breaks_of(runs: Iterable[Checked]) -> Change | None:
    """How many places broke, over all that was run on both sides."""
    both = [(r.before, r.after) for r in runs if r.before is not None and r.after is not None]
    if not both:
        return None
    return Change(sum(b.places for b, _ in both), sum(a.places for _, a in both))


def fragments_of(runs: Iterable[Checked]) -> Change | None:
    """How many graphs there were, recompilations left out, over all that was run on both sides."""
    both = [(r.before, r.after) for r in runs if r.before is not None and r.after is not None]
    if not both:
        return None
    first, second = (
        sum(not fragment.again for pair in both for fragment in pair[side].fragments)
        for side in (0, 1)
    )
    return Change(first, second)


def delivered(
    files: Sequence[MigratedFile], left: Mapping[str, str]
) -> tuple[tuple[MigratedFile, ...], tuple[Error, ...]]:
    """The planned files as written, but for those that were left, each with the reason."""
    done: list[MigratedFile] = []
    errors: list[Error] = []
    for file in files:
        if file.state is not State.PLANNED:
            done.append(file)
        elif file.path in left:
            sentence = left[file.path]
            sites = tuple(_unfixed(site, sentence) for site in file.sites)
            done.append(replace(file, state=State.NOT_WRITTEN, reason=sentence, sites=sites))
            said = sentence.removeprefix("not written, since ")
            errors.append(Error(file.path, f"not written: {said}."))
        else:
            done.append(replace(file, state=State.WRITTEN))
    return tuple(done), tuple(errors)


def _unfixed(site: Site, sentence: str) -> Site:
    if site.fix is None:
        return site
    refusal = Declined(site.fix.transform, "not-written", sentence)
    return replace(site, fix=None, refusals=(*site.refusals, refusal))


def totals(
    looked_at: tuple[int, int],
    files: Sequence[MigratedFile],
    checked: Sequence[Checked],
    errors: int,
    seconds: Mapping[str, float],
) -> Totals:
    """Count everything; `looked_at` are the numbers of files and of lines."""
    sites = [site for file in files for site in file.sites]
    fixes = [site.fix for site in sites if site.fix is not None]
    states = Counter(file.state for file in files)
    left = [site for site in sites if site.fix is None]
    after = Counter(site.code for site in left)
    before = Counter(site.code for site in sites)
    entries = [run for run in checked if run.entry] or checked
    return Totals(
        files=looked_at[0],
        lines=looked_at[1],
        with_sites=sum(bool(file.sites) for file in files),
        written=states[State.WRITTEN] + states[State.PLANNED],
        withheld=states[State.WITHHELD],
        not_written=states[State.NOT_WRITTEN],
        sites=len(sites),
        fixed=len(fixes),
        left=len(left),
        errors=errors,
        by_code={code: Change(before[code], after[code]) for code in sorted(before)},
        by_safety=dict(sorted(Counter(fix.safety for fix in fixes).items())),
        by_verdict=dict(sorted(Counter(run.status for run in checked).items())),
        refusals=dict(
            sorted(Counter(s.refusals[-1].code if s.refusals else "no-fix" for s in left).items())
        ),
        breaks=breaks_of(entries),
        fragments=fragments_of(entries),
        seconds={name: round(value, 3) for name, value in seconds.items()},
    )
