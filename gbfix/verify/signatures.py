"""What arguments a callable could take, from its annotations, defaults and the names of its parameters.

It makes guesses, in the order in which they should be tried; whether they run is not its matter.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

TENSORS = ("float32", "int64", "bool")
_SCALARS = {
    "int": ("2", "1", "0", "-1", "5"),
    "float": ("0.5", "-0.5", "0.0", "2.0"),
    "bool": ("True", "False"),
    "str": ("'a'", "''"),
}
_MASK = re.compile(r"mask|^is_|_flags?$")
_INDEX = re.compile(
    r"(^|_)(ids?|idx|ind(ex|ices)|labels?|tokens?|positions?|lengths?|lens|target)$"
)
# What a name says of a tensor's place among the others.
_ROLES = (
    ("audio", re.compile(r"waveform|audio|speech|input_values")),
    ("image", re.compile(r"pixel_values|image|\bimgs?\b|frames?$")),
    ("boxes", re.compile(r"box|anchor|proposal")),
    ("tokens", re.compile(r"(^|_)(ids?|tokens?|positions?)$")),
    ("rows", re.compile(r"label|target|length|timestep|(^|_)(lens?|idx|ind(ex|ices)|scores?|t)$")),
    ("mask", _MASK),
)
_FLAG = re.compile(r"^(use|return|is|do|output)_|^training$|^causal$")


@dataclass(frozen=True)
class Parameter:
    """One parameter and the kinds of argument to try for it.

    Attributes:
        dtypes: dtypes of tensors, the likeliest first; empty if it is no tensor.
        values: literals, the likeliest first.
        dims: names or sizes of dimensions, if an annotation gives them.
        optional: whether it may be left out.
    """

    name: str
    dtypes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    dims: tuple[str, ...] | None = None
    optional: bool = False
    keyword: bool = False
    pair: bool = False

    @property
    def role(self) -> str:
        """`tokens`, `mask`, `rows`, `boxes`, `image`, `audio`, `pair` (of tensors), or else `main`."""
        if self.pair:
            return "pair"
        return next((role for role, pattern in _ROLES if pattern.search(self.name)), "main")


def parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters of a function or of a module's `forward`.

    Raises:
        ValueError: if it has no signature.
    """
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        signature = inspect.signature(called, eval_str=True)
    except (NameError, TypeError, SyntaxError, AttributeError):
        signature = inspect.signature(called)
    found = []
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            found.append(_parameter(parameter))
    return tuple(found)


def _parameter(parameter: inspect.Parameter) -> Parameter:
    name, annotation = parameter.name, parameter.annotation
    optional = parameter.default is not parameter.empty
    keyword = parameter.kind is parameter.KEYWORD_ONLY
    dims = getattr(annotation, "dim_str", None)
    if isinstance(dims, str):
        dtypes = _jaxtyping_dtypes(annotation)
        return Parameter(name, dtypes, (), tuple(dims.split()), optional, keyword)
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if annotation is not parameter.empty and not isinstance(annotation, str | type):
        text = str(annotation)
    for scalar, values in _SCALARS.items():
        if re.search(rf"\b{scalar}\b", text) and "Tensor" not in text:
            return Parameter(name, (), values, None, optional, keyword)
    if optional and isinstance(parameter.default, bool | int | float | str):
        kind = type(parameter.default).__name__
        return Parameter(name, (), _SCALARS[kind], None, True, keyword)
    if re.search(r"[tT]uple\[(\w+\.)*Tensor, (\w+\.)*Tensor\]", text):
        return Parameter(name, ("float32",), ("None",), None, optional, keyword, pair=True)
    if "Tensor" in text:
        return Parameter(name, _tensor_dtypes(name), ("None",), None, optional, keyword)
    if _FLAG.search(name) and "mask" not in name:
        return Parameter(name, (), ("True", "False"), None, optional, keyword)
    return Parameter(name, _tensor_dtypes(name), ("2", "0.5", "None"), None, optional, keyword)


def _tensor_dtypes(name: str) -> tuple[str, ...]:
    if _MASK.search(name):
        return ("bool", "int64", "float32")
    return ("int64", "float32", "bool") if _INDEX.search(name) else TENSORS


def _jaxtyping_dtypes(annotation: Any) -> tuple[str, ...]:
    """The first dtype that a jaxtyping annotation allows, of those that are tried."""
    allowed = [str(dtype) for dtype in getattr(annotation, "dtypes", ())]
    found = tuple(dtype for dtype in TENSORS if dtype in allowed)
    return found or tuple(dtype for dtype in TENSORS if any(a in dtype for a in allowed)) or TENSORS


def size_hints(function: Callable[..., Any]) -> list[int]:
    """Sizes that a module's own layers ask of their inputs, the first layer's first."""
    names = ("in_features", "in_channels", "input_size", "embed_dim", "num_features", "d_model")
    hints: list[int] = []
    if isinstance(function, torch.nn.Module):
        for part in function.modules():
            hints += [size for name in names if isinstance(size := getattr(part, name, None), int)]
            shape = getattr(part, "normalized_shape", None)
            if isinstance(shape, tuple) and shape:
                hints.append(int(shape[-1]))
        for tensor in [*function.parameters(), *function.buffers()]:
            hints += [int(size) for size in tensor.shape[-1:]]
    return [size for size in dict.fromkeys(hints) if size > 1][:6]


def hints_in(message: str) -> list[int]:
    """Sizes that an error message about shapes names."""
    return [int(text) for text in re.findall(r"(?<![a-wyz_\d.])\d{1,4}(?![\d.])", message)][:8]
