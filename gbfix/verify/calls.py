"""One call of a target, and everything that can be seen after it.

Knows how to ask for gradients and where state is kept; not which run a call belongs to.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from gbfix.dynamo.capture import is_compile_error, summary
from gbfix.dynamo.control import original_module
from gbfix.verify.listening import Listener, Stopped
from gbfix.verify.recipes import Arguments
from gbfix.verify.snapshot import (
    CallShot,
    Effects,
    Leaves,
    Raised,
    aliases,
    bytes_of,
    leaves,
    tensors,
)

_DATA = (torch.Tensor, int, float, str, list, dict, set, types.NoneType)


@dataclass(frozen=True)
class CallOptions:
    """What all calls of a run have in common; `failed` is told of what they raise."""

    gradients: bool = False
    dtype: str | None = None
    device: str = "cpu"
    inference: bool = False
    failed: Callable[[BaseException], None] | None = None


def convert(target: Any, module: types.ModuleType, dtype: str | None, device: str) -> None:
    """Bring a module's tensors, and those among the globals, to a dtype and a device."""
    if dtype is None and device == "cpu":
        return
    root = root_of(target)
    if root is not None:
        root.to(device=device, dtype=getattr(torch, dtype) if dtype else None)
        for part in root.modules():
            _convert_values(vars(part), dtype, device)
    _convert_values(vars(module), dtype, device)


def _convert_values(values: dict[str, Any], dtype: str | None, device: str) -> None:
    for name, value in list(values.items()):
        if isinstance(value, torch.Tensor):
            values[name] = _converted(value, dtype, device)


def _converted(value: Any, dtype: str | None, device: str) -> Any:
    if isinstance(value, torch.nn.Module):
        return value.to(device=device, dtype=getattr(torch, dtype) if dtype else None)
    if not isinstance(value, torch.Tensor):
        return value
    wanted = getattr(torch, dtype) if dtype and value.is_floating_point() else value.dtype
    if value.dtype == wanted and value.device.type == torch.device(device).type:
        return value
    return value.detach().to(device, wanted).requires_grad_(value.requires_grad)


def converted(arguments: Arguments, options: CallOptions) -> Arguments:
    """Arguments with their tensors on the device and in the dtype of the run."""
    found: Arguments = pytree.tree_map(
        lambda value: _converted(value, options.dtype, options.device), arguments
    )
    return found


def call(
    function: Callable[..., Any],
    target: Any,
    module: types.ModuleType,
    arguments: Arguments,
    options: CallOptions,
) -> CallShot:
    """Call a function and keep what a caller could see of it."""
    arguments = converted(arguments, options)
    asked: dict[str, torch.Tensor] = {}
    if options.gradients:
        state = state_of(target, module) | _modules_given(arguments)
        arguments, asked = _asking_for_gradients(arguments, state)
    result: Any = None
    raised: Raised | None = None
    heard = Listener()
    own = os.getpid()
    recording = contextlib.nullcontext() if not options.inference else torch.no_grad()
    with heard.listening(), recording:
        try:
            result = function(*arguments[0], **arguments[1])
        except (KeyboardInterrupt, Stopped):
            raise
        except BaseException as error:
            raised = _raised(error)
            if options.failed is not None:
                options.failed(error)
        finally:
            if os.getpid() != own:
                # The code has forked, and this is its child, which has no business with further calls.
                os._exit(0)
    return _shot(result, raised, heard.effects, arguments, target, module, asked)


def _shot(
    result: Any,
    raised: Raised | None,
    effects: Effects,
    arguments: Arguments,
    target: Any,
    module: types.ModuleType,
    asked: dict[str, torch.Tensor],
) -> CallShot:
    found: Leaves = _random_state()
    given = _by_place(arguments)
    state = state_of(target, module) | _modules_given(arguments)
    for group in (given, {"result": result} if raised is None else {}, state):
        for place, value in group.items():
            found.update(leaves(value, place))
    groups = [*given.items(), ("result", result), *state.items()]
    shared = aliases(groups)
    if asked and raised is None:
        error = _backward(result)
        if error is not None:
            found["gradient"] = error
        for place, tensor in asked.items():
            for name, leaf in leaves(tensor.grad, f"gradient of {place}").items():
                found[name] = leaf
    return CallShot(found, shared, effects, raised)


def _by_place(arguments: Arguments) -> dict[str, Any]:
    args = {f"argument {number}": value for number, value in enumerate(arguments[0], 1)}
    return args | {f"argument {name}": value for name, value in arguments[1].items()}


