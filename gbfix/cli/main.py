"""The `gbfix` command: registers the commands and turns every failure into one sentence.

No traceback reaches a user unless the environment variable `GBFIX_TRACEBACK` asks for it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from gbfix import __version__
from gbfix.cli import run as run_command
from gbfix.cli.apply import apply
from gbfix.cli.check import check
from gbfix.cli.doctor import doctor
from gbfix.cli.examples import epilog
from gbfix.cli.explain import explain
from gbfix.cli.migrate import migrate
from gbfix.cli.quickfix import quickfix
from gbfix.cli.rules import rules
from gbfix.cli.running import say
from gbfix.cli.server import server
from gbfix.cli.trace import ProgramCommand, trace
from gbfix.cli.verify import verify
from gbfix.errors import UserError

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=epilog("check"))(check)
app.command(epilog=epilog("apply"))(apply)
# `-:12` is a place on standard input, not an option.
app.command(context_settings={"ignore_unknown_options": True}, epilog=epilog("quickfix"))(quickfix)
app.command(epilog=epilog("server"))(server)
app.command(epilog=epilog("verify"))(verify)
app.command(epilog=epilog("migrate"))(migrate)
app.command(context_settings=run_command.CONTEXT)(run_command.run)
app.command(
    cls=ProgramCommand,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
)(trace)
app.command()(rules)
app.command(epilog=epilog("explain"))(explain)
app.command()(doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"gbfix {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _gbfix(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Find torch.compile graph breaks in PyTorch source and rewrite them."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; never raises for a mistake of the user."""
    for stream in (sys.stdout, sys.stderr):
        # File names and source need not fit the terminal's encoding.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    # What Python thinks of the style of the user's source is not what was asked for.
    warnings.simplefilter("ignore", SyntaxWarning)
    try:
        command = typer.main.get_command(app)
        given = None if arguments is None else list(arguments)
        code = command.main(given, prog_name="gbfix", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UserError as error:
        say(str(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted; every file is either as it was or rewritten as a whole.")
        return 130
    except BrokenPipeError:
        # The reader has gone; Python would complain again when it flushes on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    """A usage error of the command line library, or else a failure of gbfix itself."""
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        # Typer carries its own copy of click since 0.29, so the class differs between versions.
        say(format_message())
        return int(getattr(error, "exit_code", 2))
    if os.environ.get("GBFIX_TRACEBACK"):
        raise error
    say(
        f"internal error, please report it: {type(error).__name__}: {error} "
        "(set GBFIX_TRACEBACK=1 to see where)."
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
