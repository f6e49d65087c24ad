"""Sites to fixes to edits, until nothing changes.

Each pass analyses the project, asks the transforms, applies what fits together, and starts again on
the new text, so that one run reaches the fixed point. Knows neither torch nor what a fix looks like.
"""

from __future__ import annotations

import ast
import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gbfix.analysis.facts import Facts
from gbfix.analysis.naming import named
from gbfix.analysis.observed import Observed
from gbfix.analysis.project import FunctionInfo, Module, Project, parse_module
from gbfix.analysis.regions import Plan, Regions, may_compile
from gbfix.analysis.sites import BreakSite, find_sites
from gbfix.catalogue import selection
from gbfix.codegen.imports import add_torch_import
from gbfix.codegen.view import View
from gbfix.findings import FileError, FileResult, Finding, FixOffer, Refusal, RunResult
from gbfix.fixes import Context, Fix
from gbfix.planning import Outcome, compatible, consider
from gbfix.registry import treating
from gbfix.settings import Settings
from gbfix.source.text import Edit, SourceFile, offset_before
from gbfix.suppressions import Suppression, parse, suppressed, unused_notices

# A pass makes every fix that does not touch another; what takes longer never ends.
MOST_PASSES = 40
NARROWED = (
    "the project uses torch.compile, so only what that reaches was looked at; "
    "--region forward looks at every forward"
)
At = tuple[int, int | None]
Only = Mapping[Path, frozenset[tuple[int, int]]]


@dataclass
class _File:
    """A file on its way through the passes."""

    original: SourceFile
    current: SourceFile
    fixed: list[Finding] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    error: str | None = None
    silenced: list[tuple[Suppression, str]] = field(default_factory=list)
    history: list[tuple[Edit, ...]] = field(default_factory=list)

    def fail(self, sentence: str) -> None:
        """Give the file up: it stays as it was, and the sentence says why."""
        self.error = f"{self.original.path}: {sentence}"
        self.current = self.original


def run(
    files: Sequence[SourceFile],
    settings: Settings,
    *,
    rewrite: bool = True,
    at: At | None = None,
    on_file: Callable[[Path], None] | None = None,
    observed: Observed | None = None,
    only: Only | None = None,
) -> RunResult:
    """Find the break sites of files and, if `rewrite`, fix them.

    Args:
        files: the project.
        settings: what to look for and how much to trust.
        rewrite: whether to apply fixes; without it they are only offered.
        at: a line, or line and column (from 1), to which the run is limited.
        on_file: called once for each file when its first pass is done.
        observed: what a run of the program has shown; only functions that ran are then looked at.
        only: for each resolved path the first and last lines of sites, as the files are now; the
            run is limited to these.

    Raises:
        UserError: for selectors that name nothing.
    """
    with _without_collecting():
        return _Run(files, settings, rewrite, at, on_file, observed, only).result()


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


def propose(
    files: Sequence[SourceFile], settings: Settings, *, at: At | None = None
) -> tuple[RunResult, tuple[Proposal, ...]]:
    """Find the break sites of files and say how each could be fixed; nothing is applied.

    Args:
        files: the project.
        settings: what to look for. All fixes are offered, whatever their safety.
        at: a line, or line and column (from 1), to look at; everything if None.

    Raises:
        UserError: for selectors that name nothing.
    """
    made = _Run(files, settings, False, at, None)
    made.proposals = []
    with _without_collecting():
        return made.result(), tuple(made.proposals)


@dataclass(frozen=True)
class PartResult:
    """What was found in one part of a project, and what other parts have to be told.

    Attributes:
        findings: by file, in source order.
        errors: the files that were given up.
        silenced: the comments that silenced a finding of some code, by file.
        reached: the functions of this part that were looked at, by qualified name.
        elsewhere: functions of files of other parts that are reached from here.
        self_calls: methods called on `self`, as class and name; other parts may override them.
        forwards: every function of this part that is called `forward`.
        consulted: files outside the part that were looked into.
        absent: files that would have been looked into if they had been there.
        consulted_all: whether all files of the project counted.
    """

    findings: dict[Path, tuple[Finding, ...]]
    errors: tuple[FileError, ...]
    silenced: tuple[tuple[Path, Suppression, str], ...]
    reached: frozenset[str]
    elsewhere: frozenset[tuple[Path, str]]
    self_calls: frozenset[tuple[str, str]]
    forwards: frozenset[str]
    consulted: frozenset[Path]
    absent: frozenset[Path]
    consulted_all: bool


