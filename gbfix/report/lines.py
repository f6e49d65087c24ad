"""Findings one a line: annotations for GitHub's workflows, and JSON lines for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from gbfix.findings import Finding, RunResult
from gbfix.report.json import finding_entry


def github(result: RunResult, cwd: Path) -> Iterator[str]:
    """Workflow commands, which GitHub shows beside the lines of a pull request."""
    for file in result.files:
        for finding in file.findings:
            where = {
                "file": _relative(finding.path, cwd),
                "line": str(finding.line),
                "endLine": str(finding.end_line),
                "col": str(finding.column),
                "endColumn": str(finding.end_column),
                "title": f"{finding.code} {finding.name}",
            }
            # GitHub takes columns only where a finding stands on one line.
            if finding.line != finding.end_line:
                del where["col"], where["endColumn"]
            level = "warning" if finding.certain else "notice"
            yield _command(level, where, _message(finding))
    for error in result.errors:
        yield _command("error", {"file": _relative(error.path, cwd)}, error.sentence)


def json_lines(result: RunResult) -> Iterator[str]:
    """A JSON object a line: findings, then errors and notices, then the summary."""
    findings = [finding for file in result.files for finding in file.findings]
    for finding in findings:
        yield json.dumps({"type": "finding", **finding_entry(finding)})
    for error in result.errors:
        yield json.dumps({"type": "error", "path": str(error.path), "sentence": error.sentence})
    for notice in result.notices:
        yield json.dumps({"type": "notice", "sentence": notice})
    yield json.dumps(
        {
            "type": "summary",
            "files": len(result.files),
            "findings": len(findings),
            "fixable": sum(bool(finding.offers) for finding in findings),
            "errors": len(result.errors),
        }
    )


def _message(finding: Finding) -> str:
    if finding.offers:
        offer = finding.offers[0]
        return (
            f"{finding.message}. `gbfix apply` can fix it: {offer.transform} ({offer.safety.label})"
        )
    reasons = "; ".join(f"{r.transform}: {r.sentence}" for r in finding.refusals)
    return f"{finding.message}. Not fixable: {reasons}" if reasons else finding.message


def _command(level: str, where: dict[str, str], message: str) -> str:
    properties = ",".join(f"{key}={_escaped(value, inner=True)}" for key, value in where.items())
    return f"::{level} {properties}::{_escaped(message)}"


def _escaped(text: str, *, inner: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if inner else text


def _relative(path: Path, cwd: Path) -> str:
    relative = os.path.relpath(path.absolute(), cwd)
    return str(path) if relative.startswith("..") else relative.replace(os.sep, "/")
