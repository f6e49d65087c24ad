"""What values from several places have in common: all static, all tensors, or all the same object.

Knows values, nothing of where they come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gbfix.analysis.values import STATIC, Kind, Value, container, join_all, replace, tensor

_PLAIN = Kind.STATIC | Kind.NONE | Kind.OBJECT
NAMED = Kind.OBJECT | Kind.MODULE | Kind.REFERENCE


def is_static(value: Value) -> bool:
    """Whether a value, and what it holds, is no tensor."""
    if not value.only(_PLAIN):
        return False
    if value.kinds & Kind.OBJECT:
        return value.item is not None and is_static(value.item)
    return bool(value.kinds & Kind.STATIC)


def agreed(values: Iterable[Value | None]) -> Value | None:
    """The one kind that all values are of: static, or tensor."""
    found = list(values)
    known = [value for value in found if value is not None]
    if not known or len(known) < len(found):
        return None
    if any(v.fields is not None for v in known):
        same = all(v.fields is not None for v in known)
        return join_all(replace(v, unbound=False) for v in known) if same else None
    if all(v.tensor for v in known):
        return tensor()
    first = known[0]
    if first.only(NAMED) and first.reference is not None:
        if all(v.reference == first.reference for v in known):
            return first
    if not all(map(is_static, known)):
        return None
    return first if len(known) == 1 else _joined(known)


def _joined(values: Sequence[Value]) -> Value:
    held = [v for v in values if v.kinds & Kind.OBJECT]
    if len(held) == len(values):
        items = [v.item for v in held if v.item is not None]
        return container(_joined(items))
    return STATIC
