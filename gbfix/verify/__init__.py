"""The equivalence checker: is rewritten code the same as the original, and does it break less?

`gbfix.verify` is this package and can be called, as `gbfix.verify(original, rewritten, inputs)`.
Importing it imports neither torch nor the user's code; both happen in worker processes only.
"""

from __future__ import annotations

import sys
import types
from typing import Any


class _Callable(types.ModuleType):
    """A package that is also the function which most of its users want.

    The import system binds a package in its parent under its own name, so that a function called
    `verify` in `gbfix` would be overwritten at the first import from here.
    """

    def __call__(self, original: Any, rewritten: Any, inputs: Any = None, **options: Any) -> Any:
        from gbfix.verify.api import verify

        return verify(original, rewritten, inputs, **options)


sys.modules[__name__].__class__ = _Callable
