"""Sites to fixes to edits, until nothing changes.

Each pass analyses the project, asks the transforms, applies what fits together, and starts again on
the new text, so that one run reaches the fixed point. Knows neither torch nor what a fix looks like.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gbfix.analysis.conditions import Refused
from gbfix.analysis.facts import Facts
from gbfix.analysis.project import FunctionInfo, Module, Project
from gbfix.analysis.regions import Regions
from gbfix.analysis.sites import find_sites
from gbfix.catalogue import catalogue
from gbfix.codegen.imports import add_torch_import
from gbfix.codegen.view import View
from gbfix.findings import FileError, FileResult, Finding, FixOffer, RunResult
from gbfix.fixes import Context, Fix
from gbfix.planning import Outcome, compatible, consider
from gbfix.registry import transforms
from gbfix.selection import Selection, resolve
from gbfix.settings import Settings
from gbfix.source.text import Edit, SourceFile
from gbfix.suppressions import Suppression, parse, suppressed, unused_notices

MOST_PASSES = 12
At = tuple[int, int | None]


@dataclass
class _File:
    """A file on its way through the passes."""

    original: SourceFile
    current: SourceFile
    fixed: list[Finding] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    error: str | None = None
    silenced: list[tuple[Suppression, str]] = field(default_factory=list)


def run(
    files: Sequence[SourceFile],
    settings: Settings,
    *,
    rewrite: bool = True,
    at: At | None = None,
    on_file: Callable[[Path], None] | None = None,
) -> RunResult:
    """Find the break sites of files and, if `rewrite`, fix them.

    Args:
        files: the project.
        settings: what to look for and how much to trust.
        rewrite: whether to apply fixes; without it they are only offered.
        at: a line, or line and column (from 1), to which the run is limited.
        on_file: called once for each file that is done.

    Raises:
        UserError: for selectors that name nothing.
    """
    selection = resolve(settings.select, settings.ignore, catalogue())
    states = [_File(f, f) for f in files]
    todo = [s for s in states if _parses(s)]
    first = True
    for _ in range(MOST_PASSES):
        changed = _pass(states, todo, settings, selection, rewrite, at, first)
        first = False
        if not rewrite or not changed or at is not None:
            break
        todo = changed
    if rewrite and at is not None:
        _pass(states, todo, settings, selection, False, None, False)
    for state in states:
        if on_file is not None:
            on_file(state.original.path)
    return _result(states)


def _parses(state: _File) -> bool:
    if "torch" not in state.original.text:
        return False
    try:
        ast.parse(state.original.text)
    except (SyntaxError, ValueError) as error:
        where = f" at line {error.lineno}" if isinstance(error, SyntaxError) else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        state.error = f"{state.original.path}: not valid Python{where}: {what}"
        return False
    except RecursionError:
        state.error = f"{state.original.path}: nested too deeply to be parsed"
        return False
    return True


def _pass(
    states: list[_File],
    todo: list[_File],
    settings: Settings,
    selection: Selection,
    rewrite: bool,
    at: At | None,
    first: bool,
) -> list[_File]:
    """One pass over the files of `todo`; returns those that changed."""
    sources = [s.current for s in states if s.error is None and "torch" in s.current.text]
    project = Project(sources)
    facts = Facts(project)
    by_path = {s.current.path: s for s in states}
    regions = Regions(facts, project.given, settings.region.value)
    reached = regions.reached()
    facts.region = frozenset(reached)
    functions: dict[str, list[FunctionInfo]] = {}
    for info in reached.values():
        functions.setdefault(info.module.name, []).append(info)
    changed: list[_File] = []
    for module in project.given:
        state = by_path[module.source.path]
        if state not in todo:
            continue
        infos = sorted(functions.get(module.name, []), key=lambda i: i.node.lineno)
        try:
            if _file_pass(state, module, infos, facts, settings, selection, rewrite, at, first):
                changed.append(state)
        except RecursionError:
            state.error = f"{state.original.path}: nested too deeply to be analysed"
            state.current = state.original
        except Exception as error:  # one file's failure must not end the run
            state.error = (
                f"{state.original.path}: internal error, the file is left as it was: "
                f"{type(error).__name__}: {error}"
            )
            state.current = state.original
    return changed


def _file_pass(
    state: _File,
    module: Module,
    infos: Sequence[FunctionInfo],
    facts: Facts,
    settings: Settings,
    selection: Selection,
    rewrite: bool,
    at: At | None,
    first: bool,
) -> bool:
    comments = parse(module.source.text)
    view = View(module)
    outcomes: list[Outcome] = []
    state.left = []
    for info in infos:
        analysis = facts.analysis(info)
        if analysis is None:
            continue
        context: Context | None = None
        for site in find_sites(analysis, facts):
            if not selection.reports(site.diagnosis.code):
                continue
            span = site.span
            end = span.end_lineno or span.lineno
            comment = suppressed(span.lineno, end, site.diagnosis.code, comments)
            if comment is not None:
                if first:
                    state.silenced.append((comment, site.diagnosis.code))
                continue
            context = context or Context.of(
                analysis, facts, settings, view, state.original.text
            )
            outcomes.append(consider(site, context, transforms(), selection, settings))
    if at is not None:
        outcomes = [o for o in outcomes if _is_at(o, at, view)]
    picked = compatible(outcomes, settings, view.source) if rewrite else []
    fixed = {id(o): f for o, f in picked}
    for outcome in outcomes:
        fix = fixed.get(id(outcome))
        finding = _finding(outcome, view, state, fix)
        if fix is not None:
            state.fixed.append(finding)
        else:
            state.left.append(finding)
    if not picked:
        return False
    state.current = _edited(state, view, [f for _, f in picked])
    return True


def _edited(state: _File, view: View, fixes: Sequence[Fix]) -> SourceFile:
    edits: list[Edit] = [e for group in dict.fromkeys(f.edits for f in fixes) for e in group]
    if any(f.imports_torch for f in fixes):
        edits.append(add_torch_import(view))
    text = view.source.apply(edits)
    try:
        ast.parse(text)
    except SyntaxError as error:
        names = ", ".join(sorted({f.transform for f in fixes}))
        raise Refused("broken-syntax", f"{names} produced invalid Python: {error.msg}") from error
    view.source.encode(text)
    return replace(state.current, text=text)


def _is_at(outcome: Outcome, at: At, view: View) -> bool:
    line, column = at
    span, statement = outcome.site.span, outcome.site.statement
    first = min(span.lineno, statement.lineno)
    last = span.end_lineno or span.lineno
    if not first <= line <= last:
        return False
    if column is None or line != span.lineno:
        return True
    return column <= view.source.position(view.end(span))[1] or span.lineno != span.end_lineno


def _finding(outcome: Outcome, view: View, state: _File, fix: Fix | None) -> Finding:
    site = outcome.site
    line, column = view.source.position(view.start(site.span))
    end_line, end_column = view.source.position(view.end(site.span))
    applied = FixOffer(fix.transform, fix.safety, fix.reason) if fix is not None else None
    name = site.function.qualified.removeprefix(f"{site.function.module.name}.")
    return Finding(
        state.original.path,
        line,
        column,
        end_line,
        end_column,
        site.diagnosis.code,
        site.diagnosis.name,
        site.message,
        name,
        site.certain,
        outcome.offers,
        tuple(outcome.refusals),
        applied,
    )


def _result(states: Sequence[_File]) -> RunResult:
    files: list[FileResult] = []
    errors: list[FileError] = []
    notices: list[str] = []
    for state in states:
        if state.error is not None:
            errors.append(FileError(state.original.path, state.error))
            continue
        findings = sorted([*state.fixed, *state.left], key=lambda f: (f.line, f.column, f.code))
        files.append(
            FileResult(state.original.path, state.original, state.current.text, tuple(findings))
        )
        comments = parse(state.original.text)
        notices += unused_notices(state.original.path, comments, state.silenced)
    return RunResult(tuple(files), tuple(errors), tuple(notices))


__all__ = ["run"]
