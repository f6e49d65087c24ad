"""What was found by running code, kept in journals and used again where nothing has changed.

A result is found by what was run and how, and is good while every file of the project that was loaded
for it is as it was then. Which files there are counts as well, since a new one can hide another from an
import. What an earlier migration could not run is tried again, since that may have been for want of
time or memory; one that goes on keeps that, too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Generic, TypeVar

from gbfix.cache import settings_text, which_gbfix
from gbfix.dynamo.backends import default_backend
from gbfix.errors import UserError
from gbfix.findings import FileResult
from gbfix.migrate.contents import Contents, State
from gbfix.migrate.journal import Journal, Record, all_in
from gbfix.migrate.outcome import read
from gbfix.settings import Settings
from gbfix.verify.options import Options

_Found = TypeVar("_Found")
_NONE: Mapping[str, str] = {}


@dataclass(frozen=True)
class Ran(Generic[_Found]):
    """What was found by running code, and the files that were loaded for it; None if nobody knows.

    `everything` says that all files of the project count beside these.
    """

    found: _Found
    loaded: frozenset[str] | None
    everything: bool = False


@dataclass(frozen=True)
class _Kept:
    """Where a result is, and the state of what was loaded for it, by the names of their bytes."""

    journal: Journal
    key: str
    result: str
    state: str


class Known:
    """The results of a migration and of those before it.

    A key may have several results, each with other contents of what was loaded.

    Attributes:
        around: a digest of what all results depend on.
        contents: what is in the files that they have loaded.
    """

    def __init__(
        self, root: Path, journal: Journal, around: Iterator[str], contents: Contents
    ) -> None:
        self.around = digest_of(around)
        self.contents = contents
        self._journal = journal
        self._by_key: dict[str, list[_Kept]] = {}
        self._by_place: dict[str, list[_Kept]] = {}
        self._states: dict[str, State] = {}
        for one in reversed(all_in(root)):
            for record in one.of("tried"):
                if "state" in record:
                    self._add(one, record)

    def key(self, *parts: str) -> str:
        """The name of results, from what they are of besides what is around."""
        return digest_of((self.around, *parts))

    def get(
        self,
        key: str,
        kind: type[_Found],
        lasting: Callable[[_Found], bool],
        after: Mapping[str, str] = _NONE,
    ) -> _Found | None:
        """A result of the same files; from another migration only if it is a lasting one.

        `after` are the texts that stand in for files, by their real paths. None if there is none.
        """
        for kept in reversed(self._by_key.get(key, ())):
            ran = self._good(kept, kind, lasting, after)
            if ran is not None:
                return ran.found
        return None

    def of(
        self, place: str, kind: type[_Found], lasting: Callable[[_Found], bool]
    ) -> dict[str, Ran[_Found]]:
        """The results at a place, by their keys, where no text stands in for another file."""
        found: dict[str, Ran[_Found]] = {}
        for kept in self._by_place.get(place, ()):
            ran = self._good(kept, kind, lasting, _NONE)
            if ran is not None:
                found[kept.key] = ran
        return found

    def keep(
        self, key: str, ran: Ran[Any], after: Mapping[str, str] = _NONE, *, place: str = ""
    ) -> None:
        """Keep a result, a dataclass, in the journal, unless what was loaded for it has changed.

        Raises:
            Interrupted: if it cannot be written.
        """
        state = self.contents.of(ran.loaded, after, everything=ran.everything)
        if state is not None:
            self._keep(key, ran.found, state, place)

    def _keep(self, key: str, found: Any, state: State, place: str) -> None:
        content = json.dumps(asdict(found), default=str).encode()
        names = self._journal.keep(content), self._journal.keep(json.dumps(state).encode())
        self._journal.append("tried", key=key, result=names[0], state=names[1], place=place)
        self._add(self._journal, self._journal.records[-1])

    def _add(self, journal: Journal, record: Record) -> None:
        kept = _Kept(journal, record["key"], record["result"], record["state"])
        self._by_key.setdefault(kept.key, []).append(kept)
        if record["place"]:
            self._by_place.setdefault(record["place"], []).append(kept)

    def _good(
        self,
        kept: _Kept,
        kind: type[_Found],
        lasting: Callable[[_Found], bool],
        after: Mapping[str, str],
    ) -> Ran[_Found] | None:
        own = kept.journal.id == self._journal.id
        try:
            state = self._state(kept)
            if any(self.contents.now(path, after) != then for path, then in state.items()):
                return None
            found = read(kind, json.loads(kept.journal.kept(kept.result)))
        except UserError:
            if own:
                raise
            return None
        return Ran(found, frozenset(state)) if own or lasting(found) else None

    def _state(self, kept: _Kept) -> State:
        if kept.state not in self._states:
            self._states[kept.state] = json.loads(kept.journal.kept(kept.state))
        return self._states[kept.state]


def around(
    files: Sequence[FileResult], traces: Sequence[Path], settings: Settings, options: Options
) -> Iterator[str]:
    """What the results of running code depend on, whatever code it is."""
    yield which_gbfix()
    yield default_backend()
    yield settings_text(settings)
    yield settings_text(options)
    yield from sorted(f"{d.metadata['Name']} {d.version}" for d in distributions())
    for trace in traces:
        yield hashlib.sha256(trace.read_bytes()).hexdigest() if trace.is_file() else str(trace)
    for file in files:
        yield str(file.path)
        yield os.path.realpath(file.path)


def digest_of(parts: Iterable[str]) -> str:
    """A digest of texts in their order."""
    content = hashlib.sha256()
    for part in parts:
        piece = part.encode("utf-8", "surrogatepass")
        content.update(b"%d:" % len(piece) + piece)
    return content.hexdigest()
