"""What `check` and `apply` do alike: read the files, run the engine, tell of errors.

It joins discovery, loading and the engine and knows nothing of options or of report formats.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gbfix.cli.failures import say
from gbfix.cli.progress import progress
from gbfix.cli.requests import Request
from gbfix.errors import UserError
from gbfix.findings import FileResult, RunResult
from gbfix.settings import Settings
from gbfix.source.loading import Loaded, decode, load, without_syntax_errors
from gbfix.source.text import SourceFile


def run(
    request: Request,
    *,
    rewrite: bool,
    at: tuple[int, int | None] | None = None,
    with_edits: bool = False,
    trace: Sequence[Path] = (),
    jobs: int = 1,
    cache_folder: Path | None = None,
) -> RunResult:
    """Read what was asked for and run the engine over it; with traces, only where graphs broke.

    `with_edits` adds the edits of each fix on offer to the findings of a run that rewrites nothing;
    `jobs` processes may work on a whole project, and `cache_folder` holds what earlier runs found that
    rewrote nothing.

    Raises:
        UserError: for selectors that name nothing, and traces that cannot be read.
    """
    # The process ends with the command, and all of its many objects are in use until then.
    gc.disable()
    from gbfix.catalogue import selection
    from gbfix.engine import run as run_engine
    from gbfix.targeting import aimed

    settings = request.settings
    # A wrong selector has to be said before any file is looked at.
    selection(settings.select, settings.ignore)
    settings, notices = aimed(settings)
    loaded = load_files(request)
    if trace:
        request = replace(request, settings=settings)
        return _run_traced(request, loaded, trace, rewrite=rewrite, at=at)
    with progress(len(loaded.sources)) as on_file:
        if with_edits:
            result = _with_edits(loaded.sources, settings)
        elif at is not None or request.from_stdin:
            result = run_engine(loaded.sources, settings, rewrite=rewrite, at=at, on_file=on_file)
        elif rewrite:
            from gbfix.batch import rewrite as rewrite_all

            result = rewrite_all(loaded.sources, settings, jobs=jobs, on_file=on_file)
        else:
            from gbfix.batch import check
            from gbfix.cache import Cache

            cache = Cache(cache_folder) if cache_folder is not None else None
            result = check(loaded.sources, settings, jobs=jobs, cache=cache, on_file=on_file)
    gc.freeze()  # or else Python goes through all of them once more when it ends
    errors = sorted((*loaded.errors, *result.errors), key=lambda e: (e.path, e.sentence))
    return replace(
        result,
        files=tuple(map(_in_line_order, result.files)),
        errors=tuple(errors),
        notices=(*notices, *result.notices),
    )


def _with_edits(sources: Sequence[SourceFile], settings: Settings) -> RunResult:
    from gbfix.engine import propose

    result, proposals = propose(sources, settings)
    with_edits = {p.finding: p.with_edits() for p in proposals}
    files = [
        replace(file, findings=tuple(with_edits[f] for f in file.findings)) for file in result.files
    ]
    return replace(result, files=tuple(files))


def _run_traced(
    request: Request,
    loaded: Loaded,
    paths: Sequence[Path],
    *,
    rewrite: bool,
    at: tuple[int, int | None] | None,
) -> RunResult:
    """The run limited to what a trace has met, most costly first."""
    from gbfix.cli import tracing

    named = [path for path in request.paths if request.stdin_name is None]
    traced = tracing.join(tracing.read(paths), loaded.sources, request.settings, named)
    result = traced.joined.result
    if rewrite:
        result = tracing.rewrite(traced, loaded.sources, request.settings, at=at)
    notices = list(traced.trace.notes)
    other = len(traced.joined.unplaced)
    if other:
        notices.append(
            f"{other} more {'place' if other == 1 else 'places'} of the trace "
            f"{'is' if other == 1 else 'are'} in other files: `gbfix trace --read` lists all."
        )
    errors = sorted((*loaded.errors, *result.errors), key=lambda e: (e.path, e.sentence))
    return replace(result, errors=tuple(errors), notices=(*result.notices, *notices))


def _in_line_order(file: FileResult) -> FileResult:
    order = sorted(file.findings, key=lambda f: (f.line, f.column, f.code))
    return replace(file, findings=tuple(order))


def say_errors(result: RunResult) -> None:
    """Print notices and errors to standard error, each as one line that names its file."""
    for notice in result.notices:
        say(notice)
    for error in result.errors:
        sentence = " ".join(error.sentence.split())
        named = sentence.startswith(str(error.path))
        say(sentence if named else f"{error.path}: {sentence}")


def load_files(request: Request) -> Loaded:
    """Find, read and decode what was asked for."""
    if request.stdin_name is not None:
        read = decode(request.stdin_name, sys.stdin.buffer.read())
        return without_syntax_errors(read, {request.stdin_name})
    from gbfix.source.discovery import discover

    found = discover(
        request.paths,
        exclude=request.settings.exclude,
        root=request.exclude_root,
        respect_gitignore=request.settings.respect_gitignore,
    )
    loaded = without_syntax_errors(load(found.files), set(request.paths))
    return replace(loaded, errors=(*found.errors, *loaded.errors))


def write_report(path: Path, text: str) -> None:
    """Write a file that the user named.

    Raises:
        UserError: if it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}.") from None
