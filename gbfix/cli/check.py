"""`gbfix check`: list break sites. It turns options into a run and a result into output."""

from __future__ import annotations

import sys

import typer

from gbfix.cli import options
from gbfix.cli.options import OutputFormat
from gbfix.cli.running import run, say_errors


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
    output_format: options.Format = OutputFormat.TEXT,
    stdin_filename: options.StdinFilename = None,
    respect_gitignore: options.Gitignore = None,
    target_torch: options.TargetTorch = None,
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
        respect_gitignore=respect_gitignore,
        target_torch=target_torch,
    )
    result = run(request, rewrite=False)
    if output_format is OutputFormat.JSON:
        from gbfix.report.json import document

        sys.stdout.write(document("check", result))
    else:
        from gbfix.report.spans import print_lines
        from gbfix.report.text import check_lines

        print_lines(check_lines(result, excerpts=sys.stdout.isatty()), sys.stdout)
    say_errors(result)
    found = any(file.findings for file in result.files)
    raise typer.Exit(2 if result.errors else int(found))
