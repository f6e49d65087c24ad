"""What the compiler did, as frozen values that any process can hold.

They do not need torch, so that a command can print what a worker has measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Break:
    """One break: where the user's code stood, PyTorch's entry for it, and how Dynamo went on.

    `diagnosis` is gbfix's own code for it, where one has been looked up.
    """

    file: str
    line: int
    registry: str | None
    reason: str
    kind: str = "splits"
    diagnosis: str | None = None

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
class Operators:
    """What ran in one round of calls: graph nodes inside graphs, operators by name outside of them.

    See `gbfix.dynamo.operators` for what is counted.
    """

    captured: int
    left_out: tuple[tuple[str, int], ...] = ()

    @property
    def number_left_out(self) -> int:
        """How many operators ran outside of graphs."""
        return sum(count for _, count in self.left_out)


@dataclass(frozen=True)
class Fragment:
    """One graph: the code that it was captured from, and what is called in it, in order.

    Attributes:
        cut_by: which break of the capture ended it, as an index; None if none did.
        again: whether the same code had been compiled before.
    """

    file: str
    line: int
    function: str
    operators: tuple[str, ...]
    cut_by: int | None = None
    again: bool = False


@dataclass(frozen=True)
class Capture:
    """What became of a sequence of compiled calls.

    Attributes:
        graphs: how many graphs were captured, recompilations included.
        operators: how many nodes these graphs have.
        recompiles: how often a frame was compiled again, in all calls or in the first four.
        recompiles_by_call: the same of each call, where that was counted.
        ran: what ran inside and outside of graphs once all was compiled, where that was counted.
        fragments: the graphs one by one, in the order of compilation.
        fullgraph_calls: whether `fullgraph=True` compiles it, call by call, where that was asked.
    """

    graphs: int
    operators: int
    breaks: tuple[Break, ...]
    skips: tuple[Skip, ...]
    recompiles: int
    fullgraph: bool | None = None
    fullgraph_error: str | None = None
    ran: Operators | None = None
    recompiles_by_call: tuple[int, ...] = ()
    fragments: tuple[Fragment, ...] = ()
    fullgraph_calls: tuple[bool, ...] = ()

    @property
    def sites(self) -> tuple[tuple[str, int], ...]:
        """The places of the breaks, each once, in the order in which they were met."""
        return tuple(dict.fromkeys(found.site for found in self.breaks))

    @property
    def whole(self) -> bool:
        """Whether everything was captured: no breaks and no skipped frames."""
        return not self.breaks and not self.skips

    def with_fullgraph(self, error: str | None, calls: tuple[bool, ...] = ()) -> Capture:
        """The same with the answer to whether `fullgraph=True` compiles it, and which of its calls."""
        return replace(self, fullgraph=error is None, fullgraph_error=error, fullgraph_calls=calls)
