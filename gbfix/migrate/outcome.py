"""What a finished migration says: frozen values, and the JSON document that holds them.

Reports are made from this alone, without the code, the journal or torch. Paths are relative to the root
of the migration, with `/`; lines and columns count from 1; times are in seconds. `None` stands for
what was not measured, never for zero. docs/json.md describes the document, field by field.
"""

from __future__ import annotations

import json
import types
import typing
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from gbfix import __version__
from gbfix.errors import UserError

VERSION = 1


class State(str, Enum):
    """What became of a file."""

    UNCHANGED = "unchanged"  # nothing in it could or had to be rewritten
    WRITTEN = "written"  # the file on disk now has the rewritten text
    PLANNED = "planned"  # a dry run would write it
    WITHHELD = "withheld"  # the policy did not allow what was made for it
    NOT_WRITTEN = "not written"  # it could not or should not be replaced: `reason` says why


@dataclass(frozen=True)
class Change:
    """A measured number before and after."""

    before: int
    after: int


@dataclass(frozen=True)
class Arms:
    """The arms of rewritten branches: how many were run, of how many, and which were not."""

    covered: int = 0
    total: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class FixMade:
    """A fix that the file has: the transform, its safety (`safe`, `review`, `unsafe`) and why it is."""

    transform: str
    safety: str
    reason: str


@dataclass(frozen=True)
class Declined:
    """Why a site was not treated: by which transform, a stable code, and a sentence."""

    transform: str
    code: str
    sentence: str


@dataclass(frozen=True)
class Offered:
    """A fix that could be taken; `setting` is the setting of Dynamo that it makes, if it is one."""

    transform: str
    safety: str
    reason: str
    setting: str | None = None


