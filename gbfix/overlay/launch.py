"""Runs a script as `__main__`, as Python itself would, from the text that the overlay has for it.

Started as `python launch.py SCRIPT ARGS`, after `hook.py` has run as `sitecustomize`. Python reads the
main script in C, past all import hooks, so it is done here.
"""

from __future__ import annotations

import importlib.machinery
import os
import signal
import sys
import types


def main() -> None:
    """Become the script."""
    del sys.argv[0]
    script = sys.argv[0]
    if os.path.isdir(script) or not _is_source(script):
        import runpy

        del sys.path[0]
        runpy.run_path(script, run_name="__main__")
        return
    sys.path[0] = os.path.dirname(os.path.realpath(script))
    path = os.path.join(os.getcwd(), script)
    overlay = getattr(sys.modules.get("gbfix_overlay"), "OVERLAY", None)
    text = overlay.text(path) if overlay is not None else None
    if overlay is not None:
        sys.modules["gbfix_overlay"].read_main_from(overlay)
    if text is None:
        with open(path, "rb") as stream:
            text = stream.read()
    module = types.ModuleType("__main__")
    module.__file__ = path
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    module.__dict__.update(__builtins__=__builtins__, __annotations__={}, __cached__=None)
    sys.modules["__main__"] = module
    try:
        exec(compile(text, path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        _end(error)


def _is_source(script: str) -> bool:
    with open(script, "rb") as stream:
        return stream.read(2) != b"PK"  # a zip file with a `__main__.py`


def _end(error: BaseException) -> None:
    """Report what the script did not catch, as at the end of any script, without this file's frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error = error.with_traceback(trace)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.excepthook(type(error), error, trace)
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.exit(1)


if __name__ == "__main__":
    main()
