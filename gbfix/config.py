"""Reads `[tool.gbfix]` from the pyproject.toml that governs a run.

The governing file is the nearest one above the first path that has a `[tool.gbfix]` table, as in
ruff; where none has, the nearest one is still asked for the line length of ruff or black. The
module knows nothing of the command line or of which rules exist.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from gbfix.errors import UserError
from gbfix.findings import Safety
from gbfix.settings import Settings, SideEffects

_KEYS = (
    "branch",
    "check",
    "config",
    "exclude",
    "ignore",
    "line-length",
    "region",
    "respect-gitignore",
    "safe-only",
    "select",
    "side-effects",
    "target-torch",
    "unsafe",
)
_FAMILIES = ("print", "logging", "warnings")
_DEFAULTS = Settings()

_Choice = TypeVar("_Choice", bound=Enum)


@dataclass(frozen=True)
class Config:
    """Settings from a file, with the folder that its exclude patterns are relative to.

    `sources` says of each setting that is not a default which file it comes from.
    """

    settings: Settings = field(default_factory=Settings)
    root: Path | None = None
    sources: Mapping[str, Path] = field(default_factory=dict)


def load_config(start: Path) -> Config:
    """The configuration that governs `start`, a file or folder that need not exist.

    Raises:
        UserError: if a pyproject.toml on the way up is broken or its `[tool.gbfix]` is wrong.
    """
    found = [path for path in _candidates(start) if path.is_file()]
    tables = ((path, _read(path)) for path in found)
    nearest: Config | None = None
    for path, tools in tables:
        if "gbfix" in tools:
            return Config(_settings(path, tools), path.parent, _sources(path, tools))
        nearest = nearest or Config(_settings(path, tools), sources=_sources(path, tools))
    return nearest or Config()


def _candidates(start: Path) -> list[Path]:
    absolute = start.absolute()
    folders = [absolute, *absolute.parents] if absolute.is_dir() else absolute.parents
    return [folder / "pyproject.toml" for folder in folders]


def _read(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not valid TOML: it is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: is not valid TOML: {error}.") from None
    if not isinstance(tools, dict):
        raise UserError(f"{path}: `tool` must be a table.")
    return tools


def _sources(path: Path, tools: Mapping[str, Any]) -> dict[str, Path]:
    """Which settings a file speaks of, in gbfix's own table or another tool's."""
    keys = set(tools.get("gbfix", {}))
    if keys & {"safe-only", "unsafe"}:
        keys.add("safety")
    if any(
        isinstance(tools.get(other), dict) and "line-length" in tools[other]
        for other in ("ruff", "black")
    ):
        keys.add("line-length")
    return dict.fromkeys(sorted(keys), path)


def _settings(path: Path, tools: Mapping[str, Any]) -> Settings:
    table = tools.get("gbfix", {})
    if not isinstance(table, dict):
        raise UserError(f"{path}: [tool.gbfix] must be a table.")
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise UserError(
            f"{path}: unknown key `{unknown[0]}` in [tool.gbfix]; the keys are {', '.join(_KEYS)}."
        )
    read = _Table(path, table)
    return Settings(
        select=read.strings("select"),
        ignore=read.strings("ignore"),
        exclude=read.strings("exclude"),
        region=read.choice("region", _DEFAULTS.region),
        branch=read.choice("branch", _DEFAULTS.branch),
        check=read.choice("check", _DEFAULTS.check),
        side_effects=read.side_effects()[0],
        family_effects=read.side_effects()[1],
        safety=read.safety(),
        config=read.flag("config", _DEFAULTS.config),
        line_length=read.line_length(tools),
        respect_gitignore=read.flag("respect-gitignore", _DEFAULTS.respect_gitignore),
        target_torch=read.text("target-torch", _DEFAULTS.target_torch),
    )


@dataclass(frozen=True)
class _Table:
    """Typed reading of `[tool.gbfix]`; each wrong type is a sentence with file and key."""

    path: Path
    table: Mapping[str, Any]

    def strings(self, key: str) -> tuple[str, ...]:
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "must be a list of strings")
        return tuple(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "must be true or false")
        return value

    def text(self, key: str, default: str | None) -> str | None:
        value = self.table.get(key, default)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, "must be a string")
        return value

    def choice(self, key: str, default: _Choice) -> _Choice:
        value = self.table.get(key, default.value)
        for choice in type(default):
            if choice.value == value:
                return choice
        words = ", ".join(f'"{choice.value}"' for choice in type(default))
        raise self._wrong(key, f"must be one of {words}")

    def side_effects(self) -> tuple[SideEffects, tuple[tuple[str, SideEffects], ...]]:
        """One policy, or a table of policies by family: print, logging, warnings."""
        value = self.table.get("side-effects")
        if not isinstance(value, dict):
            return self.choice("side-effects", _DEFAULTS.side_effects), ()
        unknown = sorted(set(value) - set(_FAMILIES))
        if unknown:
            raise self._wrong("side-effects", f"has the keys {', '.join(_FAMILIES)}")
        families = _Table(self.path, value)
        found = ((name, families.choice(name, SideEffects.DROP)) for name in value)
        return _DEFAULTS.side_effects, tuple(found)

    def safety(self) -> Safety:
        safe_only, unsafe = self.flag("safe-only", False), self.flag("unsafe", False)
        if safe_only and unsafe:
            raise self._wrong("unsafe", "cannot be true together with `safe-only`")
        return Safety.SAFE if safe_only else Safety.UNSAFE if unsafe else _DEFAULTS.safety

    def line_length(self, tools: Mapping[str, Any]) -> int:
        if "line-length" in self.table:
            value = self.table["line-length"]
            if type(value) is not int or not 20 <= value <= 1000:
                raise self._wrong("line-length", "must be a whole number from 20 to 1000")
            return int(value)
        for other in ("ruff", "black"):
            table = tools.get(other)
            value = table.get("line-length") if isinstance(table, dict) else None
            # Another tool's mistake is that tool's to report.
            if type(value) is int and 20 <= value <= 1000:
                return int(value)
        return _DEFAULTS.line_length

    def _wrong(self, key: str, must: str) -> UserError:
        return UserError(f"{self.path}: `{key}` in [tool.gbfix] {must}.")
