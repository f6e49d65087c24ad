"""What is known of how a torch version takes each diagnosis: does it still break there?

Two sources, without torch: what `gbfix doctor` measured on this machine, kept in the user's cache
folder by version, and a table that is shipped, measured by `scripts/measure_probes.py`. What neither
knows is taken to break.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

Probes = Mapping[str, str]


def known(version: str, probes: Probes) -> dict[str, bool]:
    """Whether the diagnoses break on a version, for those of which it is known.

    Args:
        version: as torch names itself, or only the front of it: `2.13.0+cpu`, `2.13`.
        probes: the probes by code; what was measured with another text is not used.
    """
    return {**_of_table(_shipped(), version, probes), **measured(version, probes)}


def has_version(version: str) -> bool:
    """Whether anything at all is known of a version."""
    return _release(_shipped(), version) is not None or _cache_file(version).is_file()


def measured(version: str, probes: Probes) -> dict[str, bool]:
    """What was measured on this machine for exactly this version."""
    try:
        table = json.loads(_cache_file(version).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return _matching(table, probes)


def remember(version: str, probes: Probes, breaks: Mapping[str, bool]) -> None:
    """Keep what was measured; a cache that cannot be written is done without."""
    import tempfile

    path = _cache_file(version)
    text = json.dumps(as_table(probes, breaks), indent=1, sort_keys=True)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).replace(path)


def as_table(probes: Probes, breaks: Mapping[str, bool]) -> dict[str, Any]:
    """Results in the form in which they are kept: beside a digest of the probe."""
    return {code: {"breaks": breaks[code], "probe": _digest(probes[code])} for code in breaks}


def _cache_file(version: str) -> Path:
    import platformdirs

    name = re.sub(r"[^\w.+-]", "_", version)
    return platformdirs.user_cache_path("gbfix", appauthor=False) / "probes" / f"torch-{name}.json"


@cache
def _shipped() -> Mapping[str, Any]:
    text = (Path(__file__).parent / "data" / "probes.json").read_text("utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def _of_table(tables: Mapping[str, Any], version: str, probes: Probes) -> dict[str, bool]:
    release = _release(tables, version)
    return {} if release is None else _matching(tables[release], probes)


def _release(tables: Mapping[str, Any], version: str) -> str | None:
    """The release of a table, such as `2.13`, that a version belongs to."""
    found = re.match(r"(\d+)\.(\d+)(?![\d])", version)
    name = f"{found.group(1)}.{found.group(2)}" if found else version
    return name if name in tables else None


def _matching(table: object, probes: Probes) -> dict[str, bool]:
    """The results of a table that were measured with the probes as they are now."""
    if not isinstance(table, dict):
        return {}
    found: dict[str, bool] = {}
    for code, text in probes.items():
        row = table.get(code)
        if isinstance(row, dict) and row.get("probe") == _digest(text):
            found[code] = row.get("breaks") is not False
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
