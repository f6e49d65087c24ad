"""`gbfix check`: list break sites. It turns options into a run and a result into output."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from gbfix.cli import options
from gbfix.cli.failures import say
from gbfix.cli.running import run, say_errors, write_report
from gbfix.errors import UserError
from gbfix.findings import RunResult


class CheckFormat(str, Enum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    JSON_LINES = "json-lines"
    GITHUB = "github"
    SARIF = "sarif"


Format = Annotated[CheckFormat, typer.Option("--output-format", help="How to print findings.")]
DiffBase = Annotated[
    str | None,
    typer.Option(metavar="REV", help="Only report sites on lines changed since this revision."),
]
Baseline = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Do not report the findings that this file knows."),
]
WriteBaseline = Annotated[
    bool,
    typer.Option(
        "--write-baseline",
        help="Write the file of --baseline: all findings if there is none yet, else those left.",
    ),
]


def check(
    paths: options.Paths = None,
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
    output_format: Format = CheckFormat.TEXT,
    diff_base: DiffBase = None,
    baseline: Baseline = None,
    write_baseline: WriteBaseline = False,
    jobs: options.Jobs = None,
    no_cache: options.NoCache = False,
    cache_dir: options.CacheDir = None,
    stdin_filename: options.StdinFilename = None,
    respect_gitignore: options.Gitignore = None,
    target_torch: options.TargetTorch = None,
    trace: options.TraceFiles = None,
) -> None:
    """List the places where torch.compile would break the graph, and the fixes on offer.

    Exits with 1 if there are any, 0 if there are none, 2 on errors.
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
    )
    if write_baseline and baseline is None:
        raise UserError("`--write-baseline` needs `--baseline FILE`.")
    if diff_base is not None and (request.from_stdin or write_baseline):
        raise UserError("`--diff-base` goes neither with standard input nor `--write-baseline`.")
    result = run(
        request,
        rewrite=False,
        with_edits=output_format is CheckFormat.SARIF,
        trace=trace or (),
        jobs=options.processes(jobs),
        cache_folder=options.cache_folder(request, no_cache, cache_dir),
    )
    if baseline is not None:
        result = _against_baseline(result, baseline, write_baseline)
    if diff_base is not None:
        result = _changed_only(result, diff_base)
    _print(result, output_format)
    say_errors(result)
    found = any(file.findings for file in result.files)
    raise typer.Exit(2 if result.errors else int(found))


def _print(result: RunResult, output_format: CheckFormat) -> None:
    if output_format is CheckFormat.JSON:
        from gbfix.report.json import document

        sys.stdout.write(document("check", result))
    elif output_format is CheckFormat.SARIF:
        from gbfix.report.sarif import log

        sys.stdout.write(log(result, Path.cwd()))
    elif output_format in (CheckFormat.GITHUB, CheckFormat.JSON_LINES):
        from gbfix.report.lines import github, json_lines

        made = github(result, Path.cwd())
        lines = made if output_format is CheckFormat.GITHUB else json_lines(result)
        sys.stdout.writelines(f"{line}\n" for line in lines)
    else:
        from gbfix.report.spans import print_lines
        from gbfix.report.text import check_lines

        print_lines(check_lines(result, excerpts=sys.stdout.isatty()), sys.stdout)


def _changed_only(result: RunResult, revision: str) -> RunResult:
    """The run with only the findings that stand on changed lines."""
    from gbfix.source.changes import ChangedLines

    changed = ChangedLines(revision, Path.cwd())
    files = [
        replace(
            file,
            findings=tuple(
                f for f in file.findings if changed.touches(file.path, f.line, f.end_line)
            ),
        )
        for file in result.files
    ]
    return replace(result, files=tuple(files))


def _against_baseline(result: RunResult, path: Path, write: bool) -> RunResult:
    """The run without what its baseline knows; the baseline is written if that was asked for."""
    from gbfix.report import baseline

    if write and not path.exists():
        counts = baseline.counted(result, path)
        write_report(path, baseline.text(counts))
        return baseline.compare(result, counts, path).result
    compared = baseline.compare(result, baseline.read(path), path)
    if write:
        write_report(path, baseline.text(compared.remaining))
    elif compared.gone:
        say(f"{path}: {compared.gone} of its findings are no more; --write-baseline drops them.")
    return compared.result
