"""What is made of a file's verification before it is done: how far it is, and what was found so far.

Tasks tell of it in threads of their own; who waits for them shows it and keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from queue import SimpleQueue

from gbfix.migrate.checking import TriedFile
from gbfix.migrate.known import Known, Ran
from gbfix.migrate.run import Advance
from gbfix.verify.verdict import Verdict

_SECONDS = 0.5


class Turns:
    """Tells how far the verification of a file is: which definition has its turn, and how many had."""

    def __init__(self, path: Path, place: str, names: Sequence[str], advance: Advance) -> None:
        self.path = path
        self.place = place
        self._names = set(names)
        self._begun: set[str] = set()
        self._advance = advance

    def begin(self, name: str) -> None:
        """It is the turn of a definition, which may not be its first."""
        first = name in self._names and name not in self._begun
        self._advance(f"{self.place}:{name}", int(first and bool(self._begun)))
        if first:
            self._begun.add(name)

    def end(self) -> None:
        """All of the file is done."""
        self._advance(self.place, len(self._names) - max(0, len(self._begun) - 1))


class Runs:
    """Keeps single runs as soon as they are heard of, so that little is lost with a file's last one."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._heard: SimpleQueue[tuple[str, str, Ran[Verdict]]] = SimpleQueue()
        self._kept: set[str] = set()

    def hear(self, place: str, key: str, ran: Ran[Verdict]) -> None:
        """Take a run, in any thread; it is kept in that of the journal."""
        self._heard.put((place, key, ran))

    def keep(self, place: str, key: str, ran: Ran[Verdict]) -> None:
        """Keep a run, once."""
        if key not in self._kept:
            self._kept.add(key)
            self._known.keep(key, ran, place=place)

    def until_done(self, waiting: Iterable[Future[TriedFile]]) -> Iterator[Future[TriedFile]]:
        """Give tasks as they end, and keep what is heard of meanwhile."""
        left = set(waiting)
        while left:
            done, left = wait(left, _SECONDS, FIRST_COMPLETED)
            while not self._heard.empty():
                self.keep(*self._heard.get())
            yield from done
