"""SARIF 2.1.0, the format of code scanning services, with the fixes as replacements.

Columns are counted in characters from 1, as everywhere in gbfix, and the log says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gbfix import __version__
from gbfix.diagnoses import DIAGNOSES, Diagnosis
from gbfix.findings import FileResult, Finding, FixOffer, RunResult
from gbfix.report.fingerprints import fingerprint
from gbfix.source.text import Edit, SourceFile

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "SRCROOT"


def log(result: RunResult, cwd: Path) -> str:
    """The log of a run; paths below the current folder are relative to it."""
    results = [_result(file, finding, cwd) for file in result.files for finding in file.findings]
    run = {
        "tool": {
            "driver": {
                "name": "gbfix",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(diagnosis) for diagnosis in DIAGNOSES.values()],
            }
        },
        "invocations": [
            {
                "executionSuccessful": not result.errors,
                "toolExecutionNotifications": [
                    {
                        "level": "error",
                        "message": {"text": error.sentence},
                        "locations": [
                            {"physicalLocation": {"artifactLocation": _artifact(error.path, cwd)}}
                        ],
                    }
                    for error in result.errors
                ]
                + [{"level": "note", "message": {"text": notice}} for notice in result.notices],
            }
        ],
        "originalUriBaseIds": {_ROOT: {"uri": cwd.absolute().as_uri().rstrip("/") + "/"}},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    content = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(content, indent=2) + "\n"


def _rule(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "id": diagnosis.code,
        "name": diagnosis.name,
        "shortDescription": {"text": diagnosis.summary},
        "fullDescription": {"text": diagnosis.explanation},
        "help": {"text": diagnosis.explanation},
        "defaultConfiguration": {"level": "warning"},
        "properties": {
            "tags": ["pytorch", "torch.compile", "performance"],
            "graphBreakRegistry": list(diagnosis.registry),
        },
    }


def _result(file: FileResult, finding: Finding, cwd: Path) -> dict[str, Any]:
    made: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": list(DIAGNOSES).index(finding.code),
        "level": "warning" if finding.certain else "note",
        "message": {"text": finding.message},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(finding.path, cwd),
                    "region": {
                        "startLine": finding.line,
                        "startColumn": finding.column,
                        "endLine": finding.end_line,
                        "endColumn": finding.end_column,
                    },
                },
                "logicalLocations": [{"fullyQualifiedName": finding.function, "kind": "function"}],
            }
        ],
        "partialFingerprints": {"gbfixSite/v1": fingerprint(file, finding)},
        "properties": {
            "offers": [_offer(offer) for offer in finding.offers],
            "refusals": [
                {"transform": r.transform, "code": r.code, "sentence": r.sentence}
                for r in finding.refusals
            ],
        },
    }
    fixes = [
        _fix(file.before, offer, edits, cwd)
        for offer, edits in zip(finding.offers, finding.edits, strict=False)
        if edits
    ]
    if fixes:
        made["fixes"] = fixes
    return made


def _offer(offer: FixOffer) -> dict[str, Any]:
    return {"transform": offer.transform, "safety": offer.safety.label, "reason": offer.reason}


def _fix(source: SourceFile, offer: FixOffer, edits: Iterable[Edit], cwd: Path) -> dict[str, Any]:
    return {
        "description": {"text": f"{offer.transform} ({offer.safety.label}): {offer.reason}"},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(source.path, cwd),
                "replacements": [
                    {
                        "deletedRegion": _region(source, edit),
                        "insertedContent": {"text": source.with_own_newlines(edit.text)},
                    }
                    for edit in sorted(edits, key=lambda e: (e.start, e.end))
                ],
            }
        ],
    }


def _region(source: SourceFile, edit: Edit) -> dict[str, int]:
    (line, column), (end_line, end_column) = source.position(edit.start), source.position(edit.end)
    return {
        "startLine": line,
        "startColumn": column,
        "endLine": end_line,
        "endColumn": end_column,
    }


def _artifact(path: Path, cwd: Path) -> dict[str, str]:
    absolute = path.absolute()
    if absolute.is_relative_to(cwd.absolute()):
        # Only what `as_uri` quotes makes a valid reference.
        uri = absolute.as_uri()[len(cwd.absolute().as_uri().rstrip("/")) + 1 :]
        return {"uri": uri, "uriBaseId": _ROOT}
    return {"uri": absolute.as_uri()}
