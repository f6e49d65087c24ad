"""Takes the general path when compiling, past a shortcut that is assumed to only save work.

`if not changed.any(): break` ends a loop whose further rounds would change nothing; `if keep.all():
return x` spares a selection that would select everything. Such a test costs more in a graph than
what it spares. The compiled path passes it by; without compiling, the shortcut is taken as before.

Before:

    def spread(x: torch.Tensor):
        for step in (1, 2, 4):
            near = x.roll(step)
            fresh = (near > 0) & (x == 0)
            if not fresh.any():
                break
            x = torch.where(fresh, near, x)
        return x

After:

    def spread(x: torch.Tensor):
        for step in (1, 2, 4):
            near = x.roll(step)
            fresh = (near > 0) & (x == 0)
            if not torch.compiler.is_compiling() and not fresh.any():
                break
            x = torch.where(fresh, near, x)
        return x

That the general path gives the same values is an assumption, so the fix is unsafe, unless all that is
spared is a mask (`mask = None`) that does nothing in attention, `masked_fill` and the like.
`gbfix apply --verify` takes it if the code was run both ways, the shortcut taken and not taken, and
did the same. Offered where the test asks whether there is anything to do, what is done if not is
trivial, and the code that is then always run uses what was tested.
`if len(set(lengths)) == 1: return ...` is such a shortcut, too, if lengths of any kind are treated
after it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused, split
from gbfix.analysis.effects import effects
from gbfix.analysis.logs import log_family
from gbfix.analysis.trees import walk
from gbfix.diagnoses import LOOP_EXIT, TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.alike import alike
from gbfix.lowering.idle import Idle, idle
from gbfix.lowering.neutral_uses import check_uses
from gbfix.lowering.placement import compiled_test, eager_only_test
from gbfix.lowering.views import walk_scope

_REASON = "assumes that the general path gives the same where the test finds nothing to do"
_DROPPED = "a mask that changes nothing takes the place of None, as far as it is used"
_REGULAR = "assumes that the path for any lengths gives the same where all are alike"
_UNCONDITIONAL = (ast.Raise, ast.Assert, ast.Delete, ast.Global, ast.Nonlocal, ast.Yield, ast.Await)


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to pass a shortcut by.

    Raises:
        Refused: where this does not look like a shortcut, or passing it by would show.
    """
    node = site.node
    if not isinstance(node, ast.If):
        raise NotApplicable("no-shortcut", "this is not a branch")
    regular = alike(node.test)
    if regular is not None:
        return _past_regular(node, regular, context)
    parts = split(node.test, context.analysis, context.facts)
    found = idle(parts.predicate, context.analysis.values)
    if found is None:
        raise NotApplicable("no-shortcut", "the test does not ask whether there is anything to do")
    spared, busy = (node.body, node.orelse) if found.truth else (node.orelse, node.body)
    if not all(_trivial(statement, context) for statement in spared):
        raise NotApplicable("no-shortcut", "neither way is one that does nothing")
    if busy and all(_trivial(statement, context) for statement in busy):
        _check_returned(node, busy, context)
    _check_loop(node, spared, context)
    _check_busy(busy, context)
    later = list(_afterwards(node, context))
    _check_related(node.test, spared, [*busy, *later])
    torch = context.torch(node)
    if found.truth:
        edits = eager_only_test(node, torch, context)
    else:
        edits = compiled_test(node, torch, parts.guards, context)
    if not busy and _drops_neutral(node, spared, found, context):
        return Fix("bypass", Safety.REVIEW, _DROPPED, edits, context.needs_torch)
    return Fix("bypass", Safety.UNSAFE, _REASON, edits, context.needs_torch, by_running=True)


def _drops_neutral(node: ast.If, spared: Sequence[ast.stmt], found: Idle, context: Context) -> bool:
    """Whether all that is spared is a mask, which does nothing where it is used if it is kept."""
    first = spared[0]
    target = first.targets[0] if isinstance(first, ast.Assign) else None
    if len(spared) != 1 or not isinstance(first, ast.Assign) or not isinstance(target, ast.Name):
        return False
    mask = next((m for m in found.masks if m.name == target.id), None)
    block = context.info.module.parents[node]
    if mask is None or ast.unparse(first.value) != "None" or block is not context.info.node:
        return False
    try:
        end = node.end_lineno or node.lineno
        check_uses(context.info.node, context.info.module, target.id, mask, end, context.facts)
    except Refused:
        return False
    return True


def _past_regular(node: ast.If, name: str, context: Context) -> Fix:
    """Take the path for any lengths past the one for lengths that are all the same.

    Raises:
        Refused: where it is not one path or the other that gives the result.
    """
    body = context.info.node.body
    rest = body[body.index(node) + 1 :] if node in body else []
    ways = [node.body, rest]
    if node.orelse or not all(w and isinstance(w[-1], ast.Return) and w[-1].value for w in ways):
        raise NotApplicable("no-shortcut", "neither way is a shortcut of the other")
    returned = getattr(node.body[-1], "value", None) or node.body[-1]
    skipped = effects([*node.body[:-1], returned], context.analysis, context.facts)
    if not skipped.pure or skipped.random:
        raise Refused("impure-arm", "the code under the test does more than compute")
    if not any(isinstance(n, ast.Name) and n.id == name for s in rest for n in walk(s)):
        raise Refused("unrelated-test", "what the test would spare does not use what is tested")
    edits = eager_only_test(node, context.torch(node), context)
    return Fix("bypass", Safety.UNSAFE, _REGULAR, edits, context.needs_torch, by_running=True)


