"""Leaves questions about a tensor's memory out of the compiled path.

A graph has no addresses: whether a tensor starts at a multiple of 16 bytes, is pinned, or was made
under `inference_mode`, is decided when it runs. Such a test only chooses between forms of one value,
or asks whether a cache has to be filled again; the compiled path takes the form that is used as it
is.

Before:

    def aligned(x: torch.Tensor):
        return x if x.data_ptr() % 16 == 0 else x.clone()


    def scale(x: torch.Tensor, weight: torch.Tensor):
        return aligned(x.contiguous()) * weight

After:

    def aligned(x: torch.Tensor):
        return x if torch.compiler.is_compiling() or x.data_ptr() % 16 == 0 else x.clone()


    def scale(x: torch.Tensor, weight: torch.Tensor):
        return aligned(x.contiguous()) * weight

Where a branch stands under such a test, it has to be seen that both ways give the same values: the
tensor itself, or a copy of it. `is_inference`, `is_pinned` and `is_shared` count as false while
compiling.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.analysis.sites import BreakSite
from gbfix.codegen.guards import compiling
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.copies import copied_name, copies_only
from gbfix.python_diagnoses import STORAGE_QUERY
from gbfix.source.text import Edit

_ORIGIN = frozenset({"is_inference", "is_pinned", "is_shared", "is_inference_mode_enabled"})
_SAME = "a tensor that would be copied because of its address is used as it is when compiled"
_FALSE = "the question is taken to be answered with no in the compiled path"


def propose(site: BreakSite, context: Context) -> Fix:
    """Make the test of a branch skip the question while compiling.

    Raises:
        Refused: where the two ways are not seen to give the same values.
    """
    call = site.node
    assert isinstance(call, ast.Call)
    if site.statement in context.analysis.before and isinstance(call.func, ast.Attribute):
        if call.func.attr in _ORIGIN:
            return _origin(call, site.statement, context)
    return _address(call, site.statement, context)


def _origin(call: ast.Call, statement: ast.stmt, context: Context) -> Fix:
    """`t.is_inference()` as an operand of a test: `not compiling and t.is_inference()`."""
    parents = context.info.module.parents
    operand: ast.expr = call
    parent = parents[call]
    negated = False
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
        operand, parent, negated = parent, parents[parent], True
    torch = context.torch(statement)
    conjunction = isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And)
    disjunction = isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or)
    tested = isinstance(parent, (ast.If, ast.IfExp)) and parent.test is operand
    if not (conjunction or disjunction or tested or isinstance(parent, ast.Return)):
        raise Refused("value-used", "the answer is used for more than a test")
    if negated:
        text = f"{compiling(torch)} or "
        loose = conjunction
    else:
        text = f"not {compiling(torch)} and "
        loose = disjunction
    start, end = context.view.start(operand), context.view.end(operand)
    edits: tuple[Edit, ...] = (Edit(start, start, text),)
    if loose:
        edits = (Edit(start, start, f"({text}"), Edit(end, end, ")"))
    return Fix("memory", Safety.REVIEW, _FALSE, edits, context.needs_torch)


def _address(call: ast.Call, statement: ast.stmt, context: Context) -> Fix:
    """A branch on an address, whose arms only copy: the arm that does not copy is taken."""
    parents = context.info.module.parents
    test: ast.AST = call
    while isinstance(parents[test], (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp)):
        test = parents[test]
    owner = parents[test]
    assert isinstance(test, ast.expr)
    if isinstance(owner, ast.IfExp) and owner.test is test:
        keeps = _kept_arm(owner.body, owner.orelse)
    elif isinstance(owner, ast.If) and owner.test is test:
        if owner.orelse or not copies_only(owner.body):
            raise Refused("address-decides", "the branch does more than copy a tensor")
        keeps = False
    else:
        raise Refused("address-decides", "the address is used for more than to copy or not")
    torch = context.torch(statement)
    view = context.view
    start, end = view.start(test), view.end(test)
    lead = f"{compiling(torch)} or " if keeps else f"not {compiling(torch)} and "
    loose = isinstance(test, ast.BoolOp) and (isinstance(test.op, ast.Or) is not keeps)
    edits: tuple[Edit, ...] = (Edit(start, start, lead),)
    if loose:
        edits = (Edit(start, start, f"{lead}("), Edit(end, end, ")"))
    return Fix("memory", Safety.REVIEW, _SAME, edits, context.needs_torch)


def _kept_arm(body: ast.expr, orelse: ast.expr) -> bool:
    """Whether the first arm is the tensor as it is, and the second a copy; or the other way."""
    if isinstance(body, ast.Name) and copied_name(orelse) == body.id:
        return True
    if isinstance(orelse, ast.Name) and copied_name(body) == orelse.id:
        return False
    raise Refused("address-decides", "the two ways are not a tensor and its copy")


TRANSFORM = Transform(
    name="memory",
    codes=(STORAGE_QUERY.code,),
    summary="leave questions about a tensor's memory out of the compiled path",
    doc=__doc__ or "",
    propose=propose,
    rank=12,
)
