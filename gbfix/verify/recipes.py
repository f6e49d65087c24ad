"""Arguments as small values that can be sent, shrunk, printed as code and made again.

An input is told by its recipe, so that every run makes it anew and a report can show it. Where
recipes come from is not known here.
"""

from __future__ import annotations

import functools
import math
import pickle
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

# How the elements come about: as an expression in `t`, a tensor of normal numbers of the shape.
FLOAT_FILLS: dict[str, str] = {
    "normal": "{t}",
    "negative": "-{t}.abs()",
    "positive": "{t}.abs()",
    "zeros": "torch.zeros({shape})",
    "ones": "torch.ones({shape})",
    "unit": "{t}.sigmoid()",
    "large": "{t} * 1e4",
    "small": "{t} * 1e-4",
    "large_negative": "-{t}.abs() * 1e4",
    "large_positive": "{t}.abs() * 1e4",
    "one_nan": "{t}.reshape(-1).index_fill(0, torch.tensor([0]), float('nan')).reshape({shape})",
    "one_inf": "{t}.reshape(-1).index_fill(0, torch.tensor([0]), float('inf')).reshape({shape})",
    "all_nan": "torch.full({shape}, float('nan'))",
}
INTEGER_FILLS: dict[str, str] = {
    "normal": "({t} * 2).abs().long()",
    "zeros": "torch.zeros({shape})",
    "ones": "torch.ones({shape})",
    "negative": "-({t} * 2).abs().long() - 1",
    "large": "({t} * 1000).abs().long()",
    "counting": "torch.arange({size}).reshape({shape})",
}
BOOL_FILLS: dict[str, str] = {
    "normal": "{t} > 0",
    "zeros": "torch.zeros({shape})",
    "ones": "torch.ones({shape})",
}


@dataclass(frozen=True)
class TensorRecipe:
    """A tensor by its shape, dtype and fill, which is then scaled and moved; or by its elements.

    `values`, where given, are the elements in the order of a contiguous tensor, and stand for all of
    the former. `transposed` says that the last two dimensions lie in memory the other way round.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    fill: str = "normal"
    seed: int = 0
    scale: float = 1.0
    offset: float = 0.0
    values: tuple[bool | int | float, ...] | None = None
    transposed: bool = False

    @property
    def code(self) -> str:
        """An expression that makes the tensor."""
        turned = self.transposed and len(self.shape) > 1
        return f"{self._contiguous}.mT.contiguous().mT" if turned else self._contiguous

    @property
    def _contiguous(self) -> str:
        if self.values is not None:
            return literal(self.shape, self.dtype, self.values)
        normal = f"torch.randn({self.shape}, generator=torch.Generator().manual_seed({self.seed}))"
        size = 1
        for extent in self.shape:
            size *= extent
        text = fills(self.dtype)[self.fill].format(t=normal, shape=self.shape, size=size)
        if self.scale != 1.0:
            text = f"({text}) * {self.scale!r}"
        if self.offset != 0.0:
            text = f"{text} + {self.offset!r}"
        return f"({text}).to(torch.{self.dtype})"

    def __str__(self) -> str:
        if self.values is not None:
            return self.code.removeprefix("torch.") if len(self.values) <= 8 else self._named
        extra = f" * {self.scale:g}" if self.scale != 1.0 else ""
        extra += f" + {self.offset:g}" if self.offset != 0.0 else ""
        extra += " transposed" if self.transposed else ""
        return f"{self._named} {self.fill}{extra}"

    @property
    def _named(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class ValueRecipe:
    """A plain value, by its literal; `told` is what reports say instead of a long one."""

    code: str
    told: str = ""

    def __str__(self) -> str:
        return self.told or self.code


Recipe = TensorRecipe | ValueRecipe


@dataclass(frozen=True)
class CallRecipe:
    """The arguments of one call, by name where they have to be given so."""

    args: tuple[Recipe, ...] = ()
    kwargs: tuple[tuple[str, Recipe], ...] = ()

    def __str__(self) -> str:
        named = [f"{name}={recipe}" for name, recipe in self.kwargs]
        return f"({', '.join([*map(str, self.args), *named])})"

    @property
    def code(self) -> str:
        """An expression for a tuple of arguments and a dictionary of named ones."""
        args = ", ".join(recipe.code for recipe in self.args)
        comma = "," if len(self.args) == 1 else ""
        kwargs = ", ".join(f'"{name}": {recipe.code}' for name, recipe in self.kwargs)
        return f"(({args}{comma}), {{{kwargs}}})"

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """Those of all arguments, the named ones last."""
        return *self.args, *(recipe for _, recipe in self.kwargs)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Those of the tensors among the arguments."""
        return tuple(recipe.shape for recipe in self.recipes if isinstance(recipe, TensorRecipe))

    def rebuilt(self, recipes: Sequence[Recipe]) -> CallRecipe:
        """The same call with other recipes."""
        count = len(self.args)
        names = [name for name, _ in self.kwargs]
        return CallRecipe(tuple(recipes[:count]), tuple(zip(names, recipes[count:], strict=True)))

    def mapped(self, change: Callable[[Recipe], Recipe]) -> CallRecipe:
        """The same call with every recipe changed."""
        return self.rebuilt([change(recipe) for recipe in self.recipes])

    def make(self) -> Arguments:
        """The arguments themselves."""
        import torch

        made: Arguments = eval(_compiled(self.code), {"torch": torch})
        return made


