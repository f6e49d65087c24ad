"""Leaves out a shortcut that only saves work, where the general path gives the same.

`if keep.all(): return values, None` spares the callers a mask that selects everything. In a graph the
test costs more than it saves, and a result that is a tensor on one path and None on the other cannot
be selected at all. The compiled path always takes the general one.

Before:

    def split(values: torch.Tensor, ignore: int):
        keep = values != ignore
        if keep.all():
            return values, None
        return values.where(keep, values.new_zeros(1)), keep


    def loss(values: torch.Tensor, scores: torch.Tensor):
        values, keep = split(values, -100)
        scores = scores * values
        if keep is not None:
            scores = scores * keep
        return scores.sum()

After:

    def split(values: torch.Tensor, ignore: int):
        keep = values != ignore
        if not torch.compiler.is_compiling() and keep.all():
            return values, None
        return values.where(keep, values.new_zeros(1)), keep


    def loss(values: torch.Tensor, scores: torch.Tensor):
        values, keep = split(values, -100)
        scores = scores * values
        if keep is not None:
            scores = scores * keep
        return scores.sum()

Offered only where it is proven: every value that both paths return is the same under a mask that
selects everything, and every caller in the project does nothing under `is not None` that such a mask
would not leave unchanged (a product with a boolean mask, `masked_fill` of what it rejects, `where`).
Callers outside the project get the mask instead of None when they are compiled together with it.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import (
    Leaf,
    Negated,
    NotApplicable,
    Predicate,
    Refused,
    Split,
    split,
)
from gbfix.analysis.consumers import consumers
from gbfix.analysis.definitions import definitions_of
from gbfix.codegen.expressions import flat
from gbfix.diagnoses import TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.idle import idle
from gbfix.lowering.neutral import Neutral, same_under, shortcut_mask
from gbfix.lowering.neutral_uses import check_uses, handed_on
from gbfix.lowering.placement import compiled_block, compiled_test, eager_only_test
from gbfix.lowering.views import is_elif, walk_scope

_REASON = (
    "the general path gives the same values, and a mask that selects everything instead of None"
)


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to leave out a shortcut.

    Raises:
        Refused: where the general path is not proven to give the same.
    """
    node = site.node
    if isinstance(node, ast.IfExp):
        return _spared(node, site.statement, context)
    if not isinstance(node, ast.If):
        raise NotApplicable("no-shortcut", "this is not a branch")
    taken, other = _returned(node, context)
    general, short, truth = _which(taken, other)
    parts = split(node.test, context.analysis, context.facts)
    if not isinstance(_inner(parts), Leaf):
        raise Refused("no-neutral-mask", "the test does not say that a mask selects everything")
    said = shortcut_mask(_tested(parts), truth ^ _negated(parts))
    if said is None:
        raise Refused("no-neutral-mask", "the test does not say that a mask selects everything")
    mask = Neutral(said[0], said[1] and _is_boolean(said[0], context))
    if said[1] and not mask.boolean:
        raise Refused("no-neutral-mask", f"`{said[0]}` is not proven to be a boolean mask")
    positions = _check_values(general, short, mask)
    _check_consumers(context, positions, mask)
    return _fix(node, parts, general, truth, context)


