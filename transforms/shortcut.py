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

from gbfix.analysis.conditions import Leaf, NotApplicable, Refused, Split, split
from gbfix.analysis.consumers import Consumer, consumers
from gbfix.analysis.sites import BreakSite
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import flat
from gbfix.diagnoses import TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.neutral import Neutral, same_under, shortcut_mask, unchanged
from gbfix.lowering.placement import compiled_block, eager_only_test
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
            _check_uses(consumer, name, mask.renamed(name))


def _check_uses(consumer: Consumer, name: str, mask: Neutral) -> None:
    """Every read of the mask stands under `is not None`, in something that it leaves unchanged."""
    module, seen = consumer.module, 0
    for use in walk(consumer.scope):
        if (
            not isinstance(use, ast.Name)
            or use.id != name
            or use.lineno <= consumer.statement.lineno
        ):
            continue
        if not isinstance(use.ctx, ast.Load):
            raise Refused("consumer-unknown", f"a caller rebinds `{name}`")
        parent = module.parents[use]
        if isinstance(parent, ast.Compare) and _asks_none(parent):
            continue
        statement: ast.AST = use
        while not isinstance(statement, ast.stmt):
            statement = module.parents[statement]
        above = module.parents[statement]
        guarded = (
            isinstance(above, ast.If)
            and statement in above.body
            and not above.orelse
            and ast.unparse(above.test) == f"{name} is not None"
        )
        if not guarded or not _leaves_unchanged(statement, mask):
            raise Refused(
                "consumer-uses-mask", f"a caller does more with `{name}` than apply it as a mask"
            )
        seen += 1
    if not seen:
        raise Refused("consumer-unknown", f"a caller never applies `{name}`")


def _asks_none(node: ast.Compare) -> bool:
    return (
        len(node.ops) == 1 and isinstance(node.ops[0], ast.IsNot) and _is_none(node.comparators[0])
    )


def _leaves_unchanged(statement: ast.stmt, mask: Neutral) -> bool:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    return isinstance(target, ast.Name) and unchanged(statement.value, target.id, mask)


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
