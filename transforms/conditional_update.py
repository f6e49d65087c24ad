"""Updates tensors in place only where a test on a tensor holds.

An optimizer step that is skipped when gradients overflow decides nothing that has a name: it changes
tensors that others hold. In the compiled path every update is computed, and `torch.where` keeps the
old values where the test does not hold. Loops, static branches and functions of the same module that
only update are written out.

Before:

    @torch.no_grad()
    def step(parameters: list[torch.Tensor], changes: list[torch.Tensor], found_inf: torch.Tensor):
        if not found_inf.any():
            for p, g in zip(parameters, changes):
                p.sub_(0.1 * g)
        return parameters

After:

    @torch.no_grad()
    def step(parameters: list[torch.Tensor], changes: list[torch.Tensor], found_inf: torch.Tensor):
        if torch.compiler.is_compiling():
            holds = ~found_inf.any()
            for p, g in zip(parameters, changes):
                p.copy_(torch.where(holds, p.sub(0.1 * g), p))
        elif not found_inf.any():
            for p, g in zip(parameters, changes):
                p.sub_(0.1 * g)
        return parameters

The work of the update is done every time, as in the fused optimizers of torch. An update that could
not have been made raises when compiled even where the test does not hold, and so does one of a leaf
that requires a gradient; a NaN in an update that is not stored can reach a gradient. So the fix asks
for a review. Where an object would keep the graph of a call, and for lists of tensors, the compiled
path is only taken if no gradient passes. What changes Python state, calls an optimizer, or may fail on
some data is left alone; so is a flag that an arm sets, unless nothing in the project reads it and
`--unsafe` is given. Where it is not proven that a tensor decides, the compiled path asks for one.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Negated, NotApplicable, Refused, split
from gbfix.analysis.trees import walk
from gbfix.codegen.fitting import fitted
from gbfix.codegen.layout import indent
from gbfix.codegen.predicates import Renderer, single
from gbfix.diagnoses import TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.conditional.gradient_guards import gradient_guard
from gbfix.lowering.conditional.steps import MaskedSteps
from gbfix.lowering.gradients import gradients_are_off
from gbfix.lowering.placement import compiled_block, width_for
from gbfix.lowering.stale_graphs import stale_reason
from gbfix.lowering.stores import has_value_form
from gbfix.lowering.views import block_of

_REASON = "every update is computed, and stored only where the test holds"
_ASKED = ", and no gradient passes"
_GRADIENTS = "; gradients through one that is not stored are zero, or NaN, instead of None"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to store updates in place under a mask.

    Raises:
        Refused: where an arm does more than update tensors.
    """
    node = site.node
    if not isinstance(node, ast.If):
        raise NotApplicable("no-update", "no block of updates is decided here")
    leaving, after = _skips(node, context)
    arms = after if leaving else [*node.body, *node.orelse]
    if not any(_updates(n, context) for s in arms for n in walk(s)):
        raise NotApplicable("no-update", "nothing is updated in place")
    torch = context.torch(site.statement)
    parts = split(node.test, context.analysis, context.facts)
    asked = Negated(parts.predicate) if leaving else parts.predicate
    predicate = single(Renderer(context.view, context.analysis, torch).render(asked))
    condition = predicate.text if predicate.boolean else f"{predicate.operand} != 0"
    if predicate.boolean and not _is_new(predicate.text):
        condition = f"{predicate.operand}.clone()"  # an update may change what was asked
    holds = context.names.take("holds")
    anew = [*node.body, *node.orelse, *after]
    steps = MaskedSteps(context, torch, frozenset(n for s in anew for n in walk(s)))
    if leaving:
        lines = steps.lines(after, holds)
    else:
        lines = [*steps.lines(node.body, holds), *steps.lines(node.orelse, f"~{holds}")]
    written = steps.written
    if not written.stored:
        raise NotApplicable("no-update", "nothing is updated in place")
    if leaving and isinstance(node.body[-1], ast.Return):
        lines.append(context.view.text(node.body[-1]))
    width = width_for(context, node)
    text = "\n".join(_fitted([f"{holds} = {condition}", *lines], width, context.unit))
    join = "" if leaving else "el"
    safety, reason = Safety.REVIEW, _REASON
    test = ""
    if not gradients_are_off(node, context.info):
        # Tensors that are handed over by themselves may be told zeros.
        lists = not (written.kept or written.unbounded)
        every = False
        if not leaving:
            test, every = gradient_guard(anew, torch, context, only_lists=lists)
        reason = f"{_REASON}{_GRADIENTS}"
        asks = not lists and bool(test) and every
        if written.unbounded and not (asks and written.held):
            sentence = f"`{written.unbounded[0]}` may have any derivative where it is not stored"
            raise Refused("unbounded-derivative", sentence)
        if asks:
            reason = f"{_REASON}{_ASKED}"
        elif written.kept:
            safety, reason, test = Safety.UNSAFE, stale_reason(written.kept[0]), ""
    tests = [test] if test else []
    edit = compiled_block(node, text, torch, parts.guards, context, join=join, tests=tests)
    if written.unset:
        unread = (
            f"`{written.unset[0]}`, which nothing in the project reads, is not set when compiled"
        )
        safety, reason = Safety.UNSAFE, f"{unread}; {reason}"
    needed, whole = context.needs_torch, written.nested
    return Fix("conditional-update", safety, reason, (edit,), needed, whole=whole)


