"""What commands do with a trace: read it, bring it to the files at hand, and join it to findings.

It runs the engine with what the trace shows; how a trace is stored or printed is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gbfix.findings import RunResult
from gbfix.settings import Settings
from gbfix.source.text import SourceFile

if TYPE_CHECKING:
    from gbfix.trace.joining import Joined
    from gbfix.trace.model import Trace


@dataclass(frozen=True)
class Traced:
    """A trace in terms of the local files, and the run that was joined with it."""

    trace: Trace
    joined: Joined


def read(paths: Sequence[Path]) -> Trace:
    """The trace in files, folders and logs, merged.

    Raises:
        UserError: for one that cannot be read.
    """
    from gbfix.trace.reading import read_all

    return read_all(paths)


def join(
    trace: Trace, sources: Sequence[SourceFile], settings: Settings, named: Sequence[Path]
) -> Traced:
    """Join a trace to sources; `named` are the paths that the user calls his own.

    Raises:
        UserError: for selectors that name nothing.
    """
    from gbfix.engine import run
    from gbfix.trace.joining import join as join_findings
    from gbfix.trace.joining import observed
    from gbfix.trace.localize import localized
    from gbfix.trace.ownership import Owned

    local = localized(trace, [source.path for source in sources])
    result = run(sources, settings, rewrite=False, observed=observed(local))
    return Traced(local, join_findings(local, result, Owned(named)))


def rewrite(
    traced: Traced,
    sources: Sequence[SourceFile],
    settings: Settings,
    *,
    at: tuple[int, int | None] | None = None,
) -> RunResult:
    """Apply fixes at the places of a trace and nowhere else; findings carry what the trace tells."""
    from gbfix.engine import run
    from gbfix.trace.joining import observed, with_evidence

    result = run(
        sources,
        settings,
        rewrite=True,
        at=at,
        observed=observed(traced.trace),
        only=traced.joined.only,
    )
    return with_evidence(result, traced.joined)


def of_program(trace: Trace) -> Traced:
    """Join a trace to the user's own files that it went through, with their configuration."""
    from gbfix.config import load_config
    from gbfix.source.loading import load
    from gbfix.trace.joining import files_of
    from gbfix.trace.localize import localized
    from gbfix.trace.ownership import Owned

    local = localized(trace, ())
    files = list(files_of(local, Owned()))
    settings = load_config(files[0]).settings if files else Settings()
    settings = replace(settings, select=(), ignore=())
    return join(trace, load(files).sources, settings, ())
