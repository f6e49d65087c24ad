"""Switches of the compiler that make two runs comparable.

Which backend is used, what `torch.compile` inside the user's file does, and which settings hold
while code is measured. The module knows nothing of what is run or how it is compared.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

_MOST_COMPILATIONS = 64


def reset() -> None:
    """Forget all compiled code. `torch._dynamo.reset`: seen on torch 2.13."""
    torch._dynamo.reset()  # type: ignore[no-untyped-call,unused-ignore]


def lookup(backend: str) -> Callable[..., Any]:
    """A backend by its name. `backends.registry.lookup_backend`: seen on torch 2.13."""
    from torch._dynamo.backends.registry import lookup_backend

    found: Callable[..., Any] = lookup_backend(backend)
    return found


def compiler_folder() -> str:
    """The folder of Dynamo's own files, to tell its warnings from the user's. Torch 2.13."""
    import torch._dynamo

    return torch._dynamo.__path__[0]


def is_compiled(target: object) -> bool:
    """Whether calling an object runs code that `torch.compile` has already wrapped.

    `OptimizedModule`, `_torchdynamo_orig_callable` and `_compiled_call_impl`: seen on torch 2.13.
    """
    from torch._dynamo.eval_frame import OptimizedModule

    return (
        isinstance(target, OptimizedModule)
        or hasattr(target, "_torchdynamo_orig_callable")
        or getattr(target, "_compiled_call_impl", None) is not None
    )


def original_module(target: object) -> object:
    """The module inside an `OptimizedModule`, or the object itself. Seen on torch 2.13."""
    return getattr(target, "_orig_mod", target)


@contextlib.contextmanager
def never_compile() -> Iterator[list[object]]:
    """Make `torch.compile` give back what it is given, and list all that it was given.

    The stance `force_eager` would do, but it also stops `torch.cond` from compiling its arms, and
    then gradients through it fail (seen on torch 2.13).
    """

    given: list[object] = []

    def compile(model: Any = None, **_: Any) -> Any:
        if model is None:
            return compile
        given.append(model)
        return model

    with mock.patch.object(torch, "compile", compile):
        yield given


@contextlib.contextmanager
def compile_with(
    backend: Callable[..., Any], *, fullgraph: bool, dynamic: bool | None
) -> Iterator[None]:
    """Make every `torch.compile`, the user's own included, use one configuration."""
    original = torch.compile

    def compile(model: Any = None, **options: Any) -> Any:
        shapes = options.get("dynamic", dynamic)
        return original(model, backend=backend, fullgraph=fullgraph, dynamic=shapes)

    with mock.patch.object(torch, "compile", compile):
        yield


@contextlib.contextmanager
def compile_in_use(backend: str | None, mode: str | None) -> Iterator[None]:
    """Make every `torch.compile` use a backend or a mode, and leave all else as it is."""
    original = torch.compile
    asked: dict[str, Any] = {"mode": mode} if mode is not None else {}
    asked |= {"backend": backend} if backend is not None else {}

    def compile(model: Any = None, **options: Any) -> Any:
        kept: dict[str, Any] = {"dynamic": options["dynamic"]} if "dynamic" in options else {}
        return original(model, **asked, **kept)

    with mock.patch.object(torch, "compile", compile):
        yield


@contextlib.contextmanager
def comparable(*, emulate_precision_casts: bool = False) -> Iterator[None]:
    """Settings of Inductor under which a compiled run may be held against an eager one.

    `fallback_random` draws the numbers that eager draws; one compile thread starts no pool of
    processes, which a short-lived worker would wait for. A frame may be compiled as often as inputs of
    other shapes are made up. Seen on torch 2.13; `recompile_limit` was called `cache_size_limit`.
    """
    import torch._dynamo.config as dynamo
    import torch._inductor.config as inductor

    limit = "recompile_limit" if hasattr(dynamo, "recompile_limit") else "cache_size_limit"
    with (
        _guards_not_timed(),
        dynamo.patch({limit: _MOST_COMPILATIONS}),
        inductor.patch(
            fallback_random=True,
            compile_threads=1,
            emulate_precision_casts=emulate_precision_casts,
        ),
    ):
        yield


@contextlib.contextmanager
def without_caches() -> Iterator[None]:
    """Compile everything anew, as on a machine that has never compiled it.

    `torch._inductor.utils.fresh_cache`, called `fresh_inductor_cache` before torch 2.8, is an empty
    folder for all caches. The precompiled header, which is made once a machine, is not used, so that
    its making is not counted. Seen on torch 2.13.
    """
    import torch._inductor.config as inductor
    import torch._inductor.utils as inductor_utils

    fresh = getattr(inductor_utils, "fresh_cache", None) or inductor_utils.fresh_inductor_cache
    header = "cpp_cache_precompile_headers"
    known: dict[str, Any] = {header: False} if hasattr(inductor, header) else {}
    with inductor.patch(**known), fresh():
        yield


@contextlib.contextmanager
def without_notes() -> Iterator[None]:
    """Keep torch from telling on standard error in which line of a graph a call has failed.

    `fx.graph_module._WrappedCall` prints it there before it passes the exception on. What else that
    module prints, it was asked for. Seen on torch 2.13.
    """

    def told(*values: Any, file: Any = None, **how: Any) -> None:
        if file is None or file is not sys.stderr:
            print(*values, file=file, **how)

    module = vars(torch.fx.graph_module)
    module["print"] = told
    try:
        yield
    finally:
        module.pop("print", None)


@contextlib.contextmanager
def left_alone(*functions: Any) -> Iterator[None]:
    """Keep Dynamo from compiling functions, and all that they call, where a break has led into them.

    `eval_frame.set_code_exec_strategy`: seen on torch 2.13; where it is missing nothing is done.
    """
    try:
        from torch._C._dynamo.eval_frame import (
            _FrameAction,
            _FrameExecStrategy,
            set_code_exec_strategy,
        )
    except ImportError:
        yield
        return
    for function in functions:
        skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
        set_code_exec_strategy(function.__code__, skip)
    try:
        yield
    finally:
        for function in functions:
            default = _FrameExecStrategy(_FrameAction.DEFAULT, _FrameAction.DEFAULT)
            set_code_exec_strategy(function.__code__, default)


@contextlib.contextmanager
def _guards_not_timed() -> Iterator[None]:
    """Keep Dynamo from timing the guards of each graph, for a log that nobody reads here.

    `guards.profile_guard_manager` empties the processor's cache first, which can take longer than
    all the rest of a small compilation. Seen on torch 2.13; where it is missing nothing is done.
    """
    from torch._dynamo import guards

    if not hasattr(guards, "profile_guard_manager"):
        yield
        return
    with mock.patch.object(guards, "profile_guard_manager", lambda *_: 0.0):
        yield
