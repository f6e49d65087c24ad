"""Code actions: every fix on offer at a place, as text edits that an editor can apply.

Joins what the engine proposes with what the diagnoses explain. Knows neither editors nor protocols
beyond how they count lines and columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gbfix.analysis.read_files import ReadFiles
from gbfix.diagnoses import DIAGNOSES
from gbfix.editor.positions import UTF_16, Range, range_of
from gbfix.engine import At, Proposal, propose
from gbfix.errors import UserError
from gbfix.findings import Finding, Safety
from gbfix.registry import treating
from gbfix.settings import Settings
from gbfix.source.text import Edit, SourceFile
from gbfix.targeting import aimed


@dataclass(frozen=True)
class TextEdit:
    """Replace a range of the document by a text, which has the document's own newlines."""

    range: Range
    new_text: str


@dataclass(frozen=True)
class Action:
    """One fix for one finding.

    Attributes:
        title: one line that says what the fix does, and how far to trust it.
        explanation: why the code breaks the graph, and what taking the fix means.
        edits: the change as an editor applies it, none of them overlapping.
        changes: the same change by character offsets.
    """

    title: str
    finding: Finding
    transform: str
    safety: Safety
    explanation: str
    edits: tuple[TextEdit, ...]
    changes: tuple[Edit, ...]


@dataclass(frozen=True)
class Place:
    """What is to be said of a place: the findings there, with the actions that treat them."""

    findings: tuple[Finding, ...]
    actions: tuple[Action, ...]


def actions_at(
    source: SourceFile, settings: Settings, at: At | None = None, read: ReadFiles | None = None
) -> Place:
    """The findings and code actions at a line, or line and column, both from 1; all if None.

    `read` holds other files of earlier calls, which need not be parsed again.

    Raises:
        UserError: if the file cannot be analysed, or selectors name nothing.
    """
    settings, _ = aimed(settings)
    result, proposals = propose([source], settings, at=at, read=read)
    if result.errors:
        raise UserError(result.errors[0].sentence)
    ordered = sorted(proposals, key=lambda p: (p.finding.line, p.finding.column, p.finding.code))
    return Place(
        tuple(p.finding for p in ordered),
        tuple(a for p in ordered for a in _actions(source, p)),
    )


def apply_action(source: SourceFile, action: Action) -> str:
    """The text after an action."""
    return source.apply(action.changes)


def text_edits(
    source: SourceFile, edits: Iterable[Edit], encoding: str = UTF_16
) -> tuple[TextEdit, ...]:
    """Edits by offset as an editor takes them, in source order."""
    return tuple(
        TextEdit(
            range_of(source, edit.start, edit.end, encoding), source.with_own_newlines(edit.text)
        )
        for edit in sorted(edits, key=lambda e: (e.start, e.end))
    )


def explanation(finding: Finding) -> str:
    """Why a finding breaks the graph."""
    return DIAGNOSES[finding.code].explanation


def _actions(source: SourceFile, proposal: Proposal) -> list[Action]:
    summaries = {t.name: t.summary for t in treating(proposal.finding.code)}
    made: list[Action] = []
    for offer, edits in proposal.fixes:
        summary = summaries[offer.transform]
        made.append(
            Action(
                f"{summary[:1].upper()}{summary[1:]} ({offer.transform}, {offer.safety.label})",
                proposal.finding,
                offer.transform,
                offer.safety,
                f"{explanation(proposal.finding)} The fix: {offer.reason}.",
                text_edits(source, edits),
                edits,
            )
        )
    return made
