"""Counts into as many bins as are asked for.

`torch.bincount(x, minlength=n)` has more than `n` bins if an element is not below `n`, so that its size
depends on data. Where the elements are the numbers of experts, classes or nodes, it has exactly `n`,
and the compiled path adds one to each element's bin.

Before:

    def load(gates: torch.Tensor):
        chosen = gates.topk(2, dim=-1).indices
        counts = torch.bincount(chosen.flatten(), minlength=gates.shape[-1])
        return counts / chosen.numel()

After:

    def load(gates: torch.Tensor):
        chosen = gates.topk(2, dim=-1).indices
        if torch.compiler.is_compiling():
            bins = chosen.flatten().long()
            counts = bins.new_zeros(gates.shape[-1]).scatter_add(0, bins, torch.ones_like(bins))
        else:
            counts = torch.bincount(chosen.flatten(), minlength=gates.shape[-1])
        return counts / chosen.numel()

An element for which eager code would make a further bin raises RuntimeError in the graph, which is why
the fix asks for a review. Counts with weights, or without `minlength`, are left alone.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.dynamic import operation_name
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat, operand
from gbfix.diagnoses import DATA_SIZE
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.doubling import twice

_REASON = (
    "an element that is not below `{}` raises RuntimeError in the graph; eager code adds a bin"
)


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to add up the counts in bins whose number is known.

    Raises:
        Refused: where elements have weights, or the number of bins is not known.
    """
    call = site.node
    if not isinstance(call, ast.Call) or operation_name(call, context.analysis) != "bincount":
        raise NotApplicable("no-bincount", "nothing is counted by `bincount`")
    counted, length = _parts(call, context)
    value = context.analysis.values.get(length)
    if value is None or value.kinds & (Kind.TENSOR | Kind.SCALAR):
        raise Refused("length-unknown", f"`{ast.unparse(length)}` may not be a Python number")
    if isinstance(length, ast.Constant) and length.value == 0:
        raise Refused("length-unknown", "no number of bins is asked for")
    _check_first(call, site.statement)
    torch, view = context.torch(site.statement), context.view
    bins = context.names.take("bins")
    cast = "" if _is_long(counted) else ".long()"
    lead = f"{bins} = {operand(view, counted)}{cast}"
    text = (
        f"{bins}.new_zeros({flat(view, length)}).scatter_add(0, {bins}, {torch}.ones_like({bins}))"
    )
    edits = twice({site.statement: {call: text}}, context, {site.statement: [lead]})
    reason = _REASON.format(flat(view, length))
    return Fix("count-bins", Safety.REVIEW, reason, edits, context.needs_torch)


def _parts(call: ast.Call, context: Context) -> tuple[ast.expr, ast.expr]:
    """What is counted and the least number of bins.

    Raises:
        Refused: where there are weights, or no number of bins.
    """
    named = {k.arg: k.value for k in call.keywords}
    given = list(call.args)
    name = context.info.module.qualify(call.func)
    if name != "torch.bincount" and isinstance(call.func, ast.Attribute):
        given = [call.func.value, *given]
    names = ("input", "weights", "minlength")
    if len(given) > len(names) or any(isinstance(g, ast.Starred) for g in given):
        raise Refused("complex-expression", "the arguments are not known")
    named |= dict(zip(names, given, strict=False))
    if None in named or named.keys() - set(names) or "input" not in named:
        raise Refused("complex-expression", "the arguments are not known")
    weights = named.get("weights")
    if weights is not None and not (isinstance(weights, ast.Constant) and weights.value is None):
        raise Refused("weighted", "the elements have weights")
    if "minlength" not in named:
        raise Refused("length-unknown", "no number of bins is asked for")
    return named["input"], named["minlength"]


def _check_first(call: ast.Call, statement: ast.stmt) -> None:
    """What is counted is computed before the rest of the statement: nothing else may be called first.

    Raises:
        Refused: where something is.
    """
    inner = set(walk(call))
    for node in walk(statement):
        if not isinstance(node, (ast.Call, ast.NamedExpr, ast.Await)) or node in inner:
            continue
        if call not in walk(node):
            raise Refused(
                "complex-expression", f"`{ast.unparse(node)}` stands in the statement too"
            )


def _is_long(node: ast.expr) -> bool:
    """Whether an expression ends in a cast to 64 bit."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "long"
        and not node.args
    )


TRANSFORM = Transform(
    name="count-bins",
    codes=(DATA_SIZE.code,),
    summary="count into as many bins as are asked for",
    doc=__doc__ or "",
    propose=propose,
    rank=24,
)
