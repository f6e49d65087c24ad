"""Rewrites a tensor-dependent branch as `torch.cond`.

Both arms become part of the graph, and the predicate chooses between them at run time. The compiled
path is written beside the original branch, which stays the eager path.

Before:

    def forward(self, x: torch.Tensor):
        h = self.inner(x)
        if h.abs().max() > self.limit:
            h = self.shrink(h)
        return self.outer(h)

After:

    def forward(self, x: torch.Tensor):
        h = self.inner(x)
        if torch.compiler.is_compiling():
            h = torch.cond(h.abs().max() > self.limit, lambda: self.shrink(h), lambda: h.clone())
        elif h.abs().max() > self.limit:
            h = self.shrink(h)
        return self.outer(h)

What the arms decide is what they bind and what is read later. An arm that hands on a tensor it was
given hands on a copy, since `torch.cond` refuses aliases; the fix is refused where the copy could be
noticed. Where the arms read two tensors of one storage, such as `x` and `x.view(-1)`, all but one of
them go in as copies, for the same reason. Attributes and buffers that an arm sets are selected as
values and set once, after the call. An early return takes the rest of the function as its other arm.

A sum of such a tensor that an arm computes with is written `(x * 1).sum()`: the gradient of a plain sum
has strides of 0, on which the backward pass of `torch.cond` fails where the other arm's has not.

Gradients of tensors that only one arm uses are zeros instead of None in the compiled path. If the
arms give different dtypes or strides, compilation fails with a message from `torch.cond`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Refused
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Value
from gbfix.codegen.blocks import Changes
from gbfix.codegen.predicates import Rendered, Renderer
from gbfix.diagnoses import LOOP_EXIT, TENSOR_BRANCH, TENSOR_LOOP
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.aliases import (
    check_not_changed_later,
    own_names,
    shared_root,
    tensor_sources,
)
from gbfix.lowering.arm_values import check_kept
from gbfix.lowering.branch import Arm, Branch, find_branch
from gbfix.lowering.dense_gradients import Replacement, dense_gradients
from gbfix.lowering.expression import UNPROVEN, ZERO_GRADIENTS, conditional_expression, selected
from gbfix.lowering.forms import CONTIGUOUS, Copy, Writer
from gbfix.lowering.functions import carried_names, function_body
from gbfix.lowering.gradients import Flow, attribute_flow, gradients_are_off, reads_gradients
from gbfix.lowering.gradients_apart import with_gradients_apart
from gbfix.lowering.hazards import attribute_operands, check_arm, check_objects, stale_operand
from gbfix.lowering.inputs import check_in_place, check_stored
from gbfix.lowering.layouts import check_layouts, check_one_sided, check_types, keep_layouts
from gbfix.lowering.lost_stores import check_stores
from gbfix.lowering.made_alike import Made, made_alike
from gbfix.lowering.placement import beside, replacing, width_for
from gbfix.lowering.places import check_places, element_reads
from gbfix.lowering.results import Result, Straight, check_results, straighten
from gbfix.lowering.shared_operands import shared_operands
from gbfix.lowering.shared_statement import shared_statement
from gbfix.lowering.stale_graphs import stale_reason
from gbfix.lowering.turned import check_turned

LONGEST_COPY = 40


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer `torch.cond` for an `if` or a conditional expression.

    Raises:
        Refused: where the arms cannot be traced, or their results cannot be told to be tensors.
    """
    node = site.node
    if isinstance(node, ast.While):
        raise Refused(
            "data-dependent-loop", "a loop that runs as long as a tensor says is not a branch"
        )
    if isinstance(node, ast.IfExp):
        return conditional_expression(site, context, "cond", lambda a, b: None)
    if not isinstance(node, ast.If):
        raise Refused("unusual-condition", "the test decides something other than an `if`")
    shared = shared_statement(node)
    if shared is not None:
        return selected(shared, context, "cond", lambda a, b: None)
    analysis = context.analysis
    branch = find_branch(site, context.facts, context.liveness)
    if branch.updates or branch.leaves == "return":
        raise Refused(
            "updates-buffer", "an arm updates a buffer in place or leaves without a value"
        )
    in_place = check_in_place(branch, None, context)
    for arm in branch.arms:
        check_arm(arm, in_place, analysis, context.facts)
    if not gradients_are_off(branch.node, context.info):
        check_turned([arm.statements for arm in branch.arms], analysis)
    check_objects(branch, analysis, context.facts)
    stored = [o.name for o in branch.outputs if o.is_attribute]
    check_stores(branch.place, stored, analysis, context.facts)
    torch = context.torch(site.statement)
    predicate = Renderer(context.view, analysis, torch).render(branch.split.predicate)
    operands = attribute_operands(branch, analysis, context.facts)
    arms = [straighten(arm, branch, analysis) for arm in branch.arms]
    plain = all(a is not None and not a.prelude for a in arms)
    if plain and arms[0] is not None and arms[1] is not None:
        return _straight(branch, (arms[0], arms[1]), predicate, operands, torch, context)
    return _functions(branch, predicate, operands, torch, in_place, context)


