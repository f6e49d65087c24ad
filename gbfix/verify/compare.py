"""In what two calls differ: everything that a snapshot holds, exactly or within a tolerance.

It names kinds of differences and does not judge which of them matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch

from gbfix.verify.snapshot import CallShot, Leaf, Raised, TensorShot
from gbfix.verify.tolerance import Tolerance
from gbfix.verify.verdict import Difference, Kind

_Found = tuple[Kind, str, str]
_HISTORY = re.compile(r", (?:grad_fn=<\w+>|requires_grad=True)")
_NUMBER = re.compile(r"\d+(\.\d+)?(e[-+]?\d+)?")


def differences(
    mode: str,
    mine: Sequence[CallShot],
    theirs: Sequence[CallShot],
    tolerance: Tolerance | None = None,
) -> tuple[Difference, ...]:
    """How a run differs from the original's, call by call; without a tolerance, bit for bit."""
    found: list[Difference] = []
    for number, (first, second) in enumerate(zip(mine, theirs, strict=False)):
        for kind, place, detail in _call(first, second, tolerance):
            found.append(Difference(mode, number, kind, place, detail))
    if len(mine) != len(theirs):
        detail = f"{len(mine)} calls were made against {len(theirs)}"
        found.append(Difference(mode, min(len(mine), len(theirs)), Kind.STRUCTURE, "", detail))
    return tuple(found)


def _call(mine: CallShot, theirs: CallShot, tolerance: Tolerance | None) -> Iterator[_Found]:
    if mine.raised is not None or theirs.raised is not None:
        different = _raised(mine.raised, theirs.raised)
        if different is not None:
            yield different
            if tolerance is not None:
                # A compiled check raises at the end of its graph; what ran before is not told apart.
                return
    # What belongs to an added attribute is no news of anything else.
    added = {p for p in theirs.leaves.keys() - mine.leaves.keys() if p.startswith("state")}
    for place in mine.leaves.keys() | theirs.leaves.keys():
        if place.removeprefix("gradient of ") in added and place.startswith("gradient"):
            continue
        yield from _leaf(place, mine.leaves.get(place), theirs.leaves.get(place), tolerance)
    for place in sorted((mine.aliases.keys() | theirs.aliases.keys()) - added):
        a, b = mine.aliases.get(place), _without(theirs.aliases.get(place), added)
        if a != b:
            lost = set(b.split(", ") if b else ()) < set(a.split(", ") if a else ())
            kind = Kind.ALIAS_LOST if lost else Kind.ALIAS
            yield kind, place, f"{a or 'is apart'}, but then {b or 'is apart'}"
    yield from _effects(mine, theirs)


def _without(aliases: str | None, places: set[str]) -> str | None:
    """A list of aliases, as text, less those at some places."""
    parts = aliases.split(", ") if aliases else []
    kept = [p for p in parts if not any(p.endswith(f" {place}") for place in places)]
    return ", ".join(kept) or None


def _raised(mine: Raised | None, theirs: Raised | None) -> _Found | None:
    if mine == theirs:
        return None
    if theirs is None:
        return Kind.EXCEPTION_SKIPPED, "", f"raises {mine}, but then nothing"
    if mine is None:
        return Kind.EXCEPTION, "", f"raises nothing, but then {theirs}"
    kind = Kind.EXCEPTION_TYPE
    if theirs.by_compiler or theirs.type not in (mine.type, "RuntimeError", "AssertionError"):
        kind = Kind.EXCEPTION
    return kind, "", f"raises {mine}, but then {theirs}"


def _leaf(
    place: str, mine: Leaf | None, theirs: Leaf | None, tolerance: Tolerance | None
) -> Iterator[_Found]:
    if isinstance(mine, TensorShot) and isinstance(theirs, TensorShot):
        yield from _tensor(place, mine, theirs, tolerance)
    elif place.startswith("gradient"):
        yield from _gradient(place, mine, theirs)
    elif mine is None and place.startswith("state"):
        yield Kind.STATE_ADDED, place, "is only there in the rewritten"
    elif mine is None or theirs is None:
        side = "the original" if theirs is None else "the rewritten"
        yield Kind.STRUCTURE, place, f"is only there in {side}"
    elif isinstance(mine, float) and isinstance(theirs, float):
        if not _same_number(place, mine, theirs, tolerance):
            yield Kind.VALUE, place, f"{mine!r} against {theirs!r}"
    elif mine != theirs:
        texts = [leaf if not isinstance(leaf, TensorShot) else "Tensor" for leaf in (mine, theirs)]
        kind = Kind.STRUCTURE if isinstance(mine, TensorShot | float) else Kind.VALUE
        yield kind, place, f"{texts[0]} against {texts[1]}"[:300]