@dataclass(frozen=True)
class Site:
    """A break site and what became of it.

    Attributes:
        line, column, end_line, end_column: where it was before the migration if it is fixed, and where
            it is now if not; the end is the first column after it.
        code, name: of the diagnosis.
        function: the function around it, as `Class.method`.
        certain: whether it is known to break.
        fix: what was done; None if it was left as it was.
        refusals: why what was tried before that was not done.
        cost: fragments times calls, as a trace has counted them.
        offers: the other fixes that could be taken, the preferred one first.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    code: str
    name: str
    message: str
    function: str
    certain: bool
    fix: FixMade | None = None
    refusals: tuple[Declined, ...] = ()
    cost: int | None = None
    offers: tuple[Offered, ...] = ()


@dataclass(frozen=True)
class BreakSeen:
    """A break that Dynamo made. `kind` is `splits`, `skips the rest` or `skips the frame`."""

    file: str
    line: int
    registry: str | None
    diagnosis: str | None
    reason: str
    kind: str


@dataclass(frozen=True)
class SkipSeen:
    """A frame that Dynamo gave up as a whole."""

    file: str
    line: int
    function: str
    reason: str


@dataclass(frozen=True)
class Fragment:
    """One graph that was captured.

    Attributes:
        file, line, function: the code that was compiled. A part that is resumed after a break has the
            name of its function, and the line where it is resumed.
        operators: what is called in it, in order.
        cut_by: which of the capture's breaks ended it, as an index; None if nothing did.
        again: whether the same code had been compiled before, for other inputs.
    """

    file: str
    line: int
    function: str
    operators: tuple[str, ...]
    cut_by: int | None = None
    again: bool = False


@dataclass(frozen=True)
class Captured:
    """What Dynamo made of a target: its fragments in the order of compilation, and what cut them.

    `fragments` leaves out none of the graphs; `operators` is how many these have together.
    `left_out` is how many operators ran outside of graphs in one round of calls.
    """

    graphs: int
    operators: int
    recompiles: int
    breaks: tuple[BreakSeen, ...] = ()
    skips: tuple[SkipSeen, ...] = ()
    fragments: tuple[Fragment, ...] = ()
    left_out: int | None = None
    fullgraph: bool | None = None
    fullgraph_error: str | None = None

    @property
    def places(self) -> int:
        """How many places break, each counted once."""
        return len({(found.file, found.line) for found in self.breaks})


@dataclass(frozen=True)
class Checked:
    """A function or class that was run, original against rewritten.

    Attributes:
        name: the name at the top of its file; `id` is `path:name`.
        entry: whether it was asked for, or is an entry of the trace; others were run since they were
            rewritten. An entry is run with all files as the migration leaves them, others with only
            their own file rewritten.
        status: the words of the checker, such as `verified` or `partly verified`.
        reason: one sentence.
        recorded: whether the inputs were recorded from a program, and not generated.
        differences: what counts against it; `remarks` are differences in compiled runs that do not.
        before, after: what Dynamo made of the two; None if it did not come to that.
    """

    id: str
    path: str
    name: str
    entry: bool
    status: str
    verified: bool
    reason: str
    backend: str = ""
    device: str = ""
    inputs: tuple[str, ...] = ()
    recorded: bool = False
    calls: int = 0
    gradients: bool = False
    seconds: float = 0.0
    arms: Arms = field(default_factory=Arms)
    differences: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    before: Captured | None = None
    after: Captured | None = None


@dataclass(frozen=True)
class MigratedFile:
    """One file with findings, or with something to say about it.

    Attributes:
        package: its folder.
        state: what became of it; `reason` says why where it is not obvious.
        diff: from the original to what is in the file now; of a file that is `withheld` or
            `not written`, to what would have been written. Empty if nothing was made.
        verdict: the weakest status of what was run in it; None if nothing was.
        arms, breaks, fragments: sums over what was run in it; None if nothing was.
    """

    path: str
    package: str
    lines: int
    state: State
    reason: str = ""
    diff: str = ""
    sites: tuple[Site, ...] = ()
    verdict: str | None = None
    arms: Arms | None = None
    breaks: Change | None = None
    fragments: Change | None = None

    @property
    def fixed(self) -> int:
        """How many sites are fixed."""
        return sum(site.fix is not None for site in self.sites)


@dataclass(frozen=True)
class Error:
    """A file that could not be read, analysed or written."""

    path: str
    sentence: str


@dataclass(frozen=True)
class Commit:
    """A commit that was made."""

    hash: str
    subject: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Policy:
    """What was asked for. `require` is `verified`, `safe` or `review`."""

    require: str
    verify: bool
    targets: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Totals:
    """Counts over the whole codebase.

    Attributes:
        files, lines: all that were looked at.
        with_sites, written, withheld, not_written: files.
        sites, fixed, left: break sites; `fixed` counts those in files that were written (or planned).
        by_code: of each diagnosis, sites before and after.
        by_safety: fixes by safety.
        by_verdict: what was run, by status.
        refusals: sites left, by the code of their last refusal.
        breaks, fragments: sums over what was run; None if nothing was.
        seconds: how long it took, and of that planning, verifying and writing.
    """

    files: int = 0
    lines: int = 0
    with_sites: int = 0
    written: int = 0
    withheld: int = 0
    not_written: int = 0
    sites: int = 0
    fixed: int = 0
    left: int = 0
    errors: int = 0
    by_code: dict[str, Change] = field(default_factory=dict)
    by_safety: dict[str, int] = field(default_factory=dict)
    by_verdict: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    breaks: Change | None = None
    fragments: Change | None = None
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """A finished migration.

    Attributes:
        id: its name, that of its folder in `.gbfix/migrate/`.
        root: the absolute path of what was migrated.
        started, finished: UTC, in ISO 8601.
        resumed: how often it was taken up again.
        checked: all that was run, entries first.
    """

    id: str
    root: str
    policy: Policy
    totals: Totals
    started: str = ""
    finished: str = ""
    resumed: int = 0
    files: tuple[MigratedFile, ...] = ()
    checked: tuple[Checked, ...] = ()
    errors: tuple[Error, ...] = ()
    notices: tuple[str, ...] = ()
    branch: str | None = None
    commits: tuple[Commit, ...] = ()
    version: int = VERSION
    gbfix: str = __version__
    command: str = "migrate"


def to_json(outcome: Outcome) -> str:
    """The document as text."""
    return json.dumps(asdict(outcome), indent=1) + "\n"


def from_json(text: str) -> Outcome:
    """The outcome in a document; fields that this version does not know are left out.

    Raises:
        UserError: if it is no such document, or of a later version.
    """
    try:
        content = json.loads(text)
        if content["command"] != "migrate":
            raise UserError("this is not the document of a migration.")
        if content["version"] > VERSION:
            raise UserError("this document was written by a later version of gbfix.")
        return read(Outcome, content)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"this is not the document of a migration ({error}).") from None


_T = TypeVar("_T")


def read(kind: type[_T], content: Any) -> _T:
    """A value of a dataclass from what `json` has made of it."""
    value: _T = _read(kind, content)
    return value


def _read(kind: Any, content: Any) -> Any:
    if content is None:
        return None
    if is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        known = [f.name for f in fields(kind) if f.name in content]
        return kind(**{name: _read(hints[name], content[name]) for name in known})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_read(arguments[0], item) for item in content)
        return tuple(_read(k, item) for k, item in zip(arguments, content, strict=True))
    if origin is dict:
        return {key: _read(arguments[1], item) for key, item in content.items()}
    if origin in (typing.Union, types.UnionType):
        return _read(next(k for k in arguments if k is not type(None)), content)
    return kind(content) if isinstance(kind, type) and issubclass(kind, Enum | Path) else content