def _is_new(text: str) -> bool:
    """Whether a condition is the result of an operation, and no tensor that was there before."""
    node = ast.parse(text, mode="eval").body
    while isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "reshape":
        node = node.func.value if isinstance(node.func, ast.Attribute) else node
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", "")
        return name in {"any", "all", "logical_and", "logical_or", "logical_not"}
    return isinstance(node, (ast.Compare, ast.UnaryOp, ast.BinOp))


def _updates(node: ast.AST, context: Context) -> bool:
    """Whether a statement updates a tensor in place, or calls a function of the project."""
    values = context.analysis.values
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and has_value_form(node.value):
            return True
        value = values.get(function)
        name = value.reference if value is not None else None
        return context.facts.project.function_info(name) is not None
    target: ast.expr | None = node.target if isinstance(node, ast.AugAssign) else None
    if isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0].value
    value = values.get(target) if isinstance(target, (ast.Name, ast.Attribute)) else None
    return value is not None and value.tensor


def _skips(node: ast.If, context: Context) -> tuple[bool, list[ast.stmt]]:
    """Whether an `if` only leaves the function, and the updates that it skips by that."""
    first = node.body[0]
    if len(node.body) != 1 or not isinstance(first, ast.Return) or node.orelse:
        return False, []
    if context.info.module.parents.get(node) is not context.info.node:
        raise NotApplicable("no-update", "the function is left from inside of another block")
    block = block_of(node, context.info.module)
    rest = list(block[block.index(node) + 1 :])
    given = ast.dump(first.value) if first.value is not None else ""
    last = rest.pop() if rest and isinstance(rest[-1], ast.Return) else None
    kept = ast.dump(last.value) if isinstance(last, ast.Return) and last.value is not None else ""
    if given != kept or (first.value is not None and not isinstance(first.value, ast.Name)):
        raise NotApplicable("no-update", "the function returns something else when it is left")
    return True, rest


def _fitted(lines: Sequence[str], width: int, unit: str) -> list[str]:
    made = []
    for line in lines:
        depth = len(line) - len(line.lstrip())
        made.append(indent(fitted(line[depth:], width - depth, unit), line[:depth]))
    return made


TRANSFORM = Transform(
    name="conditional-update",
    codes=(TENSOR_BRANCH.code,),
    summary="store updates in place where a test on a tensor holds",
    doc=__doc__ or "",
    propose=propose,
    rank=35,
)
