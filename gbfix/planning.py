"""Chooses fixes: what every transform says of a site, and which fixes one pass can make together.

A site gets the first fix that is safe enough; its refusals are kept, so that a site left alone says
why. Two fixes of one pass never touch the same statement. Knows sites and fixes, not torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.trees import walk
from gbfix.findings import FixOffer, Refusal, Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.selection import Selection
from gbfix.settings import Branch, Settings
from gbfix.source.text import SourceFile


@dataclass
class Outcome:
    """What the transforms make of one site.

    `only` names the transform whose fix it gets if that was chosen; `left` says that it gets none.
    """

    site: BreakSite
    fixes: list[Fix] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    only: str | None = None
    left: bool = False

    @property
    def offers(self) -> tuple[FixOffer, ...]:
        """The fixes as offers, the preferred one first."""
        return tuple(f.offer for f in self.fixes)


def consider(
    site: BreakSite,
    context: Context,
    transforms: Sequence[Transform],
    selection: Selection,
    settings: Settings,
) -> Outcome:
    """Ask every transform that treats the site's diagnosis."""
    outcome = Outcome(site)
    for transform in _ordered(transforms, settings):
        if site.diagnosis.code not in transform.codes:
            continue
        if transform.on_request and transform.name not in settings.fix_with:
            continue
        if not selection.allows(site.diagnosis.code, transform.name):
            continue
        taken, needed = set(context.names.taken), context.needs_torch
        context.needs_torch = False
        try:
            fix = transform.propose(site, context)
        except NotApplicable:
            context.names.taken, context.needs_torch = taken, needed
            continue
        except Refused as refused:
            context.names.taken, context.needs_torch = taken, needed
            outcome.refusals.append(Refusal(transform.name, refused.code, refused.sentence))
            continue
        except RecursionError:
            raise
        except Exception as error:  # one transform's failure must not cost the file its other fixes
            context.names.taken, context.needs_torch = taken, needed
            sentence = f"internal error, please report it: {type(error).__name__}: {error}"
            outcome.refusals.append(Refusal(transform.name, "internal-error", sentence))
            continue
        context.names.taken, context.needs_torch = taken, needed or context.needs_torch
        if not site.certain and not fix.asking:
            unproven = "it could not be proven that a tensor decides here"
            if fix.safety is Safety.UNSAFE:
                unproven += f"; {fix.reason}"
            fix = replace(fix, safety=Safety.UNSAFE, reason=unproven, by_running=False)
        elif fix.setting is None and not transform.lessens:
            numbers, arrays = context.presumed(site)
            fix = _told_of_presumed(fix, arrays, "with an array of numpy, compiling would fail")
            fix = _told_of_presumed(fix, numbers, "with a number, the result would be a tensor")
        outcome.fixes.append(fix)
    # An assumption that cannot be proven comes late, and last what leaves a break behind.
    lessening = {t.name for t in transforms if t.lessens}
    # A division helps always, what stands in the graph without gradients only then.
    divides = any(f.sometimes for f in outcome.fixes)
    outcome.fixes.sort(
        key=lambda f: (
            f.transform in lessening and not (divides and f.last),
            f.safety is Safety.UNSAFE,
            f.sometimes,
            f.setting is not None,
        )
    )
    if not outcome.fixes and not outcome.refusals:
        untreated = Refusal(
            "gbfix", "no-transform", "no transform that is selected treats this diagnosis"
        )
        advice = site.diagnosis.advice
        outcome.refusals.append(replace(untreated, sentence=advice) if advice else untreated)
    return outcome


def _told_of_presumed(fix: Fix, names: Sequence[str], otherwise: str) -> Fix:
    """A fix whose reason says what it takes to be a tensor without proof."""
    if not names:
        return fix
    which = " and ".join(f"`{name}`" for name in names)
    are, tensors = ("is", "a tensor") if len(names) == 1 else ("are", "tensors")
    reason = f"{which} {are} taken to be {tensors}; {otherwise}"
    also = f"; {fix.reason}" if fix.safety is not Safety.SAFE else ""
    return replace(fix, safety=min(fix.safety, Safety.REVIEW), reason=reason + also)


def _ordered(transforms: Sequence[Transform], settings: Settings) -> list[Transform]:
    """The transforms in order of preference, the form asked for by the user first."""
    preferred = settings.branch.value if settings.branch is not Branch.AUTO else None
    asked = settings.fix_with
    return sorted(
        transforms, key=lambda t: (t.name not in asked, t.name != preferred, t.rank, t.name)
    )


def chosen(outcome: Outcome, settings: Settings) -> Fix | None:
    """The fix to apply: the preferred one that is safe enough."""
    if outcome.left:
        return None
    named = (f for f in outcome.fixes if outcome.only in (None, f.transform))
    wanted = (f for f in named if f.setting is None or settings.config)
    return next((f for f in wanted if f.safety >= settings.safety or _is_run(f, settings)), None)


