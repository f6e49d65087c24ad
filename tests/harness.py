"""Runs a fixture's file in eager and compiled, and says how two runs differ.

A run makes a fresh target and calls it with each of the case's inputs in turn. After each call it
keeps everything that a caller could see: the result or the exception, the arguments, the state of
the module and of the file's globals, what was printed, logged and warned, the random stream, and in
the run with gradients the gradients of inputs and parameters. Two runs are compared exactly (eager
against eager) or closely (compiled against eager).
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import io
import logging
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo as dynamo
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.eval_frame import OptimizedModule
from torch._dynamo.symbolic_convert import InstructionTranslatorBase

from tests.fixture_case import FixtureCase

STUBS = Path(__file__).parent / "stubs"
MODULE = "fixture_module"
logging.getLogger("torch.__trace").propagate = False  # or pytest shows its every record
_COMPILER = str(Path(dynamo.__file__).parent)


# What one call leaves behind


@dataclass(frozen=True)
class Snapshot:
    """A tensor as it was at one moment."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool
    values: torch.Tensor

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Snapshot:
        """Copy a tensor out of the reach of later calls."""
        with torch.no_grad():
            values = tensor.detach().clone(memory_format=torch.contiguous_format)
        return cls(tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.requires_grad, values)

    def differences(self, other: Snapshot, where: str, exact: bool) -> Iterator[str]:
        """How another tensor differs from this one."""
        names = ["dtype", "shape", "requires_grad"] + (["stride"] if exact else [])
        for name in names:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                yield f"{where}: {name} {mine} against {theirs}"
                if name in ("dtype", "shape"):
                    return
        if exact:
            same = _bits(self.values) == _bits(other.values)
        else:
            same = torch.allclose(self.values, other.values, rtol=1e-5, atol=1e-6, equal_nan=True)
        if not same:
            yield f"{where}: {self.values.tolist()} against {other.values.tolist()}"


def _bits(values: torch.Tensor) -> bytes:
    if values.numel() == 0:
        return b""
    return bytes(values.reshape(-1).view(torch.uint8).numpy().tobytes())


@dataclass(frozen=True)
class Raised:
    """An exception by type and message."""

    type: str
    message: str


@dataclass
class Call:
    """Everything that can be seen after one call."""

    result: Any = None
    arguments: Any = None
    state: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, list[str]] = field(default_factory=dict)
    effects: dict[str, Any] = field(default_factory=dict)
    random: Any = None
    gradients: dict[str, Any] = field(default_factory=dict)

    @property
    def raised(self) -> bool:
        """Whether the call ended in an exception."""
        return isinstance(self.result, Raised)


@dataclass
class Run:
    """A sequence of calls on one target, and what Dynamo did meanwhile."""

    calls: list[Call]
    breaks: int = 0
    graphs: int = 0
    operators: int = 0


def describe(value: Any) -> Any:
    """A value as something that later calls cannot change."""
    if isinstance(value, torch.Tensor):
        return Snapshot.of(value)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [describe(item) for item in value])
    if isinstance(value, dict):
        return (type(value).__name__, {str(key): describe(item) for key, item in value.items()})
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, sorted(map(repr, value)))
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return (type(value).__name__, repr(value))
    if isinstance(value, (torch.nn.Module, types.ModuleType, type)) or callable(value):
        return type(value).__name__
    if hasattr(value, "__dict__"):
        return (type(value).__name__, {k: describe(v) for k, v in vars(value).items()})
    return (type(value).__name__, repr(value))


