"""Computes with a tensor of one element instead of with the number that was read from it.

Where a number is read from a tensor only to be multiplied, added or compared with tensors, the read
is not needed: torch treats a tensor of shape `[]` like a Python number when it promotes dtypes, and a
detached one passes no gradient on either.

Before:

    def forward(self, x: torch.Tensor):
        peak = x.abs().max().item()
        return x * peak

After:

    def forward(self, x: torch.Tensor):
        peak = x.abs().max().detach()
        return x * peak

A number that Python's `random` draws and computes with is put into a tensor in the same way, and so is
one of two numbers that a test chooses: `1.0 if x.max() < 5 else 0.5` becomes `torch.where`.

Eager code gets the same bits, if sums, differences and products with tensors of the same dtype are
all that follows. Otherwise it still reads the number: `t.detach() if torch.compiler.is_compiling()
else t.item()`.

What Python computes with the number on the way is computed in double precision, as Python does.
A number that an `if` or `assert` tests as well, `n > 0`, becomes a tensor in the compiled path, where
the branch can then be treated; `max(n, 1)` becomes `n.clamp(min=1)`. It stays where the test stands in
a loop and the read does not, for a break there would cost the whole frame.

`alpha=` and `value=` take numbers only, so they become a product in the compiled path. A number that
decides a shape, is returned, stored or handed to another function stays a number.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Guard, NotApplicable, Refused, leaves
from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.draws import draw, is_computed_with
from gbfix.analysis.effects import effects
from gbfix.analysis.flow import Analysis
from gbfix.analysis.reads import ReadKind, is_number, reads
from gbfix.analysis.trees import walk
from gbfix.diagnoses import SCALAR_READ, TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.choices import BranchChoice, branch_choice, choice_text, chosen
from gbfix.lowering.course import Course, Meeting
from gbfix.lowering.course_text import CourseWriter, gives_float, is_simple
from gbfix.lowering.numbers import follow, follow_choice
from gbfix.lowering.placement import compiled_block
from gbfix.lowering.table_entries import entry_of
from gbfix.python_diagnoses import RANDOM_CALL
from gbfix.source.text import Edit


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to keep the tensor.

    Raises:
        Refused: where the number is needed as a number.
    """
    choice = branch_choice(site.node, context.analysis) if isinstance(site.node, ast.If) else None
    if choice is not None and isinstance(site.node, ast.If):
        course = follow_choice(choice, site.node, context.analysis)
    else:
        course = follow(_number(site, context), context.analysis)
    if not course.meetings and not course.tests:
        raise Refused("scalar-unused", "the number does not meet a tensor")
    guards: tuple[Guard, ...] = ()
    if choice is not None and isinstance(site.node, ast.If) and course.computed:
        guards = _asked_of_partners(course, site.node, context)
    elif course.computed:
        _check_partners(course, context.analysis)
    _check_branches(course, context)
    same = choice is None and all(_same_dtype(m, course, context) for m in course.meetings)
    exact = same and not course.tests and all(map(_is_exact(context), course.meetings))
    writer = CourseWriter(course, context, exact=exact)
    edits = writer.edits()
    if choice is not None and isinstance(site.node, ast.If):
        edits = (_compiled_choice(site.node, choice, course, guards, context), *edits)
    if course.tests and course.rounded:
        return Fix(
            "drop-read",
            Safety.UNSAFE,
            "a test asks a number whose last bit may be another when tensors compute it",
            edits,
            context.needs_torch,
            by_running=True,
        )
    lower = bool(course.tests) and all(_of_lower_kind(m, course, context) for m in course.meetings)
    if course.tests and not course.meetings:
        safety, reason = Safety.SAFE, "the number is only tested, and the tensor tests alike"
    elif same:
        safety, reason = Safety.SAFE, "only arithmetic with tensors of the same dtype follows"
    elif lower:
        safety, reason = (
            Safety.REVIEW,
            "only tests, and arithmetic in which an integer does not decide the dtype, follow; in half "
            "precision a large integer may be rounded",
        )
    else:
        safety, reason = (
            Safety.REVIEW,
            "only arithmetic with tensors follows; where one has a single element or holds integers, "
            "the dtype of the result may be another",
        )
    return Fix("drop-read", safety, reason, edits, context.needs_torch)


def _number(site: BreakSite, context: Context) -> ast.expr:
    """The expression in which a number comes into being: a read, a draw, or a choice."""
    read = site.read
    if read is not None and read.kind is ReadKind.NUMBER:
        return entry_of(read.node, context.analysis) or read.node
    if isinstance(site.node, ast.Call) and draw(site.node, context.analysis) is not None:
        if is_computed_with(site.node, context.analysis):
            return site.node
    if isinstance(site.node, ast.IfExp) and chosen(site.node, context.analysis):
        return site.node
    if site.test is not None and isinstance(site.node, (ast.If, ast.IfExp)):
        asked = _asked(site.test, context)
        if asked is not None:
            return asked
    raise NotApplicable("no-number", "no number is read here")


