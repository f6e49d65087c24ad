"""Turns every failure of a command into one sentence and an exit code.

No traceback reaches a user unless the environment variable `GBFIX_TRACEBACK` asks for it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable

from gbfix.errors import UserError


def say(sentence: str) -> None:
    """Print a sentence for the user to standard error."""
    print(f"gbfix: {sentence}", file=sys.stderr)


def guarded(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; never raises for a mistake of the user."""
    for stream in (sys.stdout, sys.stderr):
        # File names and source need not fit the terminal's encoding.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    # What Python thinks of the style of the user's source is not what was asked for.
    warnings.simplefilter("ignore", SyntaxWarning)
    try:
        code = command()
        if not sys.stdout.closed:  # a language server closes it when it ends
            sys.stdout.flush()
        return code
    except UserError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        say("interrupted; every file is either as it was or rewritten as a whole.")
        return 130
    except BrokenPipeError:
        # The reader has gone; Python would complain again when it flushes on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except Exception as error:
        if os.environ.get("GBFIX_TRACEBACK"):
            raise
        say(
            f"internal error, please report it: {type(error).__name__}: {error} "
            "(set GBFIX_TRACEBACK=1 to see where)."
        )
        return 2
