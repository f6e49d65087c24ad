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
tensor itself, or a copy of it, and that neither is changed in place later. What is only raised for an
address is not raised while compiling. `is_inference`, `is_pinned` and `is_shared` count as false while
compiling, unless an expression chooses a value by them. `torch.is_inference_mode_enabled()` does so
only beside `not torch.is_grad_enabled()`, which it implies: elsewhere it chooses what is computed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Refused
from gbfix.analysis.modules import FunctionInfo
from gbfix.analysis.trees import walk
from gbfix.codegen import layout
from gbfix.codegen.guards import compiling
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.copies import calls_of, check_unchanged, copied_name, copies_only
from gbfix.lowering.validations import SKIPS
from gbfix.python_diagnoses import STORAGE_QUERY
from gbfix.source.text import Edit

_MODE = "is_inference_mode_enabled"
_ORIGIN = frozenset({"is_inference", "is_pinned", "is_shared", _MODE})
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
    _check_choice(operand, parents)
    owner = _decided(operand, parents)
    if isinstance(call.func, ast.Attribute) and call.func.attr == _MODE:
        raises = owner is not None and _raises(owner.body)
        if not raises and not (disjunction and _asks_gradients(parent)):
            raise Refused(
                "mode-decides", "the answer chooses what is computed, in compiled code too"
            )
    if owner is not None and any(_raises(arm) for arm in (owner.body, owner.orelse)):
        if parent is not owner or _raises(owner.orelse):
            raise Refused("raises", "the answer decides with others whether something is raised")
        edit = Edit(
            context.view.start(operand), context.view.start(operand), f"not {compiling(torch)} and "
        )
        return Fix("memory", Safety.REVIEW, SKIPS, (edit,), context.needs_torch)
    if negated:
        text = f"{compiling(torch)} or "
        loose = conjunction
    else:
        text = f"not {compiling(torch)} and "
        loose = disjunction
    start, end = context.view.start(operand), context.view.end(operand)
    edits: tuple[Edit, ...] = (Edit(start, start, text),)
    if loose:
        indent = context.view.indent(statement)
        line = context.view.source.line_text(statement.lineno)
        inner, outer = f"\n{indent}{context.unit}", f"\n{indent}"
        if layout.fits(f"{line}({text})", context.settings.line_length):
            inner = outer = ""
        edits = (Edit(start, start, f"({inner}{text}"), Edit(end, end, f"{outer})"))
    return Fix("memory", Safety.REVIEW, _FALSE, edits, context.needs_torch)


