"""Everything that can be selected: the diagnoses, and the transforms with what they treat.

This is the one place where the two registries meet; it knows nothing of what is in them.
"""

from __future__ import annotations

from functools import lru_cache

from gbfix.diagnoses import DIAGNOSES
from gbfix.registry import transforms
from gbfix.selection import Catalogue


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """The diagnoses and transforms of this installation, as names and codes."""
    return Catalogue(
        {code: diagnosis.name for code, diagnosis in DIAGNOSES.items()},
        {transform.name: tuple(transform.codes) for transform in transforms()},
    )
