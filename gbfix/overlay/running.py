"""Runs a program in a process of its own, with an overlay, and hears what became of it.

Streams, arguments, working directory and exit code are the program's own. Nothing is known here of
how files were rewritten.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import gbfix.dynamo
from gbfix.findings import FileResult
from gbfix.overlay.plan import Program


@dataclass(frozen=True)
class Left:
    """A break that remained: PyTorch's name for it, its explanation, and the user's stack."""

    registry: str | None
    reason: str
    stack: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Told:
    """What the processes of the program told: rewritten files in use, breaks, graphs if counted."""

    loaded: frozenset[Path] = frozenset()
    breaks: Counter[Left] = field(default_factory=Counter)
    graphs: int | None = None
    counted: bool = True


@dataclass(frozen=True)
class Ended:
    """How the program ended: its exit code or, negative, the signal; and what it told."""

    code: int
    told: Told


def run_program(program: Program, files: Sequence[FileResult]) -> Ended:
    """Run a program with the new text of `files` in place of what is on disk."""
    folder = Path(tempfile.mkdtemp(prefix="gbfix-"))
    try:
        _fill(folder, files)
        code = _run(program, folder)
        return Ended(code, _told(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path, files: Sequence[FileResult]) -> None:
    own = Path(__file__).parent
    shutil.copyfile(own / "hook.py", folder / "sitecustomize.py")
    shutil.copyfile(own / "launch.py", folder / "launch.py")
    shutil.copyfile(Path(gbfix.dynamo.__path__[0]) / "counting.py", folder / "counting.py")
    entries: dict[str, dict[str, Any]] = {}
    for file in files:
        if not file.changed:
            continue
        stat = file.path.stat()
        entries[str(file.path.resolve())] = {
            "stat": [stat.st_size, stat.st_mtime_ns],
            "text": file.before.encode(file.after).decode("latin-1"),
        }
    (folder / "overlay.json").write_text(json.dumps(entries), encoding="utf-8")


def _run(program: Program, folder: Path) -> int:
    command = [sys.executable]
    if program.script is not None:
        command += [str(folder / "launch.py"), str(program.script)]
    else:
        command += ["-m", str(program.module)]
    given = os.environ.get("PYTHONPATH")
    path = f"{folder}{os.pathsep}{given}" if given else str(folder)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    child = subprocess.Popen([*command, *program.arguments], env={**os.environ, "PYTHONPATH": path})
    with _forwarding(child):
        return child.wait()


@contextlib.contextmanager
def _forwarding(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass on what ends a program; an interrupt from the terminal reaches the program by itself."""

    def forward(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    def leave(number: int, frame: FrameType | None) -> None: ...

    handlers: dict[int, Any] = {signal.SIGTERM: forward, signal.SIGINT: leave}
    if hasattr(signal, "SIGHUP"):
        handlers[signal.SIGHUP] = forward
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _told(folder: Path) -> Told:
    """Read what all processes of the program left behind."""
    loaded: set[Path] = set()
    breaks: Counter[Left] = Counter()
    graphs: int | None = None
    counted = True
    for path in sorted(folder.glob("told-*.jsonl")):
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(text)
            except ValueError:  # cut off when the process was killed
                continue
            if "loaded" in record:
                loaded.add(Path(record["loaded"]))
            elif "break" in record:
                stack = tuple((str(name), int(line)) for name, line in record["stack"])
                breaks[Left(record["registry"], record["break"], stack)] += 1
            elif "graphs" in record:
                graphs = (graphs or 0) + int(record["graphs"])
            else:
                counted = False
    return Told(frozenset(loaded), breaks, graphs, counted)
