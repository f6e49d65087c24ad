"""gbfix finds torch.compile graph breaks in PyTorch source and rewrites them.

`check_source` and `fix_source` work on text, `verify` runs it, and `trace.record` and `trace.read` say
where a program's graphs break. Each is imported when it is first used, since most of what is imported
from here must start in a blink.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gbfix import trace as trace
    from gbfix.api import Fixed as Fixed
    from gbfix.api import check_source as check_source
    from gbfix.api import fix_source as fix_source
    from gbfix.errors import UserError as UserError
    from gbfix.findings import Finding as Finding
    from gbfix.findings import Safety as Safety
    from gbfix.settings import Settings as Settings
    from gbfix.verify.api import verify as verify

__version__ = "0.1.0"

_HOMES = {
    "Finding": "gbfix.findings",
    "Fixed": "gbfix.api",
    "Safety": "gbfix.findings",
    "Settings": "gbfix.settings",
    "UserError": "gbfix.errors",
    "check_source": "gbfix.api",
    "fix_source": "gbfix.api",
}
_PACKAGES = ("trace", "verify")


def __getattr__(name: str) -> Any:
    # The package `gbfix.verify` is itself callable.
    if name in _PACKAGES:
        return importlib.import_module(f"gbfix.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_PACKAGES])
