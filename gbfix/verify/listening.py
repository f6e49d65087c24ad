"""Keeps what code prints, logs and warns while it runs, up to a limit.

It knows nothing of what is run.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

from gbfix.dynamo.control import compiler_folder, without_notes
from gbfix.verify.snapshot import Effects

_MOST_OUTPUT = 1 << 20
# What these log while they compile is not what the user's code logs.
_COMPILERS = frozenset({"torch", "filelock", "triton"})


class Stopped(BaseException):
    """A call is given up; no `Exception`, so that nobody takes it for the code's own."""


class TooMuchOutput(Stopped):
    """The code prints without end."""


class _Capped(io.StringIO):
    def write(self, text: str) -> int:
        if self.tell() > _MOST_OUTPUT:
            raise TooMuchOutput(f"it printed more than {_MOST_OUTPUT} characters in one call")
        return super().write(text)

    def close(self) -> None:
        """Stay open, whatever the code does to its standard streams."""


def set_levels() -> None:
    """Have everything logged but what torch says of itself.

    To set a level, every logger of the process is looked at, so a server does it for its children.
    """
    for logger, level in (
        (logging.getLogger(), logging.DEBUG),
        (logging.getLogger("torch"), logging.ERROR),
    ):
        if logger.level != level:
            logger.setLevel(level)


class Listener(logging.Handler):
    """Keeps what is printed, logged and warned; the compiler's own is left out."""

    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[str] = []
        self.effects = Effects()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.split(".")[0] not in _COMPILERS:
            if len(self.records) > _MOST_OUTPUT // 64:
                raise TooMuchOutput("it logged without end in one call")
            self.records.append(f"{record.levelname} {record.name}: {record.getMessage()}")

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to everything in the block.

        Levels are left as `set_levels` sets them: a worker does nothing but such calls.
        """
        out, err = _Capped(), _Capped()
        root = logging.getLogger()
        root.addHandler(self)
        set_levels()
        skipped = compiler_folder()
        try:
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
                without_notes(),
                warnings.catch_warnings(record=True) as warned,
            ):
                warnings.simplefilter("always")
                yield
        finally:
            root.removeHandler(self)
            self.effects = Effects(
                tuple(out.getvalue().splitlines()),
                tuple(err.getvalue().splitlines()),
                tuple(self.records),
                tuple(
                    f"{warning.category.__name__}: {warning.message}"
                    for warning in warned or ()
                    if not warning.filename.startswith(skipped)
                ),
            )
