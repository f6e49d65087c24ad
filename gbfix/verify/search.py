"""Searches for arguments with which a callable runs, over ranks, sizes and dtypes.

It tries the likeliest first, learns sizes from the layers of a module and from error messages, and
then draws from all combinations, from a fixed seed, until its budget is spent.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gbfix.verify.recipes import CallRecipe, Recipe, TensorRecipe, ValueRecipe, filled
from gbfix.verify.signatures import Parameter, hints_in

_MOST_TRIES = 800
_FIRST_TRIES = 120
# How many optional arguments are given because it does not run without any.
_MOST_FURTHER = 3
_Shape = tuple[int, ...]
# Tries a call; None if it runs, else the text of the error.
Try = Callable[[CallRecipe], str | None]


class NoInputs(Exception):
    """Nothing that was tried runs; the text is the error of the likeliest try."""


@dataclass(frozen=True)
class Found:
    """Arguments that run, and the parameters that they leave to their defaults."""

    call: CallRecipe
    left_out: tuple[Parameter, ...]


def search(
    parameters: Sequence[Parameter],
    hints: Sequence[int],
    attempt: Try,
    wanted: Callable[[CallRecipe], bool] = lambda call: True,
    missed: Callable[[], Sequence[str]] = tuple,
) -> Found:
    """The first arguments that run, of those that are wanted.

    `missed` are parameters that were seen to be None where tries have failed; the worst come first.

    Raises:
        NoInputs: if none do.
    """
    required = [p for p in parameters if not p.optional]
    further = [p for p in parameters if p.optional and p.dtypes]
    further.sort(key=lambda p: p.role != "pair")  # what is left out of these is mostly missed
    failure: NoInputs | None = None
    # Some models leave everything optional and then miss what they work on: a few tries for each number
    # of arguments, then many.
    for most in (_FIRST_TRIES, _MOST_TRIES):
        chosen: list[Parameter] = []
        for count in range(1 + min(_MOST_FURTHER, len(further))):
            if count:
                chosen.append(_next([p for p in further if p not in chosen], missed()))
            needed = [*required, *(replace(p, keyword=True) for p in chosen)]
            try:
                call = _search(needed, hints, attempt, wanted, most)
            except NoInputs as error:
                failure = failure or error
                continue
            given = {parameter.name for parameter in needed}
            return Found(call, tuple(p for p in parameters if p.name not in given))
    assert failure is not None
    raise failure


def _next(left: Sequence[Parameter], missed: Sequence[str]) -> Parameter:
    """The one to give next: what is missed most, or else what comes first."""
    by_name = {parameter.name: parameter for parameter in left}
    return next((by_name[name] for name in missed if name in by_name), left[0])


def _search(
    needed: Sequence[Parameter],
    hints: Sequence[int],
    attempt: Try,
    wanted: Callable[[CallRecipe], bool],
    most: int,
) -> CallRecipe:
    sizes = list(hints)
    first_error: str | None = None
    tried: set[CallRecipe] = set()
    rounds = 0
    while True:
        known = len(sizes)
        for call in _candidates(needed, sizes):
            if call in tried or not wanted(call):
                continue
            if len(tried) >= most:
                raise NoInputs(first_error or "nothing was tried")
            tried.add(call)
            error = attempt(call)
            if error is None:
                return call
            first_error = first_error or error
            new = [n for n in hints_in(error) if 1 < n <= 4096 and n not in sizes]
            sizes += new[: max(0, 8 - len(sizes))]
            if len(sizes) > known and rounds < 4:
                break
        else:
            raise NoInputs(first_error or "it takes no arguments that are known")
        rounds += 1


def _shapes(sizes: Sequence[int]) -> list[_Shape]:
    """Shapes to try; those with known sizes first, small ones before large ones."""
    found: list[_Shape] = []
    for size in sizes:
        found += [(2, size), (2, 3, size), (size,), (2, size, 8, 8), (2, size, 8), (size, size)]
    found += [(4, 4), (4,), (2, 3, 4), (2, 3, 8, 8), (), (1,), (2, 4), (2, 8), (1, 4), (3,)]
    for first, second in itertools.permutations(sizes[:4], 2):
        found.append((first, second))
    return list(dict.fromkeys(found))


def _systems(sizes: Sequence[int]) -> Iterator[dict[str, _Shape]]:
    """Shapes that go together, by the roles of parameters: a batch of sequences, of images, of rows."""
    for size in dict.fromkeys((*sizes[:4], 8, 4)):
        pair = (1, 3, max(1, size // 2))
        sequence = {"main": (2, 3, size), "tokens": (2, 3), "rows": (2,), "image": (2, size, 8, 8)}
        sequence |= {"pair": pair, "audio": (2, 4000)}
        yield {**sequence, "mask": (2, 3), "boxes": (2, 3, 4)}
        yield {**sequence, "mask": (2, 1, 3, 3), "boxes": (2, 3, 4)}
        # One position a step for all rows; and more steps, where they are taken a few at a time.
        yield {**sequence, "mask": (2, 3), "boxes": (2, 3, 4), "tokens": (3,)}
        steps = {"main": (2, 8, size), "tokens": (2, 8), "mask": (2, 8), "boxes": (2, 8, 4)}
        yield {**sequence, **steps}
        rows = {"main": (4, size), "tokens": (4,), "rows": (4,), "mask": (4,), "boxes": (4, 4)}
        rows |= {"pair": (4, size), "audio": (4, 400)}
        yield {**rows, "image": (4, size, 8, 8)}
        yield {**rows, "main": (4,), "image": (4, size, 16, 16)}
        image = {"main": (2, size, 8, 8), "tokens": (2, 3), "rows": (2,), "boxes": (3, 4)}
        image |= {"pair": pair, "audio": (2, 4000)}
        yield {**image, "mask": (2, 8, 8), "image": (2, size, 8, 8)}
        channels = {"image": (2, size, 16, 16), "audio": (2, 1, 4000)}
        yield {**image, **channels, "mask": (2, 1, 8, 8)}


def _candidates(needed: Sequence[Parameter], sizes: Sequence[int]) -> Iterator[CallRecipe]:
    if not needed:
        yield CallRecipe()
        return
    shapes = _shapes(sizes)
    kinds = [_kinds(parameter) for parameter in needed]
    named = [_named_shape(parameter) for parameter in needed]
    likeliest = [kind[0] for kind in kinds]
    # A mask or a cache that has to be given may often be None.
    spared = [kinds[0][0]]
    spared += [("None", False) if ("None", False) in kind else kind[0] for kind in kinds[1:]]
    alone = [parameter.role == "main" for parameter in needed]
    if all(alone):
        for shape in shapes:
            yield _call(needed, likeliest, [own or shape for own in named])
    for system in _systems(sizes):
        given = [
            own or system[parameter.role] for own, parameter in zip(named, needed, strict=True)
        ]
        yield _call(needed, likeliest, given)
        if spared != likeliest:
            yield _call(needed, spared, given)
    if not all(alone):
        for shape in shapes:
            yield _call(needed, likeliest, [own or shape for own in named])
    # Code that checks its input's values wants small or like ones.
    for fill in ("unit", "ones", "zeros", "positive"):
        for shape in shapes[:8]:
            call = _call(needed, likeliest, [own or shape for own in named])
            yield filled(call, fill)
    for number, choices in enumerate(kinds):
        for other in choices[1:]:
            chosen = [*likeliest[:number], other, *likeliest[number + 1 :]]
            for shape in shapes:
                yield _call(needed, chosen, [own or shape for own in named])
    if spared != likeliest:
        for shape in shapes:
            yield _call(needed, spared, [own or shape for own in named])
    draw = random.Random(0)
    for wild in (False, True):
        for _ in range(_MOST_TRIES):
            chosen = [draw.choice(choices) for choices in kinds] if wild else likeliest
            yield _call(needed, chosen, [own or draw.choice(shapes) for own in named])


def _kinds(parameter: Parameter) -> list[tuple[str, bool]]:
    """Dtypes and literals to try, the likeliest first, and whether each is a dtype."""
    dtypes = [(dtype, True) for dtype in parameter.dtypes]
    return [*dtypes, *((value, False) for value in parameter.values)] or [("None", False)]


def _named_shape(parameter: Parameter) -> _Shape | None:
    """The shape that an annotation asks for; each name of a dimension has a size of its own."""
    if parameter.dims is None:
        return None
    sizes = []
    for dim in parameter.dims:
        plain = dim.lstrip("#*?").rpartition("=")[2]
        if plain == "...":
            continue
        sizes.append(int(plain) if plain.isdigit() else 2 + sum(plain.encode()) % 5)
    return tuple(sizes)


def _call(
    needed: Sequence[Parameter], chosen: Sequence[tuple[str, bool]], shapes: Sequence[_Shape]
) -> CallRecipe:
    recipes: list[tuple[Parameter, Recipe]] = []
    for number, (parameter, (kind, is_tensor), shape) in enumerate(
        zip(needed, chosen, shapes, strict=True)
    ):
        recipe: Recipe = ValueRecipe(kind)
        if is_tensor:
            recipe = TensorRecipe(shape, kind, seed=number)
            if parameter.role == "pair":
                other = TensorRecipe(shape, kind, "unit", seed=number)
                recipe = ValueRecipe(f"({recipe.code}, {other.code})", f"({recipe}, {other})")
        recipes.append((parameter, recipe))
    return CallRecipe(
        tuple(recipe for parameter, recipe in recipes if not parameter.keyword),
        tuple((p.name, recipe) for p, recipe in recipes if p.keyword),
    )
