"""Runs a program as the user would, with recording switched on in its environment.

The program is a child with the same terminal, folder and arguments. What it is given beyond that is
an environment in which Python starts the recording. Its exit code, or the signal that ended it, is
handed on.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gbfix.errors import UserError
from gbfix.trace.starting import VARIABLE, Wanted

STANCES = (
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
)
_STARTUP = Path(__file__).parent / "startup"
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT")


def python_command(arguments: Sequence[str], *, module: str | None, pytest: bool) -> list[str]:
    """The command that runs a script, a module, or pytest; another program is run as it is.

    Raises:
        UserError: if there is nothing to run, or it is not found.
    """
    python = [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]
    if pytest:
        # `python -m pytest` would put the current folder on the path, which `pytest` does not do.
        script = shutil.which("pytest", path=str(Path(sys.executable).parent))
        return [*python, *([script] if script else ["-m", "pytest"]), *arguments]
    if module is not None:
        return [*python, "-m", module, *arguments]
    if not arguments:
        raise UserError("what is to be run? Give `-- script.py ARGS`, `-m module` or `--pytest`.")
    script = arguments[0]
    if Path(script).exists() and (script.endswith((".py", ".pyz")) or not os.access(script, os.X_OK)
                                  or Path(script).is_dir()):  # fmt: skip
        return [*python, *arguments]
    found = shutil.which(script)
    if found is None:
        raise UserError(f"`{script}` is neither a file nor a program.")
    return [found, *arguments[1:]]


def check_stance(name: str) -> None:
    """Whether the installed torch knows a stance, by the text of `torch/compiler/__init__.py`.

    Raises:
        UserError: if it does not, or torch is not installed.
    """
    if name not in STANCES:
        raise UserError(f"`--stance {name}` is none of {', '.join(STANCES)}.")
    spec = importlib.util.find_spec("torch")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise UserError("torch is not installed in this Python.")
    text = (Path(places[0]) / "compiler" / "__init__.py").read_text(encoding="utf-8")
    if f'"{name}"' not in text:
        raise UserError(f"the installed torch has no stance `{name}`.")


def run(command: Sequence[str], wanted: Wanted) -> int:
    """Run a command to its end; the exit code, or minus the number of the signal that ended it.

    Raises:
        UserError: if it cannot be started.
    """
    environment = dict(os.environ)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([str(_STARTUP), *([path] if path else [])])
    environment[VARIABLE] = wanted.encoded()
    sys.stdout.flush()
    sys.stderr.flush()
    # The terminal sends Ctrl-C to both; what it means is for the program to say.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = subprocess.Popen(
            command, env=environment, preexec_fn=lambda: signal.signal(signal.SIGINT, before)
        )
    except OSError as error:
        raise UserError(f"`{command[0]}` cannot be run: {error}") from error
    for name in _FORWARDED:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, lambda got, _: child.send_signal(got))
    return child.wait()


def end_as(code: int) -> int:
    """End this process by the signal that ended the program; else the code to exit with."""
    if code >= 0:
        return code
    number = -code
    sys.stdout.flush()
    sys.stderr.flush()
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass
    os.kill(os.getpid(), number)
    return 128 + number