def plan_region(modules: Sequence[Module], settings: Settings) -> Plan:
    """What the region of a project starts from, seen over all of its modules."""
    mode = settings.region.value
    if mode in ("all", "forward"):
        return Plan(everything=mode == "all", forwards=mode == "forward")
    with _without_collecting():
        facts = Facts(Project(modules))
        able = [m for m in modules if may_compile(m.source.text)]
        regions = Regions(facts, able, mode)
        roots = frozenset(info.qualified for info in regions.compiled())
    forwards = mode == "auto" and (not roots or regions.unresolved)
    return Plan(roots, forwards=forwards)


def analyse_part(
    files: Sequence[SourceFile],
    modules: Sequence[Module],
    settings: Settings,
    plan: Plan,
    done: frozenset[str] = frozenset(),
) -> PartResult:
    """Find the break sites of a part of a project, each with the fixes on offer.

    Args:
        files: the part.
        modules: all modules of the project, in order; those of the part are parsed anew.
        settings: what to look for.
        plan: what the region starts from.
        done: functions of the part that were looked at before, and are not reported again.
    """
    with _without_collecting():
        return _Run(files, settings, False, None, None).part(modules, plan, done)


def rewrite_part(
    files: Sequence[SourceFile],
    modules: Sequence[Module],
    settings: Settings,
    reached: frozenset[str],
) -> RunResult:
    """Fix some files of a project, until nothing changes in them.

    Args:
        files: those to fix.
        modules: all modules of the project, in order; those of the files are parsed anew.
        settings: what to look for and how much to trust.
        reached: the functions of the whole project that are in the region, by qualified name.
    """
    made = _Run(files, settings, True, None, None)
    made.reached = reached
    made.others = modules
    with _without_collecting():
        return made.result()


class _ByName:
    """The functions of a region, for modules that are parsed only when they are looked into."""

    def __init__(
        self, modules: Sequence[Module], is_reached: Callable[[FunctionInfo], bool]
    ) -> None:
        self._modules = list(modules)
        self._is_reached = is_reached
        self._known: dict[object, bool] = {}

    def __contains__(self, node: object) -> bool:
        if node not in self._known:
            # Who has the node has parsed its module.
            for module in [m for m in self._modules if m.parsed]:
                self._known |= {info.node: self._is_reached(info) for info in module.functions()}
            self._modules = [m for m in self._modules if not m.parsed]
        return self._known.get(node, False)


