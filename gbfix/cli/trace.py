"""`gbfix trace`: run a program and record where its graphs break, or tell what was recorded.

It turns options into a run and a trace into output. What the program prints is its own: the report
goes to standard error, and the exit code is the program's.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from gbfix.cli.failures import say
from gbfix.cli.help import Command
from gbfix.cli.options import OutputFormat
from gbfix.errors import UserError

if TYPE_CHECKING:
    from gbfix.trace.model import Trace

DEFAULT = Path(".gbfix/trace.json")

Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="PROGRAM [ARGS]...", help="A script or program, and its arguments."),
]
Module = Annotated[
    str | None, typer.Option("-m", metavar="MODULE", help="Run a module, as `python -m` does.")
]
Pytest = Annotated[bool, typer.Option("--pytest", help="Run pytest with the arguments.")]
Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the trace.")
]
Append = Annotated[bool, typer.Option("--append", help="Add to a trace that is there already.")]
Compile = Annotated[
    list[str] | None,
    typer.Option(
        "--compile",
        metavar="MODULE:NAME",
        help="Compile the instances of a class, or a function, of a program that does not "
        "(`__main__` is the script).",
    ),
]
Stance = Annotated[
    str | None,
    typer.Option("--stance", metavar="STANCE", help="Run under this stance of torch.compiler."),
]
NoInputs = Annotated[bool, typer.Option("--no-inputs", help="Keep no values of arguments.")]
MaxInputs = Annotated[
    int,
    typer.Option(
        "--max-inputs", min=0, metavar="N", help="How many calls of an entry to sample at most."
    ),
]
NoTriage = Annotated[
    bool, typer.Option("--no-triage", help="Do not repeat failing calls in eager.")
]
Report = Annotated[
    list[Path] | None,
    typer.Option(
        "--read",
        metavar="FILE",
        help="Run nothing: tell what is in a trace, a TORCH_TRACE folder or a TORCH_LOGS text. "
        "Of several, or with -o, they are merged.",
    ),
]
Format = Annotated[OutputFormat, typer.Option("--output-format", help="How to print the report.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print no report.")]


def trace(
    program: Arguments = None,
    module: Module = None,
    pytest: Pytest = False,
    output: Output = DEFAULT,
    append: Append = False,
    compile: Compile = None,
    stance: Stance = None,
    no_inputs: NoInputs = False,
    max_inputs: MaxInputs = 4,
    no_triage: NoTriage = False,
    read: Report = None,
    output_format: Format = OutputFormat.TEXT,
    quiet: Quiet = False,
) -> None:
    """Run a program as it is, and record every graph break with its place, reason and inputs.

    Exits as the program does; with 2 if it could not be started.
    """
    if read:
        if program or module or pytest:
            raise UserError("`--read` runs nothing, so no program can be given with it.")
        _tell(_merged(read, output if output != DEFAULT else None), output_format, sys.stdout)
        return
    from gbfix.trace import launch, store
    from gbfix.trace.journal import folder_of, tensors_of
    from gbfix.trace.starting import Wanted

    if module is not None and pytest:
        raise UserError("`-m` and `--pytest` contradict each other.")
    if stance is not None:
        launch.check_stance(stance)
    targets = tuple(compile or ())
    for target in targets:
        _check_target(target)
    command = launch.python_command(program or (), module=module, pytest=pytest)
    path = output.absolute()
    if path.suffix != ".json":
        raise UserError(f"`-o {output}`: the name of a trace ends with `.json`.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if output == DEFAULT:
            _keep_from_git(path.parent)
        if not os.access(path.parent, os.W_OK):  # better now than when the program has run
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not append:
            store.clear(path)
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror or error}") from error
    wanted = Wanted(
        journal=str(folder_of(path)),
        tensors=None if no_inputs else str(tensors_of(path)),
        samples=max_inputs,
        triage=not no_triage,
        stance=stance,
        compile=targets,
    )
    code = launch.run(command, wanted)
    _finish(path, output, output_format, quiet=quiet)
    raise typer.Exit(launch.end_as(code))


def _keep_from_git(folder: Path) -> None:
    """Let git ignore the folder that is gbfix's own."""
    ignored = folder / ".gitignore"
    if not ignored.exists():
        ignored.write_text("*\n", encoding="utf-8")


def _finish(path: Path, output: Path, output_format: OutputFormat, *, quiet: bool) -> None:
    """Fold the journals into the trace and report; nothing of this changes the exit code."""
    from gbfix.trace import store

    try:
        found = store.compact(path)
    except (OSError, UserError) as error:
        say(f"{output}: the trace stays in its journals: {error}")
        return
    if not quiet:
        try:
            _tell(found, output_format, sys.stderr)
        except UserError as error:
            say(str(error))
        say(f"the trace is in {output}")


def _merged(paths: list[Path], output: Path | None) -> Trace:
    from gbfix.trace import store
    from gbfix.trace.reading import read_all

    found = read_all(paths)
    if output is not None:
        try:
            store.save_merged(paths, found, output)
        except OSError as error:
            raise UserError(f"{output}: cannot be written: {error.strerror or error}") from error
    return found


def _check_target(text: str) -> None:
    module, colon, name = text.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise UserError(f"`--compile {text}` is not MODULE:CLASS or MODULE:FUNCTION.")


def _tell(found: Trace, output_format: OutputFormat, stream: TextIO) -> None:
    from gbfix.cli.tracing import of_program
    from gbfix.trace.report import document, lines

    traced = of_program(found)
    if output_format is OutputFormat.JSON:
        stream.write(document(traced.trace, traced.joined))
        return
    from gbfix.report.spans import print_lines

    print_lines(lines(traced.trace, traced.joined), stream)


class ProgramCommand(Command):
    """A command whose arguments end where those of the program begin.

    All that follows the program, `-m MODULE` or `--pytest` is the program's, options too.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the `--` where the user may leave it out."""
        for place, word in enumerate(args):
            if word == "--":
                break
            end = place + {"-m": 2, "--pytest": 1}.get(word, 0)
            if end > place:
                args = [*args[:end], "--", *_after_dashes(args[end:])]
                break
        return list(super().parse_args(ctx, args))


def _after_dashes(args: list[str]) -> list[str]:
    return args[1:] if args[:1] == ["--"] else args
