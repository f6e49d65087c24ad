"""Runs what a migration has made in a pool of workers, and takes back what may not be written.

First every rewritten definition is run by itself, then the entries, with all files as they would be.
What is found is kept in the journal, so that it is not run again. The policy decides what
may stay without having been verified; what makes something different never stays.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from concurrent.futures import Future, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from gbfix.delivery import withheld
from gbfix.findings import FileResult, RunResult
from gbfix.migrate.checking import Again, EntryTask, FileTask, Tried
from gbfix.migrate.journal import Journal
from gbfix.migrate.known import Known, around
from gbfix.migrate.outcome import Checked
from gbfix.migrate.pools import MakePool, Pool
from gbfix.migrate.run import Migration, Phases
from gbfix.migrate.summary import relative
from gbfix.migrate.targets import Entry, entries_of
from gbfix.settings import Settings
from gbfix.verify.applying import taken_back
from gbfix.verify.arms import concerned
from gbfix.verify.options import Options
from gbfix.verify.project import fixed_names
from gbfix.verify.verdict import Status

_MOST_ROUNDS = 3


@dataclass(frozen=True)
class Verification:
    """The verification of a migration, to be called with what was made.

    `pool` makes what runs the code.
    """

    wanted: Migration
    settings: Settings
    options: Options
    pool: MakePool
    phases: Phases

    def __call__(self, made: RunResult, journal: Journal) -> tuple[RunResult, tuple[Checked, ...]]:
        """What may be written, and what was run, entries first.

        Raises:
            UserError: for targets that are none, and traces that cannot be read.
        """
        entries = entries_of(self.wanted.policy.targets, self._traces, self.wanted.root)
        beside = around(made.files, self._traces, self.settings, self.options)
        known = Known(self.wanted.root, journal, beside)
        with closing(self.pool()) as pool:
            tried = self._files(pool, made, known)
            files = [
                replace(file, after=tried[file.path].after, findings=tried[file.path].findings)
                if file.path in tried
                else file
                for file in made.files
            ]
            own = {path: one.checked for path, one in tried.items()}
            files, whole = self._settled(pool, known, files, own, entries)
        checked = [run for file in files for run in own.get(file.path, ())]
        return replace(made, files=tuple(files)), (*whole, *checked)

    @property
    def _traces(self) -> list[Path]:
        return [Path(trace) for trace in self.wanted.policy.traces]

    # Definitions by themselves

    def _files(self, pool: Pool, made: RunResult, known: Known) -> dict[Path, Tried]:
        root = self.wanted.root
        changed = [file for file in made.files if file.changed]
        tried: dict[Path, Tried] = {}
        keys: dict[Path, str] = {}
        for file in changed:
            key = known.key(relative(file.path, root), file.before.text, file.after)
            found = known.get(key, Tried, lambda tried: all(map(_lasts, tried.checked)))
            keys[file.path] = key
            if found is not None:
                tried[file.path] = found

        sources = pool.share([file.before for file in made.files])
        again = Again(sources, self.settings)
        with self.phases("Verifying", len(changed)) as advance:
            for path in tried:
                advance(relative(path, root))
            waiting = {
                pool.submit(FileTask(file, self.options, again, self._traces, root)): file
                for file in changed
                if file.path not in tried
            }
            for done in as_completed(waiting):
                path = waiting[done].path
                tried[path] = done.result()
                known.keep(keys[path], tried[path])
                advance(relative(path, root))
        return tried

    # All files together

    def _settled(
        self,
        pool: Pool,
        known: Known,
        files: list[FileResult],
        own: dict[Path, tuple[Checked, ...]],
        entries: Sequence[Entry],
    ) -> tuple[list[FileResult], tuple[Checked, ...]]:
        """What may be written, and the entries as they are with that."""
        whole: tuple[Checked, ...] = ()
        for _ in range(_MOST_ROUNDS):
            whole = self._entries(pool, known, files, entries)
            allowed = self._allowed(files, own, entries, whole)
            if allowed == files:
                return files, whole
            files = allowed
        different = [run for run in whole if run.status == Status.DIFFERENT.value]
        if different:
            reason = f"{different[0].id} is different: {different[0].reason}"
            files = [withheld(file, "not-verified", reason) for file in files]
        return files, self._entries(pool, known, files, entries)

    def _entries(
        self, pool: Pool, known: Known, files: Sequence[FileResult], entries: Sequence[Entry]
    ) -> tuple[Checked, ...]:
        texts = {e.path: e.path.read_bytes().decode("utf-8", "replace") for e in entries}
        texts |= {f.path.resolve(): f.before.text for f in files if f.changed}
        texts |= {f.path.resolve(): f.before.text for f in files if f.path.resolve() in texts}
        before = tuple((str(path), text) for path, text in sorted(texts.items()))
        rewritten = {str(f.path.resolve()): f.after for f in files if f.changed}
        after = tuple((path, rewritten.get(path, text)) for path, text in before)
        texts_of = pool.share((before, after))
        results: list[Checked] = []
        waiting: list[Future[Checked] | Checked] = []
        keys = [
            known.key(str(entry.path), entry.name, *(part for pair in after for part in pair))
            for entry in entries
        ]
        for entry, key in zip(entries, keys, strict=True):
            task = EntryTask(entry, texts_of, self.options, self._traces, self.wanted.root)
            done = known.get(key, Checked, _lasts)
            waiting.append(done if done is not None else pool.submit(task))
        with self.phases("Running entries", len(entries)) as advance:
            for found, key in zip(waiting, keys, strict=True):
                if isinstance(found, Checked):
                    results.append(found)
                else:
                    results.append(found.result())
                    known.keep(key, results[-1])
                advance(results[-1].id)
        return tuple(results)

    def _allowed(
        self,
        files: list[FileResult],
        own: dict[Path, tuple[Checked, ...]],
        entries: Sequence[Entry],
        whole: Sequence[Checked],
    ) -> list[FileResult]:
        """The files without what an entry shows to be different, or what the policy does not allow."""
        changed = [file for file in files if file.changed]
        texts = [(str(file.path), file.after) for file in changed]
        used = {run.id: concerned(texts, run.name) for run in whole}
        bad = [run for run in whole if run.status == Status.DIFFERENT.value]
        good = [used[run.id] for run in whole if run.verified]
        result = []
        for file in files:
            if file.changed:
                for run in bad:
                    if str(file.path) in used[run.id] or not used[run.id]:
                        reason = f"{run.id} is different: {run.reason}"
                        file = withheld(file, "not-verified", reason)
                if self.wanted.policy.require == "verified":
                    file = _only_verified(file, own.get(file.path, ()), good)
            result.append(file)
        return result


def _only_verified(
    file: FileResult,
    checked: Sequence[Checked],
    good: Sequence[dict[str, list[range]]],
) -> FileResult:
    """The file with only those definitions rewritten that were verified, alone or in an entry."""
    runs = {run.name: run for run in checked}
    lines = [line for used in good for line in used.get(str(file.path), ())]
    places = {
        node.name: node.lineno
        for node in ast.parse(file.after).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    original = file
    for name in fixed_names(file):
        run = runs.get(name)
        if run is not None and run.verified:
            continue
        if any(places.get(name, -1) in part for part in lines):
            continue
        reason = f"{run.status}: {run.reason}" if run is not None else "it was not run"
        none = withheld(original, "not-verified", reason)
        file = taken_back(file, name, none) or withheld(file, "not-verified", reason)
    return file


def _lasts(run: Checked) -> bool:
    """Whether a run would end in the same way again."""
    return run.status != Status.NOT_RUN.value
