"""Other values for arguments that are known to run: special ones first, then what Hypothesis draws.

Values are changed and shapes are kept, apart from one call with another size and one with nothing in
it. What a variant is good for is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gbfix.verify.halves import halves_in, in_half
from gbfix.verify.recipes import CallRecipe, Recipe, TensorRecipe, ValueRecipe, filled, fills
from gbfix.verify.signatures import Parameter

_DRAWS = 200
# Values that rewrites get wrong even if no branch asks for them.
TELLING = ("negative", "zeros", "large_positive", "one_nan", "ones")

# What is said of code that does otherwise for a batch of one or none, or for other strides.
_SIZES = re.compile(r"numel|shape\[|size\(|len\(|\bempty\b|squeeze")
_RANKS = re.compile(r"\bdim\(\)|ndim|numel|squeeze")
_STRIDES = re.compile(r"contiguous|stride|memory_format|channels_last|\.view\(|data_ptr")


def telling(base: CallRecipe, text: str) -> Iterator[CallRecipe]:
    """Variants worth running; other sizes, ranks and strides only where the code speaks of such.

    `torch.cond` does not compile for some empty operands, which nobody may ever pass, and each of these
    is compiled for itself. They come with values of both signs, for both arms of a branch.
    """
    first, *rest = TELLING
    yield filled(base, first)
    # Early, among the calls over which recompilations are counted.
    yield _resized(base, lambda shape: (shape[0] + 3, *shape[1:]))
    for fill in rest:
        yield filled(base, fill)
    if _SIZES.search(text):
        yield _resized(base, lambda shape: (0, *shape[1:]))
        yield from _signed(_resized(base, lambda shape: (1, *shape[1:])))
    if _RANKS.search(text):
        yield from _signed(_resized(base, lambda shape: ()))
    if _STRIDES.search(text):
        yield from _signed(base.mapped(_transposed))


def in_dtypes(base: CallRecipe, text: str) -> Iterator[CallRecipe]:
    """The call in each of the smaller float types that the code speaks of."""
    return (in_half(base, name) for name in halves_in(text))


def special(base: CallRecipe, left_out: Sequence[Parameter]) -> Iterator[CallRecipe]:
    """Variants with special values in all arguments, then in one argument, then in optional ones."""
    names = dict.fromkeys(name for recipe in base.recipes for name in _fill_names(recipe))
    for name in names:
        yield filled(base, name)
    for seed in range(10, 14):
        yield base.rebuilt([_reseeded(recipe, seed) for recipe in base.recipes])
    for number, recipe in enumerate(base.recipes):
        for other in _alternatives(recipe):
            yield _with(base, number, other)
    for parameter in left_out:
        yield from with_optional(base, parameter)


def with_optional(base: CallRecipe, parameter: Parameter) -> Iterator[CallRecipe]:
    """The call with an argument for a parameter that could be left out."""
    for recipe in _optional(parameter, base):
        yield replace(base, kwargs=(*base.kwargs, (parameter.name, recipe)))


def drawn(base: CallRecipe, wanted: Callable[[CallRecipe], bool]) -> CallRecipe | None:
    """The simplest variant that is wanted, as far as Hypothesis finds one; None without Hypothesis."""
    try:
        import hypothesis
        from hypothesis import strategies
    except ImportError:
        return None
    pieces = []
    for recipe in base.recipes:
        if isinstance(recipe, ValueRecipe):
            pieces.append(strategies.sampled_from([recipe, *_alternatives(recipe)]))
            continue
        scales = strategies.sampled_from([1.0, -1.0, 0.1, 3.0, 10.0, 100.0, 0.01, 1e-4, 1e6])
        offsets = strategies.sampled_from([0.0, 1.0, -1.0, 0.25, -0.25, 5.0, -5.0, 100.0])
        integral = "float" not in recipe.dtype
        pieces.append(
            strategies.builds(
                replace,
                strategies.just(recipe),
                fill=strategies.sampled_from(list(fills(recipe.dtype))),
                seed=strategies.integers(0, 50),
                scale=strategies.just(1.0) if integral else scales,
                offset=strategies.just(0.0) if recipe.dtype == "bool" else offsets,
            )
        )
    calls = strategies.tuples(*pieces).map(lambda recipes: base.rebuilt(recipes))
    settings = hypothesis.settings(
        max_examples=_DRAWS,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    try:
        found: CallRecipe = hypothesis.find(calls, wanted, settings=settings)
    except hypothesis.errors.NoSuchExample:
        return None
    return found


def _with(base: CallRecipe, number: int, other: Recipe) -> CallRecipe:
    recipes = list(base.recipes)
    recipes[number] = other
    return base.rebuilt(recipes)


def _signed(call: CallRecipe) -> Iterator[CallRecipe]:
    return (filled(call, fill) for fill in ("positive", "negative"))


def _transposed(recipe: Recipe) -> Recipe:
    return replace(recipe, transposed=True) if isinstance(recipe, TensorRecipe) else recipe


def _reseeded(recipe: Recipe, seed: int) -> Recipe:
    return replace(recipe, seed=recipe.seed + seed) if isinstance(recipe, TensorRecipe) else recipe


def _resized(base: CallRecipe, size: Callable[[tuple[int, ...]], tuple[int, ...]]) -> CallRecipe:
    def change(recipe: Recipe) -> Recipe:
        if isinstance(recipe, TensorRecipe) and recipe.shape:
            return replace(recipe, shape=size(recipe.shape))
        return recipe

    return base.mapped(change)


def _fill_names(recipe: Recipe) -> list[str]:
    return list(fills(recipe.dtype)) if isinstance(recipe, TensorRecipe) else []


def _alternatives(recipe: Recipe) -> list[Recipe]:
    if isinstance(recipe, TensorRecipe):
        return [replace(recipe, fill=name) for name in fills(recipe.dtype)]
    values = {
        "True": ("False",),
        "False": ("True",),
        "2": ("0", "1", "-1", "3", "10", "100"),
        "0.5": ("0.0", "-0.5", "1.0", "2.0", "100.0"),
        "'a'": ("''",),
    }
    return [ValueRecipe(text) for text in values.get(recipe.code, ())]


def _optional(parameter: Parameter, base: CallRecipe) -> list[Recipe]:
    if not parameter.dtypes:
        return [ValueRecipe(text) for text in parameter.values]
    given = [recipe.shape for recipe in base.recipes if isinstance(recipe, TensorRecipe)]
    shapes = [other for shape in given for other in _related(shape)]
    dtype = parameter.dtypes[0]
    return [
        TensorRecipe(shape, dtype, fill) for shape in dict.fromkeys(shapes) for fill in fills(dtype)
    ]


def _related(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Shapes that go with one: the same, one for each row, one for each pair of rows, a scalar."""
    yield shape
    if len(shape) > 1:
        yield shape[:-1]
        yield (*shape[:-1], shape[-2])
        yield (*shape[:-1], 1)
    yield ()
