"""The two copies of transformers that are compared: as installed, and as gbfix rewrote it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import models

PACKAGE = "transformers"
SHARED_FILES = (
    "activations.py",
    "cache_utils.py",
    "integrations",
    "modeling_attn_mask_utils.py",
    "modeling_layers.py",
    "modeling_outputs.py",
    "modeling_rope_utils.py",
    "modeling_utils.py",
    "pytorch_utils.py",
    "utils/backbone_utils.py",
    "utils/generic.py",
)


class TreeError(Exception):
    """The rewritten tree could not be made or used."""


def stock() -> Path:
    """The installed package; it is located without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise TreeError(f"{PACKAGE} is not installed (the table is for {PACKAGE}==4.52.4)")
    return Path(spec.origin).parent


def given(folder: Path) -> Path:
    """A tree that somebody rewrote before: the package folder, or the one that holds it."""
    folder = folder.resolve()
    package = folder if folder.name == PACKAGE else folder / PACKAGE
    if not (package / "__init__.py").is_file():
        raise TreeError(f"{folder} holds no {PACKAGE} package")
    return package


def rewrite(cache: Path, rows: Iterable[str], quick: bool, runs: list[list[str]]) -> Path:
    """Copy the installed package under `cache` and run `gbfix apply` on the copy, once or more."""
    package = cache.resolve() / "rewritten" / PACKAGE
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(stock(), package, ignore=shutil.ignore_patterns("__pycache__"))
    paths = _needed(package, rows) if quick else [package]
    for arguments in runs:
        _apply(paths, arguments)
    if not changed(package):
        raise TreeError(
            f"gbfix changed no file in {package}; if it is hidden by a .gitignore, use --cache"
        )
    return package


def changed(package: Path) -> list[str]:
    """The files that are not as they were installed."""
    original = stock()
    names = (p.relative_to(original) for p in sorted(original.rglob("*.py")))
    return [
        str(n)
        for n in names
        if not (package / n).is_file() or (package / n).read_bytes() != (original / n).read_bytes()
    ]


def _needed(package: Path, rows: Iterable[str]) -> list[Path]:
    folders = {f"models/{folder}" for row in rows for folder in models.ROWS[row].folders}
    return [package / name for name in (*SHARED_FILES, *sorted(folders))]


def _apply(paths: list[Path], arguments: list[str]) -> None:
    tool = Path(sys.executable).parent / "gbfix"
    command = [str(tool), "apply", *arguments, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # 1 says that sites are left that gbfix does not fix, which is expected here.
    if done.returncode not in (0, 1):
        raise TreeError(
            f"{' '.join(command[:4])} ... failed:\n{(done.stderr or done.stdout)[-3000:]}"
        )