def tensors(value: Any, where: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors inside a value, each with its place."""
    if isinstance(value, torch.Tensor):
        yield where, value
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from tensors(item, f"{where}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, f"{where}[{key!r}]")
    elif hasattr(value, "__dict__") and not isinstance(value, (torch.nn.Module, type)):
        for key, item in vars(value).items():
            yield from tensors(item, f"{where}.{key}")


def state_of(target: Any, namespace: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """The attributes of a module and the data among the file's globals, not copied."""
    state: dict[str, Any] = {}
    root = target if isinstance(target, torch.nn.Module) else getattr(target, "__self__", None)
    if isinstance(root, OptimizedModule):
        root = root._orig_mod
    if isinstance(root, torch.nn.Module):
        for prefix, module in root.named_modules():
            place = f"self.{prefix}." if prefix else "self."
            plain = {k: v for k, v in vars(module).items() if not k.startswith("_")}
            for name, value in {**plain, **module._parameters, **module._buffers}.items():
                state[place + name] = value
            state[place + "(not persistent)"] = sorted(module._non_persistent_buffers_set)
    for name in sorted(names):
        value = namespace.get(name)
        if isinstance(value, (torch.Tensor, int, float, str, list, dict, set, types.NoneType)):
            state[name] = value
    return state


def aliases(groups: dict[str, Any]) -> dict[str, list[str]]:
    """For each tensor found in `groups`, the other tensors that share its storage."""
    places = [pair for where, value in groups.items() for pair in tensors(value, where)]
    found: dict[str, list[str]] = {}
    for where, tensor in places:
        pointer = tensor.untyped_storage().data_ptr()
        shared = [
            f"is {other}" if item is tensor else f"shares {other}"
            for other, item in places
            if other != where and pointer and item.untyped_storage().data_ptr() == pointer
        ]
        if shared:
            found[where] = sorted(shared)
    return found


# Loading and calling


def kept_settings() -> contextlib.AbstractContextManager[None]:
    """Settings of Dynamo that a file may make for the process are put back on leaving."""
    names = (
        "capture_scalar_outputs",
        "capture_dynamic_output_shape_ops",
        "reorderable_logging_functions",
        "ignore_logging_functions",
        "allow_rnn",
    )
    current = {name: copy.copy(getattr(dynamo.config, name)) for name in names}
    return dynamo.config.patch(current)  # type: ignore[no-any-return,unused-ignore]


@contextlib.contextmanager
def loaded(case: FixtureCase, path: Path) -> Iterator[dict[str, Any]]:
    """Execute a fixture's file as a module; the stubs and the case's other files are importable."""
    module = types.ModuleType(MODULE)
    module.__file__ = str(path)
    added = [str(case.folder), str(STUBS)]
    mine = {other.stem for other in case.others} | {MODULE}
    sys.path[len(sys.path) :] = added
    no_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.modules[MODULE] = module
    try:
        with kept_settings():
            exec(builtins.compile(path.read_bytes(), str(path), "exec"), module.__dict__)
            yield module.__dict__
    finally:
        sys.dont_write_bytecode = no_bytecode
        for entry in added:
            sys.path.remove(entry)
        for name in mine:
            sys.modules.pop(name, None)


def make_target(case: FixtureCase, namespace: dict[str, Any]) -> Any:
    """The case's function or a fresh module."""
    torch.manual_seed(0)
    target = eval(case.target, namespace)
    return target() if isinstance(target, type) else target


def _is_compiled(target: Any) -> bool:
    return (
        isinstance(target, OptimizedModule)
        or hasattr(target, "_torchdynamo_orig_callable")
        or getattr(target, "_compiled_call_impl", None) is not None
    )


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__(0)
        self.seen: list[tuple[str, str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("torch"):
            self.seen.append((record.name, record.levelname, record.getMessage()))


@contextlib.contextmanager
def _listening(call: Call) -> Iterator[None]:
    out, err, records = io.StringIO(), io.StringIO(), _Records()
    root, own = logging.getLogger(), logging.getLogger("torch")
    levels = root.level, own.level
    root.addHandler(records)
    root.setLevel(logging.DEBUG)
    own.setLevel(logging.ERROR)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            yield
    finally:
        root.removeHandler(records)
        root.setLevel(levels[0])
        own.setLevel(levels[1])
        call.effects = {
            "stdout": out.getvalue(),
            "stderr": err.getvalue(),
            "logged": records.seen,
            "warned": [
                (w.category.__name__, str(w.message))
                for w in warned
                if not w.filename.startswith(_COMPILER)
            ],
        }


def _require_gradients(value: Any) -> None:
    for _, tensor in tensors(value, ""):
        if tensor.is_floating_point() and tensor.is_leaf:
            tensor.requires_grad_(True)


def _backward(result: Any) -> None:
    total = None
    for _, tensor in tensors(result, ""):
        if tensor.is_floating_point() and tensor.requires_grad:
            weights = torch.linspace(0.5, 1.5, tensor.numel(), dtype=torch.float64)
            part = (tensor.double().reshape(-1) * weights).sum()
            total = part if total is None else total + part
    if total is not None:
        torch.autograd.backward(total)


def call_all(
    case: FixtureCase,
    function: Callable[..., Any],
    target: Any,
    namespace: dict[str, Any],
    names: frozenset[str],
    gradients: bool,
) -> list[Call]:
    """Call a target with each of the case's inputs, in turn, and keep what can be seen."""
    calls = []
    for expression in case.inputs:
        call = Call()
        torch.manual_seed(0)
        given = eval(expression, {**namespace, "torch": torch})
        args, kwargs = ((), given) if isinstance(given, dict) else (given, {})
        parameters: dict[str, torch.Tensor] = {}
        if gradients:
            _require_gradients(given)
            held = state_of(target, namespace, names)
            parameters = {k: v for k, v in tensors(held, "state") if v.is_leaf}
            for parameter in parameters.values():
                parameter.grad = None
        torch.manual_seed(1)
        random.seed(1)
        result: Any = None
        with _listening(call):
            try:
                result = function(*args, **kwargs)
                call.result = describe(result)
            except Exception as error:
                call.result = Raised(type(error).__name__, str(error))
        call.random = (describe(torch.rand(2)), random.random())
        call.arguments = describe(given)
        state = state_of(target, namespace, names)
        call.state = {name: describe(value) for name, value in state.items()}
        call.aliases = aliases({"result": result, "argument": given, "state": state})
        if gradients and not call.raised:
            try:
                _backward(result)
            except RuntimeError as error:
                call.gradients["error"] = str(error)
            leaves = dict(tensors(given, "argument")) | parameters
            for where, tensor in leaves.items():
                if tensor.is_leaf:
                    grad = tensor.grad
                    call.gradients[where] = None if grad is None else describe(grad)
        calls.append(call)
    return calls


def _names(case: FixtureCase) -> frozenset[str]:
    with loaded(case, case.before) as namespace:
        return frozenset(name for name in namespace if not name.startswith("_"))


@contextlib.contextmanager
def _never_compile() -> Iterator[None]:
    """Make `torch.compile` give back what it is given.

    The stance `force_eager` would do, but it also stops `torch.cond` from compiling its arms, and
    then gradients through it fail (seen on torch 2.13).
    """

    def compile(model: Any = None, **_: Any) -> Any:
        return model if model is not None else lambda function: function

    with mock.patch.object(torch, "compile", compile):
        yield


def run_eager(case: FixtureCase, path: Path, gradients: bool = False) -> Run:
    """Run a file without compiling anything, `@torch.compile` or not."""
    names = _names(case)
    dynamo.reset()
    with contextlib.ExitStack() as stack:
        with _never_compile():
            namespace = stack.enter_context(loaded(case, path))
            target = make_target(case, namespace)
        return Run(call_all(case, target, target, namespace, names, gradients))


@contextlib.contextmanager
def _counting(run: Run) -> Iterator[None]:
    """Count graph breaks; seen on torch 2.13."""
    original = InstructionTranslatorBase.log_graph_break

    def log_graph_break(self: Any, code_options: Any, reason: Any, exc: Any) -> Any:
        if not getattr(exc, "logged", False):
            run.breaks += 1
        return original(self, code_options, reason, exc)

    with mock.patch.object(InstructionTranslatorBase, "log_graph_break", log_graph_break):
        yield


@contextlib.contextmanager
def _compile_with(backend: Callable[..., Any], fullgraph: bool) -> Iterator[None]:
    """Make every `torch.compile` in the file use this backend."""
    original = torch.compile

    def compile(model: Any = None, **options: Any) -> Any:
        kept = {"dynamic": options["dynamic"]} if "dynamic" in options else {}
        return original(model, backend=backend, fullgraph=fullgraph, **kept)

    with mock.patch.object(torch, "compile", compile):
        yield


def run_compiled(
    case: FixtureCase,
    path: Path,
    gradients: bool = False,
    fullgraph: bool = False,
    backend: str = "eager",
) -> Run:
    """Run a file with the target compiled, on a backend that generates no code."""
    run = Run([])
    inner = lookup_backend(backend)

    def counting(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        run.graphs += 1
        run.operators += sum(n.op not in ("placeholder", "output") for n in graph.graph.nodes)
        return inner(graph, inputs)

    names = _names(case)
    dynamo.reset()
    with (
        _compile_with(counting, fullgraph),
        _counting(run),
        loaded(case, path) as namespace,
    ):
        target = make_target(case, namespace)
        function = target if _is_compiled(target) else torch.compile(target)
        run.calls = call_all(case, function, target, namespace, names, gradients)
    dynamo.reset()
    return run


# Comparing


def differences(mine: Any, theirs: Any, where: str, exact: bool) -> Iterator[str]:
    """How two descriptions differ, one sentence a difference."""
    if isinstance(mine, Snapshot) and isinstance(theirs, Snapshot):
        yield from mine.differences(theirs, where, exact)
    elif isinstance(mine, dict) and isinstance(theirs, dict):
        for key in sorted(mine.keys() | theirs.keys()):
            if key not in mine or key not in theirs:
                yield f"{where}.{key}: only {'before' if key in mine else 'after'}"
            else:
                yield from differences(mine[key], theirs[key], f"{where}.{key}", exact)
    elif isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)):
        if len(mine) != len(theirs):
            yield f"{where}: {mine} against {theirs}"
        else:
            for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                yield from differences(a, b, f"{where}[{index}]", exact)
    elif mine != theirs:
        yield f"{where}: {mine} against {theirs}"


def _is_new_state(text: str, names: tuple[str, ...]) -> bool:
    """Whether a difference is an attribute that the rewrite may add."""
    return any(text.endswith(f"state.self.{name}: only after") for name in names)


def eager_differences(before: Run, after: Run, new_state: tuple[str, ...] = ()) -> list[str]:
    """Everything in which an eager run differs from another; nothing may."""
    return [
        text
        for index, (mine, theirs) in enumerate(zip(before.calls, after.calls, strict=True))
        for text in differences(vars(mine), vars(theirs), f"call {index}", exact=True)
        if not _is_new_state(text, new_state)
    ]


def compiled_differences(case: FixtureCase, eager: Run, compiled: Run) -> list[str]:
    """How a compiled run differs from the original in eager, less what the case allows."""
    found: list[str] = []
    for index, (mine, theirs) in enumerate(zip(eager.calls, compiled.calls, strict=True)):
        where = f"compiled call {index}"
        if mine.raised and theirs.raised and case.exceptions == "review":
            continue
        parts = ["result", "arguments", "state", "random"]
        parts += [] if case.may_drop_effects else ["effects"]
        for part in parts:
            pair = getattr(mine, part), getattr(theirs, part)
            for text in differences(*pair, f"{where} {part}", exact=False):
                # A result of `cond` or `where` requires a gradient if either arm's does.
                gained = text.endswith("requires_grad False against True")
                if gained and part == "result" and case.gradients == "review":
                    continue
                stale = any(f" state.self.{name}" in text for name in case.stale_state)
                if not stale and not _is_new_state(text, case.new_state):
                    found.append(text)
        if mine.raised or "error" in mine.gradients:
            continue
        for place, grad in mine.gradients.items():
            other = theirs.gradients.get(place)
            if grad is None and other is not None and case.gradients == "review":
                if bool(other.values.count_nonzero()):
                    found.append(f"{where} gradient {place}: None against {other.values}")
                continue
            found += differences(grad, other, f"{where} gradient {place}", exact=False)
    return found
