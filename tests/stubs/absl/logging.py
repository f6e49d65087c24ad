"""Stands in for `absl.logging`."""

from __future__ import annotations

import logging as _logging
from typing import Any

_logger = _logging.getLogger("absl")


def info(message: str, *args: Any) -> None:
    """Log at level INFO."""
    _logger.info(message, *args)


def warning(message: str, *args: Any) -> None:
    """Log at level WARNING."""
    _logger.warning(message, *args)


def vlog(level: int, message: str, *args: Any) -> None:
    """Log at a verbosity level."""
    _logger.debug(message, *args)


def log_first_n(level: int, message: str, n: int, *args: Any) -> None:
    """Log the first n times; here always."""
    _logger.log(level, message, *args)
