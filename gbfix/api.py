"""The library: find and fix graph breaks in source text, from Python.

`check_source` and `fix_source` read text and give values back; they import neither torch nor the
code, and touch no file (other modules of the package that `path` names are read, to follow calls).
What they return is stable: fields are added, not changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gbfix.engine import propose, run
from gbfix.errors import UserError
from gbfix.findings import FileResult, Finding, RunResult
from gbfix.settings import Settings
from gbfix.source.loading import syntax_error
from gbfix.source.text import SourceFile
from gbfix.targeting import aimed

__all__ = ["Fixed", "check_source", "fix_source"]


@dataclass(frozen=True)
class Fixed:
    """A source text after `fix_source`.

    Attributes:
        source: the new text, the given one if nothing was fixed.
        findings: every break site; `applied` says which fix was made, if any, `refusals` why not.
        changed: whether anything was fixed.
    """

    source: str
    findings: tuple[Finding, ...]
    changed: bool


def check_source(
    source: str,
    path: Path | str = "<string>",
    *,
    settings: Settings | None = None,
    edits: bool = False,
) -> tuple[Finding, ...]:
    """The places in a source text at which `torch.compile` would break the graph.

    Args:
        source: the text of a Python module.
        path: the file it is, or would be, in. It is not read; its folder is where imported modules
            of the same package are looked for.
        settings: what to look for; the defaults of the command line if None. Configuration files
            are not read. What does not break on the torch that is installed, or that
            `Settings.target_torch` names, is left out.
        edits: whether to add to each finding the edits of the fixes on offer.

    Returns:
        The findings in source order, each with the fixes on offer or the reasons for there being
        none.

    Raises:
        UserError: if the text is not Python, or the settings select something that does not exist.
    """
    file = _file(source, path)
    settings, _ = aimed(settings or Settings())
    if not edits:
        return _only(run([file], settings, rewrite=False)).findings
    result, proposals = propose([file], settings)
    _only(result)
    return tuple(p.with_edits() for p in sorted(proposals, key=lambda p: p.finding.place))


def fix_source(
    source: str, path: Path | str = "<string>", *, settings: Settings | None = None
) -> Fixed:
    """Rewrite the places in a source text at which `torch.compile` would break the graph.

    Without `torch.compile` the new text does what the old one did. Fixing it again changes nothing.

    Args:
        source: the text of a Python module.
        path: as for `check_source`.
        settings: what to fix, and how far fixes are trusted (`Settings.safety`).

    Raises:
        UserError: if the text is not Python, or the settings select something that does not exist.
    """
    wanted, _ = aimed(settings or Settings())
    file = _only(run([_file(source, path)], wanted))
    return Fixed(file.after, file.findings, file.changed)


def _file(source: str, path: Path | str) -> SourceFile:
    file = SourceFile(Path(path), source)
    error = syntax_error(file)
    if error is not None:
        raise UserError(error.sentence)
    return file


def _only(result: RunResult) -> FileResult:
    if result.errors:
        raise UserError(result.errors[0].sentence)
    (file,) = result.files
    return file