def _writer(
    branch: Branch, operands: tuple[str, ...], torch: str, context: Context, *, nested: bool
) -> Writer:
    renamed: dict[str, str] = {}
    for operand in operands:
        if "." in operand:
            renamed[operand] = context.names.take(operand.rsplit(".", 1)[1])
    width = width_for(context, branch.node, nested=nested)
    return Writer(
        context, branch, torch, width, operands, renamed, replacements=_replaced(branch, context)
    )


def _replaced(branch: Branch, context: Context) -> list[Replacement]:
    """What to write for elements in an arm, and for sums where gradients may pass through them."""
    analysis, view = context.analysis, context.view
    found: list[Replacement] = []
    for arm in branch.arms:
        check_places(branch.node.test, arm.statements, analysis)
        found += element_reads(arm.statements, analysis, context.facts, view, branch.asked)
        if not gradients_are_off(branch.node, context.info):
            own = own_names(arm.statements, analysis)
            found += dense_gradients(arm.statements, own, analysis, view)
    one, other = (_made(arm, branch) for arm in branch.arms)
    return found + made_alike((one, other), branch.node.test, branch.node, analysis, view)


def _made(arm: Arm, branch: Branch) -> Made:
    """What an arm gives, as expressions where it names them at once."""
    returned = arm.returned
    if returned is not None:
        elements = returned.elts if isinstance(returned, ast.Tuple) else [returned]
        return Made(arm.statements, elements)
    names = [o.name for o in branch.outputs]
    bound: dict[str, ast.expr | None] = {}
    for statement in arm.statements:
        for node in walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound[node.id] = statement.value if isinstance(statement, ast.Assign) else None
    results = [value for n in names if (value := bound.get(n)) is not None]
    return Made(arm.statements, results, [n for n in names if n not in bound])


