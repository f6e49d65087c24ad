"""What the checker says: a status, the differences behind it, and the evidence.

Values only; they are printed by commands, compared by tests and written as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from gbfix.dynamo.records import Capture
from gbfix.verify.arms import Coverage
from gbfix.verify.latency import Timing
from gbfix.verify.launches import Launches


class Status(str, Enum):
    """The one word for a target."""

    VERIFIED = "verified"
    PARTLY_VERIFIED = "partly verified"
    DIFFERENT = "different"
    NO_FEWER_BREAKS = "no fewer breaks"
    FAILS_EAGER = "original fails in eager"
    FAILS_COMPILED = "original fails compiled but not eager"
    NOT_RUN = "not run"


class Kind(str, Enum):
    """In what two calls differ."""

    STRUCTURE = "structure"
    DTYPE = "dtype"
    SHAPE = "shape"
    STRIDE = "stride"
    DEVICE = "device"
    VALUE = "value"
    REQUIRES_GRAD_GAINED = "requires_grad gained"
    REQUIRES_GRAD_LOST = "requires_grad lost"
    GRADIENT_ZERO = "gradient zeros instead of None"
    GRADIENT_NONE = "gradient None or not"
    ALIAS = "alias"
    ALIAS_LOST = "alias lost"
    EFFECT = "output"
    EFFECT_DROPPED = "output dropped"
    EFFECT_NUMBERS = "numbers in output"
    EFFECT_GRAD_FN = "grad_fn in output"
    EXCEPTION = "exception"
    EXCEPTION_TYPE = "exception type"
    EXCEPTION_SKIPPED = "exception skipped"
    STATE_ADDED = "state added"


# What a rewrite may add without a caller's noticing: a value that it has read beforehand, say.
ADDED = frozenset({Kind.STATE_ADDED})

# What a fix of the level `review` may change, in compiled runs only.
REVIEW = ADDED | frozenset(
    {
        Kind.STRIDE,
        Kind.REQUIRES_GRAD_GAINED,
        Kind.GRADIENT_ZERO,
        Kind.ALIAS_LOST,
        Kind.EFFECT_DROPPED,
        Kind.EFFECT_GRAD_FN,
        Kind.EXCEPTION_TYPE,
    }
)


@dataclass(frozen=True)
class Difference:
    """One thing in which the rewritten code is not as the original."""

    mode: str
    call: int
    kind: Kind
    place: str
    detail: str

    def __str__(self) -> str:
        where = f" {self.place}" if self.place else ""
        return f"{self.mode}, call {self.call + 1}:{where} {self.detail}"


@dataclass(frozen=True)
class Evidence:
    """What a verdict stands on.

    `before_static` and `after_static` are the captures with `dynamic=False`, of the same calls.
    `made_with` are the arguments that were guessed to construct the target, if any were. `halves` are
    types to which the target and its inputs were converted for further runs.
    """

    backend: str = ""
    device: str = "cpu"
    inputs: tuple[str, ...] = ()
    made_with: str | None = None
    calls: int = 0
    gradients: bool = False
    inference: bool = False
    halves: tuple[str, ...] = ()
    arms: Coverage = field(default_factory=Coverage)
    before: Capture | None = None
    after: Capture | None = None
    before_static: Capture | None = None
    after_static: Capture | None = None
    timing: Timing | None = None
    seconds: float = 0.0
    raising: tuple[int, ...] = ()
    launches_before: Launches | None = None
    launches_after: Launches | None = None


@dataclass(frozen=True)
class Reproduction:
    """The smallest calls found that show a difference, and a script that makes them.

    Attributes:
        calls: the arguments of each call as code; empty if they have no literals.
        difference: how the two sides differ for these.
        backend: the backend with which it shows; empty in eager.
        tries: how many other inputs were tried.
        complete: whether all steps were tried, and the search was not ended by its budget.
        path: where the script was written, if it was.
    """

    calls: tuple[str, ...]
    difference: Difference
    backend: str
    tries: int
    complete: bool
    script: str
    path: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What was found for one target.

    `remarks` are differences that a fix may make in compiled runs, and that a reader should know.
    """

    target: str
    status: Status
    reason: str
    differences: tuple[Difference, ...] = ()
    remarks: tuple[Difference, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)
    reproduction: Reproduction | None = None

    @property
    def verified(self) -> bool:
        """Whether the rewrite may be taken as proven."""
        return self.status is Status.VERIFIED


def all_verified(verdicts: Iterable[Verdict]) -> bool:
    """Whether there is something and all of it is verified."""
    found = list(verdicts)
    return bool(found) and all(verdict.verified for verdict in found)
