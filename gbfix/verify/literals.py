"""Arguments that were made in whatever way, as literals that can be printed and made smaller.

It runs in a worker, since making arguments may run the user's code.
"""

from __future__ import annotations

from typing import Any

import torch

from gbfix.dynamo import control
from gbfix.verify.execute import arguments_of
from gbfix.verify.loading import LoadError
from gbfix.verify.recipes import CallRecipe, Inputs, Recipe, TensorRecipe, ValueRecipe
from gbfix.verify.targets import Side

_MOST_ELEMENTS = 4096
_PLAIN = (bool, int, float, str, type(None))


class _NoLiteral(Exception):
    """A value that no expression stands for."""


def literals(side: Side, inputs: Inputs) -> tuple[CallRecipe, ...] | None:
    """The arguments of all calls, element by element; None if there is one that has no literal."""
    try:
        with control.never_compile():
            made = arguments_of(side, inputs)
        return tuple(
            CallRecipe(
                tuple(_recipe(value) for value in args),
                tuple((name, _recipe(value)) for name, value in kwargs.items()),
            )
            for args, kwargs in made
        )
    except (LoadError, _NoLiteral):
        return None


def _recipe(value: Any) -> Recipe:
    if type(value) is torch.Tensor:
        return _tensor(value)
    return ValueRecipe(_code(value))


def _tensor(value: torch.Tensor) -> TensorRecipe:
    complex_or_sparse = value.is_complex() or value.layout != torch.strided
    if complex_or_sparse or value.is_quantized or value.numel() > _MOST_ELEMENTS:
        raise _NoLiteral
    dtype = str(value.dtype).removeprefix("torch.")
    values = tuple(value.detach().cpu().reshape(-1).tolist())
    turned = not value.is_contiguous()
    if turned and not (value.dim() > 1 and value.mT.is_contiguous()):
        raise _NoLiteral
    return TensorRecipe(tuple(value.shape), dtype, "normal", values=values, transposed=turned)


def _code(value: Any) -> str:
    if type(value) is torch.Tensor:
        return _tensor(value).code
    if type(value) in _PLAIN:
        odd = isinstance(value, float) and (value != value or abs(value) == float("inf"))
        return f"float('{value}')" if odd else repr(value)
    if type(value) is list:
        return f"[{', '.join(map(_code, value))}]"
    if type(value) is tuple:
        return f"({''.join(f'{_code(item)}, ' for item in value)})"
    if type(value) is dict:
        return f"{{{', '.join(f'{_code(k)}: {_code(v)}' for k, v in value.items())}}}"
    if type(value) in (torch.dtype, torch.Size):
        return repr(value)
    raise _NoLiteral
