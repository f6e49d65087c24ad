"""Call an operation on small tensors and note what its results have in common.

A flag that promises something (`keeps`, `bool`, `float`, ...) needs at least one call that worked
and none that contradicts it; a flag that warns (`alias`, `random`) needs one call that shows it.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torch_table.signatures import Param, Signature

SHAPES = ((2, 3), (1, 3), (5,), (2, 1, 3), (1, 4, 4, 4), ())
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
OTHERS = (
    torch.int8,
    torch.int16,
    torch.int32,
    torch.bool,
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.uint8,
)
SAMPLES: dict[str, tuple[Any, ...]] = {
    "int": (1, 0, -1, 2, 3),
    "float": (2, 0.5, 0, 1),
    "bool": (False, True),
    "sequence": ([0], [-1], [1, 0], [2, 3], [1], [6], [0, 0]),
}
VARIADIC = ((1,), (0,), (-1,), (2, 3), (3, 2), (1, 0), (0, 1), (6,), (1, 1, 1))
MOST_CALLS = 30


@dataclass(frozen=True)
class Filler:
    """Stands for a tensor; of this dtype whatever the leading tensor's, unless it is None."""

    dtype: torch.dtype | None


@dataclass(frozen=True)
class Call:
    """Arguments for one call besides its leading tensor."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: int
    plain: bool
    """Only tensors and Python numbers are passed."""
    bare: bool
    """Only required tensors are passed."""
    whole: bool
    """Every number passed is a Python int or bool."""


@dataclass
class Evidence:
    """Which promises some call kept, and which some call broke."""

    kept: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)

    def note(self, promise: str, held: bool) -> None:
        (self.kept if held else self.broken).add(promise)

    def flags(self) -> set[str]:
        return (self.kept - self.broken) | self.seen


def _samples(param: Param) -> tuple[Any, ...]:
    if param.variadic:
        return VARIADIC
    if param.literal:
        return ({"True": True, "False": False, "None": None}[param.literal],)
    return SAMPLES.get(param.sample, ())


def _filler(param: Param) -> Filler:
    if param.name in ("condition", "mask"):
        return Filler(torch.bool)
    return Filler(torch.int64 if "ind" in param.name else None)


def _calls(signature: Signature) -> Iterator[Call]:
    """Ways to fill an overload whose first parameter is the leading tensor."""
    rest = [p for p in signature.params[1:] if p.name not in ("out", "inplace")]
    if any(p.name == "out" and not p.default for p in signature.params):
        return
    required = [p for p in rest if not p.default]
    slots: list[tuple[Any, ...]] = []
    for param in required:
        values: tuple[Any, ...] = (_filler(param),) if param.mark in ("T", "TN") else ()
        if param.mark in ("", "TN", "A"):
            values += _samples(param)
        if not values:
            return
        slots.append(values)
    optional = [p for p in rest if p.default and p.mark in ("", "A")]
    for index, filled in enumerate(itertools.islice(itertools.product(*slots), MOST_CALLS)):
        extras: list[tuple[Param | None, Any]] = [(None, None)]
        if index < 4:
            extras += [(p, value) for p in optional for value in _samples(p)]
        for extra, value in extras:
            args = [v for p, v in zip(required, filled, strict=True) if not p.keyword_only]
            kwargs = {p.name: v for p, v in zip(required, filled, strict=True) if p.keyword_only}
            if extra is not None and extra.variadic:
                args += value
            elif extra is not None:
                kwargs[extra.name] = value
            passed = [*args, *kwargs.values()]
            numbers = [v for v in passed if not isinstance(v, Filler)]
            yield Call(
                tuple(args),
                kwargs,
                tensors=1 + len(passed) - len(numbers),
                plain=not any(isinstance(v, list) or v is None for v in numbers),
                bare=not numbers,
                whole=not any(isinstance(v, float) for v in numbers),
            )


def make(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A small unsorted tensor, in (0, 1) where the dtype has room there."""
    count = max(1, torch.Size(shape).numel())
    order = torch.sin(torch.arange(count) * 2.4).argsort()
    values = ((order + 1).to(torch.float64) / (count + 1)).reshape(shape)
    inexact = dtype.is_floating_point or dtype.is_complex
    return values.to(dtype) if inexact else (values * 4).to(dtype)


def _companion(like: Tensor, filler: Filler, index: int) -> Tensor:
    """The tensor for one parameter, made element by element from the leading tensor."""
    if filler.dtype == torch.bool:
        return like.real > 0.5 if like.dtype != torch.bool else like.clone()
    if filler.dtype is not None:
        return torch.zeros_like(like.real, dtype=filler.dtype)
    if index == 0:
        return like.clone()
    if like.dtype == torch.bool:
        return ~like
    return like * 0.7 + 0.1 if like.is_floating_point() else like + index


