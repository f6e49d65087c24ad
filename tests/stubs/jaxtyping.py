"""Stands in for jaxtyping: `Float[torch.Tensor, "b n"]` is an annotation and nothing else."""

from __future__ import annotations

from typing import Any


class _Dtype:
    def __class_getitem__(cls, item: Any) -> Any:
        return item[0]


class Float(_Dtype):
    """Floating point tensors."""


class Int(_Dtype):
    """Integer tensors."""


class Bool(_Dtype):
    """Boolean tensors."""


class Shaped(_Dtype):
    """Tensors of any type."""
