"""Runs what a migration has made in a pool of workers, and takes back what may not be written.

First every rewritten definition is run by itself, then the entries, with all files as they would be.
What is found is kept in the journal, so that it is not run again. The policy decides what
may stay without having been verified; what makes something different never stays.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gbfix.delivery import withheld
from gbfix.findings import FileResult, RunResult
from gbfix.migrate.checking import Again, EntryTask, FileTask, Meanwhile, Tried, TriedFile
from gbfix.migrate.contents import Contents
from gbfix.migrate.journal import Journal
from gbfix.migrate.known import Known, Ran, around
from gbfix.migrate.meanwhile import Runs, Turns
from gbfix.migrate.outcome import Checked
from gbfix.migrate.pools import MakePool, Pool
from gbfix.migrate.run import Migration, Phases
from gbfix.migrate.summary import relative
from gbfix.migrate.targets import Entry, entries_of
from gbfix.settings import Settings
from gbfix.verify.applying import taken_back
from gbfix.verify.arms import definitions_in, used_by
from gbfix.verify.options import Options
from gbfix.verify.project import fixed_names
from gbfix.verify.verdict import Status, Verdict

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
        contents = Contents(self.wanted.root, made.files)
        known = Known(self.wanted.root, journal, beside, contents)
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
        names = {file.path: fixed_names(file) for file in changed}
        tried: dict[Path, Tried] = {}
        keys: dict[Path, str] = {}
        for file in changed:
            place = relative(file.path, root)
            keys[file.path] = known.key(place, file.before.text, file.after, repr(file.findings))
            found = known.get(keys[file.path], Tried, lambda tried: all(map(_lasts, tried.checked)))
            if found is not None:
                tried[file.path] = found

        # A definition that breaks no less is not kept, whatever else it does.
        options = replace(self.options, both_dynamic=False, only_if_fewer=True)
        sources = pool.share([file.before for file in made.files])
        again = Again(sources, self.settings)
        with self.phases("Verifying", sum(map(len, names.values()))) as advance:
            for path in tried:
                advance(relative(path, root), len(names[path]))
            waiting: dict[Future[TriedFile], Turns] = {}
            ran = Runs(known)
            for file in changed:
                if file.path not in tried:
                    turns = Turns(file.path, relative(file.path, root), names[file.path], advance)
                    runs = known.of(turns.place, Verdict, _lasts)
                    task = FileTask(
                        file,
                        options,
                        again,
                        self._traces,
                        root,
                        known.around,
                        runs,
                        Meanwhile(turns.begin, partial(ran.hear, turns.place)),
                    )
                    waiting[pool.submit(task)] = turns
            for done in ran.until_done(waiting):
                turns = waiting[done]
                found_now = done.result()
                for key, found_run in found_now.runs.items():
                    ran.keep(turns.place, key, found_run)
                known.keep(keys[turns.path], found_now.whole)
                tried[turns.path] = found_now.whole.found
                turns.end()
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
        options = replace(self.options, both_dynamic=False)
        defined = definitions_in(before)
        versions = dict(before), dict(after)
        results: list[Checked] = []
        waiting: list[Future[Ran[Checked]] | Checked] = []
        keys = []
        for entry in entries:
            # Of files that are not loaded, these count for the arms that are to be run.
            used = sorted(used_by(entry.name.partition(".")[0], defined))
            texts_used = (text for path in used for text in (path, *(v[path] for v in versions)))
            keys.append(known.key(str(entry.path), entry.name, *texts_used))
        for entry, key in zip(entries, keys, strict=True):
            task = EntryTask(entry, texts_of, options, self._traces, self.wanted.root)
            done = known.get(key, Checked, _lasts, rewritten)
            waiting.append(done if done is not None else pool.submit(task))
        with self.phases("Running entries", len(entries)) as advance:
            for found, key in zip(waiting, keys, strict=True):
                if isinstance(found, Checked):
                    results.append(found)
                else:
                    ran = found.result()
                    results.append(ran.found)
                    known.keep(key, ran, rewritten)
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
        defined = definitions_in(texts)
        used = {run.id: used_by(run.name, defined) for run in whole}
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


def _lasts(run: Checked | Verdict) -> bool:
    """Whether a run would end in the same way again."""
    return Status(run.status) is not Status.NOT_RUN
