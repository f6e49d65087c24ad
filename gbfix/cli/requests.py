"""What the user asked for: where to look, and options joined with the configuration.

It knows what options mean for the settings, and neither how they are spelled nor what a run does. It
does without the library of the command line, which takes longer to load than an answer may take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gbfix.config import Config, load_config
from gbfix.errors import UserError
from gbfix.findings import Safety
from gbfix.selection import canonical, nearest
from gbfix.settings import Branch, CheckStyle, Region, Settings, SideEffects

STDIN = Path("-")


@dataclass(frozen=True)
class Request:
    """What the user asked for: where to look, and with which settings."""

    paths: tuple[Path, ...]
    stdin_name: Path | None
    settings: Settings
    exclude_root: Path

    @property
    def from_stdin(self) -> bool:
        """Whether the source comes from standard input."""
        return self.stdin_name is not None


def request(
    paths: Sequence[Path] | None,
    stdin_filename: Path | None,
    *,
    select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    safe_only: bool = False,
    unsafe: bool = False,
    region: Region | None = None,
    branch: Branch | None = None,
    check_style: CheckStyle | None = None,
    side_effects: SideEffects | None = None,
    respect_gitignore: bool | None = None,
    config: bool | None = None,
    target_torch: str | None = None,
    fix_with: Sequence[str] | None = None,
) -> Request:
    """Join the options with the configuration that governs the first path.

    Raises:
        UserError: for options that contradict each other, or a configuration that is wrong.
    """
    places = tuple(paths or (Path(),))
    stdin_name: Path | None = None
    if STDIN in places:
        if len(places) > 1:
            raise UserError("`-` cannot be given together with other paths.")
        stdin_name = stdin_filename or STDIN
    elif stdin_filename is not None:
        raise UserError("`--stdin-filename` needs `-` as the path.")
    found = load_config(stdin_filename or (Path() if stdin_name else places[0]))
    settings = found.settings
    _check_selectors(found)
    given = {
        "select": _words(select),
        "ignore": _words(ignore),
        "exclude": _words(exclude),
        "safety": _safety(safe_only, unsafe),
        "region": region,
        "branch": branch,
        "check": check_style,
        "side_effects": side_effects,
        "respect_gitignore": respect_gitignore,
        "config": config,
        "target_torch": target_torch,
        "fix_with": _fixes(fix_with),
    }
    # mypy cannot match a dictionary against the fields.
    changes: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    settings = replace(settings, **changes)  # type: ignore[arg-type]
    return Request(places, stdin_name, settings, _exclude_root(found, exclude))


def _check_selectors(found: Config) -> None:
    """See that what a file selects and ignores is there, so that a mistake names the file."""
    from gbfix.catalogue import selection

    for key in ("select", "ignore"):
        words = getattr(found.settings, key)
        if words:
            try:
                selection(words, ())
            except UserError as error:
                raise UserError(f"{found.sources[key]}: `{key}`: {error}") from None


def parse_at(text: str | None) -> tuple[int, int | None] | None:
    """Read `LINE` or `LINE:COL`, both from 1.

    Raises:
        UserError: for anything else.
    """
    if text is None:
        return None
    line, colon, column = text.partition(":")
    numbers = [line, column] if colon else [line]
    if not all(number.isascii() and number.isdigit() and int(number) for number in numbers):
        raise UserError(f"`--at {text}` is not LINE or LINE:COL, both counted from 1.")
    return int(line), int(column) if colon else None


def _words(values: Sequence[str] | None) -> tuple[str, ...] | None:
    if not values:
        return None
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


def _fixes(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of fixes, all of which have to exist."""
    wanted = _words(values)
    if wanted:
        from gbfix.registry import transforms

        names = [transform.name for transform in transforms()]
        unknown = [name for name in wanted if canonical(name) not in names]
        if unknown:
            raise UserError(f"`--fix-with {unknown[0]}` names no fix{nearest(unknown[0], names)}.")
    return wanted and tuple(canonical(name) for name in wanted)


def _safety(safe_only: bool, unsafe: bool) -> Safety | None:
    if safe_only and unsafe:
        raise UserError("`--safe-only` and `--unsafe` contradict each other.")
    return Safety.SAFE if safe_only else Safety.UNSAFE if unsafe else None


def _exclude_root(config: Config, exclude: Sequence[str] | None) -> Path:
    return Path.cwd() if exclude or config.root is None else config.root
