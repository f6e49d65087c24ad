"""One JSON document for a run, described in docs/json.md.

The document is what scripts and editors read: it holds all that the text report holds. Its
`version` changes when a field changes its meaning or goes away, not when one is added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gbfix import __version__
from gbfix.findings import FileResult, Finding, FixOffer, RunResult

VERSION = 1


def document(
    command: str,
    result: RunResult,
    *,
    diffs: Mapping[Path, bytes] | None = None,
    written: bool = False,
    with_source: bool = False,
) -> str:
    """The document as text.

    `diffs` are the diffs of `apply --diff`; `written` says whether changed files were written;
    `with_source` adds the new text of changed files, for input that came from a pipe.
    """
    findings = [(file, found) for file in result.files for found in file.findings]
    content = {
        "version": VERSION,
        "gbfix": __version__,
        "command": command,
        "files": [
            _file(file, diffs or {}, written, with_source)
            for file in result.files
            if file.findings or file.changed
        ],
        "findings": [finding_entry(found) for _, found in findings],
        "fixes": [
            {**_place(found), **_offer(found.applied)} for _, found in findings if found.applied
        ],
        "errors": [{"path": str(e.path), "sentence": e.sentence} for e in result.errors],
        "notices": list(result.notices),
        "summary": {
            "files": len(result.files),
            "findings": len(findings),
            "fixable": sum(bool(found.offers) for _, found in findings),
            "fixed": sum(found.applied is not None for _, found in findings),
            "errors": len(result.errors),
        },
    }
    return json.dumps(content, indent=2) + "\n"


def _file(
    file: FileResult, diffs: Mapping[Path, bytes], written: bool, with_source: bool
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "path": str(file.path),
        "encoding": file.before.encoding,
        "findings": len(file.findings),
        "changed": file.changed,
        "written": written and file.changed,
    }
    if file.path in diffs:
        entry["diff"] = diffs[file.path].decode(file.before.encoding, "replace")
    if with_source and file.changed:
        entry["source"] = file.after
    return entry


def _place(finding: Finding) -> dict[str, Any]:
    return {
        "path": str(finding.path),
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "end_column": finding.end_column,
        "code": finding.code,
        "name": finding.name,
    }


def finding_entry(found: Finding) -> dict[str, Any]:
    """One finding, as all commands print it."""
    entry = {
        **_place(found),
        "message": found.message,
        "function": found.function,
        "certain": found.certain,
        "offers": [_offer(offer) for offer in found.offers],
        "refusals": [
            {"transform": r.transform, "code": r.code, "sentence": r.sentence}
            for r in found.refusals
        ],
        "fixed_by": found.applied.transform if found.applied else None,
    }
    if found.seen is not None:
        entry["trace"] = {**asdict(found.seen), "cost": found.seen.cost}
    return entry


def _offer(offer: FixOffer) -> dict[str, Any]:
    return {
        "transform": offer.transform,
        "safety": offer.safety.label,
        "reason": offer.reason,
        "setting": offer.setting,
    }
