"""A fixture folder as a value: what `case.toml` says, and the texts before and after.

A folder holds `before.py`, `after.py` (equal to it where the tool declines) and `case.toml`. Any
other Python file there is a further file of the same project, importable by its name.

The keys of `case.toml`:

- `about`: the sentence of the specification that the case stands for.
- `target`: an expression in the module's names: a function, a module, or a class to construct.
- `inputs`: expressions for the arguments of one call each (a tuple, or a dict of keywords).
- `breaks_before`: graph breaks that the original takes over all calls, measured.
- `fullgraph`: whether the rewritten target compiles in one graph (default: it was rewritten).
- `exceptions = "review"`: compiled exceptions may differ in type and message, not in being raised.
- `gradients = "review"`: a gradient that was None may be zeros when compiled, and a result that
  did not require one may require it.
- `new_state = ["name"]`: attributes that the rewritten module has and the original has not.
- `stale_state = ["name"]`: attributes that compiled code no longer writes.
- `effects = "review"`: what the compiled code prints, logs and warns may be dropped.
- `arms = "some"`: arms that no input takes are left out, such as those that a log level decides.
- `[settings]`: fields of `gbfix.settings.Settings`.
- `[[finding]]`: `line`, `code`, and either `applied` or `refusals`; all findings, in order.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).parent.parent / "fixtures"


@dataclass(frozen=True)
class Expected:
    """One finding that the case expects: fixed by a transform, or refused with these codes."""

    line: int
    code: str
    applied: str | None = None
    refusals: tuple[str, ...] = ()

    def toml(self) -> str:
        """The `[[finding]]` table for this finding."""
        lines = ["[[finding]]", f"line = {self.line}", f'code = "{self.code}"']
        if self.applied is not None:
            lines.append(f'applied = "{self.applied}"')
        else:
            codes = ", ".join(f'"{code}"' for code in self.refusals)
            lines.append(f"refusals = [{codes}]")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class FixtureCase:
    """One folder of `fixtures/`."""

    folder: Path
    target: str
    inputs: tuple[str, ...]
    about: str = ""
    breaks_before: int | None = None
    fullgraph: bool | None = None
    exceptions: str = "same"
    gradients: str = "same"
    effects: str = "same"
    arms: str = "all"
    new_state: tuple[str, ...] = ()
    stale_state: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Expected, ...] | None = None

    @classmethod
    def load(cls, folder: Path) -> FixtureCase:
        """Read `case.toml`; unknown keys are errors."""
        table = tomllib.loads((folder / "case.toml").read_text(encoding="utf-8"))
        findings = table.pop("finding", None)
        return cls(
            folder=folder,
            inputs=tuple(table.pop("inputs")),
            new_state=tuple(table.pop("new_state", ())),
            stale_state=tuple(table.pop("stale_state", ())),
            findings=None
            if findings is None
            else tuple(
                Expected(f["line"], f["code"], f.get("applied"), tuple(f.get("refusals", ())))
                for f in findings
            ),
            **table,
        )

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def before(self) -> Path:
        """The original file."""
        return self.folder / "before.py"

    @property
    def after(self) -> Path:
        """The rewritten file; it may not exist yet."""
        return self.folder / "after.py"

    @cached_property
    def others(self) -> tuple[Path, ...]:
        """Further files of the case's project."""
        known = {"before.py", "after.py"}
        return tuple(sorted(p for p in self.folder.glob("*.py") if p.name not in known))

    @property
    def rewritten(self) -> bool:
        """Whether the tool changes the file."""
        return self.after.read_bytes() != self.before.read_bytes()

    @property
    def expects_fullgraph(self) -> bool:
        """Whether the rewritten target must compile with `fullgraph=True`."""
        return self.rewritten if self.fullgraph is None else self.fullgraph

    @property
    def may_drop_effects(self) -> bool:
        """Whether a guard was applied, so that compiled code prints less."""
        guarded = any(f.applied == "guard" for f in self.findings or ())
        return guarded or self.effects == "review"


def all_cases() -> list[FixtureCase]:
    """Every fixture, by name."""
    return [FixtureCase.load(path.parent) for path in sorted(FIXTURES.glob("*/case.toml"))]
