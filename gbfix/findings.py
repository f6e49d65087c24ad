"""What a run says about the code: findings, fixes offered, refusals, and results per file.

These are the frozen values that flow from the engine to the reports and the command line. The
module knows nothing of trees, transforms or terminals.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from gbfix.source.text import Edit, SourceFile


class Safety(IntEnum):
    """How much a fix asks the reader to trust; ordered, so that a level test is one comparison."""

    UNSAFE = 0
    REVIEW = 1
    SAFE = 2

    @property
    def label(self) -> str:
        """The lower-case word that users see."""
        return self.name.lower()


@dataclass(frozen=True)
class FixOffer:
    """A fix that a transform can make at a site, with its safety and a one-line reason.

    `setting` is the line that makes a setting of Dynamo, for a fix that does nothing else.
    """

    transform: str
    safety: Safety
    reason: str
    setting: str | None = None


@dataclass(frozen=True)
class Refusal:
    """Why a transform leaves a site alone: a stable reason code and a sentence."""

    transform: str
    code: str
    sentence: str


@dataclass(frozen=True)
class Seen:
    """What a trace tells of a site: PyTorch's reason, and what the break costs.

    Attributes:
        fragments: how many compiled frames are split here; a frame that inlines the site is one. None
            are for a site that was not met, since it is behind a break that skips its frame.
        times: how often Dynamo met the break.
        calls: how often the compiled callables were called under which it was met.
        library: the place inside a library that the user's line leads to.
    """

    registry: str | None
    reason: str
    explanation: str
    hints: tuple[str, ...]
    effect: str
    fragments: int
    times: int
    calls: int
    library: str | None = None

    @property
    def cost(self) -> int:
        """Fragments times calls, by which sites are ordered."""
        return self.fragments * max(self.calls, 1)

    @property
    def met(self) -> bool:
        """Whether Dynamo came to it."""
        return self.fragments > 0

    @property
    def cost_in_words(self) -> str:
        """What the place costs, in a few words."""
        if not self.met:
            return self.effect
        fragments = f"{self.fragments} fragment{'s' if self.fragments > 1 else ''}"
        calls = f", {self.calls} call{'s' if self.calls > 1 else ''}" if self.calls else ""
        return f"{fragments}, {self.effect}{calls}"

    @property
    def hides(self) -> bool:
        """Whether what comes after it is not compiled, so that further breaks are not met."""
        return self.effect.startswith("skips")


@dataclass(frozen=True)
class Finding:
    """A break site and what became of it. Lines and columns count from 1.

    `edits` are those of each offer, where they were asked for.
    """

    path: Path
    line: int
    column: int
    end_line: int
    end_column: int
    code: str
    name: str
    message: str
    function: str
    certain: bool
    offers: tuple[FixOffer, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    applied: FixOffer | None = None
    edits: tuple[tuple[Edit, ...], ...] = ()
    seen: Seen | None = None

    @property
    def place(self) -> tuple[int, int, str]:
        """Where the finding comes among those of its file."""
        return self.line, self.column, self.code


@dataclass(frozen=True)
class FileResult:
    """One file after a run. `after` is the new text, equal to `before.text` where nothing changed."""

    path: Path
    before: SourceFile
    after: str
    findings: tuple[Finding, ...]

    @property
    def changed(self) -> bool:
        """Whether the run rewrote anything in this file."""
        return self.after != self.before.text


@dataclass(frozen=True)
class FileError:
    """A file that could not be read, parsed or processed, in one clear sentence."""

    path: Path
    sentence: str


@dataclass(frozen=True)
class RunResult:
    """All files of a run, in path order, the errors met, and notices for standard error.

    `consulted` are the files that were looked into, `absent` those that would have been.
    """

    files: tuple[FileResult, ...]
    errors: tuple[FileError, ...] = ()
    notices: tuple[str, ...] = ()
    consulted: frozenset[Path] = frozenset()
    absent: frozenset[Path] = frozenset()
