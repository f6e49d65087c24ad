"""Finds the transforms: every module of `gbfix.transforms` that defines `TRANSFORM`.

A new treatment is one new file there; nothing has to be listed by hand. A module is loaded when one of
the diagnoses that it may treat is met: loading all of them takes longer than an editor's answer may.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import gbfix.transforms
from gbfix import diagnoses, python_diagnoses
from gbfix.diagnosis import Diagnosis
from gbfix.fixes import Transform


@cache
def transforms() -> tuple[Transform, ...]:
    """All transforms, the ones to be preferred first."""
    return _loaded(_sources())


@cache
def treating(code: str) -> tuple[Transform, ...]:
    """The transforms that treat a diagnosis, the ones to be preferred first."""
    mentions = {code, "DIAGNOSES", *_constants(code)}
    named = [n for n, text in _sources().items() if any(word in text for word in mentions)]
    return tuple(t for t in _loaded(named) if code in t.codes)


def _loaded(names: Iterable[str]) -> tuple[Transform, ...]:
    found: list[Transform] = []
    for name in names:
        loaded = importlib.import_module(f"gbfix.transforms.{name}")
        transform = getattr(loaded, "TRANSFORM", None)
        if isinstance(transform, Transform):
            found.append(transform)
    return tuple(sorted(found, key=lambda t: (t.rank, t.name)))


@cache
def _sources() -> dict[str, str]:
    """The modules of transforms with their text, which names every diagnosis that they treat."""
    return {
        module.name: (Path(path) / f"{module.name}.py").read_text(encoding="utf-8")
        for path in gbfix.transforms.__path__
        for module in pkgutil.iter_modules([path])
        if not module.ispkg
    }


def _constants(code: str) -> Iterable[str]:
    """The constants by which modules call a diagnosis."""
    for module in (diagnoses, python_diagnoses):
        for name, value in vars(module).items():
            if isinstance(value, Diagnosis) and value.code == code:
                yield name
