"""Which torch is installed here, told from its files; torch itself is not imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from functools import cache
from pathlib import Path


@cache
def torch_version() -> str | None:
    """The version of the installed torch, such as `2.13.0+cpu`, or None if there is none."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def torch_folder() -> Path | None:
    """The folder of the installed torch, or None if there is none."""
    spec = importlib.util.find_spec("torch")  # of a top-level name: nothing is imported
    return Path(spec.origin).parent if spec is not None and spec.origin else None
