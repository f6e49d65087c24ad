"""gbfix finds torch.compile graph breaks in PyTorch source and rewrites them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gbfix.verify.api import verify as verify

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Most of what is imported from here must start in a blink, and does not verify.
    if name == "verify":
        import importlib

        return importlib.import_module("gbfix.verify")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
