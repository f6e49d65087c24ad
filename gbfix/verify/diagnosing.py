"""Puts gbfix's own diagnosis beside each break that Dynamo reports.

The static analysis is asked about the line; where it has nothing there, PyTorch's entry decides if only
one diagnosis covers it. It reads texts and runs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from gbfix.diagnoses import DIAGNOSES
from gbfix.dynamo.records import Break, Capture
from gbfix.findings import Finding
from gbfix.settings import Region, Settings
from gbfix.source.text import SourceError, SourceFile


def diagnosed(capture: Capture, texts: Iterable[tuple[str, str]]) -> Capture:
    """The capture with a diagnosis at every break that has one."""
    by_path = dict(texts)
    breaks = tuple(
        replace(found, diagnosis=_diagnosis(found, by_path.get(os.path.realpath(found.file))))
        for found in capture.breaks
    )
    return replace(capture, breaks=breaks)


def _diagnosis(found: Break, text: str | None) -> str | None:
    sites = () if text is None else _findings(found.file, text)
    here = [site for site in sites if site.line <= found.line <= site.end_line]
    fitting = [site for site in here if found.registry in DIAGNOSES[site.code].registry]
    if here:
        return (fitting or here)[0].code
    covering = [d.code for d in DIAGNOSES.values() if found.registry in d.registry]
    return covering[0] if len(covering) == 1 else None


@lru_cache(maxsize=64)
def _findings(path: str, text: str) -> tuple[Finding, ...]:
    """What `gbfix check` finds in a text, wherever it stands."""
    from gbfix.engine import run

    try:
        source = SourceFile.decode(Path(path), text.encode())
    except SourceError:
        return ()
    result = run([source], Settings(region=Region.ALL), rewrite=False)
    return tuple(finding for file in result.files for finding in file.findings)
