"""Imports a target with given texts in the place of its files, and builds the callable.

Runs in a worker that is thrown away afterwards, so that nothing is undone. It does not know why a
text is given, nor what becomes of the callable.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import pickle
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gbfix.verify.targets import Side, Target

Transform = Callable[[str, ast.Module], ast.Module]


class LoadError(Exception):
    """The target cannot be imported or built, in one sentence."""


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a text instead of the file's, and never looks at cached bytecode."""

    def __init__(self, name: str, path: str, text: str, transform: Transform | None) -> None:
        super().__init__(name, path)
        self.text = text
        self.transform = transform

    def get_code(self, fullname: str) -> types.CodeType:
        tree = ast.parse(self.text, self.path)
        if self.transform is not None:
            tree = ast.fix_missing_locations(self.transform(os.path.realpath(self.path), tree))
        # Not inherited: this module's own `from __future__` imports are not the user's.
        code: types.CodeType = compile(tree, self.path, "exec", dont_inherit=True)
        return code

    def get_source(self, fullname: str) -> str:
        return self.text


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as always, and gives those that have a text another loader."""

    def __init__(self, texts: Mapping[str, str], transform: Transform | None) -> None:
        self.texts = texts
        self.transform = transform

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None:
            return None
        text = self.texts.get(os.path.realpath(spec.origin))
        if text is None:
            return None
        spec.loader = _Loader(name, spec.origin, text, self.transform)
        return spec


def load(side: Side, transform: Transform | None = None) -> types.ModuleType:
    """Import the target's module.

    Raises:
        LoadError: if it does not import, exits, or is not there.
    """
    target = side.target
    texts = {os.path.realpath(path): text for path, text in side.texts}
    sys.dont_write_bytecode = True
    sys.path[:0] = [folder for folder in target.folders if folder not in sys.path]
    sys.meta_path.insert(0, _Finder(texts, transform))
    for path, text in texts.items():
        # Without a time stamp an entry is never checked against the file.
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    try:
        module = _import(target, texts, transform)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise LoadError(f"{target.module} cannot be imported: {_told(error)}") from error
    return module


def _import(
    target: Target, texts: Mapping[str, str], transform: Transform | None
) -> types.ModuleType:
    if target.file is None or importlib.util.find_spec(target.module.partition(".")[0]) is not None:
        module = importlib.import_module(target.module)
        if target.file is None or _is_file(module, target.file):
            return module
    text = texts.get(os.path.realpath(target.file))
    loader = _Loader(target.module, target.file, text, transform) if text is not None else None
    spec = importlib.util.spec_from_file_location(target.module, target.file, loader=loader)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[target.module] = module
    spec.loader.exec_module(module)
    return module


def _is_file(module: types.ModuleType, path: str) -> bool:
    return os.path.realpath(getattr(module, "__file__", None) or "") == os.path.realpath(path)


def build(target: Target, module: types.ModuleType) -> Any:
    """The callable itself: made by `init` or of what was recorded, or looked up and constructed.

    Raises:
        LoadError: if that fails.
    """
    try:
        if target.pickled is not None:
            if target.main:
                sys.modules["__main__"] = module
            return pickle.loads(target.pickled)
        if target.init is not None:
            return reference(target.init, module)()
        if target.state is not None:
            return _recorded(target, target.state)
        if target.expression is not None:
            return _made(target, eval(target.expression, vars(module)), module)
        return _made(target, _attribute(module, target.name), module)
    except (LoadError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if target.init is not None:
            raise LoadError(f"`{target.init}` failed: {_told(error)}") from error
        raise LoadError(f"{target.name} cannot be built: {_told(error)}") from error


def _made(target: Target, found: Any, module: types.ModuleType) -> Any:
    if not isinstance(found, type):
        return found
    try:
        return found()
    except TypeError as error:
        from gbfix.verify.constructing import construct

        try:
            return construct(found, module)
        except (TypeError, ValueError) as failed:
            why = f"; none was recorded: {target.no_state}" if target.no_state else ""
            raise LoadError(
                f"{target.name} cannot be constructed without arguments ({error}; {failed}{why}): "
                "give `--init module:function` that builds one"
            ) from failed


def _recorded(target: Target, state: str) -> Any:
    import torch

    from gbfix.trace.objects import put_together

    # Only tensors and plain values are read, so that a trace of others can run no code.
    return put_together(torch.load(state, weights_only=True), {target.state_of: target.module})


def _attribute(module: types.ModuleType, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise LoadError(f"there is no `{name}` in {module.__name__}")
        value = getattr(value, part)
    return value


def reference(text: str, module: types.ModuleType) -> Any:
    """What `module:function` stands for; the module may be left out for the target's own.

    Raises:
        LoadError: if there is no such thing.
    """
    head, _, name = text.rpartition(":")
    if not head or head == module.__name__:
        return _attribute(module, name)
    try:
        if head.endswith(".py"):
            if _is_file(module, head):
                return _attribute(module, name)
            spec = importlib.util.spec_from_file_location("gbfix_given", head)
            assert spec is not None and spec.loader is not None
            found = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(found)
        else:
            found = importlib.import_module(head)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise LoadError(f"{head} cannot be imported: {_told(error)}") from error
    return _attribute(found, name)


def _told(error: BaseException) -> str:
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
