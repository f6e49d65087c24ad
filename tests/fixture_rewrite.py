"""What the tool makes of a fixture: the rewritten file and the findings, as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gbfix import engine
from gbfix.findings import FileResult, Safety
from gbfix.settings import Branch, CheckStyle, Region, Settings, SideEffects
from gbfix.source.text import SourceFile
from tests.fixture_case import Expected, FixtureCase


def rewrite(case: FixtureCase, path: Path) -> FileResult:
    """Run the engine on the case's project, with `path` in the place of `before.py`."""
    files = [SourceFile.decode(case.before, path.read_bytes())]
    files += [SourceFile.decode(other, other.read_bytes()) for other in case.others]
    result = engine.run(files, _settings(case.settings))
    assert not result.errors, result.errors
    (mine,) = [file for file in result.files if file.path == case.before]
    return mine


def _settings(table: dict[str, Any]) -> Settings:
    """Settings from their names in TOML; `unsafe = true` stands for the lowest safety."""
    enums = {
        "region": Region,
        "branch": Branch,
        "check": CheckStyle,
        "side_effects": SideEffects,
    }
    fields: dict[str, Any] = {}
    for name, value in table.items():
        if name in ("unsafe", "safe_only"):
            if value:
                fields["safety"] = Safety.UNSAFE if name == "unsafe" else Safety.SAFE
        elif name in enums:
            fields[name] = enums[name](value)
        else:
            fields[name] = tuple(value) if isinstance(value, list) else value
    return Settings(**fields)


def found_by(result: FileResult) -> tuple[Expected, ...]:
    """The findings of a file as a case states them."""
    return tuple(
        Expected(
            f.line,
            f.code,
            None if f.applied is None else f.applied.transform,
            () if f.applied is not None else tuple(dict.fromkeys(r.code for r in f.refusals)),
        )
        for f in result.findings
    )
