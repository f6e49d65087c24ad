"""`gbfix verify`: hold what gbfix would write, or a file that is given, against the original.

It turns options into targets and verdicts into output; user code runs in worker processes only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gbfix.cli import options
from gbfix.cli.failures import say
from gbfix.cli.options import OutputFormat, Request
from gbfix.cli.progress import verifying
from gbfix.cli.running import run, say_errors
from gbfix.cli.verification import (
    BackendOption,
    DeviceOption,
    DtypeOption,
    Init,
    InputsFrom,
    MemoryLimit,
    Running,
    TimeLimit,
    verify_options,
)
from gbfix.dynamo.installed import require_torch
from gbfix.errors import UserError
from gbfix.settings import Region

if TYPE_CHECKING:
    from gbfix.verify.options import Options
    from gbfix.verify.project import Pair
    from gbfix.verify.recipes import Inputs
    from gbfix.verify.verdict import Verdict


Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET...",
        help="path.py, path.py:function, path.py:Class or package.module:Class.",
    ),
]
Against = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The rewritten file, if not what gbfix would write."),
]
TraceFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Verify what `apply --trace` writes, with the inputs recorded in this trace.",
    ),
]
Time = Annotated[
    bool,
    typer.Option("--time", help="Measure the latency of first and later calls as well."),
]
ReproduceIn = Annotated[
    Path | None,
    typer.Option(
        "--reproduce",
        metavar="DIR",
        help="Write a script for each target that is different, which shows it by the smallest input.",
    ),
]


@dataclass(frozen=True)
class _Asked:
    """A file, and the name in it or None for all that was rewritten."""

    path: Path
    name: str | None


def verify(
    targets: Targets,
    against: Against = None,
    init: Init = None,
    inputs: InputsFrom = None,
    trace: TraceFiles = None,
    backend: BackendOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    time: Time = False,
    reproduce: ReproduceIn = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    safe_only: options.SafeOnly = False,
    unsafe: options.Unsafe = False,
    config: options.ConfigOption = None,
    region: options.RegionOption = None,
    branch: options.BranchOption = None,
    check_style: options.CheckOption = None,
    output_format: options.Format = OutputFormat.TEXT,
) -> None:
    """Run original and rewritten code, eager and compiled, and say whether they do the same.

    Exits with 0 if everything asked for is verified, 1 if not, 2 on errors.
    """
    require_torch()
    asked = [_asked(text) for text in targets]
    if against is not None and (len(asked) != 1 or asked[0].name is None):
        raise UserError("`--against` needs one target, with the name of a function or class.")
    if init is not None and (len(asked) != 1 or asked[0].name is None):
        raise UserError("`--init` needs one target, with the name of a function or class.")
    if inputs is not None and trace:
        raise UserError("`--inputs` and `--trace` both say where inputs come from.")
    request = options.request(
        [asked[0].path],
        None,
        select=select,
        ignore=ignore,
        exclude=None,
        safe_only=safe_only,
        unsafe=unsafe,
        config=config,
        region=region,
        branch=branch,
        check_style=check_style,
        respect_gitignore=None,
    )
    running = Running(backend, device, dtype, time_limit, memory_limit)
    wanted = replace(verify_options(request.settings, running), time=time)
    pairs: list[Pair] = []
    failed = False
    for one in asked:
        found, errors = _pairs(one, request, against, init, trace or ())
        pairs += found
        failed = failed or errors
    if failed and not pairs and output_format is OutputFormat.TEXT:
        raise typer.Exit(2)  # the error says all
    verdicts = _verdicts(pairs, inputs, wanted, trace or ())
    if reproduce is not None:
        verdicts = _with_scripts(verdicts, reproduce)
    _print(verdicts, output_format)
    from gbfix.verify.verdict import all_verified

    raise typer.Exit(2 if failed else int(not all_verified(verdicts)))


def _asked(text: str) -> _Asked:
    from gbfix.verify.project import file_of_module
    from gbfix.verify.targets import parse

    path, module, name = parse(text)
    return _Asked(path if path is not None else file_of_module(module), name or None)


def _pairs(
    asked: _Asked,
    request: Request,
    against: Path | None,
    init: str | None,
    trace: Sequence[Path] = (),
) -> tuple[list[Pair], bool]:
    """The pairs of one target, and whether there were errors."""
    from gbfix.verify.project import check_name, fixed_names, pairs

    request = replace(request, paths=(asked.path,))
    result = run(request, rewrite=against is None, trace=trace)
    fixed = [name for file in result.files for name in fixed_names(file)]
    if asked.name is not None and asked.name.partition(".")[0] not in fixed:
        # Who asks for a function means it to be compiled, whatever else the project compiles.
        settings = replace(request.settings, region=Region.ALL)
        result = run(replace(request, settings=settings), rewrite=against is None, trace=trace)
    say_errors(result)
    if result.errors or not result.files:
        return [], True
    (file,) = result.files
    if against is not None:
        file = replace(file, after=_text(against))
        result = replace(result, files=(file,))
    if asked.name is not None:
        check_name(file, asked.name)
    found = pairs(result, file, None if asked.name is None else [asked.name], init=init)
    if not found:
        say(f"{asked.path}: there is nothing to verify, since nothing is rewritten in it.")
    return found, False


def _text(path: Path) -> str:
    from gbfix.source.text import SourceError, SourceFile

    try:
        return SourceFile.decode(path, path.read_bytes()).text
    except (OSError, SourceError) as error:
        raise UserError(f"{path}: {error}") from error


def _verdicts(
    pairs: list[Pair], inputs: str | None, wanted: Options, trace: Sequence[Path] = ()
) -> list[Verdict]:
    from gbfix.verify.applying import verify_pair
    from gbfix.verify.recipes import Inputs
    from gbfix.verify.worker import Workers

    given: Inputs | None = Inputs(factory=inputs) if inputs is not None else None
    verdicts: list[Verdict] = []
    titles = [pair.original.target.title for pair in pairs]
    with Workers() as workers, verifying(titles) as begin:
        for title, pair in zip(titles, pairs, strict=True):
            begin(title)
            prepared = as_recorded(pair, trace) if trace else [(pair, given)]
            verdicts.append(verify_pair(workers, prepared, wanted))
    return verdicts


def as_recorded(pair: Pair, trace: Sequence[Path]) -> Sequence[tuple[Pair, Inputs | None]]:
    """A pair as it was run when it was recorded; as it is, with a sentence, if it was not."""
    from gbfix.verify.recorded import recorded_pairs

    found = recorded_pairs(pair, trace)
    if found:
        return found
    say(f"{pair.original.target.title}: no inputs were recorded for it, so they are generated.")
    return [(pair, None)]


def _with_scripts(verdicts: list[Verdict], folder: Path) -> list[Verdict]:
    """The verdicts, once their scripts are written to a folder."""
    written: list[Verdict] = []
    for verdict in verdicts:
        found = verdict.reproduction
        if found is not None:
            file, _, name = verdict.target.rpartition(":")
            path = folder / f"{Path(file).stem}_{name.replace('.', '_')}.py"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                path.write_text(found.script, encoding="utf-8")
            except OSError as error:
                raise UserError(f"{path}: {error.strerror}") from error
            verdict = replace(verdict, reproduction=replace(found, path=str(path)))
        written.append(verdict)
    return written


def _print(verdicts: list[Verdict], output_format: OutputFormat) -> None:
    from gbfix.verify.report import document, lines

    if output_format is OutputFormat.JSON:
        sys.stdout.write(document(verdicts))
        return
    from gbfix.report.spans import print_lines

    print_lines(lines(verdicts), sys.stdout)
