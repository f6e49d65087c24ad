"""What `gbfix` starts: an answer for an editor at once, and everything else as `main` defines it.

A plain `gbfix quickfix` is read here, since loading the library of the command line and the other
commands would take longer than the answer. Whatever is not plain (help, mistakes, abbreviations) is
left to `main`, which is where the options are defined.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gbfix.cli.failures import guarded
from gbfix.cli.quickfixing import Asked, QuickfixFormat, answer
from gbfix.settings import Branch, CheckStyle, Region


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--format": ("output_format", QuickfixFormat),
    "--apply": ("apply", _count),
    "--region": ("region", Region),
    "--branch": ("branch", Branch),
    "--check-style": ("check_style", CheckStyle),
    "--stdin-filename": ("stdin_filename", Path),
}
REPEATED = {"--select": "select", "--ignore": "ignore"}


def main() -> int:
    """Run the command line and return the exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["quickfix"]:
        asked = plain(arguments[1:])
        if asked is not None:
            return guarded(lambda: answer(asked))
    from gbfix.cli.main import main as run

    return run()


def plain(arguments: Sequence[str]) -> Asked | None:
    """What `quickfix` is asked for; None where that is not plain."""
    given: dict[str, Any] = {}
    places: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("-") or word.startswith("-:"):
            places.append(word)
            continue
        name, equals, value = word.partition("=")
        if name not in OPTIONS and name not in REPEATED:
            return None
        if not equals:
            following = next(rest, None)
            if following is None or following.startswith("-"):
                return None
            value = following
        if name in REPEATED:
            given[REPEATED[name]] = (*given.get(REPEATED[name], ()), value)
            continue
        field, convert = OPTIONS[name]
        try:
            given[field] = convert(value)
        except ValueError:
            return None
    if len(places) != 1:
        return None
    return Asked(places[0], **given)


if __name__ == "__main__":
    sys.exit(main())