def _bound(arm: Arm, branch: Branch) -> list[list[ast.expr]]:
    """What an arm binds each output to."""
    bound: dict[str, list[ast.expr]] = {o.name: [] for o in branch.outputs}
    for statement in (n for s in arm.statements for n in walk(s)):
        if isinstance(statement, (ast.Assign, ast.AugAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for name in map(ast.unparse, targets):
                bound.get(name, []).append(statement.value)
    return list(bound.values())


def _straight(
    branch: Branch,
    arms: tuple[Straight, Straight],
    predicate: Rendered,
    operands: tuple[str, ...],
    torch: str,
    context: Context,
) -> Fix:
    """Arms that are one expression per output: lambdas."""
    analysis = context.analysis
    values = check_results(branch, arms, analysis)
    check_types(values)
    pairs = list(zip(arms[0].results, arms[1].results, strict=True))
    check_layouts(pairs, values, analysis)
    clones: list[list[Copy]] = []
    roots: list[str] = []
    for which, arm in enumerate(arms):
        row: list[Copy] = []
        given: set[str] = set()
        for result, both in zip(arm.results, values, strict=True):
            root = _root(result, branch, context)
            text = ast.unparse(result.node) if result.node is not None else result.incoming
            # A layer or a product gives contiguous results whatever it was given.
            unlike = both[which].turned and not both[1 - which].turned
            copied = root is not None or text in given
            row.append(CONTIGUOUS if copied and unlike else copied)
            if text in given:  # eager gives one tensor twice
                roots += [o.name for o in branch.outputs]
            given.add(text)
            if root and not _private(root, branch, context):
                roots.append(root)
        clones.append(row)
    names = [o.name for o in branch.outputs]
    check_not_changed_later(roots, names if roots else [], branch.place, analysis, context.facts)
    check_stored(branch, roots, context)
    check_kept(branch, roots)
    sources = [
        tensor_sources([r.node for r in arm.results if r.node is not None], analysis)
        | {r.incoming for r in arm.results if r.node is None or r.operator}
        for arm in arms
    ]
    alike = keep_layouts(pairs, analysis)
    safety, reason = _safety(values, sources, roots, branch, context, alike=alike)
    detached = _detached(branch, values, context)
    apart = with_gradients_apart(branch, values, detached, context)

    copies = shared_operands(branch, operands, analysis)
    everything = (*operands, *(c for c in copies if c not in operands))

    def write(nested: bool) -> str:
        writer = _writer(branch, everything, torch, context, nested=nested)
        writer.free, writer.detached = dict(writer.renamed), detached
        writer.apart = apart
        writer.copied = frozenset(copies)
        return writer.cond(predicate, arms, clones)

    return _place(branch, write, torch, context, safety, reason)


def _root(result: Result, branch: Branch, context: Context) -> str | None:
    if result.node is None:
        return result.incoming
    if result.operator:
        return None
    return shared_root(result.node, context.analysis, frozenset())


def _private(root: str, branch: Branch, context: Context) -> bool:
    """Whether only this one name can reach a tensor."""
    value = context.analysis.before[branch.node].get(root)
    return value is not None and value.unshared


def _functions(
    branch: Branch,
    predicate: Rendered,
    operands: tuple[str, ...],
    torch: str,
    in_place: frozenset[str],
    context: Context,
) -> Fix:
    """Arms that need statements: local functions."""
    analysis = context.analysis
    for arm in branch.arms:
        for node in arm.effects.scalar:
            read = ast.unparse(node)
            raise Refused("scalar-in-arm", f"`{read}` in an arm reads a Python value from a tensor")
    lines = sum(
        (s.end_lineno or s.lineno) - s.lineno + 1 for a in branch.arms for s in a.statements
    )
    if lines > LONGEST_COPY:
        raise Refused(
            "long-arm", f"the arms have {lines} lines, which the fix would have to repeat"
        )
    bodies, returned, values, roots = [], [], [], []
    for arm in branch.arms:
        body, text, results, shared = function_body(arm, branch, context)
        bodies.append(body)
        returned.append(text)
        values.append(results)
        roots += shared
    if branch.returns and len(values[0]) != len(values[1]):
        raise Refused("different-structure", "the arms return different numbers of values")
    pairs = list(zip(values[0], values[1], strict=True))
    check_types(pairs)
    names = [o.name for o in branch.outputs]
    if not branch.returns:
        bound = [_bound(arm, branch) for arm in branch.arms]
        check_one_sided(names, list(zip(bound[0], bound[1], strict=True)), pairs)
    check_not_changed_later(roots, names if roots else [], branch.place, analysis, context.facts)
    check_stored(branch, roots, context)
    check_kept(branch, roots)
    carried = carried_names(branch, context)
    sources = [tensor_sources(a.statements, analysis) for a in branch.arms]
    safety, reason = _safety(pairs, sources, roots, branch, context, alike=False)
    detached = _detached(branch, pairs, context)
    apart = with_gradients_apart(branch, pairs, detached, context)
    attributes = {o.name: o.local for o in branch.outputs if o.is_attribute}
    changes = Changes(
        names=attributes,
        buffers={o.name: o.local for o in branch.outputs if o.call is not None},
        out_of_place=in_place,
    )
    copies = shared_operands(branch, (*carried, *operands), analysis)
    everything = tuple(dict.fromkeys([*carried, *operands, *copies]))

    def write(nested: bool) -> str:
        writer = _writer(branch, everything, torch, context, nested=nested)
        writer.free, writer.detached = dict(writer.renamed), detached
        writer.apart = apart
        writer.renamed = {
            o: attributes.get(o, writer.renamed.get(o, o)) if "." in o else o for o in everything
        }
        renaming = {**{k: v for k, v in writer.renamed.items() if "." in k}, **attributes}
        writer.copied = frozenset(copies)
        made = Changes(renaming, changes.buffers, changes.out_of_place)
        return writer.cond_of_functions(
            predicate, (bodies[0], bodies[1]), (returned[0], returned[1]), made
        )

    return _place(branch, write, torch, context, safety, reason)


def _detached(
    branch: Branch, values: Sequence[tuple[Value, Value]], context: Context
) -> frozenset[str]:
    """Attributes that take no part in gradients, though the results of `torch.cond` do."""
    if branch.returns or gradients_are_off(branch.node, context.info):
        return frozenset()
    statements = [s for arm in branch.arms for s in arm.statements]
    if not reads_gradients(statements, context.analysis, context.facts):
        return frozenset()
    environment = context.analysis.before[branch.node]
    found: set[str] = set()
    for output, pair in zip(branch.outputs, values, strict=True):
        owner, _, name = output.name.rpartition(".")
        base = environment.get(owner)
        cls = context.facts.project.class_info(base.reference) if base is not None else None
        if cls is None or all(value.integer or value.boolean for value in pair):
            continue
        if attribute_flow(cls, name, context.facts) is Flow.NO:
            found.add(output.name)
    return frozenset(found)


def _safety(
    values: Sequence[tuple[Value, Value]],
    sources: Sequence[frozenset[str]],
    roots: Sequence[str],
    branch: Branch,
    context: Context,
    *,
    alike: bool,
) -> tuple[Safety, str]:
    stale = stale_operand(branch, context.analysis, context.facts)
    if stale:
        return Safety.UNSAFE, stale_reason(stale)
    if any(arm.preparation for arm in branch.arms):
        return (
            Safety.REVIEW,
            "what an arm prepares once (a cached attribute, a device) is prepared before the branch",
        )
    same = all(a.dtype == b.dtype or (a.boolean and b.boolean) for a, b in values)
    if not same or not (alike or all(a.zero_dim and b.zero_dim for a, b in values)):
        return Safety.REVIEW, UNPROVEN
    if sources[0] != sources[1]:
        return Safety.REVIEW, ZERO_GRADIENTS
    if roots and branch.returns:
        return Safety.REVIEW, f"returns a copy where eager returns `{roots[0]}` itself"
    return Safety.SAFE, "both arms are traced and made of the same tensors"


def _place(
    branch: Branch,
    write: Callable[[bool], str],
    torch: str,
    context: Context,
    safety: Safety,
    reason: str,
) -> Fix:
    if context.only_compiled:
        taken = set(context.names.taken)
        try:
            edits = replacing(branch, write(False), context)
            return Fix("cond", safety, reason, edits, context.needs_torch)
        except Refused:
            context.names.taken = taken
    edits = beside(branch, write(True), torch, context)
    return Fix("cond", safety, reason, edits, context.needs_torch)


TRANSFORM = Transform(
    name="cond",
    codes=(TENSOR_BRANCH.code, TENSOR_LOOP.code, LOOP_EXIT.code),
    summary="trace both arms of a branch with torch.cond",
    doc=__doc__ or "",
    propose=propose,
    rank=40,
)
