"""The backends that can be asked for, and which one is used if none is; it does not need torch."""

from __future__ import annotations

import shutil

BACKENDS = ("eager", "aot_eager", "inductor")


def default_backend() -> str:
    """Inductor where its compiler is found (a C++ compiler; Triton brings its own), else aot_eager."""
    return "inductor" if any(map(shutil.which, ("g++", "clang++", "c++"))) else "aot_eager"
