"""The text of numbers that stay tensors in the compiled path: their reads, functions and meetings.

Eager code keeps the numbers, in a conditional expression or in statements written twice, unless the
bits are known to be the same. Is told what to write, and does not ask whether it is right.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.draws import PLAIN, as_uniform, draw
from gbfix.analysis.effects import effects, function_effects
from gbfix.analysis.flow import Analysis
from gbfix.analysis.ranks import Ranks
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import flat, flatten, operand
from gbfix.codegen.guards import compiling
from gbfix.fixes import Context
from gbfix.lowering.choices import choice_text
from gbfix.lowering.course import Course, Meeting, Method
from gbfix.lowering.doubling import in_compiled_path, substituted, twice
from gbfix.lowering.table_entries import entries, entry_text, is_entry
from gbfix.source.text import Edit

_MAKING = frozenset("arange linspace zeros ones full empty eye rand randn tensor".split())


def gives_float(course: Course, analysis: Analysis) -> bool:
    """Whether all numbers of a course are floats, whatever is computed with them."""
    return bool(course.reads) and all(
        entries(tensor, analysis).floats
        if isinstance(tensor, ast.Subscript) and is_entry(tensor, analysis)
        else read is not tensor and (value := analysis.values.get(tensor)) and value.floating
        for read, tensor in course.reads.items()
    )


def is_simple(node: ast.expr) -> bool:
    """Whether an expression can be written again to ask for its dtype."""
    return isinstance(node, (ast.Name, ast.Attribute))


class CourseWriter:
    """The text of a course in the compiled path."""

    def __init__(self, course: Course, context: Context, exact: bool) -> None:
        self.course = course
        self.exact = exact
        self.context = context
        self.view = context.view
        self.parents = context.info.module.parents
        self.entries: dict[ast.Subscript, str] = {}
        self.leads: dict[ast.stmt, list[str]] = {}
        self.products: dict[ast.Call, tuple[tuple[ast.expr, ast.keyword], str]] = {}

    def edits(self) -> tuple[Edit, ...]:
        """Every statement of the course that reads differently when compiling."""
        texts: dict[ast.stmt, dict[ast.expr, str]] = {}
        for read, tensor in self.course.reads.items():
            texts.setdefault(self._statement(read), {})[read] = self._tensor(tensor)
        for call, method in self.course.functions.items():
            texts.setdefault(self._statement(call), {})[call] = self._called(method)
        for meeting in self.course.meetings:
            if changes := self._meeting(meeting):
                texts.setdefault(self._statement(meeting.number), {}).update(changes)
        eager = self.context.analysis.eager if not self.exact else ()
        return self._written({s: self._outermost(c) for s, c in texts.items() if s not in eager})

    def _written(self, texts: dict[ast.stmt, dict[ast.expr, str]]) -> tuple[Edit, ...]:
        context, view = self.context, self.view
        found: list[Edit] = []
        both: dict[ast.stmt, dict[ast.expr, str]] = {}
        for statement, changes in texts.items():
            leads = self.leads.get(statement, [])
            if self.exact or in_compiled_path(statement, context):
                start, indent = view.start(statement), view.indent(statement)
                if leads and not view.starts_line(statement):
                    raise Refused("unusual-place", "the statement shares its line with another")
                if leads:
                    text = "".join(f"{line}\n{indent}" for line in leads)
                    found.append(Edit(start, start, text))
                found += [Edit(view.start(n), view.end(n), t) for n, t in changes.items()]
            elif leads:
                both[statement] = changes
            elif (edit := self._conditional(statement, changes)) is not None:
                found.append(edit)
            elif changes:
                both[statement] = changes
        if both:
            found += twice(both, context, {s: n for s, n in self.leads.items() if n})
        return tuple(found)

    def _conditional(self, statement: ast.stmt, changes: dict[ast.expr, str]) -> Edit | None:
        """`name = tensor if compiling else number`, where it fits the line."""
        if not isinstance(statement, ast.Assign):
            return None
        view = self.view
        start, end = view.start(statement.value), view.end(statement.value)
        tested = bool(self.course.tests) and self._is_number(statement)
        if view.has_comment(start, end):
            if tested:
                raise Refused("unusual-place", "a comment stands in what computes a tested number")
            return None
        in_parentheses = view.source.text[:start].rstrip().endswith("(")
        if list(changes) == [statement.value]:
            (text,) = changes.values()
        elif tested:
            text = flatten(substituted(statement, changes, view).partition("=")[2].strip())
        else:
            return None
        torch = self.context.torch(statement)
        old = flat(view, statement.value)
        if isinstance(statement.value, ast.IfExp):
            old = f"({old})"
        if in_parentheses and list(changes) != [statement.value]:
            text = text.removeprefix("(").removesuffix(")").strip()
        parts = [text, f"if {compiling(torch)}", f"else {old}"]
        line = " ".join(parts)
        column = start - view.line_start(start)
        if column + len(line) <= self.context.settings.line_length:
            return Edit(start, end, line)
        if not tested:
            return None
        # What a test asks has one value here, the tensor; of two statements it would have either.
        inner = f"{view.indent(statement)}{self.context.unit}"
        if len(inner) + len(line) > self.context.settings.line_length:
            line = f"\n{inner}".join(parts)
        if in_parentheses:
            return Edit(start, end, line)
        return Edit(start, end, f"(\n{inner}{line}\n{view.indent(statement)})")

    def _is_number(self, statement: ast.Assign) -> bool:
        """Whether a name is given a number that is followed."""
        target = statement.targets[0]
        return isinstance(target, ast.Name) and target.id in self.course.names

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
        if isinstance(node, ast.Call) and node in self.products:
            return self._product(node, changes)
        inside = {n: t for n, t in changes.items() if n is not node and _contains(node, n)}
        return self._replaced_in(text, inside, changes)

    def _replaced_in(
        self, text: str, inside: dict[ast.expr, str], changes: dict[ast.expr, str]
    ) -> str:
        for inner, new in inside.items():
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

    def _tensor(self, tensor: ast.expr, place: ast.AST | None = None) -> str:
        """The tensor in the place of a number that is read from it, and met at once in `place`."""
        if isinstance(tensor, ast.Call) and (drawn := draw(tensor, self.context.analysis)):
            return self._drawn(tensor, plain=drawn == PLAIN)
        if isinstance(tensor, ast.IfExp):
            torch = self.context.torch(self._statement(tensor))
            return choice_text(tensor, torch, self.context, double=self.course.computed)
        moved = ".cpu()" if any(map(self._is_on_default_device, self.course.meetings)) else ""
        if isinstance(tensor, ast.Subscript) and is_entry(tensor, self.context.analysis):
            return f"{self._entry(tensor)}{moved}"
        value = self.context.analysis.values[tensor]
        text = operand(self.view, tensor)
        if not (value.boolean or value.integer or isinstance(place, ast.Compare)):
            text = f"{text}.detach()"
        if not value.zero_dim:
            text = f"{text}.reshape(())"
        met = isinstance(place, (ast.Compare, ast.BinOp))
        if not (value.unshared or met) and self._may_change():
            text = f"{text}.clone()"
        text = f"{text}{moved}"  # on the CPU it meets tensors of every device, as a number does
        return f"{text}.double()" if self.course.computed else text

    def _entry(self, node: ast.Subscript) -> str:
        """The entry of a table that a tensor picks."""
        if node not in self.entries:
            statement = self._statement(node)
            leads, text = entry_text(node, self.context.torch(statement), self.context)
            self.leads.setdefault(statement, []).extend(leads)
            double = self.course.computed and not entries(node, self.context.analysis).floats
            self.entries[node] = f"{text}.double()" if double else text
        return self.entries[node]

    def _is_on_default_device(self, meeting: Meeting) -> bool:
        """Whether a number meets a tensor that is made where no other tensor tells the device."""
        info, partner = self.context.info, meeting.partner
        if isinstance(partner, ast.Name):
            statement = definitions_of(info.node, info.module).of(partner)
            partner = statement.value if statement is not None else partner
        while isinstance(partner, ast.Call) and isinstance(partner.func, ast.Attribute):
            name = info.module.qualify(partner.func)
            if name is not None and name.removeprefix("torch.") in _MAKING:
                return all(k.arg != "device" for k in partner.keywords)
            partner = partner.func.value
        return False

    def _replaced(self, node: ast.expr) -> str | None:
        """What stands for a number that itself is a read or a call of a function; binds tightly."""
        if node in self.course.reads:
            return self._tensor(self.course.reads[node], self.parents[node])
        method = self.course.functions.get(node) if isinstance(node, ast.Call) else None
        return self._called(method) if method is not None else None

    def _called(self, method: Method) -> str:
        return f"{operand(self.view, method.receiver)}.{method.call}"

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
        # Of an argument that becomes a product, the parts are replaced in the text of the call.
        closed = self._replaced(node) if meeting.scales is None else None
        if closed is None:
            closed, changed = operand(self.view, node), text
        else:
            changed = closed
        cast = self._cast(partner)
        if cast and self.course.computed:
            changed = f"{closed}{cast}"
        elif self.course.computed and meeting.scales is None and self._is_single(partner):
            name = self._named(partner)
            return {partner: name, node: f"{closed}.to({name}.dtype)"}
        if meeting.scales is None:
            return {} if changed == text else {node: changed}
        call = self.parents[meeting.scales[1]]
        assert isinstance(call, ast.Call)
        self.products[call] = meeting.scales, closed if changed == text else changed
        return {call: ""}

    def _product(self, call: ast.Call, changes: dict[ast.expr, str]) -> str:
        """`t.add(u, alpha=n)` as `t.add(u * n)`, with what changes in its parts."""
        (scaled, keyword), number = self.products[call]
        at = call.args.index(scaled)
        before = [self._part(a, changes) for a in call.args[:at]]
        rest = [self._part(a, changes) for a in call.args[at + 1 :]]
        rest += [
            f"{k.arg}={self._part(k.value, changes)}" if k.arg else f"**{flat(self.view, k.value)}"
            for k in call.keywords
            if k is not keyword
        ]
        inner = {n: t for n, t in changes.items() if _contains(keyword.value, n)}
        product = f"{operand(self.view, scaled)} * {self._replaced_in(number, inner, changes)}"
        head = self._part(call.func, changes)
        return f"{head}({', '.join([*before, product, *rest])})"

    def _part(self, node: ast.expr, changes: dict[ast.expr, str]) -> str:
        """The text of a part of a call, with what changes inside of it."""
        inside = {n: t for n, t in changes.items() if _contains(node, n)}
        outer = {
            n: self._filled(n, t, changes)
            for n, t in inside.items()
            if not any(o is not n and _contains(o, n) for o in inside)
        }
        start = self.view.start(node)
        text = self.view.source.text[start : self.view.end(node)]
        for inner, new in sorted(outer.items(), key=lambda item: -self.view.start(item[0])):
            text = (
                text[: self.view.start(inner) - start] + new + text[self.view.end(inner) - start :]
            )
        return flatten(text) if outer else flat(self.view, node)

    def _is_single(self, partner: ast.expr) -> bool:
        """Whether a double would decide the dtype, as it does beside what has no dimensions."""
        return Ranks(self.context.analysis, self.context.facts).of(partner) == 0

    def _named(self, partner: ast.expr) -> str:
        """The name of a tensor that is computed before the statement it stands in, to ask its dtype.

        Raises:
            Refused: where it cannot be computed earlier.
        """
        statement, context = self._statement(partner), self.context
        between: ast.AST = partner
        while between is not statement:
            between = self.parents[between]
            if isinstance(between, ast.BoolOp):
                raise Refused("unusual-place", "the number meets a tensor that may not be computed")
        value = getattr(statement, "value", None) or statement
        found = effects([value], context.analysis, context.facts)
        if found.random or found.mutated or found.unknown or in_compiled_path(statement, context):
            what = ast.unparse(partner)
            raise Refused("dtype-unproven", f"`{what}` has no dimensions, and no name")
        name = context.names.take("total")
        self.leads.setdefault(statement, []).append(f"{name} = {flat(self.view, partner)}")
        return name

    def _cast(self, partner: ast.expr) -> str:
        value = self.context.analysis.values.get(partner)
        if not is_simple(partner):
            return ""
        text = flat(self.view, partner)
        if value is not None and value.floating:
            return f".to({text}.dtype)"
        # A float gives integers the default dtype.
        floats = gives_float(self.course, self.context.analysis)
        return f".to(({text} * 1.0).dtype)" if floats else ""


def _contains(outer: ast.AST, inner: ast.AST) -> bool:
    return any(n is inner for n in walk(outer))
