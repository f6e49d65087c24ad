"""Runs two versions on given calls as the checker did, and prints what each does and how they differ.

This is what the scripts that the checker writes call.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

from gbfix.verify.messages import RunSpec
from gbfix.verify.probing import Probe, probe
from gbfix.verify.recipes import Inputs, normalised
from gbfix.verify.snapshot import CallShot, Leaf, TensorShot
from gbfix.verify.targets import Side, Target
from gbfix.verify.verdict import REVIEW, Kind
from gbfix.verify.worker import Workers

__all__ = ["Target", "reproduce", "reproduce_failure"]
Calls = Callable[[], list[Any]] | str | bytes
_MOST_ELEMENTS = 64


def reproduce(
    original: Target,
    before: Mapping[str, str],
    rewritten: Target,
    after: Mapping[str, str],
    calls: Calls,
    *,
    mode: str,
    kind: str | None = None,
    backend: str = "eager",
    dynamic: bool | None = None,
    device: str = "cpu",
    dtype: str | None = None,
) -> int:
    """Print what the two versions do, and in what they differ.

    Args:
        original: the callable of the original.
        before: the texts of its files, by path.
        rewritten: the callable of the rewritten version.
        after: the texts of its files, by path.
        calls: a function that returns the arguments of all calls, the name of one, or their pickle.
        mode: the runs to compare: `eager` or `compiled`, and ` with gradients` or ` in inference`.
        kind: the kind of difference that is expected, or None for any.
        backend: the backend of compiled runs.
        dynamic: as `torch.compile` takes it.
        device: where to run.
        dtype: what to convert inputs and parameters to.

    Returns:
        1 if there is such a difference, else 0.
    """
    first = Side(original, tuple(before.items()))
    second = Side(rewritten, tuple(after.items()))
    inputs = _inputs(calls)
    # What a verdict would let pass is not let pass if it is what the script is about.
    leeway = REVIEW - {Kind(kind)} if kind is not None else REVIEW
    spec = RunSpec(first, inputs, dynamic=dynamic, device=device, dtype=dtype)
    how = Probe(first, second, mode, spec, backend, leeway)
    with Workers() as workers:
        found = probe(workers, how, inputs)
    places = {difference.place for difference in found.differences}
    title = f"{mode}, backend {backend}" if how.compiled else mode
    _print_calls("original, eager" + how.label, found.original, places)
    _print_calls(f"rewritten, {title}", found.rewritten, places)
    for difference in found.differences:
        print(f"differs: {difference}")
    if not found.differences:
        print("no difference")
    return int(bool(found.differences))


def reproduce_failure(
    target: Target,
    texts: Mapping[str, str],
    calls: Calls,
    *,
    mode: str,
    backend: str = "eager",
    dynamic: bool | None = None,
    device: str = "cpu",
    dtype: str | None = None,
) -> int:
    """Print how code fails: in eager, or compiled where it does not in eager.

    Args:
        target: the callable.
        texts: the texts of its files, by path.
        calls: as for `reproduce`.
        mode: `eager` or `compiled`, and what else `reproduce` takes.
        backend: the backend of compiled runs.
        dynamic: as `torch.compile` takes it.
        device: where to run.
        dtype: what to convert inputs and parameters to.

    Returns:
        1 if it fails, else 0.
    """
    side, inputs = Side(target, tuple(texts.items())), _inputs(calls)
    spec = RunSpec(side, inputs, dynamic=dynamic, device=device, dtype=dtype)
    how = Probe(side, None, mode, spec, backend)
    with Workers() as workers:
        found = probe(workers, how, inputs)
    _print_calls("eager" + how.label, found.original, set())
    if how.compiled:
        _print_calls(f"{mode}, backend {backend}", found.rewritten, set())
    for difference in found.differences:
        print(f"fails: {difference}")
    if not found.differences:
        print("no failure")
    return int(bool(found.differences))


def _inputs(calls: Calls) -> Inputs:
    if callable(calls):
        return Inputs(pickled=pickle.dumps(normalised(calls())), once=True)
    return Inputs(factory=calls) if isinstance(calls, str) else Inputs(pickled=calls)


def _print_calls(title: str, pickled: bytes | None, places: set[str]) -> None:
    shots: tuple[CallShot, ...] = pickle.loads(pickled) if pickled else ()
    for number, shot in enumerate(shots, 1):
        print(f"{title}, call {number}:")
        for place, leaf in shot.leaves.items():
            if place in places or place.startswith("result"):
                print(f"    {place} = {_told(leaf)}")
        for place in sorted(places & shot.aliases.keys()):
            print(f"    {place} {shot.aliases[place]}")
        for name in ("stdout", "stderr", "logged", "warned"):
            lines = getattr(shot.effects, name)
            if name in places or (lines and name == "stdout"):
                print(f"    {name}: {list(lines)}")
        if shot.raised is not None:
            print(f"    raises {shot.raised}")
    if not shots:
        print(f"{title}: no calls")


def _told(leaf: Leaf) -> str:
    if not isinstance(leaf, TensorShot):
        return str(leaf)
    values = leaf.values
    text = str(values.tolist()) if values.numel() <= _MOST_ELEMENTS else str(values)
    grad = ", requires_grad" if leaf.requires_grad else ""
    return f"{text} ({str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}{grad})"
