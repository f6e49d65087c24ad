"""PyTorch's own registry of graph breaks, as the installed torch has it.

The registry is a file of torch, read as text: torch is not imported. Each identifier has a list of
entries, the newest first; some hold a piece of Python source where the text is made when it breaks.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from gbfix.dynamo.installed import torch_folder


@dataclass(frozen=True)
class Entry:
    """What the registry says of one identifier, as text for people."""

    identifier: str
    type: str
    context: str
    explanation: str
    hints: tuple[str, ...]


def identifier(text: str) -> str | None:
    """`GB0170` for `GB0170`, `gb0170` and `GB170`; None for what is no identifier of the registry."""
    found = re.fullmatch(r"gb0*(\d{1,4})", text.strip(), re.IGNORECASE)
    return f"GB{int(found.group(1)):04}" if found else None


def entry(identifier: str) -> Entry | None:
    """The entry of an identifier, or None if the installed torch has none."""
    variants = _registry().get(identifier)
    if not isinstance(variants, list):
        return None
    shown = [variant for variant in variants if isinstance(variant, dict)]
    return Entry(
        identifier,
        _first(shown, "Gb_type"),
        _first(shown, "Context"),
        _first(shown, "Explanation"),
        _hints(shown),
    )


def nearest(identifier: str) -> str | None:
    """The identifier of the installed torch that looks most like one it does not have."""
    found = difflib.get_close_matches(identifier, list(_registry()), 1, 0.6)
    return found[0] if found else None


def identifier_of(name: str) -> str | None:
    """The identifier of the entries of this type, for a message that does not name it."""
    return _by_type().get(name)


@cache
def _by_type() -> Mapping[str, str]:
    """The identifiers by the types that only one of them has."""
    found: dict[str, set[str]] = {}
    for name, variants in _registry().items():
        for variant in variants if isinstance(variants, list) else ():
            if isinstance(variant, dict) and isinstance(variant.get("Gb_type"), str):
                found.setdefault(variant["Gb_type"], set()).add(name)
    return {kind: min(names) for kind, names in found.items() if len(names) == 1}


def available() -> bool:
    """Whether the installed torch has a registry; versions before 2.8 have none."""
    return bool(_registry())


@cache
def _registry() -> Mapping[str, Any]:
    """`torch/_dynamo/graph_break_registry.json`: seen on torch 2.13; empty if it is missing."""
    folder = torch_folder()
    if folder is None:
        return {}
    try:
        text = (folder / "_dynamo" / "graph_break_registry.json").read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _first(variants: Sequence[Mapping[str, Any]], key: str) -> str:
    """The newest text that a person can read."""
    for variant in variants:
        text = _readable(variant.get(key))
        if text:
            return text
    return ""


def _hints(variants: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    for variant in variants:
        hints = variant.get("Hints")
        if isinstance(hints, list):
            texts = tuple(text for text in map(_readable, hints) if text)
            if texts:
                return texts
    return ()


def _readable(value: object) -> str:
    """Text as it is; of a Python expression its string literals; nothing for a bare name of torch's."""
    if not isinstance(value, str):
        return ""
    text = " ".join(value.split())
    if re.fullmatch(r"_?\w+", text) and "_" in text:
        return ""
    if not text.startswith(("'", '"', "f'", 'f"')):
        return text
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return text
    pieces = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return " ".join("".join(pieces).split())