def _modules_given(arguments: Arguments) -> dict[str, Any]:
    """What the modules among the arguments keep."""
    state: dict[str, Any] = {}
    for place, value in _by_place(arguments).items():
        if isinstance(value, torch.nn.Module):
            state |= _state_of_module(value, place)
    return state


def _raised(error: BaseException) -> Raised:
    if is_compile_error(error):
        name = type(error).__name__
        return Raised(name, summary(error).removeprefix(f"{name}: "), by_compiler=True)
    return Raised(type(error).__name__, str(error))


def _random_state() -> Leaves:
    """The state of each generator, as a digest; whether two are equal is all that matters."""
    states: dict[str, bytes] = {
        "torch": bytes_of(torch.get_rng_state()),
        "python": repr(random.getstate()).encode(),
    }
    if "numpy" in sys.modules:
        import numpy

        state = numpy.random.get_state(legacy=False)
        key = state["state"].pop("key")  # to print it would take longer than a call
        states["numpy"] = key.tobytes() + repr(state).encode()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = bytes_of(torch.cuda.get_rng_state())
    return {f"random.{name}": hashlib.sha1(state).hexdigest() for name, state in states.items()}


# State


def root_of(target: Any) -> torch.nn.Module | None:
    """The module that a target is or is bound to."""
    owner = target if isinstance(target, torch.nn.Module) else getattr(target, "__self__", None)
    owner = original_module(owner)
    return owner if isinstance(owner, torch.nn.Module) else None


def state_of(target: Any, module: types.ModuleType) -> dict[str, Any]:
    """What a target keeps between calls: attributes of modules, of its owner, and global data."""
    state: dict[str, Any] = {}
    root = root_of(target)
    if root is not None:
        state |= _state_of_module(root, "state self")
    elif not isinstance(getattr(target, "__self__", target), types.FunctionType):
        owner = getattr(target, "__self__", target)
        for name, value in getattr(owner, "__dict__", {}).items():
            if not name.startswith("__") and not callable(value):
                state[f"state self.{name}"] = value
    for name, value in vars(module).items():
        if name.startswith("__") or value is root:
            continue
        if isinstance(value, torch.nn.Module):
            state |= _state_of_module(value, f"state global {name}")
        elif isinstance(value, _DATA) or _is_own_object(value, module):
            state[f"state global {name}"] = value
    return state


def _state_of_module(root: torch.nn.Module, place: str) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for prefix, part in root.named_modules():
        at = f"{place}.{prefix}." if prefix else f"{place}."
        plain = {k: v for k, v in vars(part).items() if not k.startswith("_")}
        for name, value in {**plain, **part._parameters, **part._buffers}.items():
            state[at + name] = value
        state[at + "(not persistent)"] = sorted(part._non_persistent_buffers_set)
    return state


def _is_own_object(value: Any, module: types.ModuleType) -> bool:
    """Whether it is an instance of a class of the same file, which keeps what it is told."""
    return type(value).__module__ == module.__name__ and hasattr(value, "__dict__")


# Gradients


def _asking_for_gradients(
    arguments: Arguments, state: dict[str, Any]
) -> tuple[Arguments, dict[str, torch.Tensor]]:
    """Arguments that want gradients, and every leaf, by place, that will have one.

    The call gets copies of the leaves, so that it may change its arguments in place.
    """
    asked: dict[str, torch.Tensor] = {}
    for place, value in state.items():
        for name, tensor in tensors(value, place):
            if tensor.is_leaf and tensor.requires_grad:
                tensor.grad = None
                asked[name] = tensor

    def ask(value: Any, place: str) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        leaf = value.detach().clone().requires_grad_(True)
        asked[place] = leaf
        return leaf.clone()

    flat, shape = pytree.tree_flatten(arguments)
    asking = [ask(value, f"argument leaf {number}") for number, value in enumerate(flat, 1)]
    return pytree.tree_unflatten(asking, shape), asked


def _backward(result: Any) -> str | None:
    """Send gradients back from everything in the result; the error's text if that fails."""
    total: torch.Tensor | None = None
    for _, tensor in tensors(result, ""):
        if tensor.requires_grad and tensor.is_floating_point():
            weights = torch.linspace(
                0.5, 1.5, tensor.numel(), dtype=torch.float64, device=tensor.device
            )
            part = (tensor.double().reshape(-1) * weights).sum()
            total = part if total is None else total + part
    if total is not None and total.requires_grad:
        try:
            torch.autograd.backward(total)
        except RuntimeError as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None
