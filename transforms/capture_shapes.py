"""Makes the setting under which Dynamo captures operations whose shape depends on data.

With `capture_dynamic_output_shape_ops` a boolean mask, `nonzero` or `unique` becomes part of the graph,
and the size of its result a symbol. It is the last resort: it changes how everything under it is
compiled, and what follows from such a size, a branch on it above all, is still an error or a break. So
it is only shown, and made with `--config`.

Before:

    def f(x: torch.Tensor):
        return x[x > 0] * 2


    compiled = torch.compile(f)

After:

    def f(x: torch.Tensor):
        return x[x > 0] * 2


    compiled = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)(torch.compile(f))

The setting can make things worse where a shape that Dynamo used to read in Python decides what runs
next: hold it against the original with `gbfix verify`, and keep it only if it helps.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import CAPTURE_SHAPES, operation_name
from gbfix.analysis.symbols import check_function, check_read
from gbfix.diagnoses import DATA_SIZE, MASK_INDEX, NONZERO, UNIQUE
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform, setting_fix


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer the setting for an operation.

    Raises:
        Refused: for an operation that it does not capture.
    """
    node = site.node
    if isinstance(node, ast.Call) and operation_name(node, context.analysis) == "one_hot":
        raise Refused(
            "not-captured", "`one_hot` needs `num_classes`, which the setting cannot tell"
        )
    if norm := _normalized(node, context):
        raise Refused(
            "not-captured",
            f"`{norm}` checks how many rows it gets, which the setting makes a symbol; taking all rows "
            "would give other statistics",
        )
    if isinstance(node, ast.expr):
        check_read(node, context.analysis)
    check_function(context.analysis)
    reason = "the size of the result becomes a symbol in the graph"
    return setting_fix("capture-shapes", CAPTURE_SHAPES, Safety.REVIEW, reason, context)


def _normalized(node: ast.AST, context: Context) -> str | None:
    """The layer that is handed what is selected, if it always takes statistics over its rows."""
    call, owner = context.info.module.parents.get(node), context.info.owner
    if not isinstance(call, ast.Call) or node not in call.args or owner is None:
        return None
    layer = call.func
    if not isinstance(layer, ast.Attribute):
        return None
    for cls in context.facts.project.mro(owner):
        for write in context.facts.writes(cls).get(layer.attr, ()):
            options = write.value.keywords if isinstance(write.value, ast.Call) else []
            for option in options:
                tracks = option.arg == "track_running_stats"
                if tracks and isinstance(option.value, ast.Constant) and not option.value.value:
                    return ast.unparse(layer)
    return None


TRANSFORM = Transform(
    name="capture-shapes",
    codes=(MASK_INDEX.code, NONZERO.code, UNIQUE.code, DATA_SIZE.code),
    summary="make the setting that captures operations whose shape depends on data",
    doc=__doc__ or "",
    propose=propose,
    rank=95,
)
