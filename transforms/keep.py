"""Keeps a print in the compiled path: `torch._higher_order_ops.print`.

Made where the policy for prints is `keep`. The graph then prints each time that it runs, in the order
of the source and with the values of that moment, also where a tensor is changed in place afterwards.

Before:

    def forward(self, x: torch.Tensor):
        y = self.net(x)
        print("largest", y.max())
        return y.relu()

After:

    def forward(self, x: torch.Tensor):
        y = self.net(x)
        if torch.compiler.is_compiling():
            torch._higher_order_ops.print("largest {!s}", y.max())
        else:
            print("largest", y.max())
        return y.relu()

Only tensors, constants, and f-strings of them without a format are printed so; keyword arguments are
refused. A tensor that requires a gradient is shown without its `grad_fn`.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.codegen import layout
from gbfix.codegen.expressions import flat
from gbfix.diagnoses import PRINT_CALL
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.output import check_arguments
from gbfix.lowering.placement import around, width_for
from gbfix.settings import SideEffects

_REASON = "printed by the graph, where a tensor is shown without its grad_fn"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer a print that a graph can hold.

    Raises:
        Refused: for arguments that it cannot take.
    """
    if context.settings.effects_of("print") is not SideEffects.KEEP:
        raise NotApplicable("policy", "prints are not to be kept")
    statement, call = site.statement, site.node
    if not isinstance(statement, ast.Expr) or not isinstance(call, ast.Call):
        raise NotApplicable("no-call", "nothing is printed here")
    if ast.unparse(call.func) != "print":
        raise Refused("not-print", f"only `print` is kept, not `{ast.unparse(call.func)}`")
    if call.keywords:
        raise Refused("keyword-arguments", "the print has keyword arguments")
    check_arguments(statement, context.analysis, context.facts)
    texts: list[str] = []
    given: list[str] = []
    for argument in call.args:
        texts.append(_shown(argument, given, context))
    torch = context.torch(statement)
    arguments = [_quoted(" ".join(texts)), *given]
    head = f"{torch}._higher_order_ops.print"
    body = layout.call(head, arguments, width=width_for(context, statement), unit=context.unit)
    edits = around(statement, body, torch, (), context)
    return Fix("keep", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _shown(node: ast.expr, given: list[str], context: Context) -> str:
    """The part of the format for one argument; what it shows is added to `given`."""
    if isinstance(node, ast.Constant):
        return str(node.value).replace("{", "{{").replace("}", "}}")
    if isinstance(node, ast.JoinedStr):
        parts: list[str] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                if part.format_spec is not None or part.conversion != -1:
                    raise Refused("format", "a value is shown with a format of its own")
                parts.append(_shown(part.value, given, context).replace("{!s}", "{}"))
            else:
                parts.append(_shown(part, given, context))
        return "".join(parts)
    value = context.analysis.values.get(node)
    if value is None or not value.tensor:
        raise Refused(
            "not-a-tensor", f"`{ast.unparse(node)}` is neither proven to be a tensor nor constant"
        )
    given.append(flat(context.view, node))
    return "{!s}"  # a format without it shows a tensor of one element as a number


def _quoted(text: str) -> str:
    quoted = repr(text)
    if quoted.startswith("'") and '"' not in text and "\\" not in quoted:
        return f'"{text}"'
    return quoted


TRANSFORM = Transform(
    name="keep",
    codes=(PRINT_CALL.code,),
    summary="print from the graph",
    doc=__doc__ or "",
    propose=propose,
    rank=9,
)
