"""What was found by running code, kept in journals and used again where nothing has changed.

Code runs with all that is around it. So a change in any file of the project, in what is installed or
in how code is run asks for running all of it again. What an earlier migration could not run is tried
again, since that may have been for want of time or memory; one that goes on keeps that, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, TypeVar

from gbfix.cache import settings_text, which_gbfix
from gbfix.dynamo.backends import default_backend
from gbfix.errors import UserError
from gbfix.findings import FileResult
from gbfix.migrate.journal import Journal, all_in
from gbfix.migrate.outcome import read
from gbfix.settings import Settings
from gbfix.verify.options import Options

_Found = TypeVar("_Found")


class Known:
    """The results of a migration and of those before it.

    `around` is what all of them depend on.
    """

    def __init__(self, root: Path, journal: Journal, around: Iterator[str]) -> None:
        self._journal = journal
        self._around = _digest(around)
        self._found: dict[str, tuple[Journal, str]] = {}
        for one in reversed(all_in(root)):
            for record in one.of("tried"):
                self._found[record["key"]] = one, record["result"]

    def key(self, *parts: str) -> str:
        """The name of a result, from what it is of besides what is around."""
        return _digest(iter((self._around, *parts)))

    def get(self, key: str, kind: type[_Found], lasting: Callable[[_Found], bool]) -> _Found | None:
        """A result; from another migration only if it is a lasting one. None if there is none."""
        if key not in self._found:
            return None
        journal, name = self._found[key]
        own = journal.id == self._journal.id
        try:
            found = read(kind, json.loads(journal.kept(name)))
        except UserError:
            if own:
                raise
            return None
        if own:
            return found
        if not lasting(found):
            return None
        self.keep(key, found)
        return found

    def keep(self, key: str, found: Any) -> None:
        """Keep a result, a dataclass, in the journal.

        Raises:
            Interrupted: if it cannot be written.
        """
        content = json.dumps(asdict(found), default=str).encode()
        self._journal.append("tried", key=key, result=self._journal.keep(content))


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
        yield file.before.text


def _digest(parts: Iterator[str]) -> str:
    content = hashlib.sha256()
    for part in parts:
        piece = part.encode("utf-8", "surrogatepass")
        content.update(b"%d:" % len(piece) + piece)
    return content.hexdigest()