@functools.lru_cache(maxsize=256)
def _compiled(code: str) -> types.CodeType:
    return compile(code, "<arguments>", "eval")


@dataclass(frozen=True)
class Inputs:
    """Where the arguments of a target's calls come from: one of these, or `saved` and `recipes`.

    Attributes:
        recipes: what was generated.
        factory: a `module:function` that returns a list of tuples or of `(args, kwargs)`.
        pickled: a pickled list of `(args, kwargs)`.
        expressions: one for each call, in the names of the target's module and `torch`.
        saved: files that hold one `(args, kwargs)` each, as `gbfix trace` keeps them; `modules` says
            what modules are called now that had another name where that was.
        once: whether the calls are made as they stand; else the first is made again at the end.
        only: which of them to make, if not all.
    """

    recipes: tuple[CallRecipe, ...] = ()
    factory: str | None = None
    pickled: bytes | None = None
    expressions: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    once: bool = False
    only: tuple[int, ...] | None = None

    def order(self, count: int) -> tuple[int, ...]:
        """Which arguments each call takes; the first come again, and there are four calls or more.

        State is carried between calls, and a recompilation may come late.
        """
        if self.once:
            return tuple(range(count))
        again = range(max(1, 4 - count))
        return *range(count), *(number % count for number in again)

    def make(self, factory: Any = None) -> list[Arguments]:
        """All arguments, made anew; `factory` is what the text or the expressions stand for."""
        made = self._made(factory)
        return made if self.only is None else [made[number] for number in self.only]

    def make_one(self, number: int, factory: Any = None) -> Arguments:
        """The arguments of one of the calls that `make` has; recipes do not need the others."""
        if self.pickled is not None or self.saved or factory is not None:
            return self.make(factory)[number]
        return self.recipes[number if self.only is None else self.only[number]].make()

    def _made(self, factory: Any) -> list[Arguments]:
        if self.pickled is not None:
            unpickled: list[Arguments] = pickle.loads(self.pickled)
            return unpickled
        if self.saved:
            import torch

            from gbfix.trace.objects import put_together

            # Only tensors and plain values are read, so that a trace of others can run no code.
            loaded = [torch.load(file, weights_only=True) for file in self.saved]
            stored = normalised([put_together(one, dict(self.modules)) for one in loaded])
            return [*stored, *(recipe.make() for recipe in self.recipes)]
        if factory is not None:
            return normalised(factory())
        return [recipe.make() for recipe in self.recipes]


