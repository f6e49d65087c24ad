"""A migration from its plan to its end, however often it is interrupted on the way.

Until the plan is in the journal no file is touched, so whoever comes before that begins again (what was
verified is kept); from then on the plan is carried out as it stands. How a plan is made and how it
is verified is given to this module, which knows the order of things and what may be written.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Protocol

from gbfix.errors import UserError
from gbfix.findings import RunResult
from gbfix.migrate import delivery, journal, repository, summary
from gbfix.migrate.journal import Journal, Record
from gbfix.migrate.outcome import Checked, Error, Outcome, Policy, State, from_json, to_json
from gbfix.source.text import SourceError


class Advance(Protocol):
    """Told what is done or begun; the phase is `by` steps further with it."""

    def __call__(self, what: str, by: int = 1) -> None:
        """Tell it."""


class Verify(Protocol):
    """Runs what was made, and gives what may be written of it, with what was run."""

    def __call__(self, made: RunResult, journal: Journal) -> tuple[RunResult, tuple[Checked, ...]]:
        """Verify; what is found on the way is kept in the journal."""


class Phases(Protocol):
    """Shows how far the migration is."""

    def __call__(self, name: str, total: int) -> AbstractContextManager[Advance]:
        """Begin a phase of some steps, which the function that comes back is told of."""


def silent(name: str, total: int) -> AbstractContextManager[Advance]:
    """Show nothing."""
    return nullcontext(lambda what, by=1: None)


@dataclass(frozen=True)
class Migration:
    """What is wanted.

    Attributes:
        root: the folder to migrate, absolute.
        policy: what may be written.
        settings: all that decides what is made, as text; only a run with the same goes on with what an
            interrupted one has verified.
        force: whether files with uncommitted changes may be written.
        branch: the git branch to make.
        commit_by: `package` or `diagnosis`; one commit for everything if None.
        dry_run: whether to end with the plan.
    """

    root: Path
    policy: Policy
    settings: str = ""
    force: bool = False
    branch: str | None = None
    commit_by: str | None = None
    dry_run: bool = False

    @property
    def fingerprint(self) -> str:
        """A digest of what the plan depends on, besides the code."""
        content = repr((self.policy, self.settings, self.branch, self.commit_by))
        return hashlib.sha256(content.encode()).hexdigest()


def migrate(
    wanted: Migration,
    plan: Callable[[], RunResult],
    verify: Verify | None = None,
    phases: Phases = silent,
) -> Outcome:
    """Migrate, or go on with a migration that was interrupted.

    Raises:
        UserError: if something stands in the way; nothing is then written.
        Interrupted: if the machine does not let it go on.
    """
    if wanted.dry_run:
        return _Run(wanted, None, phases).planned(plan, verify)[1]
    with journal.locked(wanted.root):
        found = _unfinished(wanted.root)
        if found is not None and found.last("planned") is None:
            journal.reopen(found)
            same = found.records[0]["fingerprint"] == wanted.fingerprint
            if not same:
                found.append("abandoned")
                found = None
        elif found is not None:
            journal.reopen(found)
        if found is None:
            if wanted.branch is not None:
                repository.check_new_branch(wanted.root, wanted.branch)
            found = journal.create(
                wanted.root, _name(wanted.root), fingerprint=wanted.fingerprint, started=_now()
            )
        else:
            found.append("resumed")
        return _Run(wanted, found, phases).finish(plan, verify)


def undo(root: Path, *, force: bool = False) -> tuple[str, list[str], dict[str, str]]:
    """Take the latest migration back; gives its name, the files restored, and those left and why.

    Raises:
        UserError: if there is none, or files were changed since and it is not forced.
        Interrupted: if the machine does not let it go on.
    """
    with journal.locked(root):
        for found in journal.all_in(root):
            if found.last("undone") is None and delivery.planned(found):
                journal.reopen(found)
                record = found.last("planned")
                place = record["repository"] if record is not None else None
                leave = partial(repository.leave_branch, root, place) if place else None
                restored, left = delivery.undo(found, root, force=force, then=leave)
                return found.id, restored, left
        raise UserError(f"{root}: there is no migration to undo.")


def unfinished(root: Path) -> str | None:
    """The name of a migration whose plan is not carried out yet; None if there is none.

    Raises:
        UserError: if an undo was interrupted, which has to come first.
    """
    found = _unfinished(root)
    return found.id if found is not None and found.last("planned") is not None else None


def _unfinished(root: Path) -> Journal | None:
    for found in journal.all_in(root):
        if found.last("undo") is not None and found.last("undone") is None:
            raise UserError(
                f"{root}: the undo of migration {found.id} is not complete; "
                "run `gbfix migrate --undo` first."
            )
        closed = ("done", "abandoned", "undone")
        if all(found.last(kind) is None for kind in closed):
            return found
    return None


class _Run:
    def __init__(self, wanted: Migration, found: Journal | None, phases: Phases) -> None:
        self.wanted = wanted
        self.root = wanted.root
        self.found = found
        self.phases = phases
        self.seconds: dict[str, float] = {}

    def planned(
        self, plan: Callable[[], RunResult], verify: Verify | None
    ) -> tuple[RunResult, Outcome]:
        """What may be written, and the outcome as if it were."""
        begun = time.monotonic()
        made = plan()
        self.seconds["plan"] = time.monotonic() - begun
        made = _encodable(made)
        changed = [file.path for file in made.files if file.changed]
        if not self.wanted.force:
            repository.refuse_uncommitted(self.root, changed)
        begun = time.monotonic()
        final = made
        checked: tuple[Checked, ...] = ()
        if verify is not None and changed and self.found is not None:
            final, checked = verify(made, self.found)
        self.seconds["verify"] = time.monotonic() - begun
        files = summary.file_entries(made, final, checked, self.root)
        errors = tuple(
            Error(summary.relative(e.path, self.root), _sentence(e.sentence, e.path))
            for e in made.errors
        )
        looked_at = (len(made.files), sum(len(f.before.line_starts) for f in made.files))
        draft = Outcome(
            id=self.found.id if self.found is not None else "dry-run",
            root=str(self.root),
            policy=self.wanted.policy,
            totals=summary.totals(looked_at, files, checked, len(errors), self.seconds),
            started=str(self.found.records[0]["started"]) if self.found is not None else _now(),
            finished=_now(),
            files=files,
            checked=checked,
            errors=errors,
            notices=made.notices,
        )
        return final, draft

    def finish(self, plan: Callable[[], RunResult], verify: Verify | None) -> Outcome:
        """Plan if that is not done, write what is not written, and close the journal."""
        assert self.found is not None
        if self.found.last("planned") is None:
            self._keep(*self.planned(plan, verify))
        record = self.found.last("planned")
        assert record is not None
        draft = from_json(self.found.kept(record["outcome"]).decode())
        begun = time.monotonic()
        with self.phases("Writing", len(record["files"])) as advance:
            left = delivery.write(self.found, self.root, advance)
        outcome = self._outcome(draft, left, record, begun)
        text = to_json(outcome)
        name = self.found.keep(text.encode())
        self.found.append("done", outcome=name)
        return outcome

    def _keep(self, final: RunResult, draft: Outcome) -> None:
        """Put the plan into the journal: from here on it is carried out."""
        assert self.found is not None
        files = []
        for file in final.files:
            if file.changed:
                before = self.found.keep(file.before.encode(file.before.text))
                after = self.found.keep(file.before.encode(file.after))
                files.append((summary.relative(file.path, self.root), before, after))
        place = None
        if self.wanted.branch is not None and files:
            place = repository.state(self.root, self.wanted.branch, self.wanted.commit_by)
        outcome = self.found.keep(to_json(draft).encode())
        self.found.append("planned", files=files, outcome=outcome, repository=place)

    def _outcome(
        self, draft: Outcome, left: dict[str, str], record: Record, begun: float
    ) -> Outcome:
        assert self.found is not None
        files, errors = summary.delivered(draft.files, left)
        notices, commits = draft.notices, draft.commits
        branch = None
        if record["repository"] is not None:
            written = [file for file in files if file.state is State.WRITTEN]
            entries = {entry[0]: entry for entry in record["files"]}
            contents = {
                file.path: tuple(map(self.found.kept, entries[file.path][1:])) for file in written
            }
            result = repository.commit(self.root, record["repository"], written, contents)
            commits, notices, branch = result.commits, (*notices, *result.notices), result.branch
        seconds = dict(draft.totals.seconds)
        seconds["write"] = time.monotonic() - begun
        seconds["total"] = sum(seconds.values())
        errors = (*draft.errors, *errors)
        looked_at = (draft.totals.files, draft.totals.lines)
        return replace(
            draft,
            totals=summary.totals(looked_at, files, draft.checked, len(errors), seconds),
            finished=_now(),
            resumed=len(self.found.of("resumed")),
            files=files,
            errors=errors,
            notices=notices,
            branch=branch,
            commits=commits,
        )


def _encodable(made: RunResult) -> RunResult:
    """The plan without files whose new text their encoding cannot hold."""
    from gbfix.delivery import withheld
    from gbfix.findings import FileError

    files, errors = [], list(made.errors)
    for file in made.files:
        try:
            file.before.encode(file.after)
        except SourceError as error:
            errors.append(FileError(file.path, str(error)))
            file = withheld(file, "not-written", str(error))
        files.append(file)
    return replace(made, files=tuple(files), errors=tuple(errors))


def _sentence(sentence: str, path: Path) -> str:
    return " ".join(sentence.split()).removeprefix(f"{path}: ")


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _name(root: Path) -> str:
    """A name that sorts behind those of earlier migrations."""
    stem = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    folder = root / journal.FOLDER
    for number in range(1000):
        name = f"{stem}-{number:03}"
        if not (folder / name).exists():
            return name
    raise UserError(f"{folder}: there is no free name for a migration.")


def latest_outcome(root: Path) -> Outcome | None:
    """The outcome of the latest finished migration."""
    for found in journal.all_in(root):
        record = found.last("done")
        if record is not None:
            return from_json(found.kept(record["outcome"]).decode())
    return None


__all__ = ["Migration", "latest_outcome", "migrate", "silent", "undo", "unfinished"]
