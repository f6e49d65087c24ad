"""Arguments as descriptions and, where they are plain enough, as values that can be stored.

Tensors are copied to the CPU before the call that may change them. It may not draw random numbers,
run under the program's modes or keep what it is shown.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


class NotPlain(Exception):
    """A value that is not stored: an object of some class, a tensor subclass, or too large."""


def described(value: Any) -> str:
    """What a value is, in a few words that hold none of its data."""
    if isinstance(value, torch.Tensor):
        sizes = ", ".join(str(size) for size in value.shape)
        place = "" if value.device.type == "cpu" else f" on {value.device.type}"
        return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]{place}"
    if isinstance(value, (list, tuple)) and len(value) <= 8:
        return f"{type(value).__name__}({', '.join(map(described, value))})"
    if isinstance(value, dict) and len(value) <= 8:
        return f"dict({', '.join(f'{key}={described(item)}' for key, item in value.items())})"
    return "None" if value is None else type(value).__name__


def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
    """The descriptions of all arguments of a call, `name=` before those given by name."""
    named = (f"{name}={described(value)}" for name, value in kwargs.items())
    return (*map(described, args), *named)


def copied(args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> tuple[Any, Any]:
    """Copies of the arguments, of at most `limit` bytes.

    Raises:
        NotPlain: if there is anything else than tensors, numbers, text and containers of these.
    """
    with torch.no_grad(), torch.inference_mode(False), _disable_current_modes():
        copy = Copier(limit)
        return copy.of(tuple(args)), copy.of(dict(kwargs))


class Copier:
    """Copies values; one tensor given twice stays one."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.seen: dict[int, torch.Tensor] = {}

    def of(self, value: Any) -> Any:
        """A copy of one value."""
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            return self._tensor(value)
        if type(value) in PLAIN:
            return value
        if type(value) in (list, tuple):
            return type(value)(self.of(item) for item in value)
        if type(value) is dict and all(type(key) in (str, int) for key in value):
            return {key: self.of(item) for key, item in value.items()}
        raise NotPlain(type(value).__name__)

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        if id(value) in self.seen:
            return self.seen[id(value)]
        strided = value.layout is torch.strided and not value.is_quantized
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor(value)
        if not strided or wrapped or value.device.type == "meta":
            raise NotPlain("a tensor without plain storage")
        self.left -= value.numel() * value.element_size()
        if self.left < 0:
            raise NotPlain("more than is kept")
        copy = value.detach().clone(memory_format=torch.preserve_format).cpu()
        self.seen[id(value)] = copy.requires_grad_(value.requires_grad)
        return copy
