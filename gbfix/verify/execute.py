"""Runs a target in one way, in a worker: loads it, calls it in turn, keeps what can be seen.

One run is eager or compiled, with or without gradients, of one side. It does not know of the other
runs, and compares nothing.
"""

from __future__ import annotations

import builtins
import contextlib
import pickle
import random
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from gbfix.dynamo import control
from gbfix.dynamo.capture import Recorder, recording
from gbfix.dynamo.machine import has_accelerator
from gbfix.dynamo.records import Operators
from gbfix.verify.arms import WATCH, Watcher
from gbfix.verify.calls import CallOptions, call, convert, converted, root_of
from gbfix.verify.constructing import made_with
from gbfix.verify.listening import Listener, Stopped
from gbfix.verify.loading import LoadError, build, load, reference
from gbfix.verify.messages import RunRecord, RunSpec
from gbfix.verify.recipes import Arguments, Inputs, description
from gbfix.verify.snapshot import CallShot, Leaves, share
from gbfix.verify.targets import Side

# Over how many calls recompilations are counted.
FIRST_CALLS = 4


def run(spec: RunSpec) -> RunRecord:
    """Run a side once, from the import of its file on."""
    seed()
    try:
        return _run_eager(spec) if spec.backend is None else _run_compiled(spec, spec.backend)
    except LoadError as error:
        return RunRecord(failure=str(error))


def _run_eager(spec: RunSpec) -> RunRecord:
    watcher = Watcher()
    setattr(builtins, WATCH, watcher.watch)
    with control.never_compile() as compiled:
        module = load(spec.side, watcher.transform if spec.watch else None)
        seed()
        target = build(spec.side.target, module)
        record = _calls(spec, module, target, target)
    called = target, getattr(type(target), "forward", target)
    always = any(given is function for given in compiled for function in called)
    seen = frozenset(watcher.seen)
    return replace(record, seen=seen, always_compiled=always, made_with=made_with(target))


def _run_compiled(spec: RunSpec, backend: str) -> RunRecord:
    with recording(
        backend,
        fullgraph=spec.fullgraph,
        dynamic=spec.dynamic,
        emulate_precision_casts=spec.emulate_precision_casts,
    ) as recorder:
        module = load(spec.side)
        seed()
        target = build(spec.side.target, module)
        function = target if control.is_compiled(target) else torch.compile(target)
        record = _calls(spec, module, target, function, recorder)
        capture = recorder.capture()
        ran = None
        if not (spec.gradients or spec.inference or spec.fullgraph or record.refused):
            ran = _operators(spec, module, function, recorder)
        capture = replace(
            capture,
            recompiles=sum(record.recompiles[:FIRST_CALLS]),
            recompiles_by_call=record.recompiles,
            ran=ran,
        )
        return replace(record, capture=capture)


def _operators(
    spec: RunSpec, module: Any, function: Callable[..., Any], recorder: Recorder
) -> Operators | None:
    """What runs inside and outside of graphs if every input is given once more; None if it stops."""
    options = CallOptions(False, spec.dtype, spec.device)
    every = [converted(arguments, options) for arguments in Maker.of(spec.inputs, module).make()]

    def calls() -> None:
        for args, kwargs in every:
            with Listener().listening(), contextlib.suppress(Exception):
                function(*args, **kwargs)

    try:
        return recorder.counter.count(calls)
    except Stopped:
        return None


def ready(spec: RunSpec) -> tuple[types.ModuleType, Any, list[Arguments]]:
    """A target's module, the target itself, and the arguments of its calls.

    Raises:
        LoadError: if any of these cannot be had.
    """
    module = load(spec.side)
    seed()
    target = build(spec.side.target, module)
    arguments = Maker.of(spec.inputs, module).make()
    if not arguments:
        raise LoadError("there are no inputs")
    return module, target, arguments


def arguments_of(side: Side, inputs: Inputs) -> list[Arguments]:
    """The arguments of all calls.

    Raises:
        LoadError: if there are none to be had.
    """
    own = inputs.factory is not None or inputs.expressions or inputs.modules
    module = load(side) if own else types.ModuleType("nothing")
    return Maker.of(inputs, module).make()


def _calls(
    spec: RunSpec,
    module: Any,
    target: Any,
    function: Callable[..., Any],
    recorder: Recorder | None = None,
) -> RunRecord:
    """Call the target with every input and the first again, with fresh arguments each time."""
    maker = Maker.of(spec.inputs, module)
    first = maker.make()
    if not first:
        raise LoadError("there are no inputs")
    dtype = "float64" if spec.reference else spec.dtype
    convert(target, module, dtype, spec.device)
    if spec.inference and (root := root_of(target)) is not None:
        root.eval()
    options = CallOptions(spec.gradients, dtype, spec.device, spec.inference)
    shots: list[CallShot] = []
    last: Leaves = {}
    recompiles = [0]
    with _default_dtype(torch.float64 if spec.reference else None):
        for number in spec.inputs.order(len(first)):
            arguments = maker.make_one(number)
            seed()
            shots.append(call(function, target, module, arguments, options))
            share(shots[-1].leaves, last)
            last |= shots[-1].leaves
            recompiles.append(len(recorder.recompiled) if recorder is not None else 0)
    generated = tuple(map(str, spec.inputs.recipes))
    stored = max(len(first) - len(generated), 0) if spec.inputs.saved else 0
    names = (*map(description, first[:stored]), *generated) or tuple(map(description, first))
    refused = (str(s.raised) for s in shots if s.raised is not None and s.raised.by_compiler)
    return RunRecord(
        pickle.dumps(tuple(shots)),
        len(shots),
        raised=sum(shot.raised is not None for shot in shots),
        refused=next(refused, None),
        inputs=names,
        recompiles=tuple(after - before for before, after in pairwise(recompiles)),
        warned=any(shot.effects.warned for shot in shots),
        taken=tuple(shot.raised is None or not shot.raised.by_compiler for shot in shots),
    )


@dataclass(frozen=True)
class Maker:
    """Makes the arguments of a run as often as is needed."""

    inputs: Inputs
    factory: Any

    @classmethod
    def of(cls, inputs: Inputs, module: Any) -> Maker:
        """Find the user's function, or make one of expressions."""
        if inputs.factory is not None:
            return cls(inputs, reference(inputs.factory, module))
        expressions = inputs.expressions
        return cls(inputs, _evaluating(expressions, module) if expressions else None)

    def make(self) -> list[Arguments]:
        """The arguments, the same every time.

        Raises:
            LoadError: if the user's function fails.
        """
        with self._made():
            return self.inputs.make(self.factory)

    def make_one(self, number: int) -> Arguments:
        """The arguments of one call, the same every time.

        Raises:
            LoadError: if the user's function fails.
        """
        with self._made():
            return self.inputs.make_one(number, self.factory)

    @contextlib.contextmanager
    def _made(self) -> Iterator[None]:
        seed()
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            where = self.inputs.factory or "the inputs"
            raise LoadError(f"`{where}` failed: {type(error).__name__}: {error}") from error


def _evaluating(expressions: Sequence[str], module: Any) -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        made = []
        for expression in expressions:
            seed()
            made.append(eval(expression, {**vars(module), "torch": torch}))
        return made

    return make


def seed() -> None:
    """Start every generator from the same place.

    `torch.manual_seed` keeps a stack trace for each kind of device that is not in use, which takes
    longer than many a call.
    """
    if has_accelerator():
        torch.manual_seed(0)
    else:
        torch.default_generator.manual_seed(0)
    random.seed(0)
    with contextlib.suppress(ImportError):
        import numpy

        numpy.random.seed(0)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype | None) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
