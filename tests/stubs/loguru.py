"""Stands in for loguru: one `logger` object whose methods format with `str.format`."""

from __future__ import annotations

import sys
from typing import Any


class Logger:
    """Writes `LEVEL message` to standard error."""

    def _log(self, level: str, message: str, *args: Any) -> None:
        print(level, message.format(*args) if args else message, file=sys.stderr)

    def debug(self, message: str, *args: Any) -> None:
        self._log("DEBUG", message, *args)

    def info(self, message: str, *args: Any) -> None:
        self._log("INFO", message, *args)

    def success(self, message: str, *args: Any) -> None:
        self._log("SUCCESS", message, *args)

    def warning(self, message: str, *args: Any) -> None:
        self._log("WARNING", message, *args)

    def error(self, message: str, *args: Any) -> None:
        self._log("ERROR", message, *args)


logger = Logger()
