"""Everything that a caller can see after a call, copied out of the reach of later calls.

A value becomes a flat mapping from places (`result[0].logits`) to leaves: a tensor with all its
properties, or a text for anything else. What is compared with what is not decided here.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

_PLAIN = (bool, int, complex, str, bytes, types.NoneType)
_DEEPEST = 12


@dataclass(frozen=True, eq=False)
class TensorShot:
    """A tensor as it was at one moment; the values are a contiguous copy on the CPU."""

    type: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    requires_grad: bool
    values: torch.Tensor

    def is_like(self, other: TensorShot) -> bool:
        """Whether both show the same, bit for bit."""
        if self._properties != other._properties or self.values.is_quantized:
            return False
        mine, theirs = self.values, other.values
        if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
            return False
        return torch.equal(*(v.reshape(-1).view(torch.uint8) for v in (mine, theirs)))

    @property
    def _properties(self) -> tuple[Any, ...]:
        return self.type, self.dtype, self.shape, self.stride, self.device, self.requires_grad

    def __reduce__(self) -> tuple[Any, ...]:
        """As plain bytes; torch's own pickles of small tensors are many times as large and slow."""
        given = self._properties
        if self.values.is_quantized:
            return TensorShot, (*given, self.values)
        content = bytes_of(self.values)
        return _of_bytes, (given, self.values.dtype, tuple(self.values.shape), content)


Leaf = TensorShot | float | str
Leaves = dict[str, Leaf]


@dataclass(frozen=True)
class Raised:
    """An exception by type and message; `by_compiler` if the code itself did not raise it."""

    type: str
    message: str
    by_compiler: bool = False

    def __str__(self) -> str:
        first = next((line for line in self.message.splitlines() if line.strip()), "")
        return f"{self.type}: {first}"[:300]

    @property
    def out_of_memory(self) -> bool:
        """Whether memory ran out, which says nothing about the code."""
        wanted = ("DefaultCPUAllocator", "out of memory", "not enough memory", "std::bad_alloc")
        return self.type == "MemoryError" or any(text in self.message for text in wanted)


@dataclass(frozen=True)
class Effects:
    """What went out of the call other than through its result."""

    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()


@dataclass(frozen=True)
class CallShot:
    """Everything that can be seen after one call.

    The leaves' places start with `result`, `argument`, `state`, `gradient` or `random`.
    """

    leaves: Leaves = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)
    raised: Raised | None = None


def bytes_of(tensor: torch.Tensor) -> bytes:
    """What a contiguous tensor on the CPU holds; numpy, which need not be installed, is not asked."""
    size = tensor.numel() * tensor.element_size()
    return ctypes.string_at(tensor.data_ptr(), size) if size else b""


def _of_bytes(
    given: tuple[Any, ...], dtype: torch.dtype, shape: tuple[int, ...], content: bytes
) -> TensorShot:
    flat = torch.frombuffer(bytearray(content), dtype=dtype) if content else torch.empty(0)
    whole = *given, flat.to(dtype).reshape(shape)
    return TensorShot(*whole)


def tensor_shot(tensor: torch.Tensor) -> TensorShot:
    """Copy a tensor; one without strides is made dense first."""
    strided = tensor.layout == torch.strided
    with torch.no_grad():
        values = tensor.detach()
        values = values if strided else values.to_dense()
        values = values.to("cpu", copy=True).contiguous()
    if type(values) is not torch.Tensor:
        values = values.as_subclass(torch.Tensor)
    kind = type(tensor).__name__ if strided else f"{type(tensor).__name__} {tensor.layout}"
    stride = tuple(tensor.stride()) if strided else ()
    return TensorShot(
        kind,
        tensor.dtype,
        tuple(tensor.shape),
        stride,
        str(tensor.device),
        tensor.requires_grad,
        values,
    )


def leaves(value: Any, place: str) -> Leaves:
    """A value as leaves; the types of its containers are leaves as well."""
    return dict(_leaves(value, place, 0))


def share(found: Leaves, before: Leaves) -> None:
    """Put tensors that are as they were before in the place of their copies; pickles have them once.

    The parameters of a model are seen after each call, and hardly ever change.
    """
    for place, leaf in found.items():
        known = before.get(place)
        if isinstance(leaf, TensorShot) and isinstance(known, TensorShot) and leaf.is_like(known):
            found[place] = known


def _leaves(value: Any, place: str, depth: int) -> Iterator[tuple[str, Leaf]]:
    if isinstance(value, torch.Tensor):
        yield place, tensor_shot(value)
    elif isinstance(value, float):
        yield place, float(value)
    elif isinstance(value, _PLAIN) or depth > _DEEPEST:
        yield place, f"{type(value).__name__} {value!r}" if depth <= _DEEPEST else "..."
    elif type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        yield place, f"numpy {value.dtype} {value.tolist()!r}"
    elif isinstance(value, set | frozenset):
        yield place, f"{type(value).__name__} {sorted(map(repr, value))}"
    else:
        yield place, f"{type(value).__name__}{_size(value)}"
        for name, item in _children(value):
            yield from _leaves(item, place + name, depth + 1)


def _size(value: Any) -> str:
    return f" of {len(value)}" if isinstance(value, list | tuple | Mapping) else ""


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a value that belong to it; modules, classes and functions are not looked into."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"[{key!r}]", item
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    elif isinstance(value, torch.nn.Module | types.ModuleType | type) or callable(value):
        return
    elif isinstance(value, torch.Generator):
        yield ".state", value.get_state()
    else:
        for name, item in sorted(getattr(value, "__dict__", {}).items()):
            yield f".{name}", item


def tensors(value: Any, place: str, depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors inside a value, each with its place."""
    if isinstance(value, torch.Tensor):
        yield place, value
    elif depth <= _DEEPEST and not isinstance(value, _PLAIN):
        for name, item in _children(value):
            yield from tensors(item, place + name, depth + 1)


def aliases(groups: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """For each tensor in the groups, the others that are it or share its memory."""
    places = [pair for place, value in groups for pair in tensors(value, place)]
    by_memory: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for place, tensor in places:
        pointer = _pointer(tensor)
        if pointer:
            by_memory.setdefault(pointer, []).append((place, tensor))
    found: dict[str, str] = {}
    for sharing in by_memory.values():
        for place, tensor in sharing:
            others = [
                ("is " if other is tensor else "shares memory with ") + name
                for name, other in sharing
                if name != place
            ]
            if others:
                found[place] = ", ".join(sorted(others))
    return found


def _pointer(tensor: torch.Tensor) -> int:
    if tensor.layout != torch.strided:
        return 0
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # subclasses without memory of their own
        return 0
