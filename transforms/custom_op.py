"""Makes a helper function an operator of its own, which the graph holds as one node.

What no other fix can treat (a NumPy island, a call into a library, a result that is put together from
data) still fits into one graph where shape and dtype of the result can be told without running it. The
function becomes the kernel of a `torch.library.custom_op`, with a fake kernel that says what the result
looks like, and a backward that runs the function again where gradients pass through it. Eager code
takes the original body. Of a method, and where more is done than an operator can hold, the smallest run
of statements around the place that can is taken out into a helper first. This is only done when it is
asked for, with `--fix-with custom-op`.

Before:

    def peak_normalize(x: torch.Tensor, eps: float = 1e-6):
        peak = x.abs().max().item()
        while peak > 1.0:
            x = x / peak
            peak = x.abs().max().item() - eps
        return x * 2.0


    def step(x: torch.Tensor):
        return torch.relu(peak_normalize(x.sin() * 3))

After:

    def peak_normalize(x: torch.Tensor, eps: float = 1e-6):
        if torch.compiler.is_compiling() and x.is_floating_point():
            return _peak_normalize_op(x, eps)
        peak = x.abs().max().item()
        while peak > 1.0:
            x = x / peak
            peak = x.abs().max().item() - eps
        return x * 2.0


    @torch.library.custom_op("example::peak_normalize", mutates_args=())
    def _peak_normalize_op(x: torch.Tensor, eps: float) -> torch.Tensor:
        return peak_normalize(x, eps).contiguous()


    @_peak_normalize_op.register_fake
    def _peak_normalize_fake(x, eps):
        return torch.empty_like(x, memory_format=torch.contiguous_format)


    @torch.library.custom_op("example::peak_normalize_backward", mutates_args=())
    def _peak_normalize_backward_op(grad: torch.Tensor, x: torch.Tensor, eps: float) -> torch.Tensor:
        # The kernel of an operator runs below autograd; this turns it on again.
        with torch.inference_mode(False), torch.enable_grad():
            x = x.detach().requires_grad_()
            result = peak_normalize(x, eps)
            found = torch.autograd.grad(result, (x,), grad, materialize_grads=True)
        return found[0].clone(memory_format=torch.contiguous_format)


    @_peak_normalize_backward_op.register_fake
    def _peak_normalize_backward_fake(grad, x, eps):
        return torch.empty_like(x, memory_format=torch.contiguous_format)


    def _peak_normalize_setup(ctx, inputs, output):
        x, eps = inputs
        ctx.save_for_backward(x)
        ctx.eps = eps


    def _peak_normalize_backward(ctx, grad):
        (x,) = ctx.saved_tensors
        found = _peak_normalize_backward_op(grad, x, ctx.eps)
        return found, None


    _peak_normalize_op.register_autograd(_peak_normalize_backward, setup_context=_peak_normalize_setup)


    def step(x: torch.Tensor):
        return torch.relu(peak_normalize(x.sin() * 3))

What lies inside of an operator is neither fused nor compiled, and results are laid out contiguously.
Where the conditions next to `is_compiling()` do not hold, the graph breaks as before.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.facts import Facts
from gbfix.analysis.module_files import parse_module
from gbfix.analysis.project import Project
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import disabled_function
from gbfix.codegen.operators import Operator, written
from gbfix.codegen.view import View
from gbfix.diagnoses import DIAGNOSES
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.extraction import Extracted, extracted, runs
from gbfix.lowering.marks import without_mark
from gbfix.lowering.operator_contract import (
    check_effects,
    conditions,
    empty_like,
    is_cut,
    returned,
)
from gbfix.lowering.operator_results import results
from gbfix.lowering.operator_schema import TENSOR, parameter_types
from gbfix.python_diagnoses import DISABLED_FUNCTION
from gbfix.source.text import Edit

_REASON = "the function is one node of the graph, which is neither fused nor compiled inside"
_BLOCK_REASON = (
    "the statements are one node of the graph, which is neither fused nor compiled inside"
)
_MOST_RUNS = 24


def propose(site: BreakSite, context: Context) -> Fix:
    """Make the function around the site an operator, or else a run of statements in it.

    Raises:
        Refused: where types or results cannot be told, or more is done than to compute.
    """
    if site.diagnosis is DISABLED_FUNCTION:
        return _of_disabled(site, context)
    try:
        return _of_function(context)
    except Refused as refused:
        made = _of_block(site, context)
        if made is None:
            raise refused from None
        return made


def _of_disabled(site: BreakSite, context: Context) -> Fix:
    """Make an operator of a function that is called although it is not traced.

    Raises:
        Refused: where it cannot be one whatever it is given; what else it would do if it were traced
            is not known.
    """
    info = disabled_function(site.node, context.analysis, context.facts)
    if info is None or info.module.source.path != context.info.module.source.path:
        raise Refused("not-a-helper", "the function is not one of this file")
    mark = without_mark(info, context)
    inner = _context_of(Extracted(info.node.name, (mark,)), context)
    if inner is None:
        raise Refused("not-a-helper", "the function cannot be followed")
    fix = _of_function(inner)
    torch = context.torch(site.statement)
    if not any(f"if {torch}.compiler.is_compiling():\n" in edit.text for edit in fix.edits):
        raise Refused("not-always", "an operator would not do for all that it may be given")
    text = inner.view.source.apply(fix.edits)
    edits = (_difference(context.view.source.text, text),)
    return replace(fix, edits=edits, imports_torch=fix.imports_torch)


def _of_block(site: BreakSite, context: Context) -> Fix | None:
    """The smallest run of statements around a site that can be made an operator.

    One that works with gradients, too, is preferred.
    """
    source = context.view.source
    second: Fix | None = None
    for run in islice(runs(site.statement, context), _MOST_RUNS):
        taken, needed = set(context.names.taken), context.needs_torch
        try:
            found = extracted(run, context)
            inner = _context_of(found, context)
            fix = _of_function(inner) if inner is not None else None
        except (Refused, NotApplicable):
            fix = None
        if fix is None:
            context.names.taken, context.needs_torch = taken, needed
            continue
        # The edits of the second step are told in terms of the text that the first one leaves.
        text = inner.view.source.apply(fix.edits) if inner is not None else ""
        edits = (_difference(source.text, text),)
        missing = fix.imports_torch or context.needs_torch
        made = replace(fix, edits=edits, reason=_BLOCK_REASON, imports_torch=missing)
        if ".requires_grad" not in text[edits[0].start : edits[0].start + len(edits[0].text)]:
            return made
        second = second or made
    return second


def _context_of(found: Extracted, context: Context) -> Context | None:
    """The context of a helper in the text where it is taken out."""
    view = context.view
    text = view.source.apply(found.edits)
    module = parse_module(replace(view.source, text=text))
    facts = Facts(Project([module]))
    info = next((i for i in module.functions() if i.node.name == found.name), None)
    analysis = facts.analysis(info) if info is not None else None
    if analysis is None:
        return None
    return Context.of(analysis, facts, context.settings, View(module), text)


def _difference(before: str, after: str) -> Edit:
    """The one edit that makes a text of another."""
    first = _alike(before, after)
    rest = _alike(before[first:][::-1], after[first:][::-1])
    return Edit(first, len(before) - rest, after[first : len(after) - rest])


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _of_function(context: Context) -> Fix:
    """Make a function an operator.

    Raises:
        Refused: where its types or results cannot be told, or it does more than compute.
    """
    node = context.info.node
    _check_place(context)
    types = parameter_types(context)
    tensors = [name for name, kind in types.items() if kind == TENSOR]
    if not tensors:
        raise Refused("no-tensor", "the function takes no tensor, which an operator needs")
    found = results(context, tensors, [n for n, kind in types.items() if "Tensor" not in kind])
    check_effects(context, found)
    values, passed = returned(found)
    torch = context.torch(node.body[0])
    guards, differentiable = conditions(types, values, found, torch)
    width, unit = context.settings.line_length, context.unit
    made = Operator(
        node.name,
        f"{context.info.module.name.replace('.', '_') or 'project'}::{node.name.lstrip('_')}",
        types,
        frozenset(a.arg for a in node.args.kwonlyargs),
        sorted(found.mutated),
        [empty_like(value, torch) for value in values],
        differentiable,
        _names(context),
    )
    untracked = bool(values) and not found.mutated
    given = [
        f"{n}.detach()" if untracked and kind == TENSOR and is_cut(n, differentiable, guards) else n
        for n, kind in types.items()
    ]
    edits = (
        _way_out(context, torch, guards, f"{made.names['op']}({', '.join(given)})", passed, width),
        _definitions(context, written(made, torch, unit, width)),
    )
    safety, reason = Safety.REVIEW, _REASON
    if found.unknown:
        called = " and ".join(f"`{name}`" for name in dict.fromkeys(found.unknown))
        safety, reason = Safety.UNSAFE, f"{called} is taken to change nothing and to be repeatable"
    return Fix("custom-op", safety, reason, edits, context.needs_torch, by_running=True)


def _check_place(context: Context) -> None:
    info = context.info
    node, module = info.node, info.module
    if info.owner is not None or info.outer is not None or isinstance(node, ast.AsyncFunctionDef):
        raise Refused("not-a-helper", "only a function at the top level of a module is made one")
    if module.parents[node] is not module.tree or not context.view.starts_line(node):
        raise Refused("not-a-helper", "the function is defined inside another block")
    if node.decorator_list:
        raise Refused("not-a-helper", "the function is decorated")
    if len(module.bindings.get(node.name, [])) != 1:
        raise Refused("not-a-helper", f"`{node.name}` is bound more than once")
    first = _first_statement(node)
    if first is None or not context.view.starts_line(first):
        raise NotApplicable("not-a-helper", "the body shares its line")


def _first_statement(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt | None:
    """The first statement below the docstring."""
    documented = ast.get_docstring(node, clean=False) is not None
    return next(iter(node.body[documented:]), None)


def _names(context: Context) -> dict[str, str]:
    base = context.info.node.name.lstrip("_")
    take = context.names.take
    roles = {
        "op": f"_{base}_op",
        "fake": f"_{base}_fake",
        "backward_op": f"_{base}_backward_op",
        "backward_fake": f"_{base}_backward_fake",
        "setup": f"_{base}_setup",
        "backward": f"_{base}_backward",
    }
    local = ["ctx", "inputs", "output", "grad", "result", "found", "each"]
    parameters = {a.arg for a in walk(context.info.node.args) if isinstance(a, ast.arg)}
    free = {name: name if name not in parameters else f"{name}_" for name in local}
    return {role: take(name) for role, name in roles.items()} | free


def _way_out(
    context: Context, torch: str, guards: Sequence[str], call: str, passed: str | None, width: int
) -> Edit:
    """The test at the top of the function that leaves to the operator when compiling."""
    first = _first_statement(context.info.node)
    assert first is not None
    view, unit = context.view, context.unit
    indent = view.indent(first)
    tests = [f"{torch}.compiler.is_compiling()", *guards]
    line = f"{indent}if {' and '.join(tests)}:"
    if len(line) > width:
        inner = f"\n{indent}{unit}and ".join(tests)
        line = f"{indent}if (\n{indent}{unit}{inner}\n{indent}):"
    body = f"{indent}{unit}return {call}"
    if passed is not None:
        body = f"{indent}{unit}{call}\n{indent}{unit}return {passed}"
    at = view.line_start(view.start(first))
    return Edit(at, at, f"{line}\n{body}\n")


def _definitions(context: Context, text: str) -> Edit:
    view, node = context.view, context.info.node
    at = view.line_end(view.end(node))
    if not view.ends_line(node):
        raise Refused("not-a-helper", "something else follows the function on its last line")
    return Edit(at, at, text)


TRANSFORM = Transform(
    name="custom-op",
    codes=tuple(DIAGNOSES),
    summary="make a helper function, or some statements, an operator that the graph holds as one node",
    doc=__doc__ or "",
    propose=propose,
    rank=90,
    on_request=True,
)
