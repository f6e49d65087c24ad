"""Keeps a log call or a warning in the compiled path: an operator of its own that makes it.

Made where the policy is `keep`. The operator is marked as one that has an effect, so that the graph
runs it each time, in the order of the source and with the values of that moment, also where a tensor is
changed in place afterwards. A branch that does nothing but log or warn is taken into it as a whole.

Before:

    import logging

    logger = logging.getLogger(__name__)


    def settle(x: torch.Tensor):
        y = x * 2
        logger.info("largest %s of %s", y.max(), y.shape)
        return y.clamp_(max=1)


    def step(x: torch.Tensor):
        return settle(x.sin()) + 1

After:

    import logging

    logger = logging.getLogger(__name__)


    def settle(x: torch.Tensor):
        y = x * 2
        if torch.compiler.is_compiling():
            _settle_log(y)
        else:
            logger.info("largest %s of %s", y.max(), y.shape)
        return y.clamp_(max=1)


    @torch.library.custom_op("example::settle_log", mutates_args=())
    def _settle_log(y: torch.Tensor) -> None:
        logger.info("largest %s of %s", y.max(), y.shape)


    @_settle_log.register_fake
    def _settle_log_fake(y):
        return None


    # Run by every graph, and in the order of the source.
    _settle_log.register_effect(torch._library.effects.EffectType.ORDERED)


    def step(x: torch.Tensor):
        return settle(x.sin()) + 1

What is logged may read tensors, sizes, and plain values of a known type. Records name another line and
function, a tensor that requires a gradient is shown without its `grad_fn`, and warnings that are shown
once for each place are told apart from those of eager code. Needs torch with `register_effect` (2.13
has it).
"""

from __future__ import annotations

import ast
import re
from contextlib import suppress

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.logs import log_family
from gbfix.codegen import layout
from gbfix.diagnoses import LOGGING_CALL, PRINT_CALL, TENSOR_BRANCH, WARNINGS_CALL
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.operator_body import SHAPE, Body, body_of
from gbfix.lowering.operator_schema import TENSOR
from gbfix.lowering.output import check_arguments, only_speaks
from gbfix.lowering.placement import around, compiled_block, width_for
from gbfix.lowering.toplevel import title, top_statement
from gbfix.lowering.views import is_elif
from gbfix.settings import SideEffects
from gbfix.source.text import Edit

_REASON = "an operator of its own, which the graph runs in order; records name another place"

_HAS_EFFECTS = (2, 13)


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer an operator that makes the call.

    Raises:
        Refused: where the call reads what an operator cannot be given.
    """
    statement = site.statement
    if isinstance(site.node, ast.If):
        statement = _whole(site.node, context)
    elif not isinstance(statement, ast.Expr) or not isinstance(site.node, ast.Call):
        raise NotApplicable("no-call", "nothing is logged here")
    for call in _calls(statement, context):
        if context.settings.effects_of(call) is not SideEffects.KEEP:
            raise NotApplicable("policy", "these calls are not to be kept")
    asked = re.match(r"(\d+)\.(\d+)", context.settings.target_torch or "")
    if asked is not None and tuple(map(int, asked.groups())) < _HAS_EFFECTS:
        raise Refused("old-torch", "operators have no `register_effect` in that version of torch")
    if isinstance(statement, ast.Expr):
        check_arguments(statement, context.analysis, context.facts)
    top = top_statement(context.info.node, context)
    module = context.info.module
    if len(module.bindings.get(getattr(top, "name", ""), [])) != 1 or not context.view.ends_line(
        top
    ):
        raise Refused("no-place-outside", "the operator has no place below the definition")
    body = body_of(statement, context)
    name = context.names.take(f"_{title(context)}_log")
    torch = context.torch(statement)
    given = [o.given for o in body.operands]
    call_text = layout.call(name, given, width=width_for(context, statement), unit=context.unit)
    if isinstance(statement, ast.If):
        elif_too = "" if is_elif(statement, module) else "el"
        edits: tuple[Edit, ...] = (
            compiled_block(statement, call_text, torch, (), context, join=elif_too),
        )
    else:
        edits = around(statement, call_text, torch, (), context)
    view = context.view
    at = view.line_end(view.end(top))
    definition = Edit(at, at, _definition(name, body, torch, context))
    return Fix("keep-log", Safety.REVIEW, _REASON, (*edits, definition), context.needs_torch)


def _whole(node: ast.If, context: Context) -> ast.If:
    """The whole chain of an `elif`, if that only logs or warns, else the branch."""
    first, module = node, context.info.module
    while is_elif(first, module):
        above = module.parents[first]
        assert isinstance(above, ast.If)
        first = above
    if first is not node:
        with suppress(NotApplicable):
            _check_branch(first, context)
            return first
    _check_branch(node, context)
    return node


def _check_branch(node: ast.If, context: Context) -> None:
    """See that a branch does nothing but log or warn."""
    inner = [s for s in ast.walk(node) if isinstance(s, ast.stmt) and s is not node]
    if not all(
        isinstance(s, (ast.If, ast.Pass)) or only_speaks(s, context.analysis, context.facts)
        for s in inner
    ):
        raise NotApplicable("not-only-output", "the branch does more than log or warn")
    if any(s in context.analysis.eager for s in inner):
        raise NotApplicable("not-only-output", "the branch is not compiled")


def _calls(statement: ast.stmt, context: Context) -> list[str]:
    found = [log_family(n, context.analysis, context.facts) for n in ast.walk(statement)]
    families = [family for family in found if family is not None]
    if not families:
        raise NotApplicable("no-call", "nothing is logged here")
    return families


def _definition(name: str, body: Body, torch: str, context: Context) -> str:
    unit, width = context.unit, context.settings.line_length
    types = {TENSOR: f"{torch}.Tensor", SHAPE: "list[int]"}
    types |= {kind: f"{torch}.{kind}" for kind in ("dtype", "device")}
    typed = [f"{o.name}: {_typed(o.kind, types)}" for o in body.operands]
    namespace = context.info.module.name.replace(".", "_") or "project"
    qualified = f'"{namespace}::{name.lstrip("_")}"'
    head = layout.call(
        f"@{torch}.library.custom_op", [qualified, "mutates_args=()"], width=width, unit=unit
    )
    signature = layout.call(f"def {name}", typed, width=width, unit=unit, tail=" -> None:")
    fake = context.names.take(f"{name}_fake")
    names = [o.name for o in body.operands]
    fake_signature = layout.call(f"def {fake}", names, width=width, unit=unit, tail=":")
    sizes = [f"{o.name} = {torch}.Size({o.name})\n" for o in body.operands if o.kind == SHAPE]
    return (
        f"\n\n\n{head}\n{signature}\n{layout.indent(''.join(sizes) + body.text, unit)}"
        f"\n\n\n@{name}.register_fake\n{fake_signature}\n{unit}return None"
        "\n\n\n# Run by every graph, and in the order of the source."
        f"\n{name}.register_effect({torch}._library.effects.EffectType.ORDERED)"
    )


def _typed(kind: str, types: dict[str, str]) -> str:
    for short, name in types.items():
        if kind == short or kind.startswith(f"{short} |"):
            return kind.replace(short, name, 1)
    return kind


TRANSFORM = Transform(
    name="keep-log",
    codes=(LOGGING_CALL.code, WARNINGS_CALL.code, PRINT_CALL.code, TENSOR_BRANCH.code),
    summary="log from the graph",
    doc=__doc__ or "",
    propose=propose,
    rank=9,
)
