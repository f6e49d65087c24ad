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
`alpha=` and `value=` take numbers only, so they become a product in the compiled path. A number that
decides a shape, is returned, stored or handed to another function stays a number.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.draws import PLAIN, as_uniform, draw, is_computed_with
from gbfix.analysis.effects import function_effects
from gbfix.analysis.flow import Analysis
from gbfix.analysis.reads import ReadKind
from gbfix.analysis.sites import BreakSite
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import flat, operand
from gbfix.codegen.guards import compiling
from gbfix.diagnoses import SCALAR_READ, TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.choices import BranchChoice, branch_choice, choice_text, chosen
from gbfix.lowering.doubling import in_compiled_path, twice
from gbfix.lowering.numbers import Course, Meeting, follow, follow_choice
from gbfix.lowering.placement import compiled_block
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
    if not course.meetings:
        raise Refused("scalar-unused", "the number does not meet a tensor")
    if course.computed:
        _check_partners(course, context.analysis)
    same = choice is None and all(_same_dtype(m, course, context.analysis) for m in course.meetings)
    writer = _Writer(course, context, exact=same and all(map(_is_exact(context), course.meetings)))
    edits = writer.edits()
    if choice is not None and isinstance(site.node, ast.If):
        edits = (_compiled_choice(site.node, choice, course, context), *edits)
    if same:
        return Fix(
            "drop-read", Safety.SAFE, "only arithmetic with tensors of the same dtype follows",
            edits, context.needs_torch,
        )  # fmt: skip
    return Fix(
        "drop-read",
        Safety.REVIEW,
        "only arithmetic with tensors follows; where one has a single element or holds integers, the "
        "dtype of the result may be another",
        edits,
        context.needs_torch,
    )


def _number(site: BreakSite, context: Context) -> ast.expr:
    """The expression in which a number comes into being: a read, a draw, or a choice."""
    read = site.read
    if read is not None and read.kind is ReadKind.NUMBER:
        return read.node
    if isinstance(site.node, ast.Call) and draw(site.node, context.analysis) is not None:
        if is_computed_with(site.node, context.analysis):
            return site.node
    if isinstance(site.node, ast.IfExp) and chosen(site.node, context.analysis):
        return site.node
    raise NotApplicable("no-number", "no number is read here")


def _compiled_choice(node: ast.If, choice: BranchChoice, course: Course, context: Context) -> Edit:
    """The choice as a tensor, before the `if` that makes it as a number."""
    torch = context.torch(node)
    text = choice_text(choice.number, torch, context, double=course.computed)
    return compiled_block(node, f"{choice.name} = {text}", torch, (), context, join="el")


def _check_partners(course: Course, analysis: Analysis) -> None:
    """A double meets floating tensors only: with integers it would not give the default dtype."""
    for meeting in course.meetings:
        value = analysis.values.get(meeting.partner)
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


def _same_dtype(meeting: Meeting, course: Course, analysis: Analysis) -> bool:
    """Whether a number comes, as it is, from a tensor of the dtype of the one that it meets."""
    partner = analysis.values.get(meeting.partner)
    if course.computed or partner is None:
        return False
    return all(
        (value := analysis.values.get(tensor)) is not None and value.dtype == partner.dtype
        for tensor in course.reads.values()
    )


