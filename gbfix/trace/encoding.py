"""The values of a trace as JSON and back, field by field as docs/trace.md lists them.

Unknown fields are passed over and missing ones take their defaults, so that a trace of a later minor
version can be read. The module knows no files.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar

_T = TypeVar("_T")


def encode(value: Any) -> Any:
    """A value as what `json.dumps` takes; fields that hold their default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        given = {f.name: getattr(value, f.name) for f in fields}
        left = {f.name for f in fields if f.default is not dataclasses.MISSING}
        return {
            name: encode(item)
            for name, item in given.items()
            if name not in left or item != _default(type(value), name)
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return value


def decode(kind: type[_T], data: Any) -> _T:
    """A value of a dataclass from what `encode` made of it.

    Raises:
        ValueError: for data that does not fit.
    """
    try:
        value: _T = _decoded(kind, data)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error
    return value


def _decoded(kind: Any, data: Any) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        return kind(**{name: _decoded(hints[name], data[name]) for name in hints if name in data})
    origin = typing.get_origin(kind)
    if origin is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_decoded(item, element) for element in data)
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        return _decoded(next(k for k in typing.get_args(kind) if k is not type(None)), data)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind is float and isinstance(data, int):
        return float(data)
    if not isinstance(data, kind):
        raise TypeError(f"{data!r} is not a {kind.__name__}")
    return data


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@cache
def _default(kind: type, name: str) -> Any:
    return next(f.default for f in dataclasses.fields(kind) if f.name == name)
