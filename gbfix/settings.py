"""What a user can set about a run, as one frozen value that the engine reads.

The module knows nothing of where settings come from: `gbfix.config` and the command line fill them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from gbfix.findings import Safety


class Region(str, Enum):
    """Which functions count as running under `torch.compile`."""

    AUTO = "auto"
    COMPILE = "compile"
    FORWARD = "forward"
    ALL = "all"


class Branch(str, Enum):
    """Which form a tensor-dependent branch is given."""

    AUTO = "auto"
    COND = "cond"
    WHERE = "where"


class CheckStyle(str, Enum):
    """What becomes of a validation in the compiled path: asserted in the graph, or skipped."""

    ASSERT = "assert"
    SKIP = "skip"


class SideEffects(str, Enum):
    """What becomes of prints, log calls and warnings in the compiled path.

    Dropped; kept, inside the graph; or left to a setting of Dynamo.
    """

    DROP = "drop"
    KEEP = "keep"
    CONFIG = "config"


@dataclass(frozen=True)
class Choice:
    """Which fix one site gets, whatever is preferred; the place is that in the file as it is on disk.

    Attributes:
        transform: the one that treats it; None to leave it as it is.
        why: why it is left, if there is something to say of that.
    """

    path: Path
    line: int
    column: int
    code: str
    transform: str | None
    why: str = ""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        safety: the least safety at which a fix is applied.
        config: whether fixes that make settings of Dynamo are applied, too.
        target_torch: the torch version that the code is for; None for the one installed.
        verifying: whether every fix is run before it is kept, so that an assumption which running
            can check may be made.
        fix_with: names of transforms that are preferred to others; those that are only made on
            request are only made then.
        choices: the fixes of single sites; other sites get the preferred one.
        quiet: codes that are not reported, since that version does not break there.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    region: Region = Region.AUTO
    branch: Branch = Branch.AUTO
    check: CheckStyle = CheckStyle.ASSERT
    side_effects: SideEffects = SideEffects.DROP
    family_effects: tuple[tuple[str, SideEffects], ...] = ()
    safety: Safety = Safety.REVIEW
    config: bool = False
    line_length: int = 88
    respect_gitignore: bool = True
    target_torch: str | None = None
    verifying: bool = False
    fix_with: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    quiet: frozenset[str] = frozenset()

    def effects_of(self, family: str) -> SideEffects:
        """The policy for `print`, `logging` or `warnings`."""
        return dict(self.family_effects).get(family, self.side_effects)
