"""Keeps a tensor where a Python value was read from it only to be tested.

`.item()`, `bool()` and comparisons of what they return end the graph at the place where the value is
read. Where the result is a name that is only ever tested for truth, the name can hold the tensor
instead: `if`, `and` and `not` ask a tensor of one element the same question, and the branch itself
can then be treated.

Before:

    def forward(self, x: torch.Tensor, keep: torch.Tensor):
        right_padded = keep[:, -1].sum().item() != keep.shape[0]
        if right_padded:
            x = x.flip(1)
        return x

After:

    def forward(self, x: torch.Tensor, keep: torch.Tensor):
        right_padded = keep[:, -1].sum() != keep.shape[0]
        if torch.compiler.is_compiling():
            x = torch.cond(right_padded, lambda: x.flip(1), lambda: x.clone())
        elif right_padded:
            x = x.flip(1)
        return x

A test that is given a name as Python says it, `bad = not t.isfinite().all()` or `skip = True if t < p
else False`, is written as a tensor too. The comparison stays exact: against a number that is not an
integer it is made in double precision, as Python makes it. Where no fix treats a test that asks for the
name, nothing would be gained, and the name keeps its value.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import (
    Leaf,
    Negated,
    NotApplicable,
    Refused,
    data_kind,
    leaves,
    split,
)
from gbfix.analysis.draws import is_drawn
from gbfix.analysis.effects import effects
from gbfix.analysis.equality import compared
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import operand
from gbfix.codegen.predicates import Renderer
from gbfix.diagnoses import LOOP_EXIT, TENSOR_ASSERT, TENSOR_BRANCH, TENSOR_RAISE
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.views import block_of
from gbfix.source.text import Edit

_TESTS = (ast.If, ast.IfExp, ast.While, ast.Assert)


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to keep tensors in the names that a test asks for.

    Raises:
        Refused: where a name is used for more than its truth, or its value has no tensor form.
    """
    if site.test is None:
        raise NotApplicable("no-test", "nothing is tested here")
    if isinstance(site.node, (ast.UnaryOp, ast.IfExp, ast.BoolOp)):
        return _named_test(site, context)
    names = {
        leaf.id
        for leaf in leaves(site.test)
        if isinstance(leaf, ast.Name)
        and data_kind(leaf, context.analysis) == "scalar"
        and not is_drawn(leaf, context.analysis)
    }
    if not names:
        raise NotApplicable(
            "no-scalar-name", "the test does not ask a Python value that was read earlier"
        )
    edits = tuple(edit for name in sorted(names) for edit in _kept(name, site, context))
    tests = tuple(test for name in sorted(names) for test in _tests(name, context))
    return Fix(
        "item", Safety.SAFE, "the value is only tested, and the tensor tests alike", edits,
        context.needs_torch, prepares=tests,
    )  # fmt: skip


def _named_test(site: BreakSite, context: Context) -> Fix:
    """Offer to write a test that is given a name, `bad = not t.all()`, as a tensor.

    Raises:
        Refused: where the name is used for more than its truth, or static operands do not come first.
    """
    statement, node = site.statement, site.node
    if not isinstance(statement, ast.Assign) or statement.value is not node:
        raise NotApplicable("no-scalar-name", "the test is not given a name")
    test, target = statement.value, statement.targets[0]
    if not isinstance(target, ast.Name):
        raise NotApplicable("no-scalar-name", "the test is not given a name")
    truth = True
    while isinstance(test, ast.IfExp):
        truth ^= _negates(test)
        test = test.test
    _only_assigned(target.id, context)
    parts = split(test, context.analysis, context.facts)
    if parts.guards and not truth:
        raise Refused(
            "mixed-condition", "the opposite of what is decided while tracing is asked for"
        )
    predicate = parts.predicate if truth else Negated(parts.predicate)
    if any(g.truth != parts.guards[0].truth or g.shapes for g in parts.guards):
        raise Refused("mixed-condition", "static operands are joined in more than one way")
    torch = context.torch(statement)
    rendered = Renderer(context.view, context.analysis, torch).render(predicate)
    operands = [operand(context.view, g.node) for g in parts.guards]
    joined = " and " if parts.guards and parts.guards[0].truth else " or "
    text = joined.join([*operands, rendered.operand]) if operands else rendered.text
    view = context.view
    edit = Edit(view.start(statement.value), view.end(statement.value), text)
    # An operand that is joined to others ends the graph by itself, and any other one in the later test.
    tests = () if isinstance(test, ast.BoolOp) else _tests(target.id, context)
    return Fix(
        "item", Safety.SAFE, "the value is only tested, and the tensor tests alike", (edit,),
        context.needs_torch, prepares=tests,
    )  # fmt: skip