def _check_choice(operand: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> None:
    """In inference mode the answer is yes, so an expression may only choose between copies by it.

    Raises:
        Refused: where it chooses between values.
    """
    while isinstance(parents[operand], (ast.BoolOp, ast.UnaryOp)):
        operand = parents[operand]
    chosen = parents[operand]
    if not isinstance(chosen, ast.IfExp) or chosen.test is not operand:
        return
    arms = (chosen.body, chosen.orelse)
    names = {a.id if isinstance(a, ast.Name) else copied_name(a) for a in arms}
    if len(names) != 1 or None in names:
        raise Refused("mode-decides", "the answer chooses a value, in compiled code too")


def _asks_gradients(test: ast.AST) -> bool:
    """Whether a test holds without gradients, as it then does in inference mode."""
    assert isinstance(test, ast.BoolOp)
    for operand in test.values:
        if isinstance(operand, ast.UnaryOp) and isinstance(operand.op, ast.Not):
            asked: ast.expr = operand.operand
        elif isinstance(operand, ast.Compare) and len(operand.ops) == 1:
            known = operand.comparators[0]
            false = isinstance(known, ast.Constant) and known.value is False
            if not false or not isinstance(operand.ops[0], (ast.Is, ast.Eq)):
                continue
            asked = operand.left
        else:
            continue
        if isinstance(asked, ast.Call) and isinstance(asked.func, (ast.Name, ast.Attribute)):
            if ast.unparse(asked.func).rpartition(".")[2] == "is_grad_enabled":
                return True
    return False


def _decided(operand: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> ast.If | None:
    """The branch whose test an expression is part of."""
    owner = operand
    while isinstance(owner, ast.expr):
        owner = parents[owner]
    return owner if isinstance(owner, ast.If) else None


def _raises(arm: Sequence[ast.stmt]) -> bool:
    """Whether an arm ends in a `raise`."""
    return bool(arm) and isinstance(arm[-1], ast.Raise)


def _address(call: ast.Call, statement: ast.stmt, context: Context) -> Fix:
    """A branch on an address, whose arms only copy or raise: the arm that does neither is taken."""
    parents = context.info.module.parents
    test: ast.AST = call
    while isinstance(parents[test], (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp)):
        test = parents[test]
    assert isinstance(test, ast.expr)
    if isinstance(parents[test], ast.Return):
        keeps = _answer_for_callers(context)
    else:
        keeps = _answer(test, context.info, context)
    torch = context.torch(statement)
    view = context.view
    start, end = view.start(test), view.end(test)
    lead = f"{compiling(torch)} or " if keeps else f"not {compiling(torch)} and "
    loose = isinstance(test, ast.BoolOp) and (isinstance(test.op, ast.Or) is not keeps)
    edits: tuple[Edit, ...] = (Edit(start, start, lead),)
    if loose:
        edits = (Edit(start, start, f"{lead}("), Edit(end, end, ")"))
    owner = parents[test]
    line = view.source.line_text(statement.lineno)
    if isinstance(owner, ast.Return) and not layout.fits(lead + line, context.settings.line_length):
        indent = view.indent(statement)
        inner = f"\n{indent}{context.unit}"
        first, word = lead.rsplit(" ", 2)[:2]
        opening = "(" if loose else ""
        edits = (
            Edit(start, start, f"({inner}{first}{inner}{word} {opening}"),
            Edit(end, end, f"{')' if loose else ''}\n{indent})"),
        )
    raises = isinstance(owner, ast.If) and isinstance(owner.body[-1], ast.Raise)
    reason = SKIPS if raises or isinstance(owner, ast.Assert) else _SAME
    return Fix("memory", Safety.REVIEW, reason, edits, context.needs_torch)


def _answer(test: ast.expr, info: FunctionInfo, context: Context) -> bool:
    """The answer to a test on addresses under which nothing is copied and nothing raised.

    Raises:
        Refused: where the test decides more.
    """
    owner = info.module.parents[test]
    if isinstance(owner, ast.UnaryOp) and isinstance(owner.op, ast.Not):
        return not _answer(owner, info, context)
    names = {n.id for n in walk(test) if isinstance(n, ast.Name)}
    if isinstance(owner, ast.Assert) and owner.test is test:
        return True
    if isinstance(owner, ast.IfExp) and owner.test is test:
        keeps = _kept_arm(owner.body, owner.orelse)
        whole = info.module.parents[owner]
        targets = whole.targets if isinstance(whole, ast.Assign) else []
        names |= {n.id for t in targets for n in walk(t) if isinstance(n, ast.Name)}
        check_unchanged(names, info, context, returned=isinstance(whole, ast.Return))
        return keeps
    if not isinstance(owner, ast.If) or owner.test is not test:
        raise Refused("address-decides", "the address is used for more than to copy or not")
    if isinstance(owner.body[-1], ast.Raise) and not owner.orelse:
        if len(owner.body) > 1:
            raise Refused("address-decides", "the branch does more than raise")
        return False
    if owner.orelse or not copies_only(owner.body):
        raise Refused("address-decides", "the branch does more than copy a tensor")
    copied = {n.id for s in owner.body for n in walk(s) if isinstance(n, ast.Name)}
    given_back = any(
        isinstance(n, ast.Return) and isinstance(n.value, ast.Name) and n.value.id in copied
        for n in walk(info.node)
    )
    check_unchanged(names | copied, info, context, returned=given_back)
    return False


def _answer_for_callers(context: Context) -> bool:
    """The answer of a function that compares addresses, where all of its callers want the same.

    Raises:
        Refused: where one does more with it, or they differ.
    """
    answers: set[bool] = set()
    for call, function in calls_of(context.info, context):
        known = function.module.function_of.get(function.node, function)
        answers.add(_answer(call, known, context))
    if len(answers) != 1:
        raise Refused("address-decides", "the address is used for more than to copy or not")
    return answers.pop()


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
