"""`gbfix apply`: make the fixes, or show them as a diff.

What a program may read from standard output (a diff, rewritten source, JSON) stands there alone;
the report for people then goes to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from gbfix.cli import options, verification
from gbfix.cli.failures import say
from gbfix.cli.options import OutputFormat, Request
from gbfix.cli.progress import verifying
from gbfix.cli.running import run, say_errors
from gbfix.cli.verification import Running
from gbfix.dynamo.installed import require_torch
from gbfix.errors import UserError
from gbfix.findings import FileResult, RunResult
from gbfix.settings import Settings

if TYPE_CHECKING:
    from gbfix.verify.project import Pair
    from gbfix.verify.recipes import Inputs

Diff = Annotated[bool, typer.Option("--diff", help="Print a diff for `git apply`; write nothing.")]
At = Annotated[
    str | None, typer.Option(metavar="LINE[:COL]", help="Only fix the site at this place.")
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Run the code, and only keep fixes that are verified.")
]
Tune = Annotated[
    bool,
    typer.Option(
        "--tune",
        help="Try the fixes of each site, and keep the fastest that is verified; includes --verify.",
    ),
]


def apply(
    paths: options.Paths = None,
    diff: Diff = False,
    at: At = None,
    verify: Verify = False,
    tune: Tune = False,
    select: options.Select = None,
    ignore: options.Ignore = None,
    exclude: options.Exclude = None,
    safe_only: options.SafeOnly = False,
    unsafe: options.Unsafe = False,
    config: options.ConfigOption = None,
    region: options.RegionOption = None,
    branch: options.BranchOption = None,
    check_style: options.CheckOption = None,
    side_effects: options.SideEffectsOption = None,
    fix_with: options.FixWith = None,
    output_format: options.Format = OutputFormat.TEXT,
    jobs: options.Jobs = None,
    stdin_filename: options.StdinFilename = None,
    respect_gitignore: options.Gitignore = None,
    target_torch: options.TargetTorch = None,
    trace: options.TraceFiles = None,
    backend: verification.BackendOption = None,
    device: verification.DeviceOption = None,
    dtype: verification.DtypeOption = None,
    time_limit: verification.TimeLimit = None,
    memory_limit: verification.MemoryLimit = None,
    init: verification.Init = None,
    inputs: verification.InputsFrom = None,
) -> None:
    """Rewrite the places where torch.compile would break the graph.

    Exits with 0, with 1 if --diff prints a diff, with 2 on errors.
    """
    request = options.request(
        paths,
        stdin_filename,
        select=select,
        ignore=ignore,
        exclude=exclude,
        safe_only=safe_only,
        unsafe=unsafe,
        config=config,
        region=region,
        branch=branch,
        check_style=check_style,
        side_effects=side_effects,
        respect_gitignore=respect_gitignore,
        target_torch=target_torch,
        fix_with=fix_with,
    )
    running = Running(backend, device, dtype, time_limit, memory_limit, init, inputs)
    if running != Running() and not (verify or tune):
        raise UserError("how code is run (`--backend` and so on) is only asked with `--verify`.")
    if verify or tune:
        if request.from_stdin:
            option = "--tune" if tune else "--verify"
            raise UserError(f"`{option}` needs files, not standard input.")
        require_torch()
        request = replace(request, settings=replace(request.settings, verifying=True))
    place = options.parse_at(at)
    if place and not request.from_stdin and [p.is_dir() for p in request.paths] != [False]:
        raise UserError("`--at` needs one file.")
    result = run(request, rewrite=True, at=place, trace=trace or (), jobs=options.processes(jobs))
    if place and not result.errors and not _met(result, place[0]):
        raise UserError(f"{request.stdin_name or request.paths[0]}:{at}: no break site here.")
    as_json = output_format is OutputFormat.JSON
    if verify or tune:
        result = _only_verified(request, result, place, trace or (), running, tune=tune)
    if diff:
        code = _show_diff(request, result, as_json)
    elif request.from_stdin:
        code = _print_source(request, result, as_json)
    else:
        code = _write(request, result, as_json)
    raise typer.Exit(code)


def _only_verified(
    request: Request,
    result: RunResult,
    place: tuple[int, int | None] | None,
    trace: Sequence[Path],
    running: Running,
    *,
    tune: bool,
) -> RunResult:
    """Run what was rewritten, tell on standard error how it went, and drop what did not pass."""
    from gbfix.cli.tuning import tune as tuned
    from gbfix.cli.verify import as_recorded
    from gbfix.engine import run as run_engine
    from gbfix.report.spans import print_lines
    from gbfix.verify.applying import keep_verified
    from gbfix.verify.project import fixed_names
    from gbfix.verify.recipes import Inputs
    from gbfix.verify.report import lines
    from gbfix.verify.worker import Workers

    if running.init is not None or running.inputs is not None:
        _check_single(result)
    sources = [file.before for file in result.files]

    def again(settings: Settings) -> RunResult:
        if trace:
            changed = replace(request, settings=settings)
            return run(changed, rewrite=True, at=place, trace=trace)
        return run_engine(sources, settings, rewrite=True, at=place)

    def rerun(file: FileResult, left_out: tuple[str, ...]) -> FileResult:
        settings = replace(request.settings, ignore=(*request.settings.ignore, *left_out))
        return next((other for other in again(settings).files if other.path == file.path), file)

    def prepare(pair: Pair) -> Sequence[tuple[Pair, Inputs | None]]:
        begin(_title(pair.path, pair.name))
        if running.inputs is None and trace:
            return as_recorded(pair, trace)
        given = Inputs(factory=running.inputs) if running.inputs is not None else None
        return [(pair.built_by(running.init), given)]

    titles = [_title(file.path, name) for file in result.files for name in fixed_names(file)]
    with Workers() as workers, verifying(titles) as begin:
        if tune:
            result, verdicts = tuned(
                workers, request.settings, result, again, rerun, prepare, running
            )
        else:
            wanted = verification.verify_options(request.settings, running)
            result, verdicts = keep_verified(workers, result, wanted, rerun, prepare)
    print_lines(lines(verdicts), sys.stderr)
    return result


def _title(path: Path, name: str) -> str:
    return f"{path}:{name}"


def _check_single(result: RunResult) -> None:
    """See that there is one function or class to which `--init` and `--inputs` can belong."""
    from gbfix.verify.project import fixed_names

    names = [name for file in result.files for name in fixed_names(file)]
    if len(names) > 1:
        raise UserError(
            f"`--init` and `--inputs` need a single function or class that is rewritten, and "
            f"{', '.join(map(str, names[:3]))}{', ...' if len(names) > 3 else ''} are: use `--at`."
        )


def _met(result: RunResult, line: int) -> bool:
    """Whether a run for one line found a site there, fixed or not."""
    findings = [finding for file in result.files for finding in file.findings]
    return any(finding.applied or finding.line <= line <= finding.end_line for finding in findings)


def _show_diff(request: Request, result: RunResult, as_json: bool) -> int:
    from gbfix.delivery import make_diffs
    from gbfix.source.diffing import apply_command

    cwd = Path.cwd()
    result, diffs = make_diffs(result, cwd)
    patch = diffs.joined()
    if as_json:
        _print_json(result, diffs=diffs.by_file)
    else:
        _print_bytes(patch)
        _report(request, result, sys.stderr, written=False)
    if not all(path.resolve().is_relative_to(cwd.resolve()) for path in diffs.by_file):
        say(f"some paths are outside the current folder: use `{apply_command(diffs.root)}`.")
    say_errors(result)
    return 2 if result.errors else int(bool(patch))


def _print_source(request: Request, result: RunResult, as_json: bool) -> int:
    from gbfix.delivery import make_sources

    result, sources = make_sources(result)
    if as_json:
        _print_json(result, with_source=True)
    else:
        _print_bytes(sources)
        _report(request, result, sys.stderr, written=True)
    say_errors(result)
    return 2 if result.errors else 0


def _write(request: Request, result: RunResult, as_json: bool) -> int:
    from gbfix.delivery import write_files

    result = write_files(result)
    if as_json:
        _print_json(result, written=True)
    else:
        _report(request, result, sys.stdout, written=True)
    say_errors(result)
    return 2 if result.errors else 0


def _report(request: Request, result: RunResult, stream: TextIO, *, written: bool) -> None:
    from gbfix.report.spans import print_lines
    from gbfix.report.text import apply_lines

    lines = apply_lines(
        result, written=written, safety=request.settings.safety, excerpts=stream.isatty()
    )
    print_lines(lines, stream)


def _print_json(
    result: RunResult,
    *,
    diffs: dict[Path, bytes] | None = None,
    written: bool = False,
    with_source: bool = False,
) -> None:
    from gbfix.report.json import document

    text = document("apply", result, diffs=diffs, written=written, with_source=with_source)
    sys.stdout.write(text)


def _print_bytes(content: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
