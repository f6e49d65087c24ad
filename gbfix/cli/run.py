"""`gbfix run`: run a program with the fixes applied in memory; nothing is written.

It turns options into rewritten text, hands the program its streams, and sums up on standard error.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gbfix.cli import options
from gbfix.cli.failures import say
from gbfix.cli.options import Request
from gbfix.cli.running import run as run_engine
from gbfix.cli.running import say_errors
from gbfix.errors import UserError

if TYPE_CHECKING:
    from gbfix.findings import RunResult
    from gbfix.overlay.plan import Program
    from gbfix.overlay.summary import Before

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROGRAM",
        help="A script, or `-m` and a module, and its arguments.",
        show_default=False,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH|MODULE",
        help="Rewrite only this file, folder, package or module, installed ones included.",
    ),
]
WritePatch = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Save the fixes as a patch for `git apply`."),
]

TraceOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A trace of the original program, for the figures before."),
]

CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def run(
    words: Words = None,
    only: Only = None,
    write_patch: WritePatch = None,
    trace: TraceOption = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    exclude: options.Exclude = None,
    safe_only: options.SafeOnly = False,
    unsafe: options.Unsafe = False,
    region: options.RegionOption = None,
    branch: options.BranchOption = None,
    check_style: options.CheckOption = None,
    respect_gitignore: options.Gitignore = None,
) -> None:
    """Run a program with the fixes applied in memory; no file is written.

    Exits as the program does, with 2 if there is no program to run.
    """
    from gbfix.overlay.plan import program, project_root, resolve

    asked = program(words or ())
    places = [resolve(name) for name in only or ()]
    request = options.request(
        [places[0] if places else project_root(asked.start)],
        None,
        select=select,
        ignore=ignore,
        exclude=exclude,
        safe_only=safe_only,
        unsafe=unsafe,
        region=region,
        branch=branch,
        check_style=check_style,
        respect_gitignore=respect_gitignore,
    )
    before = _before(trace) if trace else None
    result = _rewritten(request, asked, places)
    say_errors(result)
    if write_patch is not None:
        result = _write_patch(result, write_patch)
    raise typer.Exit(_run(asked, result, before))


def _rewritten(request: Request, asked: Program, places: list[Path]) -> RunResult:
    """What the engine makes of the program's own code or, with `--only`, of what is named.

    A place in the program's project is judged as a part of it; any other is a project of its own.
    """
    from gbfix.overlay.plan import joined, limited, project_root, within

    root = project_root(asked.start)
    if not places:
        return run_engine(replace(request, paths=(root,)), rewrite=True)
    inside = [place for place in places if within(place, [root]) and not _is_installed(place)]
    results: list[RunResult] = []
    if inside:
        whole = run_engine(replace(request, paths=(root, *inside)), rewrite=True)
        results.append(limited(whole, inside))
    results += [
        run_engine(replace(request, paths=(place,)), rewrite=True)
        for place in places
        if place not in inside
    ]
    return joined(results)


def _is_installed(place: Path) -> bool:
    return "site-packages" in place.resolve().parts


def _write_patch(result: RunResult, patch: Path) -> RunResult:
    from gbfix.delivery import make_diffs
    from gbfix.source.diffing import apply_command

    result, diffs = make_diffs(result, Path.cwd())
    try:
        patch.write_bytes(diffs.joined())
    except OSError as error:
        raise UserError(f"{patch}: cannot be written: {error.strerror}.") from None
    if diffs.by_file and diffs.root.resolve() != Path.cwd().resolve():
        command = f"{apply_command(diffs.root)} {patch.resolve()}"
        say(f"the paths in {patch} are relative to {diffs.root}: `{command}` applies it there.")
    return result


def _before(traces: list[Path]) -> Before:
    from gbfix.overlay.summary import Before
    from gbfix.trace.reading import read_all

    breaks = read_all(traces).breaks
    places = {(one.stack[-1].file, one.stack[-1].line) for one in breaks if one.stack}
    return Before(sum(one.times for one in breaks), len(places))


def _run(asked: Program, result: RunResult, before: Before | None) -> int:
    """Run, sum up, and end as the program did."""
    from gbfix.overlay.running import run_program
    from gbfix.overlay.summary import summary

    ended = run_program(asked, result.files)
    for sentence in summary(result, ended.told, before):
        say(sentence)
    if ended.code >= 0:
        return ended.code
    sys.stderr.flush()
    number = signal.Signals(-ended.code)
    if number not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 - ended.code