def _spared(node: ast.IfExp, statement: ast.stmt, context: Context) -> Fix:
    """`mask if mask.any() else None`, which is handed on: the mask is, when compiled.

    Raises:
        Refused: where what it is handed to may do something with the mask.
    """
    truth = _is_none(node.body)  # of the test where None is handed on
    kept = node.orelse if truth else node.body
    if truth == _is_none(node.orelse) or not isinstance(kept, ast.Name):
        raise NotApplicable("no-shortcut", "this is not a mask or None")
    parts = split(node.test, context.analysis, context.facts)
    found = idle(_resolved(parts.predicate, context), context.analysis.values)
    mask = next((m for m in found.masks if m.name == kept.id), None) if found is not None else None
    if (parts.guards and truth) or found is None or mask is None or found.truth is not truth:
        raise Refused("no-neutral-mask", "the test does not say that the mask selects everything")
    # Whoever applies the mask takes a tensor, so that what was not proven need not be asked.
    written = [guard for guard in parts.guards if hasattr(guard.node, "lineno")]
    parent = context.info.module.parents[node]
    scope, module = context.info.node, context.info.module
    plain = isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name)
    if plain and module.parents[parent] is scope:  # what follows it stands below it
        assert isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name)
        name = parent.targets[0].id
        check_uses(scope, module, name, mask.renamed(name), parent.lineno, context.facts)
    elif not handed_on(node, scope, module, mask, context.facts):
        raise Refused("consumer-unknown", "what the mask is handed to is not followed")
    torch = context.torch(statement)
    edits = (
        eager_only_test(node, torch, context)
        if truth
        else compiled_test(node, torch, written, context)
    )
    return Fix("shortcut", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _resolved(predicate: Predicate, context: Context) -> Predicate:
    """A predicate with the value of a name that was bound to it once."""
    if isinstance(predicate, Negated):
        return Negated(_resolved(predicate.part, context))
    if not isinstance(predicate, Leaf) or not isinstance(predicate.node, ast.Name):
        return predicate
    definitions = definitions_of(context.info.node, context.info.module)
    made = definitions.of(predicate.node)
    if made is None or not definitions.holds(made.value, made):
        return predicate
    return Leaf(made.value, predicate.value, predicate.scalar)


def _returned(node: ast.If, context: Context) -> tuple[ast.expr | None, ast.expr | None]:
    """What the two ways return: the only statement of the arm, and the end of the function."""
    body = context.info.node.body
    if is_elif(node, context.info.module) or node not in body or node.orelse:
        raise NotApplicable("no-shortcut", "this is not an early return")
    rest = body[body.index(node) + 1 :]
    if len(node.body) != 1 or not isinstance(node.body[0], ast.Return):
        raise NotApplicable("no-shortcut", "this is not an early return")
    inner = [n for s in rest for n in walk_scope(s) if isinstance(n, ast.Return)]
    if not rest:
        return node.body[0].value, None
    if len(inner) != 1 or rest[-1] is not inner[0]:
        raise NotApplicable("no-shortcut", "the general path returns in several places")
    return node.body[0].value, inner[0].value


def _elements(node: ast.expr | None) -> list[ast.expr]:
    if node is None:
        return [ast.Constant(None)]
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _which(
    taken: ast.expr | None, other: ast.expr | None
) -> tuple[list[ast.expr], list[ast.expr], bool]:
    """The general result, the short one, and the truth of the test for which the short one is taken."""
    a, b = _elements(taken), _elements(other)
    if len(a) != len(b):
        raise NotApplicable("no-shortcut", "the two ways return different numbers of values")
    short_a = any(_is_none(x) and not _is_none(y) for x, y in zip(a, b, strict=True))
    short_b = any(_is_none(y) and not _is_none(x) for x, y in zip(a, b, strict=True))
    if short_a == short_b:
        raise NotApplicable("no-shortcut", "neither way spares a mask")
    return (b, a, True) if short_a else (a, b, False)


def _inner(parts: Split) -> object:
    predicate = parts.predicate
    return predicate if isinstance(predicate, Leaf) else getattr(predicate, "part", None)


def _negated(parts: Split) -> bool:
    return not isinstance(parts.predicate, Leaf)


def _tested(parts: Split) -> ast.expr:
    leaf = _inner(parts)
    assert isinstance(leaf, Leaf)
    return leaf.node


def _is_boolean(name: str, context: Context) -> bool:
    for environment in context.analysis.before.values():
        value = environment.get(name)
        if value is not None and value.tensor and value.boolean:
            return True
    return False


def _check_values(general: list[ast.expr], short: list[ast.expr], mask: Neutral) -> list[int]:
    """The positions where the short way has None; everything else must be the same."""
    positions: list[int] = []
    for position, (long, brief) in enumerate(zip(general, short, strict=True)):
        if _is_none(brief):
            if ast.unparse(long) != mask.name:
                raise Refused("no-neutral-mask", f"`{ast.unparse(long)}` is not the tested mask")
            positions.append(position)
        elif not same_under(long, brief, mask):
            raise Refused(
                "values-unproven",
                f"`{ast.unparse(long)}` is not proven to be `{ast.unparse(brief)}` there",
            )
    return positions


def _check_consumers(context: Context, positions: list[int], mask: Neutral) -> None:
    found = consumers(context.info, context.facts)
    if not found:
        raise Refused("consumer-unknown", "no caller in the project shows what None stands for")
    for consumer in found:
        for position in positions:
            name = consumer.targets[position] if position < len(consumer.targets) else None
            if name is None:
                raise Refused(
                    "consumer-unknown", "a caller keeps the result where it is not followed"
                )
            check_uses(
                consumer.scope,
                consumer.module,
                name,
                mask.renamed(name),
                consumer.statement.lineno,
                context.facts,
            )


def _fix(node: ast.If, parts: Split, general: list[ast.expr], truth: bool, context: Context) -> Fix:
    torch = context.torch(node)
    if truth:  # the shortcut is the arm: its test is false while compiling
        edits = eager_only_test(node, torch, context)
    else:
        body = f"return {', '.join(flat(context.view, g) for g in general)}"
        edits = (compiled_block(node, body, torch, parts.guards, context),)
    return Fix("shortcut", Safety.REVIEW, _REASON, edits, context.needs_torch)


TRANSFORM = Transform(
    name="shortcut",
    codes=(TENSOR_BRANCH.code,),
    summary="leave out a shortcut that only spares a neutral mask",
    doc=__doc__ or "",
    propose=propose,
    rank=25,
)
