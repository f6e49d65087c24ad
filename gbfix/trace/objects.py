"""Objects taken apart into tensors and plain values, and put together again without calling their code.

A module whose constructor takes arguments cannot be made again from its class alone; what it holds
can be kept. Of an object the class and the attributes are kept, of functions and classes the names.
What comes out is read by `torch.load(weights_only=True)`, so that the trace of another can bring no
code of its own. How a trace is stored is not known here.
"""

from __future__ import annotations

import enum
import importlib
import sys
import types
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from gbfix.trace.samples import PLAIN, Copier, NotPlain

_KIND = "__gbfix__"
_CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", set: "set", dict: "dict",
                                OrderedDict: "ordered"}  # fmt: skip
# What torch.compile keeps at a module that is compiled in place; it is compiled anew where it is used.
_COMPILED = "_compiled_call_impl"
# The standard library's functions may do anything; these only compute, or hold values.
_HARMLESS = frozenset({"collections", "enum", "math", "operator", "types"})
_MOST_VALUES = 50_000
_FUNCTIONAL = "torch.nn.functional"
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that Python code has made


def taken_apart(value: Any, limit: int) -> Any:
    """An object as tensors and plain values of at most `limit` bytes, copied to the CPU.

    Raises:
        NotPlain: if it holds what cannot be put together again, such as a lambda or a file.
    """
    with torch.no_grad(), torch.inference_mode(False), _disable_current_modes():
        return _Apart(limit).of(value)


def put_together(data: Any, modules: Mapping[str, str]) -> Any:
    """The object that `taken_apart` has made the data of; its constructor is not called.

    Args:
        data: as it was loaded; what was not taken apart stays as it is.
        modules: what modules are called here that had another name where it was recorded.

    Raises:
        ValueError: if the data does not fit, or names something that is not there.
    """
    try:
        return _Together(modules).of(data)
    except (KeyError, IndexError, TypeError, AttributeError, ImportError) as error:
        raise ValueError(f"the recorded object cannot be made again: {error}") from error


class _Apart:
    """Takes objects apart; one that is met again is told by the number that it was given."""

    def __init__(self, limit: int) -> None:
        self.copier = Copier(limit)
        self.left = _MOST_VALUES
        self.met: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no other object takes over an identity
        self.storages: dict[int, int] = {}

    def of(self, value: Any) -> Any:
        # An object may say that it is of another class, or find that out when it is asked.
        kind = type(value)
        self.left -= 1 + (len(value) >> 6 if kind in (str, bytes) else 0)
        if self.left < 0:
            raise NotPlain("more than is kept")
        if kind in PLAIN:
            return value
        if issubclass(kind, enum.Enum):
            return {_KIND: "member", **_named(kind), "member": value.name}
        if issubclass(kind, type | types.FunctionType | types.BuiltinFunctionType):
            return {_KIND: "name", **_named(value)}
        if id(value) in self.met:
            return {_KIND: "again", "number": self.met[id(value)]}
        self.met[id(value)] = len(self.met)
        self.kept.append(value)
        if issubclass(kind, torch.Tensor):
            return self._tensor(value)
        name = _CONTAINERS.get(kind)
        if name in ("dict", "ordered"):
            return {_KIND: name, "items": [(self.of(k), self.of(v)) for k, v in value.items()]}
        if name is not None:
            return {_KIND: name, "items": [self.of(item) for item in value]}
        return self._object(value)

    def _tensor(self, value: torch.Tensor) -> Any:
        copy = self.copier.of(value)
        place = value.untyped_storage().data_ptr()
        if place and self.storages.setdefault(place, id(value)) != id(value):
            raise NotPlain("two tensors that share their elements")
        kind = "parameter" if type(value) is torch.nn.Parameter else "tensor"
        return {_KIND: kind, "value": copy.detach(), "grad": value.requires_grad}

    def _object(self, value: Any) -> Any:
        kind = type(value)
        if not _is_plain_class(kind):
            raise NotPlain(f"a {kind.__qualname__}")
        held = {k: v for k, v in vars(value).items() if k != _COMPILED}
        return {
            _KIND: "object",
            **_named(kind),
            "state": [(k, self.of(v)) for k, v in held.items()],
        }


class _Together:
    """Puts objects together in the order in which they were taken apart."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self.modules = modules
        self.made: list[Any] = []

    def of(self, data: Any) -> Any:
        if type(data) is not dict or _KIND not in data:
            return data
        kind = data[_KIND]
        if kind == "name":
            return self._found(data)
        if kind == "member":
            return self._found(data)[data["member"]]
        if kind == "again":
            return self.made[data["number"]]
        number = len(self.made)
        self.made.append(None)
        if kind in ("tensor", "parameter"):
            self.made[number] = self._tensor(data)
        elif kind in ("tuple", "set"):
            items = [self.of(item) for item in data["items"]]
            self.made[number] = tuple(items) if kind == "tuple" else set(items)
        elif kind == "list":
            self.made[number] = []
            self.made[number].extend(self.of(item) for item in data["items"])
        elif kind in ("dict", "ordered"):
            self.made[number] = {} if kind == "dict" else OrderedDict()
            for key, value in data["items"]:
                made = self.of(key)
                self.made[number][made] = self.of(value)
        else:
            self._object(number, data)
        return self.made[number]

    @staticmethod
    def _tensor(data: Any) -> torch.Tensor:
        value: torch.Tensor = data["value"]
        if data[_KIND] == "parameter":
            return torch.nn.Parameter(value, requires_grad=data["grad"])
        return value.requires_grad_(data["grad"])

    def _object(self, number: int, data: Any) -> None:
        kind = self._found(data)
        if not isinstance(kind, type) or not _is_plain_class(kind):
            raise ValueError(f"`{data['name']}` is not a class whose objects are plain")
        makes: Any = kind.__new__
        self.made[number] = made = makes(kind)
        if isinstance(made, torch.nn.Module):
            torch.nn.Module.__init__(made)
        for key, value in data["state"]:
            vars(made)[key] = self.of(value)

    def _found(self, data: Any) -> Any:
        name = self.modules.get(data["module"], data["module"])
        if not _may_be_named(name):
            raise ValueError(f"`{name}.{data['name']}` is not taken from a trace")
        found: Any = importlib.import_module(name)
        for part in data["name"].split("."):
            found = getattr(found, part)
        return found


def _is_plain_class(kind: type) -> bool:
    """Whether an object of a class is its attributes and nothing else."""
    if kind is types.SimpleNamespace:
        return True
    makes: Any = kind.__new__
    own = [base for base in kind.__mro__ if base is not object]
    slotted = any(vars(base).get("__slots__") for base in own)
    return makes is object.__new__ and not slotted and all(base.__flags__ & _HEAP for base in own)


def _named(value: Any) -> dict[str, str]:
    """The names by which a function or class is found again.

    Raises:
        NotPlain: if it is not found by them.
    """
    own = getattr(value, "__module__", None) or ""
    name = value.__qualname__
    # Functions that torch is given by C++ are not told where they are.
    for module, path in ((own, name), ("torch", value.__name__), (_FUNCTIONAL, value.__name__)):
        first, *rest = path.split(".")
        # Not by `getattr`, which may have the module import something.
        found: Any = vars(sys.modules[module]).get(first) if module in sys.modules else None
        for part in rest:
            found = getattr(found, part, None)
        if found is value and _may_be_named(module):
            return {"module": module, "name": path}
    raise NotPlain(f"`{name}`, which is not found by its name")


def _may_be_named(module: str) -> bool:
    root = module.partition(".")[0]
    return root not in sys.stdlib_module_names or root in _HARMLESS
