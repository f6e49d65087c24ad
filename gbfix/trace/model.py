"""What a trace holds: breaks, skipped frames, recompiles, failures and inputs of a program's run.

Frozen values that any process can read without torch. Places are absolute files, lines and columns that
count from 1; a column is None where the Python or the log that was recorded did not know it. Where
the values come from, and what is done with them, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar


class Effect(str, Enum):
    """What Dynamo does at a break."""

    SPLITS = "splits"  # the graph ends, and another one begins behind it
    SKIPS_REST = "skips the rest"  # the frame's code behind the break stays in Python
    SKIPS_FRAME = "skips the frame"  # nothing of the frame is compiled
    FAILS = "fails"  # `fullgraph=True` or `error_on_graph_break`: the call raises


class Verdict(str, Enum):
    """Whose failure it is when a call of compiled code raises."""

    USER_ERROR = "user error"  # it raises under the stance force_eager too
    GRAPH_BREAK = "graph break"  # something cannot be captured, and the call demands that it is
    RECOMPILE = "recompile"  # it would be compiled again, and the stance forbids that
    COMPILER_FAILURE = "compiler failure"  # eager works; Dynamo or the backend does not
    UNKNOWN = "unknown"  # it could not be run again in eager


@dataclass(frozen=True)
class Frame:
    """One line of a stack. `text` is the source line, stripped."""

    file: str
    line: int
    function: str
    text: str = ""
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Code:
    """What Dynamo compiles at a time: a function, or the part of one that is resumed after a break."""

    file: str
    line: int
    name: str

    @property
    def function(self) -> str:
        """The name of the function, also for a part that is resumed."""
        prefix = "torch_dynamo_resume_in_"
        if not self.name.startswith(prefix):
            return self.name
        return self.name.removeprefix(prefix).rpartition("_at_")[0] or self.name

    def __str__(self) -> str:
        return f"{self.name} ({self.file}:{self.line})"


@dataclass(frozen=True)
class Reason:
    """Why a graph broke, in PyTorch's words; `registry` is its entry, such as `GB0170`."""

    name: str
    registry: str | None = None
    explanation: str = ""
    hints: tuple[str, ...] = ()
    context: str = ""

    def __str__(self) -> str:
        entry = f"{self.registry} " if self.registry else ""
        return f"{entry}{self.name}"


@dataclass(frozen=True)
class Known:
    """What a name held: a tensor with dtype and rank, a number, None, or something else."""

    name: str
    kind: str  # "tensor", "none", "number", "other"
    dtype: str | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Break:
    """A graph break as it was met while `code` was traced for a call of `entry`.

    `stack` begins at the program's outermost line and ends where the break is. `known` is what the
    names of the innermost function held there.
    """

    stack: tuple[Frame, ...]
    reason: Reason
    effect: Effect
    code: Code
    entry: str | None = None
    times: int = 1
    known: tuple[Known, ...] = ()

    @property
    def place(self) -> Frame:
        """The innermost line."""
        return self.stack[-1] if self.stack else Frame(self.code.file, self.code.line, "")


@dataclass(frozen=True)
class Skip:
    """A frame that Dynamo left to Python as a whole."""

    code: Code
    reason: str
    entry: str | None = None
    times: int = 1


@dataclass(frozen=True)
class Recompile:
    """A frame that was compiled again, and the guards that failed."""

    code: Code
    guards: tuple[str, ...]
    entry: str | None = None
    times: int = 1


@dataclass(frozen=True)
class Failure:
    """An exception that left a compiled callable, and whose failure it is."""

    entry: str
    type: str
    message: str
    verdict: Verdict
    evidence: str = ""
    times: int = 1


@dataclass(frozen=True)
class Sample:
    """The arguments of one call. `file` holds their values, in the folder beside the trace."""

    entry: str
    arguments: tuple[str, ...]
    file: str | None = None


@dataclass(frozen=True)
class Signature:
    """What the parameters of a compiled function held when it was called."""

    code: Code
    parameters: tuple[Known, ...]


@dataclass(frozen=True)
class Entry:
    """A callable given to `torch.compile`. `name` is that of a function or of a module's class.

    `state` is the file with what the module held at its first call, in the folder beside the trace;
    `no_state` says why there is none.
    """

    id: str
    name: str
    module: str
    file: str
    line: int
    calls: int = 0
    state: str | None = None
    no_state: str = ""


@dataclass(frozen=True)
class Process:
    """A process of the program that was recorded."""

    pid: int
    argv: tuple[str, ...]
    folder: str
    python: str
    torch: str
    started: float


@dataclass(frozen=True)
class Trace:
    """All that was recorded. `source` says how: `gbfix`, `TORCH_TRACE` or `TORCH_LOGS`."""

    source: str = "gbfix"
    processes: tuple[Process, ...] = ()
    entries: tuple[Entry, ...] = ()
    breaks: tuple[Break, ...] = ()
    skips: tuple[Skip, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    failures: tuple[Failure, ...] = ()
    samples: tuple[Sample, ...] = ()
    signatures: tuple[Signature, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def calls(self) -> dict[str, int]:
        """How often each entry was called."""
        return {entry.id: entry.calls for entry in self.entries}


def merge(traces: Iterable[Trace]) -> Trace:
    """One trace of several runs or processes: what is equal is counted together."""
    given = list(traces)
    sources = dict.fromkeys(trace.source for trace in given)
    return Trace(
        source="+".join(sources) or "gbfix",
        processes=tuple(dict.fromkeys(p for trace in given for p in trace.processes)),
        entries=_entries(given),
        breaks=_counted(b for trace in given for b in trace.breaks),
        skips=_counted(s for trace in given for s in trace.skips),
        recompiles=_counted(r for trace in given for r in trace.recompiles),
        failures=_counted(f for trace in given for f in trace.failures),
        samples=tuple(dict.fromkeys(s for trace in given for s in trace.samples)),
        signatures=tuple(dict.fromkeys(s for trace in given for s in trace.signatures)),
        notes=tuple(dict.fromkeys(n for trace in given for n in trace.notes)),
    )


def _entries(traces: Iterable[Trace]) -> tuple[Entry, ...]:
    found: dict[str, Entry] = {}
    for trace in traces:
        for entry in trace.entries:
            known = found.get(entry.id)
            calls = entry.calls + (known.calls if known else 0)
            kept = known if known is not None and (known.state or not entry.state) else entry
            found[entry.id] = replace(kept, calls=calls)
    return tuple(found.values())


_Times = TypeVar("_Times", Break, Skip, Recompile, Failure)


def _counted(values: Iterable[_Times]) -> tuple[_Times, ...]:
    found: dict[_Times, int] = {}
    for value in values:
        once = replace(value, times=1)
        found[once] = found.get(once, 0) + value.times
    return tuple(replace(value, times=times) for value, times in found.items())
