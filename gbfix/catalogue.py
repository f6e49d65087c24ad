"""Everything that can be selected: the diagnoses, and the transforms with what they treat.

This is the one place where the two registries meet; it knows nothing of what is in them.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from gbfix.diagnoses import DIAGNOSES
from gbfix.registry import transforms
from gbfix.selection import Catalogue, Selection, resolve


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """The diagnoses and transforms of this installation, as names and codes."""
    return Catalogue(
        {code: diagnosis.name for code, diagnosis in DIAGNOSES.items()},
        {transform.name: tuple(transform.codes) for transform in transforms()},
    )


def selection(select: Collection[str], ignore: Collection[str]) -> Selection:
    """What `--select` and `--ignore` mean in this installation.

    Raises:
        UserError: for selectors that name nothing.
    """
    if not select and not ignore:  # without loading the transforms
        return Selection(frozenset(DIAGNOSES), None)
    return resolve(select, ignore, catalogue())