def _is_run(fix: Fix, settings: Settings) -> bool:
    return settings.verifying and fix.by_running and settings.safety is not Safety.SAFE


def compatible(
    outcomes: Iterable[Outcome], settings: Settings, source: SourceFile
) -> list[tuple[Outcome, Fix]]:
    """The fixes that one pass makes: inner before outer, none that overlap.

    A fix reaches over its edits and over the statement of its site; what contains a site that is
    still to be fixed waits for the next pass. Sites that one and the same change treats are all
    listed with it.
    """
    outcomes = list(outcomes)
    wanted = [(o, f) for o in outcomes if (f := chosen(o, settings)) is not None]
    early = {id(o.site.function.node) for o, f in wanted if not f.last}
    wanted = [(o, f) for o, f in wanted if not f.last or id(o.site.function.node) not in early]
    marked = {id(o.site.function.node) for o, f in wanted if f.marks}
    wanted = [(o, f) for o, f in wanted if f.marks or id(o.site.function.node) not in marked]
    wanted.sort(key=lambda pair: _depth_key(pair[0]))
    done: list[tuple[Outcome, Fix]] = []
    taken: list[tuple[int, int]] = []
    branches = [(o, f) for o, f in wanted if isinstance(o.site.node, ast.If)]
    enclosing = [(o, f, _lines(o, f, source)) for o, f in wanted if f.whole]
    for outcome, fix in wanted:
        statement = outcome.site.statement
        if any(
            _is_enclosed(outcome, o, lines) and f.edits != fix.edits for o, f, lines in enclosing
        ):
            continue
        # What follows a branch can become part of it, and is then read in eager mode only.
        if outcome.site.read is not None and any(
            o.site.function is outcome.site.function
            and o.site.statement.lineno <= statement.lineno
            and o.site.statement is not statement
            for o, _ in branches
        ):
            continue
        # Output inside an arm stays as it is in the eager path and is not in the compiled one.
        if isinstance(outcome.site.node, ast.Call) and any(
            _inside(statement, o.site.statement) and f.edits != fix.edits for o, f in branches
        ):
            continue
        places = [source.position(at)[0] for e in fix.edits for at in (e.start, e.end)]
        # An insertion far above, such as a hoisted line, does not reach over what lies between.
        near = [p for p in places if p >= statement.lineno - 1]
        reach = (
            min([statement.lineno, *near]),
            max([statement.end_lineno or statement.lineno, *near]),
        )
        if any(fix.edits == other.edits for _, other in done):
            done.append((outcome, fix))
            continue
        if any(a <= reach[1] and reach[0] <= b for a, b in taken):
            continue
        # A function that both would add is found there by the second, and no line is indented twice.
        if any(e in other.edits for e in fix.edits for _, other in done):
            continue
        # Two settings may want one line, which the second has to find changed.
        if fix.setting is not None and any(other.setting is not None for _, other in done):
            continue
        taken.append(reach)
        done.append((outcome, fix))
    for outcome, own in wanted:
        statement = outcome.site.statement
        for other, fix, lines in enclosing:
            if not any(o is other for o, _ in done) or any(o is outcome for o, _ in done):
                continue
            if _is_enclosed(outcome, other, lines) and own.edits != fix.edits:
                done.append((outcome, fix))
        if isinstance(outcome.site.node, ast.Call) and not any(o is outcome for o, _ in done):
            around = [(o, f) for o, f in done if _inside(statement, o.site.statement)]
            around = [(o, f) for o, f in around if not f.prepares]
            if around and isinstance(around[0][0].site.node, ast.If):
                done.append((outcome, around[0][1]))
    for marking, fix in [pair for pair in done if pair[1].marks]:
        function = marking.site.function.node
        same = [o for o in outcomes if o.site.function.node is function]
        done += [(o, fix) for o in same if not any(o is other for other, _ in done)]
    return done


def _lines(outcome: Outcome, fix: Fix, source: SourceFile) -> tuple[int, int]:
    """The lines of a fix that treats what it encloses: of its edits and of its statement."""
    statement = outcome.site.statement
    places = [source.position(at)[0] for e in fix.edits for at in (e.start, e.end)]
    places += [statement.lineno, statement.end_lineno or statement.lineno]
    return min(places), max(places)


def _is_enclosed(outcome: Outcome, other: Outcome, lines: tuple[int, int]) -> bool:
    """Whether a site stands in what a fix of another one rewrites as a whole."""
    statement = outcome.site.statement
    end = statement.end_lineno or statement.lineno
    return outcome is not other and lines[0] <= statement.lineno and end <= lines[1]


def _inside(statement: ast.stmt, outer: ast.stmt) -> bool:
    return any(n is statement for n in walk(outer)) and statement is not outer


def _depth_key(outcome: Outcome) -> tuple[int, int]:
    statement = outcome.site.statement
    length = (statement.end_lineno or statement.lineno) - statement.lineno
    inner = 0 if isinstance(outcome.site.node, ast.Call) else 1
    return (length + inner, -statement.lineno)
