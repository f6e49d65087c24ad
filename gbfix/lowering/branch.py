"""A tensor-dependent `if` as two arms with common outputs, ready to be written in another form.

Finds which names and attributes the arms decide (modified in an arm and live afterwards), turns an
early return into two returning arms, and refuses what no functional form can express. Says nothing
about which form that will be.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused, Split, split
from gbfix.analysis.effects import Effects, effects
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.liveness import Liveness
from gbfix.analysis.trees import walk
from gbfix.diagnoses import LOOP_EXIT
from gbfix.lowering.kept_items import kept_items
from gbfix.lowering.preparation import split_preparation
from gbfix.lowering.stores import Store, stores_in
from gbfix.lowering.views import (
    block_of,
    compiled_view,
    contains,
    final_returns,
    in_loop_of,
    is_elif,
    returns,
    skips,
    walk_scope,
)


@dataclass(frozen=True)
class Output:
    """Something that the branch decides.

    Attributes:
        name: a local name, or the dotted name of an attribute.
        local: the local name that carries it inside an arm.
        call: the `register_buffer` call that sets it, for a buffer.
        place: how the source reaches it, for a buffer that is updated in place.
    """

    name: str
    local: str
    call: ast.Call | None = None
    place: str = ""

    @property
    def is_attribute(self) -> bool:
        """Whether it is an attribute rather than a local name."""
        return "." in self.name


@dataclass(frozen=True)
class Arm:
    """One way through the branch, as traced: eager-only statements are left out.

    `preparation` holds what may run before the branch, whichever way it goes.
    """

    statements: tuple[ast.stmt, ...]
    effects: Effects
    truth: bool
    preparation: tuple[ast.stmt, ...] = ()
    stores: Mapping[ast.stmt, Store] = field(default_factory=dict)

    @property
    def returned(self) -> ast.expr | None:
        """What the arm returns at its end, in the last line of it if there are several ends."""
        ends = final_returns(self.statements)
        return ends[-1].value if ends else None


@dataclass(frozen=True)
class Branch:
    """A branch to be rewritten.

    Attributes:
        node: the `if` statement.
        split: guards and predicate of its test.
        arms: the arm taken when the test holds, and the other.
        returns: both arms return; otherwise both fall through.
        outputs: what the arms decide, in source order; empty where they return.
        rest: statements after the `if` that are the other arm of an early return.
        is_elif: the `if` is an `elif` of another.
        leaves: the statement that has to follow a compiled path, where the branch takes up all that
            comes after it: a `return` without a value, or a `continue`.
        stored: where both arms give values as if they returned them, the targets that take them.
        asked: names that the compiled path asks whether they hold tensors, which was not proven.
    """

    node: ast.If
    split: Split
    arms: tuple[Arm, Arm]
    returns: bool
    outputs: tuple[Output, ...]
    rest: tuple[ast.stmt, ...]
    is_elif: bool
    leaves: str = ""
    stored: tuple[ast.expr, ...] = ()
    asked: dict[str, None] = field(default_factory=dict, compare=False)

    @property
    def ends(self) -> bool:
        """Whether nothing of the function follows the branch."""
        return self.returns and not self.stored

    @property
    def place(self) -> tuple[ast.stmt, ast.stmt]:
        """The first and the last statement that the branch takes up."""
        return self.node, self.rest[-1] if self.rest else self.node

    @property
    def updates(self) -> bool:
        """Whether the arms update buffers in place."""
        return any(o.place for o in self.outputs)


def find_branch(site: BreakSite, facts: Facts, liveness: Liveness) -> Branch:
    """Take the `if` of a site apart.

    Raises:
        Refused: where the arms have no functional form.
    """
    node, analysis = site.node, site.analysis
    assert isinstance(node, ast.If)
    if site.diagnosis is LOOP_EXIT and not (skips(node.body) or skips(node.orelse)):
        raise NotApplicable("loop-control", "an arm leaves the loop around it")
    module = analysis.info.module
    chained = is_elif(node, module)
    parts = split(node.test, analysis, facts)
    body, orelse = list(node.body), list(node.orelse)
    rest: list[ast.stmt] = []
    leaves = ""
    returning = [returns(body), returns(orelse)]
    skipping = [skips(body), skips(orelse)]
    if not any(returning) and skipping.count(True) == 1:
        rest = _rest_of_round(node, analysis)
        leaves = "continue"
        body = body[:-1] if skipping[0] else [*body, *rest]
        orelse = orelse[:-1] if skipping[1] else [*orelse, *rest]
    if any(returning) and not all(returning):
        rest = _rest(node, analysis)
        if _bare_return(body if returning[0] else orelse) and not _returns_value(rest):
            leaves = "return"
            body, orelse = (
                ([*body[:-1]], [*orelse, *rest])
                if returning[0]
                else ([*body, *rest], [*orelse[:-1]])
            )
            returning = [False, False]
        elif returning[0]:
            orelse = [*orelse, *rest]
        else:
            body = [*body, *rest]
        if not leaves and not (returns(body) and returns(orelse)):
            raise Refused(
                "none-result", "one way through the function returns a tensor, the other None"
            )
    elif not any(returning) and contains([*body, *orelse], ast.Return):
        raise Refused("return-in-arm", "an arm returns on some of its paths only")
    end = rest[-1] if leaves == "continue" else node
    live = liveness.after.get(end, frozenset()) | liveness.captured
    stored: tuple[ast.expr, ...] = ()
    if not leaves and not any(returning):
        views = (compiled_view(body, analysis, facts), compiled_view(orelse, analysis, facts))
        if (items := kept_items(*views, live)) is not None:
            stored, body, orelse = items
    arms = (
        _arm(body, analysis, facts, True, live),
        _arm(orelse, analysis, facts, False, live),
    )
    both = not leaves and (returns(body) and returns(orelse))
    for arm in arms:
        _check_control(arm)
    if both:
        for arm in arms:
            for name in (*arm.effects.attributes, *(s.name for s in arm.stores.values())):
                raise Refused("sets-and-returns", f"an arm sets `{name}` and returns as well")
    outputs = () if both else _outputs(live, arms, analysis)
    if not both and not outputs:
        _explain_no_outputs(arms)
    return Branch(node, parts, arms, both, outputs, tuple(rest), chained, leaves, stored)


def _rest_of_round(node: ast.If, analysis: Analysis) -> list[ast.stmt]:
    """The statements of a loop's body that follow an `if` in it, out of the blocks around it too."""
    module = analysis.info.module
    rest: list[ast.stmt] = []
    top: ast.stmt = node
    while True:
        block = block_of(top, module)
        rest += block[next(i for i, s in enumerate(block) if s is top) + 1 :]
        around = module.parents[top]
        if isinstance(around, (ast.For, ast.While)) and block is around.body:
            break
        if not isinstance(around, ast.If) or around.orelse or is_elif(around, module):
            raise Refused("loop-control", "an arm leaves or continues the loop around it")
        top = around
    if not rest:
        raise Refused("loop-control", "an arm leaves or continues the loop around it")
    return rest