def _trivial(statement: ast.stmt, context: Context) -> bool:
    """What a shortcut does in place of the work: leave, or set names to what is at hand."""
    if isinstance(statement, (ast.Pass, ast.Break, ast.Continue)):
        return True
    if isinstance(statement, ast.Return):
        return statement.value is None or _at_hand(statement.value, context)
    if isinstance(statement, ast.Assign):
        names = all(isinstance(target, ast.Name) for target in statement.targets)
        return names and _at_hand(statement.value, context)
    return False


def _at_hand(node: ast.expr, context: Context) -> bool:
    """A name, a constant, a few of them, or a tensor of one number."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(_at_hand(element, context) for element in node.elts)
    if isinstance(node, ast.Dict):
        return not node.keys
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        filled = name.removeprefix("new_").removesuffix("_like")
        made = filled in {"zeros", "ones", "full", "empty", "tensor", "clone"}
        return made and effects([node], context.analysis, context.facts).pure
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, (ast.Name, ast.Constant))


def _check_returned(node: ast.If, busy: Sequence[ast.stmt], context: Context) -> None:
    """Where neither way does anything, the general one is the one that returns something.

    `if (mask == 0).any(): return mask` with `return None` after it; any other way out of a function or
    loop may be just as much what the test is for.
    """
    block = getattr(context.info.module.parents[node], "body", [])
    rest = block[block.index(node) + 1 :] if node in block else []
    given = [s.value for s in (*busy, *rest) if isinstance(s, ast.Return)]
    none = [value is None or ast.unparse(value) == "None" for value in given]
    if node.orelse or len(rest) != 1 or len(busy) != 1 or none != [False, True]:
        raise NotApplicable("no-shortcut", "neither way is the one that does the work")


def _check_loop(node: ast.If, spared: Sequence[ast.stmt], context: Context) -> None:
    leaving = [s for s in spared if isinstance(s, (ast.Break, ast.Continue, ast.Return))]
    if not leaving:
        return
    if leaving[0] is not spared[-1]:
        raise Refused("no-shortcut", "there is code after the place where it leaves")
    loop = _loop_around(node, context)
    if loop is None:
        return
    if isinstance(loop, ast.While) and not isinstance(leaving[0], ast.Continue):
        raise Refused("endless-loop", "without this exit the loop may never end")
    if isinstance(leaving[0], ast.Break) and loop.orelse:
        raise Refused("loop-else", "the loop has an `else` that a break leaves out")


def _loop_around(node: ast.AST, context: Context) -> ast.For | ast.While | None:
    parent = context.info.module.parents.get(node)
    while parent is not None and not isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if isinstance(parent, (ast.For, ast.While)):
            return parent
        parent = context.info.module.parents.get(parent)
    return None


def _check_busy(busy: Sequence[ast.stmt], context: Context) -> None:
    """What would now always run must not be one that shows even where there is nothing to do."""
    for statement in busy:
        for node in [statement, *walk_scope(statement)]:
            if isinstance(node, _UNCONDITIONAL):
                raise Refused("impure-arm", "the code under the test does more than compute")
            if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant):
                raise Refused("counts-rounds", f"`{ast.unparse(node)}` counts how often it is run")
            if isinstance(node, ast.Expr) and log_family(
                node.value, context.analysis, context.facts
            ):
                raise Refused("impure-arm", "the code under the test prints or logs")
            if _stores_constant(node):
                raise Refused("sets-flag", f"`{ast.unparse(node)}` would be set always")


def _stores_constant(node: ast.AST) -> bool:
    """`self.started = True`: a state that says whether the code was run."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and any(isinstance(target, ast.Attribute) for target in node.targets)
    )


def _afterwards(node: ast.If, context: Context) -> Iterator[ast.stmt]:
    """What runs after an `if`: the rest of the function and, in a loop, the next round."""
    loop = _loop_around(node, context)
    if loop is not None:
        yield from loop.body
    for statement in context.info.node.body:
        for inner in walk(statement):
            if isinstance(inner, ast.stmt) and inner.lineno > (node.end_lineno or node.lineno):
                yield inner


def _check_related(test: ast.expr, spared: Sequence[ast.stmt], always: Sequence[ast.stmt]) -> None:
    """The code that always runs uses a tensor that was tested, or a name that the shortcut sets."""
    tested = {n.id for n in walk(test) if isinstance(n, ast.Name)} - {"torch", "self"}
    tested |= {
        ast.unparse(n)
        for n in walk(test)
        if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "self"
    }
    for statement in spared:  # `mask = None`: the code that looks for a mask then always finds it
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "None":
            tested |= {ast.unparse(target) for target in statement.targets}
    used: set[str] = set()
    for statement in always:
        for node in walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                used.add(node.id)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
                used.add(ast.unparse(node))
    if not tested & used:
        raise Refused("unrelated-test", "what the test would spare does not use what is tested")


TRANSFORM = Transform(
    name="bypass",
    codes=(TENSOR_BRANCH.code, LOOP_EXIT.code),
    summary="take the general path past a shortcut that is assumed to only save work",
    doc=__doc__ or "",
    propose=propose,
    rank=80,
)
