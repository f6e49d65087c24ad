"""Finds the transforms: every module of `gbfix.transforms` that defines `TRANSFORM`.

A new treatment is one new file there; nothing has to be listed by hand.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import gbfix.transforms
from gbfix.fixes import Transform


@cache
def transforms() -> tuple[Transform, ...]:
    """All transforms, the ones to be preferred first."""
    found: list[Transform] = []
    for module in pkgutil.iter_modules(gbfix.transforms.__path__):
        loaded = importlib.import_module(f"gbfix.transforms.{module.name}")
        transform = getattr(loaded, "TRANSFORM", None)
        if isinstance(transform, Transform):
            found.append(transform)
    return tuple(sorted(found, key=lambda t: (t.rank, t.name)))