def _bare_return(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return) and body[-1].value is None


def _returns_value(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(n, ast.Return) for s in body for n in walk_scope(s))


def _explain_no_outputs(arms: tuple[Arm, Arm]) -> None:
    """Refuse a branch that binds nothing, by what it does instead.

    Raises:
        Refused: always.
    """
    for arm in arms:
        for target, _ in arm.effects.mutated:
            what = ast.unparse(target)
            raise Refused("mutates-operand", f"an arm changes `{what}` in place")
        for text in arm.effects.unknown.values():
            raise Refused("impure-arm", f"the effects of `{text}` in an arm are not known")
    raise Refused("decides-nothing", "nothing that the arms bind is read later")


def _rest(node: ast.If, analysis: Analysis) -> list[ast.stmt]:
    """The statements that run after an `if` whose arm returns, out of the blocks around it too."""
    module = analysis.info.module
    rest: list[ast.stmt] = []
    top: ast.stmt = node
    while True:
        while isinstance(top, ast.If) and is_elif(top, module):
            above = module.parents[top]
            assert isinstance(above, ast.If)
            top = above
        block = block_of(top, module)
        rest += block[next(i for i, s in enumerate(block) if s is top) + 1 :]
        around = module.parents[top]
        if around is analysis.info.node:
            return rest
        if rest and isinstance(rest[-1], ast.Return):
            return rest
        # What stands in an `else` would lie between the block and what follows it.
        if not isinstance(around, ast.If) or (around.orelse and block is around.body):
            raise Refused(
                "early-return-in-block",
                "the early return stands inside another block, so the rest of the function is not "
                "one arm",
            )
        top = around


def _arm(
    body: Sequence[ast.stmt],
    analysis: Analysis,
    facts: Facts,
    truth: bool,
    live: frozenset[str],
) -> Arm:
    view = compiled_view(body, analysis, facts)
    ready, rest = split_preparation(view, live)
    stores = stores_in(rest, analysis, facts)
    found = effects(rest, analysis, facts)
    calls = {step for store in stores.values() for step in store.steps}
    found.mutated = [(target, node) for target, node in found.mutated if node not in calls]
    return Arm(tuple(rest), found, truth, tuple(ready), stores)


def _check_control(arm: Arm) -> None:
    for node in arm.effects.control:
        if isinstance(node, (ast.Break, ast.Continue)):
            if not in_loop_of(node, (n for s in arm.statements for n in walk(s))):
                raise Refused("loop-control", "an arm leaves or continues the loop around it")
        elif isinstance(node, ast.Raise):
            raise Refused("raise-in-arm", "an arm raises an exception")
        elif isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)):
            raise Refused("suspends-in-arm", "an arm yields or awaits")
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            raise Refused("outer-name-in-arm", "an arm binds a name of an outer scope")
        elif isinstance(node, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Delete, ast.Try)):
            what = type(node).__name__.lower()
            raise Refused("statement-in-arm", f"an arm has a `{what}` statement")
    if arm.effects.zero_super:
        raise Refused(
            "super-in-arm", "`super()` without arguments does not work in a nested function"
        )


def _outputs(live: frozenset[str], arms: tuple[Arm, Arm], analysis: Analysis) -> tuple[Output, ...]:
    declared = {
        name
        for n in walk(analysis.info.node)
        if isinstance(n, (ast.Global, ast.Nonlocal))
        for name in n.names
    }
    names: dict[str, Output] = {}
    for arm in arms:
        for store in arm.stores.values():
            local = store.name.rsplit(".", 1)[1]
            names.setdefault(store.name, Output(store.name, local, place=store.place))
        for name in arm.effects.stores:
            if name in declared:
                raise Refused("outer-name-in-arm", f"`{name}` belongs to an outer scope")
            if name in live:
                names.setdefault(name, Output(name, name))
        for name, places in arm.effects.attributes.items():
            calls = [p for p in places if isinstance(p, ast.Call)]
            if name.count(".") != 1:
                raise Refused("nested-attribute", f"`{name}` is not an attribute of a plain name")
            local = name.rsplit(".", 1)[1]
            known = names.get(name)
            if known is not None and ((known.call is None) != (not calls) or known.place):
                raise Refused("mixed-writes", f"`{name}` is set in two different ways")
            if known is None:
                names[name] = Output(name, local, calls[0] if calls else None)
    return tuple(names.values())
