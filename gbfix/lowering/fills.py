"""The compiled path of slices with bounds from data that are given one number: a mask of positions.

`x[i, :n] = 0` writes where the position in that dimension is below `n`. How a bound that was read as a
number is followed to its slices is known in `windows`; nothing is known here of safety.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat, operand
from gbfix.codegen.fitting import fitted
from gbfix.lowering.placement import beside_all, width_for
from gbfix.lowering.windows import Windows
from gbfix.source.text import Edit


@dataclass(frozen=True)
class _Cut:
    """A slice with bounds from data, and how many dimensions stand before and behind it.

    Attributes:
        part: the slice.
        before: dimensions before it, counted after integers have taken theirs away; None if unknown.
        behind: dimensions behind it; None if unknown.
    """

    part: ast.Slice
    before: int | None
    behind: int | None


class Fills(Windows):
    """The statements that give a number to slices to which a read leads."""

    def _add(self, statement: ast.stmt, part: ast.Slice) -> None:
        above = self.parents[part]
        node = self.parents[above] if isinstance(above, ast.Tuple) else above
        assert isinstance(node, ast.Subscript)
        if not (isinstance(statement, ast.Assign) and statement.targets == [node]):
            raise NotApplicable("not-a-fill", f"`{ast.unparse(node)}` is not given one number")
        value = self.analysis.values.get(statement.value)
        if value is None or not value.only(Kind.STATIC):
            raise NotApplicable("not-a-fill", f"`{ast.unparse(statement.value)}` is not one number")
        if part.step is not None:
            raise Refused("slice-step", f"`{ast.unparse(part)}` has a step")
        for bound in (part.lower, part.upper):
            if isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub):
                raise Refused("negative-bound", f"`{ast.unparse(bound)}` counts from the end")
        found = self.slices.setdefault(statement, {})
        self._check_index(node, part)
        found.setdefault(node, part)
        self._bounds(part)

    def edits(self) -> tuple[Edit, ...]:
        """The compiled path of every statement, and of the names that hold a bound."""
        made = self._starts()
        for statements in self._runs():
            lines: list[str] = []
            for statement in statements:
                assert isinstance(statement, ast.Assign)
                lines += self._fill(statement)
            width = width_for(self.context, statements[0])
            body = "\n".join(fitted(line, width, self.context.unit) for line in lines)
            made += beside_all(statements, body, self.torch, [], self.context)
        return tuple(made)

    def _fill(self, statement: ast.Assign) -> list[str]:
        node = statement.targets[0]
        assert isinstance(node, ast.Subscript)
        view, names = self.context.view, self.context.names
        lines: list[str] = []
        elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        cuts = self._cuts(node, elements)
        data = [cut.part for cut in cuts]
        left = [":" if e in data else view.text(e) for e in elements]
        base = flat(view, node.value)
        if set(left) - {":", "..."}:
            part = names.take("part")
            while left[-1] == ":":
                left.pop()
            lines.append(f"{part} = {base}[{', '.join(left)}]")
            base = part
        places: dict[str, str] = {}
        tests = []
        for cut in cuts:
            size = f"{base}.shape[{self._dimension(cut)}]"
            made = f"{self.torch}.arange({size}, device={base}.device)"
            if cut.behind is None:
                made = f"{made}.reshape((-1,) + (1,) * ({base}.dim() - {(cut.before or 0) + 1}))"
            elif cut.behind:
                made = f"{made}.reshape({', '.join(['-1', *['1'] * cut.behind])})"
            if made not in places:
                places[made] = names.take("places")
                lines.append(f"{places[made]} = {made}")
            tests += self._tests(places[made], cut.part)
        test = " & ".join(f"({t})" for t in tests) if len(tests) > 1 else tests[0]
        return [*lines, f"{base}.masked_fill_({test}, {flat(view, statement.value)})"]

    def _tests(self, places: str, part: ast.Slice) -> list[str]:
        tests = []
        if part.lower is not None and not _is_zero(part.lower):
            tests.append(f"{places} >= {self._bound(part.lower)}")
        if part.upper is not None:
            tests.append(f"{places} < {self._bound(part.upper)}")
        return tests

    def _bound(self, node: ast.expr) -> str:
        """A bound as an operand; one element of any shape is as good as a number."""
        value = self.analysis.values.get(node)
        text = operand(self.context.view, node)
        if value is None or not value.kinds & Kind.SCALAR:
            return text
        return f"({self._begin(node)})" if text.startswith("(") else self._begin(node)

    def _cuts(self, node: ast.Subscript, elements: list[ast.expr]) -> list[_Cut]:
        """The slices with bounds from data, and where their dimensions are."""
        ellipsis = [i for i, e in enumerate(elements) if _is_ellipsis(e)]
        rank = self.ranks.of(node.value)
        integers = [e for e in elements if not isinstance(e, ast.Slice) and not _is_ellipsis(e)]
        left = rank - len(integers) if rank is not None else None
        found = []
        for i, element in enumerate(elements):
            if not (isinstance(element, ast.Slice) and self._from_data(element)):
                continue
            before: int | None = sum(isinstance(e, ast.Slice) for e in elements[:i])
            behind: int | None = sum(isinstance(e, ast.Slice) for e in elements[i + 1 :])
            if ellipsis and ellipsis[0] < i:
                before = left - (behind or 0) - 1 if left is not None else None
            elif left is not None and before is not None:
                behind = left - before - 1
            else:
                behind = None
            found.append(_Cut(element, before, behind))
        return found

    @staticmethod
    def _dimension(cut: _Cut) -> int:
        if cut.before is not None:
            return cut.before
        assert cut.behind is not None
        return -1 - cut.behind


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0