def storages(value: Any) -> set[int]:
    """Where the tensors in a value keep their data."""
    if isinstance(value, Tensor):
        try:
            return {value.untyped_storage().data_ptr()} - {0}
        except (NotImplementedError, RuntimeError):
            return set()
    if isinstance(value, (list, tuple)):
        return set().union(*(storages(item) for item in value))
    return set()


def _run(
    function: Callable[..., Any], call: Call, leading: Filler, *likes: Tensor
) -> tuple[Any, list[Tensor]] | None:
    inputs: list[Tensor] = []

    def fill(value: Any) -> Any:
        if not isinstance(value, Filler):
            return value
        inputs.append(_companion(likes[min(len(inputs), len(likes) - 1)], value, len(inputs)))
        return inputs[-1]

    try:
        args = [fill(leading), *map(fill, call.args)]
        kwargs = {name: fill(value) for name, value in call.kwargs.items()}
        return function(*args, **kwargs), inputs
    except Exception:  # any refusal only means that this call says nothing
        return None


def _is_elementwise(
    function: Callable[..., Any], call: Call, leading: Filler, whole: Tensor
) -> bool:
    """Does each element of the result come from that element of the inputs alone?"""
    like = make((2, 3), torch.float32)
    if call.tensors > 1:
        done = _run(function, call, leading, like[:, :1], like[:1])
        if done is None or not isinstance(done[0], Tensor) or done[0].shape != like.shape:
            return False
    for i, j in itertools.product(range(2), range(3)):
        done = _run(function, call, leading, like[i : i + 1, j : j + 1])
        part = done and done[0]
        if not isinstance(part, Tensor) or part.shape != (1, 1) or part.dtype != whole.dtype:
            return False
        if not torch.allclose(part[0, 0], whole[i, j], equal_nan=True):
            return False
    return True


def _note(
    evidence: Evidence, call: Call, result: Any, inputs: list[Tensor], dtype: torch.dtype
) -> None:
    first = inputs[0]
    if storages(result) & storages(inputs):
        evidence.seen.add("alias")
    if not isinstance(result, Tensor):
        for promise in ("keeps", "keeps_int", "bool", "float"):
            evidence.note(promise, False)
        if call.bare:
            evidence.note("reduces", False)
        return
    if not call.plain:
        return
    same = result.shape == first.shape and result.dtype == first.dtype
    if call.tensors == 1 and first.dtype in FLOATS:
        evidence.note("keeps", same)
    if call.tensors == 1 and call.whole and first.dtype == torch.int64:
        evidence.note("keeps_int", same)
    # A function that takes masks only shows nothing by returning a mask.
    if dtype in FLOATS or (dtype in (torch.int64, torch.bool) and result.dtype != torch.bool):
        evidence.note("bool", result.dtype == torch.bool)
    if not dtype.is_complex and (not result.dtype.is_floating_point or dtype in FLOATS):
        evidence.note("float", result.dtype.is_floating_point)
    if call.bare and first.ndim:
        evidence.note("reduces", result.ndim == 0)


def probe(function: Callable[..., Any], signatures: list[Signature], claimed: set[str]) -> set[str]:
    """The flags that calls of the operation bear out, and claims that no call could test."""
    evidence = Evidence()
    random_state = torch.get_rng_state()
    led = [
        s
        for s in signatures
        if s.params and not s.params[0].variadic and s.params[0].mark in ("T", "TN", "TL", "A")
    ]
    fewest = min((sum(not p.default for p in s.tensors) for s in led), default=0)
    for signature in led:
        leading = _filler(signature.params[0])
        for call in _calls(signature):
            if call.bare and call.tensors > fewest:
                call = Call(call.args, call.kwargs, call.tensors, call.plain, False, call.whole)
            for shape, dtype in [
                *((shape, dtype) for shape in SHAPES for dtype in (torch.float32, torch.int64)),
                *((SHAPES[0], dtype) for dtype in (*FLOATS[1:], *OTHERS)),
                ((1, 4, 4, 4), torch.uint8),
            ]:
                done = _run(function, call, leading, make(shape, dtype))
                if done is None:
                    continue
                result, inputs = done
                _note(evidence, call, result, inputs, dtype)
                if call.plain and shape == SHAPES[0] and dtype == torch.float32:
                    broadcast = isinstance(result, Tensor) and result.shape == shape
                    evidence.note(
                        "pointwise", broadcast and _is_elementwise(function, call, leading, result)
                    )
    if not torch.equal(random_state, torch.get_rng_state()):
        evidence.seen.add("random")
        torch.set_rng_state(random_state)
    return evidence.flags() | (claimed - evidence.broken)
