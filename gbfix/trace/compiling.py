"""Compiles functions and classes of a program that compiles nothing itself, as they come to be.

Functions of modules are taken when their module has been loaded, those of the script as soon as their
definition has run, classes when they are made. The program's text stays as it is.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAIN = "__main__"


def compile_named(
    targets: Sequence[str],
) -> Mapping[str, Callable[[types.ModuleType], None]]:
    """Prepare to compile each `module:Class` or `module:function`.

    What is given back has to be called with each of the named modules once it has been loaded.
    """
    names: dict[str, set[str]] = {}
    classes: dict[tuple[str, str], Callable[[type], None]] = {}
    for target in targets:
        module, _, name = target.partition(":")
        classes[module, name] = _compile_instances
        names.setdefault(module, set()).add(name)
    _on_classes(classes, names)
    if MAIN in names:
        _in_script(names[MAIN])
    return {
        module: lambda loaded, wanted=wanted: _compile_functions(loaded.__dict__, wanted)  # type: ignore[misc]
        for module, wanted in names.items()
        if module != MAIN
    }


def _compile_functions(space: dict[str, Any], names: set[str]) -> None:
    """Compile the functions that a module has by now; those that are done leave `names`.

    Classes are met as they are made.
    """
    for name in list(names):
        value = space.get(name)
        if isinstance(value, types.FunctionType):
            import torch

            names.discard(name)
            space[name] = torch.compile(value)


def _in_script(names: set[str]) -> None:
    """Compile functions of the program's own script once they are defined, before the next line.

    No import tells of the script, so its lines are followed until all functions are there.
    """

    def in_module(frame: types.FrameType, event: str, _: Any) -> Any:
        with contextlib.suppress(Exception):
            _compile_functions(frame.f_globals, names)
        if event == "return" or not names:
            frame.f_trace = None
            if sys.gettrace() is called:
                sys.settrace(None)
            return None
        return in_module

    def called(frame: types.FrameType, event: str, _: Any) -> Any:
        is_script = frame.f_code.co_name == "<module>" and frame.f_globals["__name__"] == MAIN
        return in_module if is_script else None

    if sys.gettrace() is None:
        sys.settrace(called)


def _on_classes(
    wanted: dict[tuple[str, str], Callable[[type], None]], names: Mapping[str, set[str]]
) -> None:
    """Act on classes once they are made, also on those of the program's own `__main__`."""
    original = builtins.__build_class__

    def __build_class__(body: Any, name: str, /, *bases: Any, **options: Any) -> Any:
        made = original(body, name, *bases, **options)
        key = (getattr(made, "__module__", ""), getattr(made, "__qualname__", ""))
        action = wanted.pop(key, None)
        if action is not None:
            with contextlib.suppress(Exception):
                names[key[0]].discard(key[1])
                action(made)
            if not wanted:
                builtins.__build_class__ = original
        return made

    builtins.__build_class__ = __build_class__


def _compile_instances(kind: type) -> None:
    """Have `torch.compile` compile each instance of a module's class, as `module.compile()` does."""
    import functools

    original: Any = kind.__init__  # type: ignore[misc]

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if getattr(self, "_compiled_call_impl", self) is None:
            self.compile()

    kind.__init__ = __init__  # type: ignore[misc]
