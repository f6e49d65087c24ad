"""The compiled path of slices with bounds from data that are given one number: a mask of positions.

`x[i, :n] = 0` writes where the position in that dimension is below `n`. How a bound that was read as a
number is followed to its slices is known in `windows`; nothing is known here of safety.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.reads import Read, read_tensor
from gbfix.analysis.trees import Parents, walk
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat, operand
from gbfix.codegen.guards import compiling
from gbfix.fixes import Context
from gbfix.lowering.windows import Windows
from gbfix.source.text import Edit

_NEGATING = (ast.Sub, ast.USub)


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
    """The statements that give a number to slices to which a read leads.

    A slice may also be given the same slice of another tensor.
    """

    def __init__(self, context: Context, torch: str) -> None:
        super().__init__(context, torch)
        self.lists: dict[ast.expr, ast.expr] = {}
        self.counted: set[str] = set()

    def follow_list(self, read: Read) -> None:
        """Take up a list over which a loop runs, whose numbers are bounds and nothing else.

        Raises:
            Refused: where a number is needed as a number.
            NotApplicable: where no loop runs over the list, or no slice is filled in it.
        """
        tensor = read_tensor(read.node, self.analysis)
        target = _loop_target(read.node, self.parents)
        if tensor is None or not isinstance(target, ast.Name):
            raise NotApplicable("no-loop", "no loop runs over the list")
        name = target.id
        if self.definitions.stores.get(name) != [target]:
            raise NotApplicable("no-loop", f"`{name}` is bound more than once")
        self.lists[read.node] = tensor
        self.counted.add(name)
        for use in self.definitions.loads.get(name, []):
            self._use(use)
        if not self.slices:
            raise NotApplicable("no-slice", "the numbers bound no slice")

    def _scalar(self, use: ast.Name) -> None:
        if use.id not in self.counted:
            super()._scalar(use)

    def _add(self, statement: ast.stmt, part: ast.Slice) -> None:
        node = self._indexed(part)
        if (
            isinstance(statement, ast.Assign)
            and statement.value is node
            and isinstance(statement.targets[0], ast.Subscript)
            and self._same_slice(statement.targets[0], node) is not None
        ):
            self._bounds(part)
            return
        if not (isinstance(statement, ast.Assign) and statement.targets == [node]):
            raise NotApplicable("not-a-fill", f"`{ast.unparse(node)}` is not given one number")
        value = self.analysis.values.get(statement.value)
        number = value is not None and value.only(Kind.STATIC)
        if not number and self._same_slice(node, statement.value) is None:
            raise NotApplicable("not-a-fill", f"`{ast.unparse(statement.value)}` is not one number")
        if part.step is not None:
            raise Refused("slice-step", f"`{ast.unparse(part)}` has a step")
        for bound in (part.lower, part.upper):
            if isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub):
                raise Refused("negative-bound", f"`{ast.unparse(bound)}` counts from the end")
        found = self.slices.setdefault(statement, {})
        self._check_index(node, part)
        found.setdefault(node, [part])
        self._bounds(part)

    def _starts(self) -> list[Edit]:
        made = super()._starts()
        view = self.context.view
        for read, tensor in self.lists.items():
            text = flat(view, tensor)
            if not self.context.only_compiled:
                text = f"{text} if {compiling(self.torch)} else {flat(view, read)}"
            made.append(Edit(view.start(read), view.end(read), text))
        return made

    def _rewritten(self, statements: Sequence[ast.stmt]) -> list[str]:
        return [line for s in statements if isinstance(s, ast.Assign) for line in self._written(s)]

    def _copied(self, statement: ast.Assign) -> ast.expr | None:
        """The tensor of which a statement copies a slice."""
        target = statement.targets[0]
        assert isinstance(target, ast.Subscript)
        return self._same_slice(target, statement.value)

    def _same_slice(self, target: ast.Subscript, value: ast.expr) -> ast.expr | None:
        """The tensor whose slice a value is, if it is the one that is written of the target."""
        if not isinstance(value, ast.Subscript) or ast.dump(value.slice) != ast.dump(target.slice):
            return None
        base = self.analysis.values.get(value.value)
        plain = not any(isinstance(n, (ast.Call, ast.NamedExpr)) for n in walk(value.value))
        return value.value if plain and base is not None and base.tensor else None

    def _written(self, statement: ast.Assign) -> list[str]:
        """The lines that write what a statement writes."""
        node = statement.targets[0]
        assert isinstance(node, ast.Subscript)
        elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        cuts = self._cuts(node, elements)
        copied = self._copied(statement)
        if copied is None:
            return self._fill(statement, node, elements, cuts)
        if len(cuts) != 1:
            raise Refused("two-slices", f"`{ast.unparse(node)}` has several bounds from data")
        return self._copy(node, copied, elements, cuts[0])

    def _copy(
        self, node: ast.Subscript, other: ast.expr, elements: list[ast.expr], cut: _Cut
    ) -> list[str]:
        """The elements of another tensor, up to where both have any; eager code refuses more."""
        view, names = self.context.view, self.context.names
        base, given = flat(view, node.value), flat(view, other)
        at = elements.index(cut.part)
        before = any(_is_ellipsis(e) for e in elements[:at])
        dimension = at - len(elements) if before else at
        size, part, places = names.take("size"), names.take("part"), names.take("places")
        texts = [f":{size}" if e is cut.part else view.text(e) for e in elements]
        while texts[-1] == ":":
            texts.pop()
        rows = f"[{', '.join(texts)}]"
        made = self._spread(f"{self.torch}.arange({size}, device={base}.device)", part, cut)
        test = _all_of(self._tests(places, cut.part, size, []))
        return [
            f"{size} = min({base}.shape[{dimension}], {given}.shape[{dimension}])",
            f"{part} = {base}{rows}",
            f"{places} = {made}",
            f"{part}.copy_({self.torch}.where({test}, {given}{rows}, {part}))",
        ]

    @staticmethod
    def _spread(places: str, base: str, cut: _Cut) -> str:
        """Positions in one dimension, shaped to stand beside those behind it."""
        if cut.behind is None:
            return f"{places}.reshape((-1,) + (1,) * ({base}.dim() - {(cut.before or 0) + 1}))"
        if cut.behind:
            return f"{places}.reshape({', '.join(['-1', *['1'] * cut.behind])})"
        return places

    def _fill(
        self,
        statement: ast.Assign,
        node: ast.Subscript,
        elements: list[ast.expr],
        cuts: list[_Cut],
    ) -> list[str]:
        view, names = self.context.view, self.context.names
        lines: list[str] = []
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
            made = self._spread(made, base, cut)
            if made not in places:
                places[made] = names.take("places")
                lines.append(f"{places[made]} = {made}")
            tests += self._tests(places[made], cut.part, size, lines)
        return [*lines, f"{base}.masked_fill_({_all_of(tests)}, {flat(view, statement.value)})"]

    def _tests(self, places: str, part: ast.Slice, size: str, lines: list[str]) -> list[str]:
        tests = []
        if part.lower is not None and not _is_zero(part.lower):
            tests.append(f"{places} >= {self._from_start(part.lower, size, lines)}")
        if part.upper is not None:
            tests.append(f"{places} < {self._from_start(part.upper, size, lines)}")
        return tests

    def _from_start(self, node: ast.expr, size: str, lines: list[str]) -> str:
        """A bound as an operand; a difference may be negative, and then counts from the end."""
        text = self._bound(node)
        if not self._is_difference(node):
            return text
        value = self.analysis.values.get(node)
        if value is None or value.only(Kind.STATIC) or not lines:
            raise Refused("negative-bound", f"`{ast.unparse(node)}` may count from the end")
        name = text
        if not text.isidentifier():
            name = self.context.names.take("bound")
            lines.append(f"{name} = {text.removeprefix('(').removesuffix(')')}")
        return f"{self.torch}.where({name} < 0, {name} + {size}, {name})"

    def _is_difference(self, node: ast.expr) -> bool:
        """Whether something is subtracted in a bound, or in what a name in it was bound to."""
        for inner in _arithmetic(node):
            if isinstance(inner, (ast.BinOp, ast.UnaryOp)) and isinstance(inner.op, _NEGATING):
                return True
            made = self.definitions.latest(inner) if isinstance(inner, ast.Name) else None
            if made is not None and any(
                isinstance(n, (ast.BinOp, ast.UnaryOp)) and isinstance(n.op, _NEGATING)
                for n in _arithmetic(made.value)
            ):
                return True
        return False

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


def _arithmetic(node: ast.expr) -> Iterator[ast.expr]:
    """The operators of an expression and what they meet, without what stands in calls and indices."""
    yield node
    if isinstance(node, ast.BinOp):
        yield from _arithmetic(node.left)
        yield from _arithmetic(node.right)
    elif isinstance(node, ast.UnaryOp):
        yield from _arithmetic(node.operand)


def _all_of(tests: list[str]) -> str:
    return " & ".join(f"({t})" for t in tests) if len(tests) > 1 else tests[0]


def _loop_target(read: ast.expr, parents: Parents) -> ast.expr | None:
    """What a loop binds to the elements of a list: it runs over it, `enumerate` or `zip` of it."""
    above = parents[read]
    if isinstance(above, ast.For) and above.iter is read:
        return above.target
    if not (isinstance(above, ast.Call) and isinstance(above.func, ast.Name)):
        return None
    loop = parents[above]
    if not (isinstance(loop, ast.For) and loop.iter is above and read in above.args):
        return None
    if not isinstance(loop.target, ast.Tuple) or above.keywords:
        return None
    at = above.args.index(read)
    if above.func.id == "enumerate" and at == 0 and len(loop.target.elts) == 2:
        return loop.target.elts[1]
    if above.func.id == "zip" and len(loop.target.elts) == len(above.args):
        return loop.target.elts[at]
    return None


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0