def _gradient(place: str, mine: Leaf | None, theirs: Leaf | None) -> Iterator[_Found]:
    if isinstance(theirs, TensorShot):
        if bool(theirs.values.count_nonzero()):
            yield Kind.GRADIENT_NONE, place, f"is {_named(mine)}, but then not zero"
        else:
            yield Kind.GRADIENT_ZERO, place, f"is {_named(mine)}, but then zeros"
    elif isinstance(mine, TensorShot):
        yield Kind.GRADIENT_NONE, place, f"is a tensor, but then {_named(theirs)}"
    elif mine != theirs:
        yield Kind.GRADIENT_NONE, place, f"is {_named(mine)}, but then {_named(theirs)}"


def _named(leaf: Leaf | None) -> str:
    return "not there" if leaf is None else str(leaf).removeprefix("NoneType ")


def _tensor(
    place: str, mine: TensorShot, theirs: TensorShot, tolerance: Tolerance | None
) -> Iterator[_Found]:
    for kind, name in (
        (Kind.STRUCTURE, "type"),
        (Kind.DTYPE, "dtype"),
        (Kind.SHAPE, "shape"),
        (Kind.DEVICE, "device"),
        (Kind.STRIDE, "stride"),
    ):
        a, b = getattr(mine, name), getattr(theirs, name)
        if a != b and not (kind is Kind.STRIDE and _same_layout(mine, theirs)):
            yield kind, place, f"{name} {a} against {b}"
            if kind in (Kind.DTYPE, Kind.SHAPE):
                return
    if mine.requires_grad != theirs.requires_grad:
        lost = mine.requires_grad
        kind = Kind.REQUIRES_GRAD_LOST if lost else Kind.REQUIRES_GRAD_GAINED
        yield kind, place, f"requires_grad {mine.requires_grad} against {theirs.requires_grad}"
    if tolerance is None:
        if not torch.equal(_bits(mine.values), _bits(theirs.values)):
            yield Kind.VALUE, place, _exactly(mine.values, theirs.values)
        return
    error = tolerance.error(place, mine, theirs)
    if error is not None:
        yield Kind.VALUE, place, error


def _same_layout(mine: TensorShot, theirs: TensorShot) -> bool:
    """Whether strides differ only where they mean nothing: in dimensions of one element."""
    if mine.shape != theirs.shape or len(mine.stride) != len(theirs.stride):
        return False
    sizes = zip(mine.shape, mine.stride, theirs.stride, strict=True)
    return 0 in mine.shape or all(size == 1 or a == b for size, a, b in sizes)


def _bits(values: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor; numpy, which need not be installed, is not asked for them."""
    return values.reshape(-1).view(torch.uint8)


def _exactly(mine: torch.Tensor, theirs: torch.Tensor) -> str:
    if mine.numel() <= 8:
        return f"{mine.tolist()} against {theirs.tolist()}"
    if not mine.is_floating_point():
        return f"{int((mine != theirs).sum())} of {mine.numel()} elements differ"
    off = (mine.double() - theirs.double()).abs().nan_to_num(nan=float("inf"))
    return f"{int((off != 0).sum())} of {mine.numel()} elements differ, by up to {float(off.max()):.3g}"


def _same_number(place: str, mine: float, theirs: float, tolerance: Tolerance | None) -> bool:
    if mine == theirs or (mine != mine and theirs != theirs):
        return True
    if tolerance is None:
        return False
    # A Python float has mostly been read from a tensor of the default dtype.
    allowed = tolerance.relative(place, torch.float32)
    return abs(mine - theirs) <= allowed * max(abs(mine), abs(theirs))


def _effects(mine: CallShot, theirs: CallShot) -> Iterator[_Found]:
    for name in ("stdout", "stderr", "logged", "warned"):
        a, b = getattr(mine.effects, name), getattr(theirs.effects, name)
        if a != b:
            yield _effect(a, b), name, f"{_lines(a)}, but then {_lines(b)}"


def _effect(mine: tuple[str, ...], theirs: tuple[str, ...]) -> Kind:
    if _is_part(theirs, mine):
        return Kind.EFFECT_DROPPED
    # What an operator is given has no history, so that it shows none.
    if [_HISTORY.sub("", line) for line in mine] == [_HISTORY.sub("", line) for line in theirs]:
        return Kind.EFFECT_GRAD_FN
    plain = [[_NUMBER.sub("0", _HISTORY.sub("", x)) for x in lines] for lines in (mine, theirs)]
    return Kind.EFFECT_NUMBERS if plain[0] == plain[1] else Kind.EFFECT


def _is_part(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    """Whether lines are some of the others, in the same order."""
    rest = iter(whole)
    return all(any(line == other for other in rest) for line in part)


def _lines(lines: tuple[str, ...]) -> str:
    return repr("\n".join(lines)[:200]) if lines else "nothing"
