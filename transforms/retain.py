"""Keeps gradients of intermediate results in eager mode alone.

`y.retain_grad()` makes Dynamo give up the frame. Where `y` is a local variable that nothing else keeps,
no code can read `y.grad` later.

Before:

    def forward(self, x: torch.Tensor):
        y = self.layer(x)
        y.retain_grad()
        return y.sin().sum()

After:

    def forward(self, x: torch.Tensor):
        y = self.layer(x)
        if not torch.compiler.is_compiling():
            y.retain_grad()
        return y.sin().sum()

Where the tensor is returned, stored or handed on, its gradient is missing when compiled: the fix is
`unsafe` then.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import has_backward_hook
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.guarding import guarded_runs
from gbfix.python_diagnoses import AUTOGRAD_CALL

_LOCAL = "the gradient of the intermediate result is not kept in the compiled path"
_SEEN = "right as long as nobody reads the gradient of the intermediate result"


def propose(site: BreakSite, context: Context) -> Fix:
    """Guard a call of `retain_grad`.

    Raises:
        Refused: where it is more than a statement.
    """
    call = site.node
    if isinstance(call, ast.Call) and has_backward_hook(call, context.analysis, context.facts):
        raise Refused(
            "layer-hook",
            f"`{ast.unparse(call.func)}` has a hook of the backward pass, which Dynamo does not trace; "
            "without side effects it can be a hook of the tensor: `h.register_hook`",
        )
    if not (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "retain_grad"
    ):
        raise NotApplicable("no-retain", "nothing is retained here")
    if not isinstance(site.statement, ast.Expr) or site.statement.value is not call:
        raise Refused("unusual-place", "the call is part of a larger expression")
    kept = not isinstance(call.func.value, ast.Name) or _escapes(call.func.value.id, context)
    edits = guarded_runs([site.statement], context)
    return Fix(
        "retain",
        Safety.UNSAFE if kept else Safety.REVIEW,
        _SEEN if kept else _LOCAL,
        edits,
        context.needs_torch,
    )


def _escapes(name: str, context: Context) -> bool:
    """Whether the tensor itself may outlive the call: returned, stored, yielded, put in a display."""
    info = context.info
    parents = info.module.parents
    if any(isinstance(a, ast.arg) and a.arg == name for a in walk(info.node.args)):
        return True
    for node in walk(info.node):
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        parent = parents[node]
        if isinstance(parent, (ast.Return, ast.Assign, ast.AnnAssign, ast.Tuple, ast.List)):
            return True
        if isinstance(parent, (ast.Dict, ast.Set, ast.Yield, ast.Starred, ast.IfExp)):
            return True
        if isinstance(parent, ast.Attribute) and parent.attr in {"grad", "view", "register_hook"}:
            return True
        if isinstance(parent, ast.Call) and node in parent.args:
            value = context.analysis.values.get(parent)
            if value is None or not value.tensor or not value.unshared:
                return True
        if isinstance(parent, ast.keyword):
            return True
    return False


TRANSFORM = Transform(
    name="retain",
    codes=(AUTOGRAD_CALL.code,),
    summary="keep gradients of intermediate results in eager mode alone",
    doc=__doc__ or "",
    propose=propose,
    rank=12,
)
