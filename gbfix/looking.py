"""One look at a file: its sites, what the transforms say of each, and the edits that fit together.

Joins sites, suppressions, selection and transforms into findings. Knows neither torch nor what a fix
looks like, and nothing of how the functions to look at were found.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.facts import Facts
from gbfix.analysis.project import FunctionInfo, Module
from gbfix.analysis.sites import find_sites
from gbfix.catalogue import selection
from gbfix.codegen.imports import add_torch_import
from gbfix.codegen.neighbours import joined_paths
from gbfix.codegen.validity import check_names, is_scriptable, parse_edited
from gbfix.codegen.view import View
from gbfix.findings import Finding, FixOffer, Refusal
from gbfix.fixes import Context, Fix
from gbfix.planning import Outcome, compatible, consider
from gbfix.preparing import Place, Prepared, in_vain, prepared, without
from gbfix.registry import treating
from gbfix.settings import Settings
from gbfix.source.text import Edit, SourceFile, offset_before
from gbfix.suppressions import Suppression, parse, suppressed

At = tuple[int, int | None]
Only = Mapping[Path, frozenset[tuple[int, int]]]
NOT_PYTHON = "not valid Python"


@dataclass
class FileState:
    """A file on its way through the passes."""

    original: SourceFile
    current: SourceFile
    fixed: list[Finding] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    error: str | None = None
    silenced: list[tuple[Suppression, str]] = field(default_factory=list)
    history: list[tuple[Edit, ...]] = field(default_factory=list)
    prepared: list[Prepared] = field(default_factory=list)
    declined: set[tuple[Place, str]] = field(default_factory=set)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found, in source order."""
        return tuple(sorted([*self.fixed, *self.left], key=lambda f: f.place))

    def fail(self, sentence: str) -> None:
        """Give the file up: it stays as it was, and the sentence says why."""
        self.error = sentence
        self.current = self.original

    def take_back(self) -> bool:
        """Start again without changes that prepared others in vain; says whether there are any."""

        def before(finding: Finding) -> Place:
            offset = self.current.line_starts[finding.line - 1] + finding.column - 1
            return position_before(offset, self)

        vain = in_vain(self.prepared, self.left, before)
        if vain:
            self.declined |= vain
            self.current, self.fixed, self.left = self.original, [], []
            self.history, self.prepared = [], []
        return bool(vain)


@dataclass(frozen=True)
class Proposal:
    """A finding, and each fix on offer with the edits that would make it, the preferred one first.

    The edits are of the text as it is, with line feeds for new lines.
    """

    finding: Finding
    fixes: tuple[tuple[FixOffer, tuple[Edit, ...]], ...]

    def with_edits(self) -> Finding:
        """The finding with the edits of each fix on offer."""
        return replace(
            self.finding,
            offers=tuple(offer for offer, _ in self.fixes),
            edits=tuple(edits for _, edits in self.fixes),
        )


def parsed(module: Module) -> str | None:
    """Parse a module; returns a sentence if that cannot be done."""
    try:
        module.parse()
    except SyntaxError as error:
        where = f" at line {error.lineno}" if error.lineno else ""
        return f"{NOT_PYTHON}{where}: {error.msg}"
    except ValueError as error:
        return f"{NOT_PYTHON}: {error}"
    except (RecursionError, MemoryError):
        return "nested too deeply to be parsed"
    return None


