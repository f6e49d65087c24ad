"""The report of a migration as one HTML page that needs nothing beside itself.

The page is a template, a stylesheet and scripts, all package data, with the outcome as JSON in a
script tag that no browser runs. Scripts put text into the page only as text, and a content security
policy allows exactly the scripts that are shipped, so source code cannot become markup.
Knows the outcome alone: not the code, nor how the migration went about it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from gbfix.migrate.outcome import Declined, Offered, Outcome

_SCRIPTS = (
    "dom.js",
    "model.js",
    "filters.js",
    "badges.js",
    "totals.js",
    "treemap.js",
    "map.js",
    "fragments.js",
    "entries.js",
    "diff.js",
    "files.js",
    "declined.js",
    "main.js",
)
# What ends a script tag, or begins a comment in it. JSON in ASCII has no other dangers.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def page(outcome: Outcome) -> str:
    """The whole page, in ASCII: any encoding that a server may claim for it is right."""
    style = _asset("page.css")
    script = "'use strict';\n(() => {\n" + "\n".join(map(_asset, _SCRIPTS)) + "})();\n"
    values = {
        "title": _markup(f"{_project(outcome)}: migration by gbfix"),
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "data": _data(outcome),
    }
    # One pass over the template: what is put in is not looked at again.
    pieces = _asset("page.html").split("@@")
    return "".join(values[piece] if n % 2 else piece for n, piece in enumerate(pieces))


def _project(outcome: Outcome) -> str:
    return PurePath(outcome.root).name or outcome.root


def _asset(name: str) -> str:
    return (files("gbfix.report") / "page" / name).read_text(encoding="ascii")


def _markup(text: str) -> str:
    """Text as markup in ASCII; what is no character, as in names of files, is replaced."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return html.escape(whole).encode("ascii", "xmlcharrefreplace").decode("ascii")


def _policy(style: str, script: str) -> str:
    """A content security policy for exactly this style and script, and no network."""
    return f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}"


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode("ascii")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _data(outcome: Outcome) -> str:
    """The outcome as JSON that can stand in a script tag.

    Reasons for declining and fixes on offer recur by the thousand, so they are in tables of their own,
    `reasons` and `offers`, and sites hold indices into these. What is None or empty is left out.
    """
    tables: dict[type, dict[Any, int]] = {Declined: {}, Offered: {}}
    content = _plain(outcome, tables)
    content["project"] = _project(outcome)
    content["reasons"] = [_plain(reason, {}) for reason in tables[Declined]]
    content["offers"] = [_plain(offer, {}) for offer in tables[Offered]]
    text = json.dumps(content, separators=(",", ":"))
    for char, escape in _ESCAPES.items():
        text = text.replace(char, escape)
    return text


def _plain(value: Any, tables: Mapping[type, dict[Any, int]]) -> Any:
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item, tables) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item, tables) for key, item in value.items()}
    table = tables.get(value.__class__)
    if table is not None:
        return table.setdefault(value, len(table))
    named = ((name, getattr(value, name)) for name in _names(value.__class__))
    # Zero and False say something; None and what is empty do not.
    return {
        name: _plain(held, tables) for name, held in named if held or isinstance(held, int | float)
    }


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