@contextlib.contextmanager
def _without_collecting() -> Iterator[None]:
    """No garbage collection: trees are many small objects that are all in use."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class _Run:
    """The passes of one run and what they share."""

    def __init__(
        self,
        files: Sequence[SourceFile],
        settings: Settings,
        rewrite: bool,
        at: At | None,
        on_file: Callable[[Path], None] | None,
        observed: Observed | None = None,
        only: Only | None = None,
    ) -> None:
        self.settings = settings
        self.rewrite = rewrite
        self.at = at
        self.on_file = on_file
        self.selection = selection(settings.select, settings.ignore)
        self.states = [_File(f, f) for f in files]
        self.observed = replace(observed, before=self._before) if observed is not None else None
        self.only = only
        self.modules: dict[Path, Module] = {}
        self._names: dict[Path, Module] = {}
        self.others: Sequence[Module] | None = None
        self.reached: frozenset[str] | None = None
        self.notices: list[str] = []
        self.consulted: frozenset[Path] = frozenset()
        self.absent: frozenset[Path] = frozenset()
        self.proposals: list[Proposal] | None = None

    def result(self) -> RunResult:
        """Make passes until nothing changes."""
        todo = [s for s in self.states if self._parse(s)]
        for number in range(MOST_PASSES):
            changed = self._pass(todo, first=number == 0)
            if not changed:
                break
            todo = changed
            if self.at is not None:
                self.rewrite = False
        else:
            for state in todo:
                state.fail(
                    "internal error, the file is left as it was: its fixes make room for more of "
                    f"the same after {MOST_PASSES} passes"
                )
        result = _result(self.states, self.notices)
        return replace(result, consulted=self.consulted, absent=self.absent)

    def part(self, modules: Sequence[Module], plan: Plan, done: frozenset[str]) -> PartResult:
        """One pass over a part of a project."""
        self.others = modules
        by_path = {module.source.path: module for module in modules}
        todo = [s for s in self.states if self._parse(s)]
        own = [self.modules[s.original.path] for s in todo]
        facts = Facts(Project(self.modules.get(m.source.path, m) for m in modules))
        regions = Regions(facts, own, self.settings.region.value)
        found = regions.reached_from(plan)
        facts.region = frozenset(found) | frozenset(
            node for node, info in regions.functions.items() if info.qualified in done
        )
        facts.find_places = regions.places
        functions: dict[Module, list[FunctionInfo]] = {}
        elsewhere: set[tuple[Path, str]] = set()
        for info in found.values():
            path = info.module.source.path
            if path in self.modules:
                if info.qualified not in done:
                    functions.setdefault(info.module, []).append(info)
            elif path in by_path:
                elsewhere.add((path, info.qualified))
        self._visit(todo, facts, functions, first=True)
        project = facts.project
        return PartResult(
            {s.original.path: _in_order([*s.fixed, *s.left]) for s in self.states if not s.error},
            tuple(FileError(s.original.path, s.error) for s in self.states if s.error is not None),
            tuple((s.original.path, *pair) for s in self.states for pair in s.silenced),
            frozenset(i.qualified for infos in functions.values() for i in infos),
            frozenset(elsewhere),
            frozenset(regions.self_calls),
            regions.forwards(),
            frozenset(project.consulted - self.modules.keys()),
            frozenset(project.absent),
            project.consulted_all,
        )

    def _parse(self, state: _File) -> bool:
        """Parse a file that mentions torch."""
        if "torch" not in state.original.text:
            return False
        try:
            module = self._module(state, state.original)
        except SyntaxError as error:
            state.fail(f"not valid Python at line {error.lineno}: {error.msg}")
        except ValueError as error:
            state.fail(f"not valid Python: {error}")
        except (RecursionError, MemoryError):
            state.fail("nested too deeply to be parsed")
        else:
            self.modules[state.original.path] = module
            return True
        return False

    def _module(self, state: _File, source: SourceFile) -> Module:
        """A file parsed, under the name that it has in the project."""
        if not self._names:
            others = self.others or named([s.original for s in self.states])
            self._names = {m.source.path: m for m in others}
        like = self._names[state.original.path]
        return replace(parse_module(source), name=like.name, renamed=like.renamed)

    def _pass(self, todo: list[_File], *, first: bool) -> list[_File]:
        """One pass over the files of `todo`; returns those that changed."""
        usable = [s for s in self.states if s.error is None and s.original.path in self.modules]
        own = [self.modules[s.original.path] for s in usable]
        if self.others is not None:
            by_path = {module.source.path: module for module in own}
            own = [by_path.get(m.source.path, m) for m in self.others]
        project = Project(own)
        facts = Facts(project)
        facts.observed = self.observed or facts.observed
        changed = self._visit(todo, facts, self._region(facts, todo), first=first)
        self.consulted |= project.consulted
        self.absent |= project.absent
        return changed

    def _visit(
        self,
        todo: Sequence[_File],
        facts: Facts,
        functions: Mapping[Module, Sequence[FunctionInfo]],
        *,
        first: bool,
    ) -> list[_File]:
        """Look at the functions of files, and fix them if that is wanted."""
        changed: list[_File] = []
        for state in todo:
            module = self.modules[state.original.path]
            infos = sorted(functions.get(module, []), key=lambda i: i.node.lineno)
            try:
                if self._file_pass(state, module, infos, facts, first=first):
                    self.modules[state.original.path] = self._module(state, state.current)
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

    def _region(self, facts: Facts, todo: Sequence[_File]) -> dict[Module, list[FunctionInfo]]:
        """The functions of the region, by module. Rewriting does not change what is reached."""
        own = [
            self.modules[s.original.path]
            for s in self.states
            if s.error is None and s.original.path in self.modules
        ]
        regions = Regions(facts, own, self.settings.region.value)
        if self.reached is None:
            found = regions.reached(self._wanted(regions, todo))
            if self.observed is not None:
                found |= {n: i for n, i in regions.functions.items() if self.observed.ran(i)}
            self.reached = frozenset(i.qualified for i in found.values())
            if (
                self.observed is None
                and regions.narrowed
                and any(
                    i.node.name == "forward" and i.node not in found
                    for i in regions.functions.values()
                )
            ):
                self.notices.append(NARROWED)
        else:
            modules = {self.modules[s.original.path] for s in todo}
            found = {
                n: i
                for n, i in regions.functions.items()
                if i.module in modules and self._is_reached(i)
            }
        facts.region = frozenset(found)
        if self.others is not None:
            facts.region = _ByName(facts.project.given, self._is_reached)
        facts.find_places = regions.places
        functions: dict[Module, list[FunctionInfo]] = {}
        for info in found.values():
            if self.observed is not None and not self.observed.ran(info):
                continue
            functions.setdefault(info.module, []).append(info)
        return functions

    def _wanted(self, regions: Regions, todo: Sequence[_File]) -> frozenset[ast.AST] | None:
        """The functions around the place that proposals are made for; None if all count."""
        if self.proposals is None or self.at is None or len(todo) != 1:
            return None
        return regions.around(self.modules[todo[0].original.path], self.at[0])

    def _is_reached(self, info: FunctionInfo) -> bool:
        """A function found before, or one that a fix has put into such a function."""
        assert self.reached is not None
        if info.qualified in self.reached:
            return True
        return info.outer is not None and self._is_reached(info.outer)

    def _file_pass(
        self,
        state: _File,
        module: Module,
        infos: Sequence[FunctionInfo],
        facts: Facts,
        *,
        first: bool,
    ) -> bool:
        view = View(module)
        outcomes = self._outcomes(state, module, infos, facts, view, first=first)
        if self.at is not None and self.rewrite:
            outcomes = [o for o in outcomes if _is_at(o.site, self.at, view)]
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
            return False
        _edit(state, view, [f for _, f in picked])
        return True

    def _outcomes(
        self,
        state: _File,
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
                if self.proposals is not None and self.at and not _is_at(site, self.at, view):
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

    def _choose(self, outcome: Outcome, state: _File, view: View) -> None:
        """Limit a site to the fix that was chosen for it beforehand, if one was."""
        if not self.settings.choices:
            return
        site = outcome.site
        place = (state.original.path, *_position_before(view.start(site.span), state))
        for choice in self.settings.choices:
            if (choice.path, choice.line, choice.column) == place:
                if choice.code == site.diagnosis.code:
                    outcome.only, outcome.left = choice.transform, choice.transform is None
                    if choice.why:
                        outcome.refusals.append(Refusal("tune", "slower", choice.why))

    def _is_wanted(self, site: BreakSite, state: _File, view: View) -> bool:
        """Whether a site is among those that the run is limited to."""
        if self.only is None:
            return True
        places = self.only.get(state.original.path.resolve(), frozenset())
        line = _position_before(view.start(site.span), state)[0]
        return any(first <= line <= last for first, last in places)

    def _before(self, module: Module, line: int, column: int) -> tuple[int, int]:
        """Where a place of a module was before the run."""
        offset = module.source.offset(line, column)
        state = next((s for s in self.states if s.original.path == module.source.path), None)
        return module.source.position(offset) if state is None else _position_before(offset, state)


def _position_before(offset: int, state: _File) -> tuple[int, int]:
    """Line and column, from 1, that an offset of a file's text had before the run."""
    for edits in reversed(state.history):
        offset = offset_before(edits, offset)
    return state.original.position(offset)