class Looking:
    """Looks at files, one after the other.

    Attributes:
        states: the files.
        modules: those that are Python and mention torch, by path.
        at: a line, or line and column (from 1), to which the look is limited.
        only: for each resolved path the lines of sites to which it is limited.
        on_file: called once for each file.
        proposals: where a proposal is put for each finding, if they are wanted.
    """

    def __init__(
        self, files: Sequence[SourceFile], settings: Settings, *, rewrite: bool = False
    ) -> None:
        self.settings = settings
        self.rewrite = rewrite
        self.selection = selection(settings.select, settings.ignore)
        self.states = [FileState(f, f) for f in files]
        self.modules: dict[Path, Module] = {}
        self.at: At | None = None
        self.only: Only | None = None
        self.on_file: Callable[[Path], None] | None = None
        self.proposals: list[Proposal] | None = None

    def visit(
        self,
        todo: Sequence[FileState],
        facts: Facts,
        functions: Mapping[Module, Sequence[FunctionInfo]],
        *,
        first: bool,
    ) -> list[FileState]:
        """Look at the functions of files, and fix them if that is wanted."""
        changed: list[FileState] = []
        for state in todo:
            module = self.modules[state.original.path]
            infos = sorted(functions.get(module, []), key=lambda i: i.node.lineno)
            try:
                if self._file_pass(state, module, infos, facts, first=first):
                    self.modules[state.original.path] = self._again(state, module)
                    changed.append(state)
            except RecursionError:
                state.fail("nested too deeply to be analysed")
            except Exception as error:  # one file's failure must not end the run
                state.fail(
                    f"internal error, the file is left as it was: {type(error).__name__}: {error}"
                )
            failure = facts.failures.get(module)
            if failure is not None and state.error is None:
                state.fail(f"internal error, the file is left as it was: {failure}")
            if first and self.on_file is not None:
                self.on_file(state.original.path)
        return [s for s in changed if s.error is None]

    def _again(self, state: FileState, module: Module) -> Module:
        """The module of a file that was changed."""
        return replace(module, source=state.current, parsed=None)

    def _file_pass(
        self,
        state: FileState,
        module: Module,
        infos: Sequence[FunctionInfo],
        facts: Facts,
        *,
        first: bool,
    ) -> bool:
        view = View(module)
        outcomes = self._outcomes(state, module, infos, facts, view, first=first)
        if self.at is not None and self.rewrite:
            outcomes = [o for o in outcomes if is_at(o.site, self.at, view)]
        picked = compatible(outcomes, self.settings, view.source) if self.rewrite else []
        picked = [(o, f) for o, f in picked if _is_valid(o, f, view)]
        fixed = {id(o): f for o, f in picked}
        state.left = []
        for outcome in outcomes:
            fix = fixed.get(id(outcome))
            finding = _finding(outcome, view, state, fix)
            (state.left if fix is None else state.fixed).append(finding)
            if self.proposals is not None:
                self.proposals.append(_proposal(outcome, finding, view))
        if not picked:
            return self.rewrite and self.at is None and _tidy(state, view)
        state.prepared += prepared(picked, view, lambda offset: position_before(offset, state))
        _edit(state, view, [f for _, f in picked])
        return True

    def _outcomes(
        self,
        state: FileState,
        module: Module,
        infos: Sequence[FunctionInfo],
        facts: Facts,
        view: View,
        *,
        first: bool,
    ) -> list[Outcome]:
        """What the transforms say of every site that is to be reported."""
        comments = parse(module.source.text)
        outcomes: list[Outcome] = []
        for info in infos:
            if self.proposals is not None and self.at is not None:
                last = info.node.end_lineno or info.node.lineno
                if not info.node.lineno <= self.at[0] <= last:
                    continue
            analysis = facts.analysis(info)
            if analysis is None:
                continue
            context: Context | None = None
            for site in find_sites(analysis, facts):
                code = site.diagnosis.code
                end = site.span.end_lineno or site.span.lineno
                comment = suppressed(site.span.lineno, end, code, comments)
                if comment is not None:
                    if first:
                        state.silenced.append((comment, code))
                    continue
                if not self.selection.reports(code) or code in self.settings.quiet:
                    continue
                if self.proposals is not None and self.at and not is_at(site, self.at, view):
                    continue
                if not self._is_wanted(site, state, view):
                    continue
                context = context or Context.of(
                    analysis, facts, self.settings, view, state.original.text
                )
                outcome = consider(site, context, treating(code), self.selection, self.settings)
                self._choose(outcome, state, view)
                outcomes.append(outcome)
        return outcomes

    def _choose(self, outcome: Outcome, state: FileState, view: View) -> None:
        """Leave out what was tried in vain, and all but the fix that was chosen beforehand."""
        if not self.settings.choices and not state.declined:
            return
        site = outcome.site
        place = position_before(view.start(site.span), state)
        if (place, site.diagnosis.code) in state.declined:
            without(outcome)
        for choice in self.settings.choices:
            if (choice.path, choice.line, choice.column) == (state.original.path, *place):
                if choice.code == site.diagnosis.code:
                    outcome.only, outcome.left = choice.transform, choice.transform is None
                    if choice.why:
                        outcome.refusals.append(Refusal("tune", "slower", choice.why))

    def _is_wanted(self, site: BreakSite, state: FileState, view: View) -> bool:
        """Whether a site is among those that the run is limited to."""
        if self.only is None:
            return True
        places = self.only.get(state.original.path.resolve(), frozenset())
        line = position_before(view.start(site.span), state)[0]
        return any(first <= line <= last for first, last in places)


