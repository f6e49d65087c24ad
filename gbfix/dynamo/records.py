"""What the compiler did, as frozen values that any process can hold.

They do not need torch, so that a command can print what a worker has measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Break:
    """One break: where the user's code stood, PyTorch's entry for it, and how Dynamo went on."""

    file: str
    line: int
    registry: str | None
    reason: str
    kind: str = "splits"

    @property
    def site(self) -> tuple[str, int]:
        """The place; one place can break several times, once for each frame that inlined it."""
        return self.file, self.line

    def __str__(self) -> str:
        entry = f" [{self.registry}]" if self.registry else ""
        return f"{self.file}:{self.line}:{entry} {self.reason}"


@dataclass(frozen=True)
class Skip:
    """A frame that Dynamo gave up as a whole, and why."""

    file: str
    line: int
    function: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.function} is not compiled at all: {self.reason}"


@dataclass(frozen=True)
class Capture:
    """What became of a sequence of compiled calls."""

    graphs: int
    operators: int
    breaks: tuple[Break, ...]
    skips: tuple[Skip, ...]
    recompiles: int
    fullgraph: bool | None = None
    fullgraph_error: str | None = None

    @property
    def sites(self) -> tuple[tuple[str, int], ...]:
        """The places of the breaks, each once, in the order in which they were met."""
        return tuple(dict.fromkeys(found.site for found in self.breaks))

    @property
    def whole(self) -> bool:
        """Whether everything was captured: no breaks and no skipped frames."""
        return not self.breaks and not self.skips

    def with_fullgraph(self, error: str | None) -> Capture:
        """The same with the answer to whether `fullgraph=True` compiles it."""
        return replace(self, fullgraph=error is None, fullgraph_error=error)
