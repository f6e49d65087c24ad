"""Which torch is installed here, told from its files; torch itself is not imported."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from gbfix.errors import UserError


@cache
def torch_version() -> str | None:
    """The version of the installed torch, such as `2.13.0+cpu`, or None if there is none.

    `torch/version.py` as of torch 2.6 to 2.13; metadata of packages would take longer to read.
    """
    folder = torch_folder()
    try:
        text = (folder / "version.py").read_text(encoding="utf-8") if folder is not None else ""
    except OSError:
        text = ""
    found = re.search(r"^__version__(?:: \w+)? = ['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found.group(1) if found is not None else None


def require_torch(otherwise: str = "") -> None:
    """See that there is what running code needs; `otherwise` says what else can be done.

    Raises:
        UserError: if torch is not installed.
    """
    if torch_folder() is None:
        raise UserError(
            "running code needs PyTorch, which is not installed here: "
            f"pip install 'gbfix[verify]'{otherwise}."
        )


@cache
def torch_folder() -> Path | None:
    """The folder of the installed torch, or None if there is none."""
    spec = importlib.util.find_spec("torch")  # of a top-level name: nothing is imported
    return Path(spec.origin).parent if spec is not None and spec.origin else None
