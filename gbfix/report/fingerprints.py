"""What tells a finding apart from others whatever line it stands on: its code and its own text.

White space does not count, so that moving, indenting or reformatting code makes no new finding.
"""

from __future__ import annotations

import hashlib

from gbfix.findings import FileResult, Finding


def site_text(file: FileResult, finding: Finding) -> str:
    """The source of a finding, from where it starts to where it ends."""
    source = file.before
    start = source.line_starts[finding.line - 1] + finding.column - 1
    end = source.line_starts[finding.end_line - 1] + finding.end_column - 1
    return source.text[start:end]


def fingerprint(file: FileResult, finding: Finding) -> str:
    """A short hash of a finding's code and text."""
    content = f"{finding.code}\0{''.join(site_text(file, finding).split())}"
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:20]
