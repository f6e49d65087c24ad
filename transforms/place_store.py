"""Stores a number at places that a mask selects from a list of them, by a mask of all places.

Nucleus sampling sorts the scores, decides in that order which to drop, and drops them where they
came from: `scores[order[drop]] = -inf`. How many those are depends on data. Counting for each place
how often it is selected gives a mask over the places, of a size that is known.

Before:

    def nucleus(scores: torch.Tensor):
        likely, order = torch.sort(scores.softmax(-1), descending=True)
        drop = likely.cumsum(-1) > 0.9
        removed = order[drop]
        scores[removed] = float("-inf")
        return scores.softmax(-1)

After:

    def nucleus(scores: torch.Tensor):
        likely, order = torch.sort(scores.softmax(-1), descending=True)
        drop = likely.cumsum(-1) > 0.9
        if torch.compiler.is_compiling():
            hits = torch.zeros(scores.shape[0], dtype=torch.long, device=order.device)
            hits = hits.index_add(0, order.flatten() % scores.shape[0], drop.flatten().long())
            scores[hits > 0] = float("-inf")
        else:
            removed = order[drop]
            scores[removed] = float("-inf")
        return scores.softmax(-1)

What is stored is one number, for stores of several could meet at one place. A place that is out of
bounds raises in eager code; compiled code counts on from the beginning, as it does for negative ones.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.ranks import Ranks
from gbfix.analysis.reads import indices
from gbfix.analysis.trees import loops_around, walk
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat, operand
from gbfix.codegen.fitting import fitted
from gbfix.diagnoses import MASK_INDEX
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.placement import beside_all, width_for
from gbfix.lowering.selection import mask_tests
from gbfix.lowering.views import block_of

_REASON = "selected places are counted; one that is out of bounds raises in eager code alone"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to store by a mask of all places.

    Raises:
        Refused: where the places are used for more, or several values are stored.
        NotApplicable: where what a mask selects is no list of places that are stored to.
    """
    selected = site.node
    if not isinstance(selected, ast.Subscript) or isinstance(
        selected.slice, (ast.Tuple, ast.Slice)
    ):
        raise NotApplicable("not-a-store", "no places are selected")
    statements = _statements(selected, site.statement, context)
    store = statements[-1]
    target = store.targets[0]
    assert isinstance(target, ast.Subscript)
    _check(selected, store, context)
    view = context.view
    torch = context.torch(statements[0])
    places, mask = selected.value, selected.slice
    called = any(isinstance(n, ast.Call) for n in walk(places))
    if called or not isinstance(places, (ast.Name, ast.Attribute, ast.Subscript)):
        raise Refused("complex-expression", "the places have no name")
    tests = mask_tests(mask, context.analysis, torch)
    hits = context.names.take("hits")
    base, text = _base(target, context), flat(view, places)
    lines, given = _for_all(mask, places, context)
    lines = [
        *lines,
        f"{hits} = {torch}.zeros({base}.shape[0], dtype={torch}.long, device={text}.device)",
        f"{hits} = {hits}.index_add(0, {text}.flatten() % {base}.shape[0], {given}.flatten().long())",
        f"{base}[{hits} > 0] = {flat(view, store.value)}",
    ]
    width = width_for(context, store)
    lines = [fitted(line, width, context.unit) for line in lines]
    edits = beside_all(statements, "\n".join(lines), torch, tests, context)
    return Fix("place-store", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _for_all(mask: ast.expr, places: ast.expr, context: Context) -> tuple[list[str], str]:
    """A mask with an element for each place, also where it is one of leading dimensions."""
    ranks = Ranks(context.analysis, context.facts)
    values, view = context.analysis.values, context.view
    text, whole = operand(view, mask), operand(view, places)
    lines: list[str] = []
    if not isinstance(mask, (ast.Name, ast.Attribute, ast.Subscript)):
        text = context.names.take("mask")
        lines.append(f"{text} = {flat(view, mask)}")
    rank = ranks.of(mask)
    if values[mask].shape == values[places].shape or (
        rank is not None and rank == ranks.of(places)
    ):
        return lines, text
    name = context.names.take("chosen")
    more = f"(1,) * ({whole}.dim() - {text}.dim())"
    return [*lines, f"{name} = {text}.reshape({text}.shape + {more}).expand_as({whole})"], name


def _statements(selected: ast.Subscript, statement: ast.stmt, context: Context) -> list[ast.Assign]:
    """The store, and before it the statement that names the places, if they have a name.

    Raises:
        NotApplicable: where nothing is stored at the places.
        Refused: where the name is used for more.
    """
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        raise NotApplicable("not-a-store", "the places are not the index of a store")
    target = statement.targets[0]
    if isinstance(target, ast.Subscript) and indices(target)[-1] is selected:
        return [statement]
    if not isinstance(target, ast.Name) or statement.value is not selected:
        raise NotApplicable("not-a-store", "the places are not the index of a store")
    info = context.info
    definitions = definitions_of(info.node, info.module)
    block = block_of(statement, info.module)
    following = block[block.index(statement) + 1 :][:1]
    for store in following:
        if not isinstance(store, ast.Assign) or len(store.targets) != 1:
            continue
        place = store.targets[0]
        last = indices(place)[-1] if isinstance(place, ast.Subscript) else None
        if isinstance(last, ast.Name) and last.id == target.id:
            after = [u for u in definitions.loads.get(target.id, []) if u is not last]
            if any(_reads(u, statement, context) for u in after):
                raise Refused("places-used", f"`{target.id}` is used for more than the store")
            return [statement, store]
    raise NotApplicable("not-a-store", "the places are not the index of a store that comes next")


def _reads(use: ast.Name, statement: ast.stmt, context: Context) -> bool:
    """Whether a use of a name may read what a statement bound, and not what was bound anew."""
    info = context.info
    definitions = definitions_of(info.node, info.module)
    if any(loops_around(statement, info.node, info.module.parents)):
        return True
    stores = [s.lineno for s in definitions.stores.get(use.id, [])]
    between = [line for line in stores if statement.lineno < line <= use.lineno]
    return use.lineno > statement.lineno and not between


def _base(target: ast.Subscript, context: Context) -> str:
    """The tensor, or the row of it, whose places are stored to."""
    text = operand(context.view, target.value)
    before = indices(target)[:-1]
    if not before:
        return text
    values = [context.analysis.values.get(e) for e in before]
    if any(isinstance(e, ast.Slice) for e in before) or not all(
        v is not None and v.only(Kind.STATIC) for v in values
    ):
        raise Refused("other-index", "the places are not those of one row")
    return f"{text}[{', '.join(flat(context.view, e) for e in before)}]"


def _check(selected: ast.Subscript, store: ast.Assign, context: Context) -> None:
    """Whether integers of known places get one number.

    Raises:
        Refused: where they may not be, or may get several.
    """
    values = context.analysis.values
    target = store.targets[0]
    assert isinstance(target, ast.Subscript)
    places, base, given = (values.get(n) for n in (selected.value, target.value, store.value))
    if places is None or not places.tensor or not places.integer:
        raise Refused("places-unproven", f"`{ast.unparse(selected.value)}` may hold no integers")
    if base is None or not base.tensor:
        raise Refused("not-a-tensor", f"`{ast.unparse(target.value)}` may be no tensor")
    if given is None or not (given.only(Kind.STATIC) or (given.tensor and given.zero_dim)):
        raise Refused("row-values", "the places get values that are not one number")


TRANSFORM = Transform(
    name="place-store",
    codes=(MASK_INDEX.code,),
    summary="store a number at selected places by a mask of all places",
    doc=__doc__ or "",
    propose=propose,
    rank=9,
)