def _asked(test: ast.expr, context: Context) -> ast.expr | None:
    """The read that gives the number which a test compares its value."""
    definitions = definitions_of(context.info.node, context.info.module)
    own = {read.node for read in reads(context.analysis)}  # a site each
    for leaf in leaves(test):
        for node in walk(leaf) if isinstance(leaf, ast.Compare) else ():
            statement = definitions.of(node) if isinstance(node, ast.Name) else None
            for inner in walk(statement.value) if statement is not None else ():
                if isinstance(inner, ast.expr) and is_number(inner, context.analysis):
                    if inner not in own:
                        return inner
    return None


def _check_branches(course: Course, context: Context) -> None:
    """One read must not become several branches that stay and break the graph each."""
    if len(course.tests) < 2:
        return
    for test, asking in course.tests.items():
        arms = [*asking.body, *asking.orelse] if isinstance(asking, ast.If) else []
        if unknown := effects(arms, context.analysis, context.facts).first_unknown:
            raise Refused(
                "scalar-tested",
                f"`{ast.unparse(test)}` is not the only test, and `{unknown}` may keep it a branch",
            )


def _compiled_choice(
    node: ast.If,
    choice: BranchChoice,
    course: Course,
    guards: tuple[Guard, ...],
    context: Context,
) -> Edit:
    """The choice as a tensor, before the `if` that makes it as a number."""
    torch = context.torch(node)
    text = choice_text(choice.number, torch, context, double=course.computed)
    return compiled_block(node, f"{choice.name} = {text}", torch, guards, context, join="el")


def _asked_of_partners(course: Course, node: ast.If, context: Context) -> tuple[Guard, ...]:
    """What the compiled path asks of tensors that are not proven to be floating.

    Raises:
        Refused: where one cannot be asked before the branch.
    """
    definitions = definitions_of(context.info.node, context.info.module)
    guards: dict[str, Guard] = {}
    for meeting in course.meetings:
        partner = meeting.partner
        value = context.analysis.values.get(partner)
        if meeting.scales is not None or (value is not None and value.floating):
            continue
        given = isinstance(partner, ast.Name) and (
            partner.id in definitions.parameters
            if not definitions.stores.get(partner.id)
            else (made := definitions.of(partner)) is not None and definitions.encloses(made, node)
        )
        if not given or value is None or not value.tensor:
            raise Refused(
                "dtype-unproven", f"`{ast.unparse(partner)}` is not proven to be floating"
            )
        asked = ast.Call(ast.Attribute(partner, "is_floating_point", ast.Load()), [], [])
        guards[ast.unparse(partner)] = Guard(asked, True)
    return tuple(guards.values())


def _check_partners(course: Course, analysis: Analysis) -> None:
    """A double meets floating tensors only: with integers it would not give the default dtype."""
    floats = gives_float(course, analysis)
    for meeting in course.meetings:
        value = analysis.values.get(meeting.partner)
        if floats and is_simple(meeting.partner) and value is not None and value.tensor:
            continue  # it is cast to the dtype that the number would give
        # torch itself refuses a float as `alpha=` of integers.
        if meeting.scales is None and (value is None or not value.floating):
            raise Refused(
                "dtype-unproven",
                f"`{ast.unparse(meeting.partner)}` is not proven to be floating",
            )


def _is_exact(context: Context) -> Callable[[Meeting], bool]:
    """Whether eager code gets the same bits from the tensor: CUDA divides by the two in other ways."""
    parents = context.info.module.parents

    def check(meeting: Meeting) -> bool:
        parent = parents[meeting.number]
        return isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Add, ast.Sub, ast.Mult))

    return check


def _same_dtype(meeting: Meeting, course: Course, context: Context) -> bool:
    """Whether a number comes, as it is, from a tensor of the dtype of the one that it meets."""
    partner = context.analysis.values.get(meeting.partner)
    if course.computed or partner is None:
        return False
    return all(
        (value := context.analysis.values.get(tensor)) is not None and value.dtype == partner.dtype
        for tensor in course.reads.values()
    )


def _of_lower_kind(meeting: Meeting, course: Course, context: Context) -> bool:
    """Whether an integer meets what is floating, or is divided by: its dtype then has no say."""
    values, parent = context.analysis.values, context.info.module.parents[meeting.number]
    if course.computed or not isinstance(parent, ast.BinOp):
        return False
    partner = values.get(meeting.partner)
    floating = isinstance(parent.op, ast.Div) or (partner is not None and partner.floating)
    return floating and all((v := values.get(t)) and v.integer for t in course.reads.values())


TRANSFORM = Transform(
    name="drop-read",
    codes=(SCALAR_READ.code, RANDOM_CALL.code, TENSOR_BRANCH.code),
    summary="compute with the tensor instead of a number read from it",
    doc=__doc__ or "",
    propose=propose,
    rank=20,
)
