"""What the checker asks of workers and what they answer, as values that need no torch.

Snapshots of tensors stay pickled in these, and are opened in workers only.
"""

from __future__ import annotations

from dataclasses import dataclass

from gbfix.dynamo.records import Capture
from gbfix.verify.arms import Branch, Seen
from gbfix.verify.launches import Launches
from gbfix.verify.recipes import Inputs
from gbfix.verify.targets import Side
from gbfix.verify.verdict import Difference


@dataclass(frozen=True)
class RunSpec:
    """One way of running one side.

    Attributes:
        backend: the backend, or None for eager.
        gradients: whether gradients are asked of inputs and parameters, and a backward follows.
        inference: whether modules are in eval mode and nothing is recorded for gradients.
        reference: whether everything is converted to float64.
        watch: whether the arms that are taken are recorded; eager only.
    """

    side: Side
    inputs: Inputs
    backend: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None
    gradients: bool = False
    inference: bool = False
    reference: bool = False
    watch: bool = False
    device: str = "cpu"
    dtype: str | None = None
    emulate_precision_casts: bool = False


@dataclass(frozen=True)
class RunRecord:
    """What a run left: its calls, pickled, and what else is known; or why there are no calls.

    Attributes:
        calls: a pickled tuple of `CallShot`.
        raised: how many of the calls end with an exception.
        refused: the compiler's first error, if it gave one.
        taken: of each call, whether the compiler gave none.
        recompiles: how many frames were compiled again in each call.
        always_compiled: whether the file itself gives the target to `torch.compile`.
        made_with: the arguments that were guessed to construct the target, if any were.
        warned: whether anything was warned of.
    """

    calls: bytes = b""
    number_of_calls: int = 0
    raised: int = 0
    failure: str | None = None
    refused: str | None = None
    always_compiled: bool = False
    capture: Capture | None = None
    seen: frozenset[Seen] = frozenset()
    inputs: tuple[str, ...] = ()
    recompiles: tuple[int, ...] = ()
    made_with: str | None = None
    warned: bool = False
    taken: tuple[bool, ...] = ()


@dataclass(frozen=True)
class SearchSpec:
    """What inputs are wanted for: the original, the branches that a rewrite touches, and the time.

    `decided` are branches of which no input reaches more than one arm.
    `rewritten` is the rewritten text, which is read for what it speaks of and not run. Tensors have at
    most `most_dims` dimensions, if that is given. With `saved` calls, of which each file holds one,
    only calls that reach arms which those leave out are wanted.
    """

    side: Side
    touched: frozenset[Branch] = frozenset()
    files: frozenset[str] = frozenset()
    rewritten: str = ""
    decided: frozenset[Branch] = frozenset()
    seconds: float = 30.0
    device: str = "cpu"
    dtype: str | None = None
    most_dims: int | None = None
    saved: Inputs | None = None


@dataclass(frozen=True)
class Generated:
    """Inputs, or why there are none.

    `halves` are types to which all has to be converted for some arms to be reached.
    """

    inputs: Inputs | None = None
    failure: str | None = None
    halves: tuple[str, ...] = ()


@dataclass(frozen=True)
class Runs:
    """The pickled calls of one way of calling, by side and mode; a missing one is not judged."""

    original_eager: bytes
    rewritten_eager: bytes | None = None
    original_compiled: bytes | None = None
    rewritten_compiled: bytes | None = None
    reference: bytes | None = None


@dataclass(frozen=True)
class Findings:
    """What runs show when they are compared.

    Attributes:
        original_errors: what the original's eager calls raise, call by call.
        compiler_errors: what the original raises only when compiled.
        out_of_memory: whether memory ran out in the original's eager run.
        has_gradients: whether any gradient arrived.
    """

    differences: tuple[Difference, ...] = ()
    remarks: tuple[Difference, ...] = ()
    original_errors: tuple[str | None, ...] = ()
    compiler_errors: tuple[Difference, ...] = ()
    out_of_memory: bool = False
    has_gradients: bool = False


@dataclass(frozen=True)
class MeasureSpec:
    """How one side is measured in use.

    Attributes:
        backend, mode: what is asked of `torch.compile`, where not left to it.
        repeats: how many steady calls are timed.
        lock: a file whose holder alone measures steady calls.
    """

    side: Side
    inputs: Inputs
    backend: str | None = None
    mode: str | None = None
    device: str = "cpu"
    dtype: str | None = None
    repeats: int = 20
    lock: str | None = None


@dataclass(frozen=True)
class Measured:
    """Seconds of the first call and of a steady one, and what all calls did; or why it failed."""

    first: float = 0.0
    steady: float = 0.0
    launches: Launches | None = None
    failure: str | None = None