def _is_valid(outcome: Outcome, fix: Fix, view: View) -> bool:
    """Whether a fix leaves valid Python behind; one that does not becomes a refusal."""
    try:
        ast.parse(view.source.apply(fix.edits))
    except (SyntaxError, ValueError) as error:
        outcome.fixes.remove(fix)
        sentence = f"the text that it would write is not valid Python ({error}); please report this"
        outcome.refusals.append(Refusal(fix.transform, "invalid-output", sentence))
        return False
    return True


def _edit(state: _File, view: View, fixes: Sequence[Fix]) -> None:
    """Apply fixes to a file's text, which must stay valid Python."""
    edits: list[Edit] = [e for group in dict.fromkeys(f.edits for f in fixes) for e in group]
    if any(f.imports_torch for f in fixes):
        edits.append(add_torch_import(view))
    text = view.source.apply(edits)
    ast.parse(text)
    view.source.encode(text)
    state.history.append(tuple(edits))
    state.current = replace(state.current, text=text)


def _proposal(outcome: Outcome, finding: Finding, view: View) -> Proposal:
    fixes: list[tuple[FixOffer, tuple[Edit, ...]]] = []
    for fix in list(outcome.fixes):
        if _is_valid(outcome, fix, view):
            extra = (add_torch_import(view),) if fix.imports_torch else ()
            fixes.append((fix.offer, (*fix.edits, *extra)))
    return Proposal(finding, tuple(fixes))


def _is_at(site: BreakSite, at: At, view: View) -> bool:
    line, column = at
    span, statement = site.span, site.statement
    first = min(span.lineno, statement.lineno)
    last = span.end_lineno or span.lineno
    if not first <= line <= last:
        return False
    if column is None or line != span.lineno:
        return True
    return column <= view.source.position(view.end(span))[1] or span.lineno != span.end_lineno


def _finding(outcome: Outcome, view: View, state: _File, fix: Fix | None) -> Finding:
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


def _in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda f: f.place))


def _result(states: Sequence[_File], notices: list[str]) -> RunResult:
    files: list[FileResult] = []
    errors: list[FileError] = []
    for state in states:
        if state.error is not None:
            errors.append(FileError(state.original.path, state.error))
            continue
        findings = _in_order([*state.fixed, *state.left])
        files.append(FileResult(state.original.path, state.original, state.current.text, findings))
        comments = parse(state.original.text)
        notices += unused_notices(state.original.path, comments, state.silenced)
    return RunResult(tuple(files), tuple(errors), tuple(notices))


__all__ = [
    "PartResult",
    "Proposal",
    "analyse_part",
    "plan_region",
    "propose",
    "rewrite_part",
    "run",
]
