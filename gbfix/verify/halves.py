"""Which float types of half precision code speaks of, so that it is run in them, too.

It reads texts and recipes; what a layer's parameters have to be is known to who runs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gbfix.verify.arms import concerned
from gbfix.verify.recipes import CallRecipe, Recipe, TensorRecipe
from gbfix.verify.targets import Side

_WORDS = {"float16": ("torch.float16", "torch.half", ".half()"), "bfloat16": ("bfloat16",)}


def halves_in(text: str) -> tuple[str, ...]:
    """The types of half precision that a text names."""
    return tuple(name for name, words in _WORDS.items() if any(word in text for word in words))


def without_inputs(side: Side, calls: Iterable[CallRecipe]) -> tuple[str, ...]:
    """The types that the target, and what it uses, names and no input has."""
    recipes = [recipe for call in calls for recipe in call.recipes]
    given = {recipe.dtype for recipe in recipes if isinstance(recipe, TensorRecipe)}
    return tuple(name for name in halves_of(side) if name not in given)


def halves_of(side: Side) -> tuple[str, ...]:
    """The types that the target, and what it uses, names."""
    try:
        lines = concerned(side.texts, side.target.name.partition(".")[0])
    except SyntaxError:
        return ()
    used: list[str] = []
    for path, text in side.texts:
        whole = text.splitlines()
        used += [
            line for part in lines.get(path, ()) for line in whole[part.start - 1 : part.stop - 1]
        ]
    return halves_in("\n".join(used))


def in_half(call: CallRecipe, name: str) -> CallRecipe:
    """A call with its tensors of single precision in a type of half precision."""

    def change(recipe: Recipe) -> Recipe:
        if isinstance(recipe, TensorRecipe) and recipe.dtype == "float32":
            return replace(recipe, dtype=name)
        return recipe

    return call.mapped(change)
