"""Starts recording in a process that `gbfix trace` has started, or one that such a process starts.

Nothing is imported that the program does not import itself: recording begins when `torch._dynamo` has
been loaded. What is wanted comes in the environment variable `GBFIX_TRACE`, so that subprocesses are
recorded, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

VARIABLE = "GBFIX_TRACE"
DYNAMO = "torch._dynamo"


@dataclass(frozen=True)
class Wanted:
    """What is asked of a process that is recorded.

    Attributes:
        journal: the folder of the journals.
        tensors: the folder of argument values; None keeps none.
        samples: how many calls of an entry are sampled at most.
        triage: whether failing calls are run again in eager.
        stance: the stance of `torch.compiler.set_stance`.
        compile: each `module:Class` or `module:function` that is to be compiled.
    """

    journal: str
    tensors: str | None = None
    samples: int = 4
    triage: bool = True
    stance: str | None = None
    compile: tuple[str, ...] = ()

    def encoded(self) -> str:
        """The value of the environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def decoded(cls, text: str) -> Wanted:
        """The wanted from the value of the environment variable."""
        data = json.loads(text)
        return cls(**{**data, "compile": tuple(data.get("compile", ()))})


def start() -> None:
    """Prepare this process, if the environment asks for it."""
    text = os.environ.get(VARIABLE)
    if not text:
        return
    wanted = Wanted.decoded(text)
    actions: dict[str, Callable[[types.ModuleType], None]] = {
        DYNAMO: lambda _: _begin(wanted),
    }
    if wanted.compile:
        from gbfix.trace.compiling import compile_named

        for module, action in compile_named(wanted.compile).items():
            actions.setdefault(module, action)
    sys.meta_path.insert(0, _AfterImport(actions))


def _begin(wanted: Wanted) -> None:
    """Watch Dynamo from now on."""
    from gbfix.dynamo.hooks import install, set_stance
    from gbfix.trace.journal import Journal
    from gbfix.trace.recorder import Options, Recorder

    journal = Journal(Path(wanted.journal))
    try:
        tensors = Path(wanted.tensors) if wanted.tensors else None
        install(Recorder(journal, Options(tensors, wanted.samples, wanted.triage)))
        if wanted.stance is not None:
            set_stance(wanted.stance)
    except Exception as error:
        journal.write("note", f"recording could not start: {type(error).__name__}: {error}")


class _AfterImport:
    """A finder that calls something once a module has been loaded, and else stays out of the way."""

    def __init__(self, actions: dict[str, Callable[[types.ModuleType], None]]) -> None:
        self.actions = actions

    def find_spec(
        self, name: str, path: Any = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that another finder has, with a loader that acts after loading."""
        action = self.actions.pop(name, None)
        if action is None:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, action)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """Loads a module as its own loader does, puts that one back in its place, and acts."""

    def __init__(self, loader: Any, action: Callable[[types.ModuleType], None]) -> None:
        self.loader = loader
        self.action = action

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        """As the module's own loader does."""
        made: types.ModuleType | None = self.loader.create_module(spec)
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        """Execute the module, then act."""
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        with contextlib.suppress(Exception):
            self.action(module)
