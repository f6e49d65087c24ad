"""How `--help` reads, whichever version of Typer is installed.

What a type is called in Python is no business of who reads it. The texts stand with the options, and
the examples in `examples`.
"""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

from gbfix.cli.examples import USAGE, epilog

_TYPE = re.compile(r" <[^<>|]*>$")
_NOTES = re.compile(r"  ?\[(?P<notes>[^\[\]]*)\]$")


class Command(TyperCommand):
    """A command that ends with its examples."""

    def __init__(self, name: str | None, **given: Any) -> None:
        given["epilog"] = given.get("epilog") or epilog(name or "")
        super().__init__(name, **given)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the name of the command."""
        return ["[OPTIONS]", *([USAGE[self.name]] if self.name in USAGE else [])]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments and options, each with what it means."""
        records = [(p, p.get_help_record(ctx)) for p in self.get_params(ctx)]
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            rows = [_plain(*row) for p, row in records if row and p.param_type_name == kind]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _plain(name: str, text: str) -> tuple[str, str]:
    """A row without names of Python's types, and with the default in plain words."""
    found = _NOTES.search(text)
    if found is not None:
        kept = [_note(note) for note in found["notes"].split(";")]
        text = text[: found.start()] + "".join(f"  [{note}]" for note in kept if note)
    return _TYPE.sub("", name), text.strip()


def _note(note: str) -> str:
    name, _, value = note.strip().partition(": ")
    return f"default: {value.strip('()')}" if name == "default" and value else ""
