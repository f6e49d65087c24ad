"""The journal of a run: what is recorded, appended event by event, so that a killed program keeps it.

Each process appends to a file of its own in one folder, a JSON line an event. The file is opened for
every event and never kept open: a program that closes or counts its descriptors finds none of ours, and
a forked child simply starts its own file. Only the standard library is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

SUFFIX = ".jsonl"


def folder_of(path: Path) -> Path:
    """The folder of the journals of a trace that is to be written to `path`."""
    return path.with_name(path.name + ".journal")


def tensors_of(path: Path) -> Path:
    """The folder of the argument values of a trace, `trace.tensors` beside `trace.json`."""
    return path.with_suffix(".tensors")


class Journal:
    """Appends events to this process's file. It never raises: a full disk must not end the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pid = -1
        self._file = ""
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def write(self, event: str, value: Any) -> None:
        """Append one event."""
        with contextlib.suppress(Exception):
            line = json.dumps({"event": event, "value": value}, default=repr) + "\n"
            self._append(line.encode())

    def _append(self, line: bytes) -> None:
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self.folder.mkdir(parents=True, exist_ok=True)
                self._file = str(self.folder / f"{self._pid}-{time.time_ns():x}{SUFFIX}")
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            descriptor = os.open(self._file, flags, 0o644)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)

    def _forked(self) -> None:
        # Another thread of the parent may have held the lock when it forked.
        self._lock = threading.Lock()
