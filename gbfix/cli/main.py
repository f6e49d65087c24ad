"""The `gbfix` command: registers the commands and turns mistakes of usage into one sentence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from gbfix import __version__
from gbfix.cli import run as run_command
from gbfix.cli.apply import apply
from gbfix.cli.check import check
from gbfix.cli.doctor import doctor
from gbfix.cli.examples import SUMMARIES, epilog
from gbfix.cli.explain import explain
from gbfix.cli.failures import guarded, say
from gbfix.cli.help import Command
from gbfix.cli.migrate import migrate
from gbfix.cli.quickfix import quickfix
from gbfix.cli.rules import rules
from gbfix.cli.server import server
from gbfix.cli.trace import ProgramCommand, trace
from gbfix.cli.verify import verify

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_CONTEXTS: dict[str, dict[str, bool]] = {
    # `-:12` is a place on standard input, not an option.
    "quickfix": {"ignore_unknown_options": True},
    "run": run_command.CONTEXT,
    "trace": {"allow_interspersed_args": False, "ignore_unknown_options": False},
}
for _command in (
    check,
    apply,
    quickfix,
    server,
    verify,
    migrate,
    run_command.run,
    trace,
    rules,
    explain,
    doctor,
):
    _name = _command.__name__
    app.command(
        cls=ProgramCommand if _name == "trace" else Command,
        context_settings=_CONTEXTS.get(_name),
        short_help=SUMMARIES[_name],
    )(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"gbfix {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True, epilog=epilog(""))
def _gbfix(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Find torch.compile graph breaks in PyTorch source and rewrite them.

    Code that runs without torch.compile does what it did. Settings are read from [tool.gbfix] in the
    nearest pyproject.toml; options win. `gbfix COMMAND --help` says more of a command.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; never raises for a mistake of the user."""
    return guarded(lambda: _run(None if arguments is None else list(arguments)))


def _run(arguments: list[str] | None) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(arguments, prog_name="gbfix", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        # Typer carries its own copy of click since 0.29, so the class differs between versions.
        say(format_message().replace("Value error, ", ""))  # a word of the library that checks
        return int(getattr(error, "exit_code", 2))
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
