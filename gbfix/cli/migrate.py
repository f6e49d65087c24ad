"""`gbfix migrate`: rewrite a whole codebase, so that it can be interrupted and taken back.

Options become a migration, its plan and its verification; what these do is known elsewhere.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gbfix.cli import migration_reports, options
from gbfix.cli.failures import say
from gbfix.cli.progress import phases
from gbfix.dynamo.installed import require_torch
from gbfix.errors import UserError
from gbfix.findings import RunResult, Safety
from gbfix.settings import Settings

if TYPE_CHECKING:
    from gbfix.migrate.outcome import Outcome
    from gbfix.migrate.pools import MakePool, Pool
    from gbfix.migrate.run import Migration, Verify


class Require(str, Enum):
    """What a fix has to be to be written."""

    VERIFIED = "verified"
    SAFE = "safe"
    REVIEW = "review"


class Where(str, Enum):
    """Where code is run."""

    LOCAL = "local"
    RAY = "ray"


class CommitBy(str, Enum):
    """What gets a commit of its own."""

    PACKAGE = "package"
    DIAGNOSIS = "diagnosis"


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder to migrate.")]
VerifyOption = Annotated[
    bool,
    typer.Option("--verify/--no-verify", help="Run what can be run, original against rewritten."),
]
RequireOption = Annotated[
    Require | None,
    typer.Option(
        "--require",
        help="What is written: what was verified (the default), what is safe by its construction "
        "(the default of --no-verify), or also what asks for review.",
    ),
]
TargetsFile = Annotated[
    Path | None,
    typer.Option(
        "--targets",
        metavar="FILE",
        help="Functions and classes to run, one a line, as path.py:name or package.module:name; "
        "by default, the entries of the trace.",
    ),
]
TraceFiles = Annotated[
    list[Path] | None,
    typer.Option("--trace", metavar="FILE", help="A trace, for entries and recorded inputs."),
]
BranchName = Annotated[
    str | None,
    typer.Option("--branch", metavar="NAME", help="Commit to a new git branch."),
]
CommitByOption = Annotated[
    CommitBy | None,
    typer.Option(
        "--commit-by", help="Make one commit per package (folder) or diagnosis, with --branch."
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Also write, or undo, files that were changed.")
]
Undo = Annotated[
    bool, typer.Option("--undo", help="Give every file of the latest migration its old bytes.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="End with the plan; write nothing.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the result as JSON.")
]
ExecutorOption = Annotated[
    Where,
    typer.Option("--executor", help="Where code is run: on this machine, or on a Ray cluster."),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="ADDRESS",
        help="The cluster of `--executor ray`, as `ray.init` takes it. By default that of "
        "$RAY_ADDRESS, or else a Ray that is started on this machine.",
    ),
]


def migrate(
    folder: Folder = Path(),
    verify: VerifyOption = True,
    require: RequireOption = None,
    targets: TargetsFile = None,
    trace: TraceFiles = None,
    branch: BranchName = None,
    commit_by: CommitByOption = None,
    force: Force = False,
    undo: Undo = False,
    dry_run: DryRun = False,
    output: Output = None,
    report: migration_reports.Report = None,
    summary: migration_reports.Summary = None,
    jobs: options.Jobs = None,
    executor: ExecutorOption = Where.LOCAL,
    ray_address: RayAddress = None,
    no_cache: options.NoCache = False,
    cache_dir: options.CacheDir = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    exclude: options.Exclude = None,
    config: options.ConfigOption = None,
    region: options.RegionOption = None,
    check_style: options.CheckOption = None,
    respect_gitignore: options.Gitignore = None,
    target_torch: options.TargetTorch = None,
) -> None:
    """Rewrite a whole codebase, with a journal: interrupted, it goes on when it is run again.

    Exits with 0, with 1 if files that were to be written were left as they were, with 2 on errors.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise UserError(f"{folder} is no folder.")
    if undo:
        _undo(root, force)
        return
    if commit_by is not None and branch is None:
        raise UserError("`--commit-by` needs `--branch NAME`.")
    if require is Require.VERIFIED and not verify:
        raise UserError("`--require verified` and `--no-verify` contradict each other.")
    if targets is not None and not verify:
        raise UserError("`--targets` and `--no-verify` contradict each other.")
    if ray_address is not None and executor is not Where.RAY:
        raise UserError("`--ray-address` needs `--executor ray`.")
    if verify and not dry_run:
        require_torch(", or migrate with `--no-verify`")
    migration_reports.check_places(output, report, summary)
    needed = require or (Require.VERIFIED if verify else Require.SAFE)
    request = options.request(
        [folder],
        None,
        select=select,
        ignore=ignore,
        exclude=exclude,
        safe_only=needed is Require.SAFE,
        config=config,
        region=region,
        check_style=check_style,
        respect_gitignore=respect_gitignore,
        target_torch=target_torch,
    )
    # A migration asks for nothing less than review, whatever is configured for `apply`.
    settings = request.settings
    if needed is not Require.SAFE:
        settings = replace(
            settings, safety=Safety.REVIEW, verifying=verify and needed is Require.VERIFIED
        )
    request = replace(request, settings=settings)
    workers = options.processes(jobs)
    from gbfix.migrate import run
    from gbfix.migrate.outcome import Policy
    from gbfix.migrate.targets import read_targets

    named = read_targets(targets) if targets is not None else ()
    policy = Policy(
        needed.value,
        verify,
        named,
        tuple(map(str, trace or ())),
    )
    wanted = run.Migration(
        root,
        policy,
        repr(settings),
        force,
        branch,
        commit_by.value if commit_by is not None else None,
        dry_run,
    )
    if not dry_run:
        name = run.unfinished(root)
        if name is not None:
            say(f"migration {name} was interrupted while it was writing; it is completed.")
    outcome = run.migrate(
        wanted,
        lambda: _plan(request, workers, options.cache_folder(request, no_cache, cache_dir)),
        _verification(wanted, settings, partial(_pool, executor, ray_address, workers))
        if verify and not dry_run
        else None,
        phases,
    )
    if output is not None:
        _write(output, outcome)
    migration_reports.write(outcome, report, summary)
    _tell(outcome, folder)
    raise typer.Exit(2 if outcome.errors else int(bool(outcome.totals.not_written)))