def _negates(node: ast.IfExp) -> bool:
    """Whether `False if test else True`.

    Raises:
        Refused: for any other values.
    """
    values = [v.value if isinstance(v, ast.Constant) else None for v in (node.body, node.orelse)]
    if values not in ([True, False], [False, True]) or any(type(v) is not bool for v in values):
        raise NotApplicable("no-scalar-name", "the values are not True and False")
    return values[0] is False


def _kept(name: str, site: BreakSite, context: Context) -> tuple[Edit, ...]:
    """The edits that make a name hold the tensor."""
    statement = _assignment(name, context)
    value = context.analysis.values.get(statement.value)
    found = effects([statement.value], context.analysis, context.facts)
    if value is None or not found.pure:
        raise Refused("python-scalar", f"`{name}` holds a value whose computation has effects")
    view = context.view
    start, end = view.start(statement.value), view.end(statement.value)
    if not _are_alike(statement.value, context):
        return _asked_there(name, statement, site, context)
    torch = context.torch(statement)
    renderer = Renderer(view, context.analysis, torch)
    text = renderer.render(Leaf(statement.value, value, scalar=True)).text
    return (Edit(start, end, text),)


def _asked_there(
    name: str, statement: ast.Assign, site: BreakSite, context: Context
) -> tuple[Edit, ...]:
    """Edits that ask in the test itself, which comes next, so that it can be told from its operands.

    Raises:
        Refused: where something comes in between, or more asks for the answer.
    """
    view, function = context.view, context.info.node
    block = block_of(statement, context.info.module)
    uses = [n for n in walk(function) if isinstance(n, ast.Name) and n.id == name]
    following = block[block.index(statement) + 1 :][:1]
    alone = view.starts_line(statement) and view.ends_line(statement)
    if following != [site.node] or not isinstance(site.node, ast.If) or len(uses) != 2 or not alone:
        raise Refused(
            "shapes-unproven",
            "the tensors are not proven to have one shape and dtype, as `==` needs",
        )
    (use,) = (n for n in uses if isinstance(n.ctx, ast.Load))
    start = view.line_start(view.start(statement))
    gone = Edit(start, view.next_line(view.end(statement)), "")
    return gone, Edit(view.start(use), view.end(use), view.text(statement.value))


def _are_alike(node: ast.expr, context: Context) -> bool:
    """Whether tensors of which `torch.equal` asks can be compared element by element.

    Of unlike shapes it is false, and of unlike dtypes it raises.
    """
    found = compared(node, context.analysis.values)
    if found is None or found[0] != "equal":
        return True
    a, b = (context.analysis.values[operand] for operand in found[1:])
    return (a.shape, a.dtype) == (b.shape, b.dtype)


def _assignment(name: str, context: Context) -> ast.Assign:
    """The one assignment of a name that is only tested.

    Raises:
        Refused: for any other name.
    """
    found = _only_assigned(name, context)
    if len(found) != 1:
        raise Refused("python-scalar", f"`{name}` is not assigned once, by itself")
    return found[0]


def _only_assigned(name: str, context: Context) -> list[ast.Assign]:
    """The assignments of a name that is only tested, each of the name by itself.

    Raises:
        Refused: for any other name.
    """
    function, parents = context.info.node, context.info.module.parents
    uses = [n for n in walk(function) if isinstance(n, ast.Name) and n.id == name]
    stores = [n for n in uses if not isinstance(n.ctx, ast.Load)]
    found = [
        s for store in stores if isinstance(s := parents.get(store), ast.Assign)
        and s.targets == [store]
    ]  # fmt: skip
    if not stores or len(found) != len(stores):
        raise Refused("python-scalar", f"`{name}` is not only assigned, by itself")
    for use in uses:
        if isinstance(use.ctx, ast.Load) and _test_of(use, context) is None:
            raise Refused("scalar-used", f"`{name}` is used for more than its truth")
    return found


def _tests(name: str, context: Context) -> tuple[ast.expr, ...]:
    """The tests that ask for a name."""
    uses = [n for n in walk(context.info.node) if isinstance(n, ast.Name) and n.id == name]
    found = [_test_of(use, context) for use in uses if isinstance(use.ctx, ast.Load)]
    return tuple(dict.fromkeys(test for test in found if test is not None))


def _test_of(use: ast.AST, context: Context) -> ast.expr | None:
    """The test that a use stands in; None where it asks for more than truth."""
    parents = context.info.module.parents
    current, parent = use, parents[use]
    while isinstance(parent, ast.BoolOp) or (
        isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    ):
        current, parent = parent, parents[parent]
    return parent.test if isinstance(parent, _TESTS) and parent.test is current else None


TRANSFORM = Transform(
    name="item",
    codes=(LOOP_EXIT.code, TENSOR_BRANCH.code, TENSOR_RAISE.code, TENSOR_ASSERT.code),
    summary="keep a tensor where a value read from it is only tested",
    doc=__doc__ or "",
    propose=propose,
    rank=8,
)
