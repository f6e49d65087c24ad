"""Makes a Python process import rewritten source; runs as its `sitecustomize`.

This file is copied into a folder that stands first in PYTHONPATH, so that every Python process that
the program starts (workers of `multiprocessing`, subprocesses) takes part. It knows only that folder
and the standard library. Bytecode of rewritten files is neither read nor written, and `linecache` is
given their text, so that tracebacks and `inspect.getsource` show what runs.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
import types
from typing import Any

FOLDER = os.path.dirname(os.path.abspath(__file__))
NAME = "gbfix_overlay"
_WATCHED = "torch._dynamo.symbolic_convert"


class Overlay:
    """The rewritten files, by path; a file that has changed on disk since is left alone."""

    def __init__(self, files: dict[str, dict[str, Any]]) -> None:
        self.files = files
        self.names = {os.path.basename(path) for path in files}
        self.told: set[str] = set()

    def text(self, path: str) -> bytes | None:
        """The new content of a file, or None if it is not rewritten."""
        if os.path.basename(path) not in self.names:
            return None
        real = os.path.realpath(path)
        found = self.files.get(real)
        if found is None:
            return None
        try:
            stat = os.stat(real)
        except OSError:
            return None
        if [stat.st_size, stat.st_mtime_ns] != found["stat"]:
            return None
        self.tell(real)
        return bytes(found["text"].encode("latin-1"))

    def tell(self, path: str) -> None:
        """Note once that a file was used, and from then on show its new text."""
        if path in self.told:
            return
        self.told.add(path)
        note({"loaded": path})
        if len(self.told) == 1:
            show_rewritten_lines(self)


def note(record: dict[str, Any]) -> None:
    """Add a record to what this process tells of itself; failing to is no failure of the run."""
    try:
        path = os.path.join(FOLDER, f"told-{os.getpid()}.jsonl")
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")
    except OSError:
        pass


def install(overlay: Overlay) -> None:
    """Let the loader of source files read from the overlay.

    The class itself is changed, since editable installs, `spec_from_file_location` and subclasses all
    make loaders of their own.
    """
    loader = importlib.machinery.SourceFileLoader
    read, stats = loader.get_data, loader.path_stats

    def get_data(self: Any, path: str) -> bytes:
        found = overlay.text(path)
        return read(self, path) if found is None else found

    def path_stats(self: Any, path: str) -> Any:
        # Without them no bytecode is read or written.
        if overlay.text(path) is not None:
            raise OSError
        return stats(self, path)

    loader.get_data = get_data  # type: ignore[method-assign]
    loader.path_stats = path_stats  # type: ignore[method-assign]
    sys.meta_path.insert(0, _Watcher())
    if any("multiprocessing" in word for word in sys.orig_argv):
        read_main_from(overlay)


def read_main_from(overlay: Overlay) -> None:
    """Let `runpy.run_path`, by which spawned workers load the main script, read from the overlay."""
    import runpy

    original = runpy._get_code_from_file  # type: ignore[attr-defined]

    def get_code(*given: Any) -> Any:
        name = os.path.abspath(os.fsdecode(given[-1]))
        found = overlay.text(name)
        if found is None:
            return original(*given)
        code = compile(found, given[-1], "exec", dont_inherit=True)
        return code if len(given) == 1 else (code, given[-1])

    runpy._get_code_from_file = get_code  # type: ignore[attr-defined]


def show_rewritten_lines(overlay: Overlay) -> None:
    """Have tracebacks, `inspect` and everything else that asks `linecache` see the new text."""
    import linecache

    original = linecache.updatecache

    def updatecache(filename: str, module_globals: Any = None) -> list[str]:
        found = overlay.text(filename) if filename.endswith(".py") else None
        if found is None:
            return original(filename, module_globals)
        text = importlib.util.decode_source(found)
        lines = [f"{line}\n" for line in text.removesuffix("\n").split("\n")]
        # No modification time: `checkcache` then does not look at the file.
        linecache.cache[filename] = (len(found), None, lines, filename)
        return lines

    linecache.updatecache = updatecache
    if sys.version_info < (3, 13):
        _print_exceptions_in_python(overlay)


def _print_exceptions_in_python(overlay: Overlay) -> None:
    """Before 3.13 an uncaught exception is printed with lines that are read from the disk."""
    import threading
    import traceback

    plain, threaded = sys.excepthook, threading.excepthook

    def concerns(trace: types.TracebackType | None) -> bool:
        frames = traceback.walk_tb(trace)
        return any(os.path.realpath(f.f_code.co_filename) in overlay.told for f, _ in frames)

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
    ) -> None:
        if concerns(trace) and sys.stderr is not None:
            traceback.print_exception(kind, error, trace)
        else:
            plain(kind, error, trace)

    def thread_hook(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit and concerns(args.exc_traceback) and sys.stderr:
            name = args.thread.name if args.thread is not None else threading.get_ident()
            print(f"Exception in thread {name}:", file=sys.stderr)
            traceback.print_exception(args.exc_type, args.exc_value, args.exc_traceback)
        else:
            threaded(args)

    sys.excepthook = excepthook
    threading.excepthook = thread_hook


class _Watcher:
    """Finds one module, Dynamo's, and counts its breaks from the moment it is loaded."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """The spec of the watched module, with a loader that attaches the counter."""
        if fullname != _WATCHED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _WatchedLoader(fullname, spec.loader.path)
        return spec


class _WatchedLoader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        counting = importlib.util.spec_from_file_location(
            "gbfix_counting", os.path.join(FOLDER, "counting.py")
        )
        if counting is not None and counting.loader is not None:
            loaded = importlib.util.module_from_spec(counting)
            counting.loader.exec_module(loaded)
            loaded.attach(module, note)


def _give_way() -> None:
    """Leave no trace of the folder in `sys.path`, and run the `sitecustomize` that this one hides."""
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != FOLDER]
    sys.path_importer_cache.pop(FOLDER, None)
    sys.modules[NAME] = sys.modules["sitecustomize"]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _start() -> Overlay:
    with open(os.path.join(FOLDER, "overlay.json"), encoding="utf-8") as stream:
        overlay = Overlay(json.load(stream))
    install(overlay)
    return overlay


if __name__ == "sitecustomize":
    OVERLAY = _start()
    _give_way()