def _plan(request: options.Request, jobs: int, cache_folder: Path | None) -> RunResult:
    """Everything rewritten in memory."""
    from gbfix.batch import rewrite
    from gbfix.cache import Cache
    from gbfix.catalogue import selection
    from gbfix.cli.running import load_files
    from gbfix.targeting import aimed

    settings = request.settings
    selection(settings.select, settings.ignore)
    settings, notices = aimed(settings)
    loaded = load_files(request)
    # Files that do not mention torch are not looked at.
    looked_at = sum("torch" in source.text for source in loaded.sources)
    with phases("Planning", looked_at) as advance:
        result = rewrite(
            loaded.sources,
            settings,
            jobs=jobs,
            cache=Cache(cache_folder) if cache_folder is not None else None,
            on_file=lambda path: advance(path.name),
        )
    errors = sorted((*loaded.errors, *result.errors), key=lambda e: (e.path, e.sentence))
    return replace(result, errors=tuple(errors), notices=(*notices, *result.notices))


def _verification(wanted: Migration, settings: Settings, pool: MakePool) -> Verify:
    from gbfix.cli.verification import verify_options
    from gbfix.migrate.verifying import Verification

    return Verification(wanted, settings, verify_options(settings), pool, phases)


def _pool(executor: Where, address: str | None, jobs: int) -> Pool:
    if executor is Where.RAY:
        from gbfix.migrate.ray_pool import RayPool

        return RayPool(address, jobs)
    from gbfix.migrate.pools import LocalPool

    return LocalPool(jobs)


def _undo(root: Path, force: bool) -> None:
    from gbfix.migrate import run

    name, restored, left = run.undo(root, force=force)
    for path, sentence in left.items():
        say(f"{path}: left as it is: {sentence}.")
    count = f"{len(restored)} file{'' if len(restored) == 1 else 's'}"
    print(f"Migration {name} is undone: {count} restored.")
    raise typer.Exit(1 if left else 0)


def _write(path: Path, outcome: Outcome) -> None:
    from gbfix.migrate.outcome import to_json

    try:
        path.write_text(to_json(outcome), encoding="utf-8", newline="\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}.") from None


def _tell(outcome: Outcome, folder: Path) -> None:
    """A few lines on standard output, and what went wrong on standard error."""
    for notice in outcome.notices:
        say(notice)
    for error in outcome.errors:
        say(f"{folder / error.path}: {error.sentence}")
    if outcome.totals.files:
        sys.stdout.writelines(f"{line}\n" for line in _lines(outcome, folder))


def _lines(outcome: Outcome, folder: Path) -> Iterator[str]:
    from gbfix.migrate.outcome import State

    totals = outcome.totals
    planned = any(file.state is State.PLANNED for file in outcome.files)
    done = "could be " if planned else ""
    also = ((totals.withheld, "withheld"), (totals.not_written, "left"))
    yield (
        f"{totals.fixed} of {totals.sites} break sites {done}fixed, {totals.written} of "
        f"{totals.files} files {done}written"
        + "".join(f", {count} {what}" for count, what in also if count)
        + "."
    )
    if planned:
        left = "; of this, what is verified by running would be" if outcome.policy.verify else ""
        yield f"Nothing is written in a dry run{left}."
    if totals.by_verdict:
        yield "Run: " + ", ".join(f"{n} {s}" for s, n in totals.by_verdict.items()) + "."
    if totals.breaks is not None and totals.fragments is not None:
        yield (
            f"Breaks: {totals.breaks.before} before, {totals.breaks.after} after; graphs: "
            f"{totals.fragments.before} before, {totals.fragments.after} after."
        )
    if outcome.branch is not None:
        count = len(outcome.commits)
        yield f"Branch {outcome.branch}: {count} commit{'' if count == 1 else 's'}."
    if totals.written and not planned:
        named = "" if folder == Path() else f" {shlex.quote(str(folder))}"
        yield f"`gbfix migrate{named} --undo` takes it back."
