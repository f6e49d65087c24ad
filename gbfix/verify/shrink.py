"""Makes the calls that show a difference smaller: fewer, then with fewer arguments, sizes and values.

Every step is tried and kept only if the difference still shows, so what is left is not the smallest
there is, but nothing simple makes it smaller. How a try is made is not known here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from gbfix.verify.recipes import CallRecipe, Recipe, TensorRecipe, ValueRecipe, fills

Calls = tuple[CallRecipe, ...]
_MOST_ELEMENTS = 64
_SIMPLER = {
    "int": ("0", "1", "2"),
    "float": ("0.0", "1.0"),
    "bool": ("False",),
    "str": ("''", "'a'"),
}


@dataclass(frozen=True)
class Budget:
    """How many tries may be made, and until when, as `time.monotonic` tells it."""

    tries: int
    until: float


@dataclass
class Shrinker:
    """The smallest calls so far, and the means to try others.

    Attributes:
        shows: whether calls show the difference.
        as_literals: gives the same calls element by element, or None.
        spent: whether the budget ended the search.
    """

    calls: Calls
    shows: Callable[[Calls], bool]
    as_literals: Callable[[Calls], Calls | None]
    budget: Budget
    tried: set[Calls] = field(default_factory=set)
    spent: bool = False

    def run(self) -> Calls:
        """Take all steps in turn, the ones that remove most first."""
        self._exhaust(_fewer_calls)
        self._exhaust(_fewer_arguments)
        self._exhaust(_smaller_shapes)
        self._exhaust(_simpler_values)
        self._exhaust(_fills)
        # Values that are alike let sizes go that random ones did not.
        self._exhaust(_smaller_shapes)
        elements = sum(math.prod(t.shape) for t in _tensors(self.calls))
        if elements <= _MOST_ELEMENTS:
            literal = self.as_literals(self.calls)
            if literal is not None and self._try(literal):
                self._exhaust(_rounded)
                self._simplify_elements()
        return self.calls

    def _exhaust(self, step: Callable[[Calls], Iterator[Calls]]) -> None:
        """Take the first smaller calls that a step offers, until it offers none that show it."""
        while not self.spent and any(self._try(candidate) for candidate in step(self.calls)):
            pass

    def _simplify_elements(self) -> None:
        for call, recipe, element in list(_elements(self.calls)):
            current = _element(self.calls, call, recipe, element)
            for simpler in (0, 1, -1):
                if self.spent or current == simpler:
                    break
                if self._try(_with_element(self.calls, call, recipe, element, simpler)):
                    break

    def _try(self, candidate: Calls) -> bool:
        if candidate in self.tried or self.spent:
            return False
        if len(self.tried) >= self.budget.tries or time.monotonic() > self.budget.until:
            self.spent = True
            return False
        self.tried.add(candidate)
        if not self.shows(candidate):
            return False
        self.calls = candidate
        return True


def _fewer_calls(calls: Calls) -> Iterator[Calls]:
    if len(calls) > 1:
        yield calls[-1:]
        if len(calls) > 2:
            yield calls[-2:]
            yield calls[len(calls) // 2 :]
        for number in range(len(calls) - 1):
            yield (*calls[:number], *calls[number + 1 :])


def _fewer_arguments(calls: Calls) -> Iterator[Calls]:
    for name in dict.fromkeys(name for call in calls for name, _ in call.kwargs):
        yield tuple(
            replace(call, kwargs=tuple(pair for pair in call.kwargs if pair[0] != name))
            for call in calls
        )


def _smaller_shapes(calls: Calls) -> Iterator[Calls]:
    """Every dimension 1 or 2, then all dimensions of one size, then single ones, then fewer."""
    shapes = [recipe.shape for recipe in _tensors(calls)]
    sizes = sorted({size for shape in shapes for size in shape if size > 1}, reverse=True)
    for small in (1, 2):
        if any(size > small for size in sizes):
            yield _reshaped(calls, lambda shape, small=small: tuple(min(n, small) for n in shape))  # type: ignore[misc]
    for size in sizes:
        for small in (1, 2):
            if size > small:
                yield _reshaped(
                    calls,
                    lambda shape, size=size, small=small: tuple(  # type: ignore[misc]
                        small if n == size else n for n in shape
                    ),
                )
    for axis in range(max(map(len, shapes), default=0)):
        for small in (1, 2):
            if any(len(shape) > axis and shape[axis] > small for shape in shapes):
                yield _reshaped(
                    calls,
                    lambda shape, axis=axis, small=small: tuple(  # type: ignore[misc]
                        min(n, small) if at == axis else n for at, n in enumerate(shape)
                    ),
                )
    if any(shapes):
        yield _reshaped(calls, lambda shape: ())
        yield _reshaped(calls, lambda shape: shape[1:])


def _simpler_values(calls: Calls) -> Iterator[Calls]:
    for number, call in enumerate(calls):
        for place, recipe in enumerate(call.recipes):
            if isinstance(recipe, ValueRecipe):
                kind = _kind(recipe.code)
                choices = _SIMPLER.get(kind, ())
                # Those before the present one are simpler; one that is not listed is worst.
                end = choices.index(recipe.code) if recipe.code in choices else len(choices)
                for code in choices[:end]:
                    yield _changed(calls, number, place, ValueRecipe(code))


def _fills(calls: Calls) -> Iterator[Calls]:
    """All tensors of ones or zeros, without scale and offset; then one after the other."""
    simple = ("zeros", "ones")
    for fill in simple:
        candidate = tuple(call.mapped(lambda recipe, f=fill: _filled(recipe, f)) for call in calls)  # type: ignore[misc]
        if candidate != calls and any(t.fill not in simple for t in _tensors(calls)):
            yield candidate
    for number, call in enumerate(calls):
        for place, recipe in enumerate(call.recipes):
            if isinstance(recipe, TensorRecipe) and recipe.values is None:
                if recipe.fill not in simple:
                    for fill in simple:
                        yield _changed(calls, number, place, _filled(recipe, fill))
                plain = replace(recipe, scale=1.0, offset=0.0)
                if plain != recipe:
                    yield _changed(calls, number, place, plain)


def _rounded(calls: Calls) -> Iterator[Calls]:
    """All elements as their signs, or as whole numbers, or with one decimal."""
    for change in (_sign, lambda value: float(round(value)), lambda value: round(value, 1)):

        def apply(recipe: Recipe, change: Callable[[float], float] = change) -> Recipe:
            if not isinstance(recipe, TensorRecipe) or "float" not in recipe.dtype:
                return recipe
            values = tuple(change(v) if math.isfinite(v) else v for v in recipe.values or ())
            return replace(recipe, values=values)

        candidate = tuple(call.mapped(apply) for call in calls)
        if candidate != calls:
            yield candidate


def _sign(value: float) -> float:
    return float((value > 0) - (value < 0))


def _tensors(calls: Calls) -> list[TensorRecipe]:
    return [r for call in calls for r in call.recipes if isinstance(r, TensorRecipe)]


def _kind(code: str) -> str:
    for kind in (int, float):
        try:
            kind(code)
            return kind.__name__
        except ValueError:
            pass
    if code in ("True", "False"):
        return "bool"
    return "str" if code[:1] in "'\"" else "other"


def _filled(recipe: Recipe, fill: str) -> Recipe:
    if isinstance(recipe, TensorRecipe) and recipe.values is None and fill in fills(recipe.dtype):
        return replace(recipe, fill=fill, seed=0, scale=1.0, offset=0.0)
    return recipe


def _reshaped(calls: Calls, size: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Calls:
    def change(recipe: Recipe) -> Recipe:
        if not isinstance(recipe, TensorRecipe):
            return recipe
        shape = size(recipe.shape)
        if recipe.values is None:
            return replace(recipe, shape=shape)
        return replace(recipe, shape=shape, values=_corner(recipe, shape))

    return tuple(call.mapped(change) for call in calls)


def _corner(recipe: TensorRecipe, shape: tuple[int, ...]) -> tuple[bool | int | float, ...]:
    """The elements of the first corner of a tensor that has a smaller shape, or fewer dimensions."""
    assert recipe.values is not None
    wide = (1,) * (len(recipe.shape) - len(shape)) + shape
    strides = [math.prod(recipe.shape[axis + 1 :]) for axis in range(len(wide))]
    found = []
    for number in range(math.prod(wide)):
        at, rest = 0, number
        for size, stride in zip(reversed(wide), reversed(strides), strict=True):
            rest, index = divmod(rest, size)
            at += index * stride
        found.append(recipe.values[at])
    return tuple(found)


def _changed(calls: Calls, number: int, place: int, recipe: Recipe) -> Calls:
    recipes = list(calls[number].recipes)
    recipes[place] = recipe
    return (*calls[:number], calls[number].rebuilt(recipes), *calls[number + 1 :])


def _elements(calls: Calls) -> Iterator[tuple[int, int, int]]:
    for number, call in enumerate(calls):
        for place, recipe in enumerate(call.recipes):
            if isinstance(recipe, TensorRecipe):
                yield from ((number, place, element) for element in range(len(recipe.values or ())))


def _element(calls: Calls, call: int, recipe: int, element: int) -> bool | int | float:
    tensor = calls[call].recipes[recipe]
    assert isinstance(tensor, TensorRecipe) and tensor.values is not None
    return tensor.values[element]


def _with_element(calls: Calls, call: int, recipe: int, element: int, value: int) -> Calls:
    tensor = calls[call].recipes[recipe]
    assert isinstance(tensor, TensorRecipe) and tensor.values is not None
    given: bool | int | float = value
    if "float" in tensor.dtype:
        given = float(value)
    elif tensor.dtype == "bool":
        given = value > 0
    elif tensor.dtype.startswith("uint"):
        given = abs(value)
    values = (*tensor.values[:element], given, *tensor.values[element + 1 :])
    return _changed(calls, call, recipe, replace(tensor, values=values))