class _Writer:
    """The text of a course in the compiled path."""

    def __init__(self, course: Course, context: Context, exact: bool) -> None:
        self.course = course
        self.exact = exact
        self.context = context
        self.view = context.view
        self.parents = context.info.module.parents

    def edits(self) -> tuple[Edit, ...]:
        """Every statement of the course that reads differently when compiling."""
        texts: dict[ast.stmt, dict[ast.expr, str]] = {}
        for read, tensor in self.course.reads.items():
            texts.setdefault(self._statement(read), {})[read] = self._tensor(tensor)
        for call, method in self.course.functions.items():
            inner = operand(self.view, call.args[0])
            texts.setdefault(self._statement(call), {})[call] = f"{inner}.{method}()"
        for meeting in self.course.meetings:
            statement = self._statement(meeting.number)
            texts.setdefault(statement, {}).update(self._meeting(meeting))
        return self._written({s: self._outermost(c) for s, c in texts.items()})

    def _written(self, texts: dict[ast.stmt, dict[ast.expr, str]]) -> tuple[Edit, ...]:
        context, view = self.context, self.view
        found: list[Edit] = []
        both: dict[ast.stmt, dict[ast.expr, str]] = {}
        for statement, changes in texts.items():
            if self.exact or in_compiled_path(statement, context):
                found += [Edit(view.start(n), view.end(n), t) for n, t in changes.items()]
            elif (edit := self._conditional(statement, changes)) is not None:
                found.append(edit)
            elif changes:
                both[statement] = changes
        if both:
            found += twice(both, context)
        return tuple(found)

    def _conditional(self, statement: ast.stmt, changes: dict[ast.expr, str]) -> Edit | None:
        """`name = tensor if compiling else number`, where it fits the line."""
        if not isinstance(statement, ast.Assign) or list(changes) != [statement.value]:
            return None
        view = self.view
        (text,) = changes.values()
        torch = self.context.torch(statement)
        old = flat(view, statement.value)
        if isinstance(statement.value, ast.IfExp):
            old = f"({old})"
        line = f"{text} if {compiling(torch)} else {old}"
        start = view.start(statement.value)
        if start - view.line_start(start) + len(line) > self.context.settings.line_length:
            return None
        return Edit(start, view.end(statement.value), line)

    def _outermost(self, changes: dict[ast.expr, str]) -> dict[ast.expr, str]:
        """Changes inside of others are part of their texts."""
        found: dict[ast.expr, str] = {}
        for node, text in changes.items():
            inside = [o for o in changes if o is not node and _contains(o, node)]
            if not inside:
                found[node] = self._filled(node, text, changes)
        return found

    def _filled(self, node: ast.expr, text: str, changes: dict[ast.expr, str]) -> str:
        """A text with the texts of what changes inside of it."""
        for inner, new in changes.items():
            if inner is not node and _contains(node, inner):
                old = flat(self.view, inner)
                if text.count(old) != 1:
                    raise Refused("complex-expression", f"`{old}` stands there more than once")
                text = text.replace(old, self._filled(inner, new, changes))
        return text

    def _statement(self, node: ast.AST) -> ast.stmt:
        current = self.parents[node] if isinstance(node, ast.IfExp) else node
        while not isinstance(current, ast.stmt):
            if isinstance(current, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.IfExp)):
                raise Refused("unusual-place", "the number is used in a nested scope or condition")
            current = self.parents[current]
        return current

    def _tensor(self, tensor: ast.expr) -> str:
        """The tensor in the place of a number that is read from it."""
        if isinstance(tensor, ast.Call) and (drawn := draw(tensor, self.context.analysis)):
            return self._drawn(tensor, plain=drawn == PLAIN)
        if isinstance(tensor, ast.IfExp):
            torch = self.context.torch(self._statement(tensor))
            return choice_text(tensor, torch, self.context, double=self.course.computed)
        value = self.context.analysis.values[tensor]
        text = operand(self.view, tensor)
        if not (value.boolean or value.integer):
            text = f"{text}.detach()"
        if not value.zero_dim:
            text = f"{text}.reshape(())"
        if not value.unshared and self._may_change():
            text = f"{text}.clone()"
        return f"{text}.double()" if self.course.computed else text

    def _drawn(self, call: ast.Call, *, plain: bool) -> str:
        """A drawn number in a tensor, in double precision as Python has it."""
        text = as_uniform(flat(self.view, call.func)) if plain else flat(self.view, call)
        if text is None:
            raise Refused("module-unnamed", "the module `random` has no name here")
        torch = self.context.torch(self._statement(call))
        return f"{torch}.as_tensor({text}, dtype={torch}.float64)"

    def _may_change(self) -> bool:
        """Whether the function changes anything in place, which a number would not see."""
        found = function_effects(self.context.info, self.context.facts)
        return found is None or bool(found.mutated or found.unknown or found.stateful)

    def _meeting(self, meeting: Meeting) -> dict[ast.expr, str]:
        """The text of a number where it meets a tensor, in the dtype of that tensor."""
        node, partner = meeting.number, meeting.partner
        text = flat(self.view, node)
        cast = self._cast(partner)
        changed = text
        if cast and self.course.computed:
            changed = f"{operand(self.view, node)}{cast}"
        if meeting.scales is None:
            return {} if changed == text else {node: changed}
        scaled, keyword = meeting.scales
        if changed == text:
            changed = operand(self.view, node)
        call = self.parents[keyword]
        assert isinstance(call, ast.Call)
        at = call.args.index(scaled)
        before = [flat(self.view, a) for a in call.args[:at]]
        rest = [flat(self.view, a) for a in call.args[at + 1 :]]
        rest += [
            f"{k.arg}={flat(self.view, k.value)}" if k.arg else f"**{flat(self.view, k.value)}"
            for k in call.keywords
            if k is not keyword
        ]
        product = f"{operand(self.view, scaled)} * {changed}"
        head = flat(self.view, call.func)
        return {call: f"{head}({', '.join([*before, product, *rest])})"}

    def _cast(self, partner: ast.expr) -> str:
        value = self.context.analysis.values.get(partner)
        simple = isinstance(partner, (ast.Name, ast.Attribute))
        known = value is not None and value.floating
        return f".to({flat(self.view, partner)}.dtype)" if simple and known else ""


def _contains(outer: ast.AST, inner: ast.AST) -> bool:
    return any(n is inner for n in walk(outer))


TRANSFORM = Transform(
    name="drop-read",
    codes=(SCALAR_READ.code, RANDOM_CALL.code, TENSOR_BRANCH.code),
    summary="compute with the tensor instead of a number read from it",
    doc=__doc__ or "",
    propose=propose,
    rank=20,
)