def literal(shape: Sequence[int], dtype: str, values: Sequence[bool | int | float]) -> str:
    """An expression for a tensor with these elements."""
    named = "" if dtype in ("float32", "int64", "bool") else f", dtype=torch.{dtype}"
    if not values or (len(values) > 4 and len(set(map(repr, values))) == 1):
        dtype_of_all = f", dtype=torch.{dtype}" if dtype != "float32" else ""
        value = values[0] if values else 0
        if value in (0, 1):
            return f"torch.{'ones' if value else 'zeros'}({tuple(shape)}{dtype_of_all})"
        return f"torch.full({tuple(shape)}, {_number(value)}{dtype_of_all})"
    return f"torch.tensor({_nested(shape, list(values))}{named})"


def like(arguments: Arguments) -> CallRecipe | None:
    """A call with tensors of the same shapes and dtypes and the same plain values.

    None if there is anything of which no recipe can be told.
    """
    args, kwargs = arguments
    positional = [_like(value) for value in args]
    named = {name: _like(value) for name, value in kwargs.items()}
    if None in positional or None in named.values():
        return None
    return CallRecipe(
        tuple(recipe for recipe in positional if recipe is not None),
        tuple((name, recipe) for name, recipe in named.items() if recipe is not None),
    )


def _like(value: Any) -> Recipe | None:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        dtype = str(value.dtype).removeprefix("torch.")
        return None if "complex" in dtype else TensorRecipe(tuple(value.shape), dtype)
    if isinstance(value, float) and not math.isfinite(value):
        return ValueRecipe(f"float('{value}')")
    plain = value is None or isinstance(value, bool | int | float | str)
    if isinstance(value, list | tuple):
        plain = all(isinstance(item, bool | int | float | str | None) for item in value)
    return ValueRecipe(repr(value)) if plain else None


def _nested(shape: Sequence[int], values: Sequence[bool | int | float]) -> str:
    if not shape:
        return _number(values[0])
    step = len(values) // shape[0]
    rows = (values[at : at + step] for at in range(0, len(values), step))
    return f"[{', '.join(_nested(shape[1:], row) for row in rows)}]"


def _number(value: bool | int | float) -> str:
    return repr(value) if value == value and abs(value) != float("inf") else f"float('{value}')"


def normalised(given: Sequence[Any]) -> list[Arguments]:
    """Argument tuples, dictionaries of names, single arguments or `(args, kwargs)`, all as the last."""
    return [_normalised(item) for item in given]


def _normalised(item: Any) -> Arguments:
    if isinstance(item, tuple):
        if len(item) == 2 and isinstance(item[0], tuple | list) and isinstance(item[1], dict):
            return tuple(item[0]), dict(item[1])
        return item, {}
    if isinstance(item, dict) and all(isinstance(key, str) for key in item):
        return (), dict(item)
    return (tuple(item), {}) if isinstance(item, list) else ((item,), {})


def fills(dtype: str) -> dict[str, str]:
    """The fills that make sense for a dtype."""
    if dtype == "bool":
        return BOOL_FILLS
    return INTEGER_FILLS if "int" in dtype else FLOAT_FILLS


def filled(call: CallRecipe, fill: str) -> CallRecipe:
    """A call with all tensors filled in one way, as far as their dtypes have it."""

    def change(recipe: Recipe) -> Recipe:
        if isinstance(recipe, TensorRecipe) and fill in fills(recipe.dtype):
            return replace(recipe, fill=fill)
        return recipe

    return call.mapped(change)


def description(arguments: Arguments) -> str:
    """Arguments in a few words."""
    args, kwargs = arguments
    named = [f"{name}={_described(value)}" for name, value in kwargs.items()]
    return f"({', '.join([*map(_described, args), *named])})"


def _described(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 40 else type(value).__name__