def position_before(offset: int, state: FileState) -> tuple[int, int]:
    """Line and column, from 1, that an offset of a file's text had before the run."""
    for edits in reversed(state.history):
        offset = offset_before(edits, offset)
    return state.original.position(offset)


def _is_valid(outcome: Outcome, fix: Fix, view: View) -> bool:
    """Whether a fix leaves valid Python behind; one that does not becomes a refusal."""
    refusal: Refusal | None = None
    try:
        parse_edited(view, fix.edits)
        check_names(view, fix.edits, imported=("torch",) if fix.imports_torch else ())
    except (SyntaxError, ValueError) as error:
        sentence = f"the text that it would write is not valid Python ({error}); please report this"
        refusal = Refusal(fix.transform, "invalid-output", sentence)
    if refusal is None and not is_scriptable(outcome.site.function.node, fix.edits, view):
        sentence = (
            "TorchScript compiles this file as well, and takes no function in a function, nor a mark "
            "for Dynamo on one"
        )
        refusal = Refusal(fix.transform, "scripted", sentence)
    if refusal is None:
        return True
    if fix in outcome.fixes:  # else it is that of a branch around the site
        outcome.fixes.remove(fix)
    outcome.refusals.append(refusal)
    return False


def _edit(state: FileState, view: View, fixes: Sequence[Fix]) -> None:
    """Apply fixes to a file's text, which must stay valid Python."""
    edits: list[Edit] = [e for group in dict.fromkeys(f.edits for f in fixes) for e in group]
    if any(f.imports_torch for f in fixes):
        edits.append(add_torch_import(view))
    text = view.source.apply(edits)
    ast.parse(text)
    view.source.encode(text)
    state.history.append(tuple(edits))
    state.current = replace(state.current, text=text)


def _tidy(state: FileState, view: View) -> bool:
    """Join what adjoins of what was written; says whether there was any."""

    def is_new(offset: int, header: str) -> bool:
        for edits in reversed(state.history):
            offset = offset_before(edits, offset)
        return not state.original.text.startswith(header, offset)

    edits = joined_paths(view, is_new) if state.history else ()
    if not edits:
        return False
    state.current = replace(state.current, text=view.source.apply(edits))
    state.history.append(edits)
    return True


def _proposal(outcome: Outcome, finding: Finding, view: View) -> Proposal:
    fixes: list[tuple[FixOffer, tuple[Edit, ...]]] = []
    for fix in list(outcome.fixes):
        if _is_valid(outcome, fix, view):
            extra = (add_torch_import(view),) if fix.imports_torch else ()
            fixes.append((fix.offer, (*fix.edits, *extra)))
    return Proposal(finding, tuple(fixes))


def is_at(site: BreakSite, at: At, view: View) -> bool:
    line, column = at
    span, statement = site.span, site.statement
    first = min(span.lineno, statement.lineno)
    last = span.end_lineno or span.lineno
    if not first <= line <= last:
        return False
    if column is None or line != span.lineno:
        return True
    return column <= view.source.position(view.end(span))[1] or span.lineno != span.end_lineno


def _finding(outcome: Outcome, view: View, state: FileState, fix: Fix | None) -> Finding:
    site = outcome.site
    start, end = view.start(site.span), view.end(site.span)
    source = view.source
    if fix is not None:  # what was fixed is told by its place in the file as it was
        source = state.original
        for edits in reversed(state.history):
            start, end = offset_before(edits, start), offset_before(edits, end)
    line, column = source.position(start)
    end_line, end_column = source.position(end)
    applied = fix.offer if fix is not None else None
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
