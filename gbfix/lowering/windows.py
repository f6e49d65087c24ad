"""The compiled path of slices whose start is in a tensor: their elements are found by index.

Follows a start that was read as a number to the slices that use it, and writes the statements with
those slices anew. Which slices have a known length is in `analysis.windows`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis import torch_table
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.effects import function_effects
from gbfix.analysis.ranks import Ranks
from gbfix.analysis.reads import Read, ReadKind, read_tensor
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.analysis.windows import window
from gbfix.codegen.expressions import flat, flatten, operand
from gbfix.codegen.fitting import fitted
from gbfix.codegen.guards import compiling
from gbfix.fixes import Context
from gbfix.lowering.placement import beside_all, width_for
from gbfix.lowering.views import block_of
from gbfix.source.text import Edit

_PLAIN = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)
# What integers give in tensors as in Python.
_WHOLE = (ast.Add, ast.Sub, ast.Mult, ast.Mod, ast.FloorDiv)
_REDUCING = frozenset(
    "sum mean any all prod amax amin argmax argmin norm std var matmul mm".split()
)


class Windows:
    """The slices of one function that a start leads to."""

    def __init__(self, context: Context, torch: str) -> None:
        self.context = context
        self.torch = torch
        self.analysis = context.analysis
        self.parents = context.info.module.parents
        self.definitions = definitions_of(context.info.node, context.info.module)
        self.ranks = Ranks(context.analysis, context.facts)
        self.slices: dict[ast.stmt, dict[ast.Subscript, list[ast.Slice]]] = {}
        self.reads: dict[ast.expr, ast.expr] = {}
        self.seen: set[ast.AST] = set()
        self.numbers = False

    def follow(self, read: Read) -> None:
        """Take up a read: the bound of a slice, or a number that becomes one.

        Raises:
            Refused: where the number is needed as a number.
            NotApplicable: where it does not bound a slice at all.
        """
        if read.kind is ReadKind.POSITION:
            part = self.parents[read.node]
            if not isinstance(part, ast.Slice):
                raise NotApplicable("no-slice", "no bound of a slice is read here")
            self._slice(part)
            return
        self.numbers = True
        self._read(read.node)
        if not self.slices:
            raise NotApplicable("no-slice", "the number bounds no slice")

    def _read(self, node: ast.expr) -> None:
        tensor = read_tensor(node, self.analysis)
        if tensor is None or node in self.reads:
            return
        function = node.func if isinstance(node, ast.Call) else None
        if isinstance(function, ast.Name) and function.id != "int":
            raise NotApplicable("no-slice", "the number bounds no slice")
        self.reads[node] = tensor
        self._use(node)

    def _use(self, node: ast.expr) -> None:
        """Follow one expression that has the number as its value."""
        if node in self.seen:
            return
        self.seen.add(node)
        parent = self.parents[node]
        if isinstance(parent, ast.Slice):
            self._slice(parent)
        elif isinstance(parent, ast.BinOp) and isinstance(parent.op, _WHOLE):
            other = parent.right if parent.left is node else parent.left
            value = self.analysis.values.get(other)
            if value is None or not value.only(Kind.STATIC | Kind.SCALAR):
                raise NotApplicable("no-slice", "the number meets something else than numbers")
            self._use(parent)
        elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
            self._named(parent)
        elif isinstance(parent, ast.Assign) and self._is_store(parent):
            pass
        elif self.slices:
            raise Refused(
                "number-used", f"`{ast.unparse(node)}` is needed as a number in another place"
            )
        else:
            raise NotApplicable("no-slice", "the number is used for more than bounds of slices")

    def _named(self, statement: ast.Assign) -> None:
        target = statement.targets[0]
        assert isinstance(target, ast.Name)
        for use in self.definitions.loads.get(target.id, []):
            made = self.definitions.latest(use)
            if made is None:
                raise NotApplicable("no-slice", f"`{target.id}` is not bound once")
            if made is statement:
                self._use(use)

    def _is_store(self, statement: ast.Assign) -> bool:
        """`t[0] = n`, which takes a tensor for a number."""
        target = statement.targets[0]
        base = target.value if isinstance(target, ast.Subscript) else None
        value = self.analysis.values.get(base) if base is not None else None
        return len(statement.targets) == 1 and value is not None and value.tensor

    def _slice(self, part: ast.Slice) -> None:
        node = self._indexed(part)
        statement: ast.AST = node
        while not isinstance(statement, ast.stmt):
            if isinstance(statement, (ast.Lambda, ast.IfExp, ast.BoolOp, ast.comprehension)):
                raise Refused("unusual-place", "the slice stands in a nested scope or condition")
            statement = self.parents[statement]
        if not isinstance(statement, _PLAIN):
            raise Refused("unusual-place", f"line {statement.lineno} is not a plain statement")
        for other in walk(statement):
            if isinstance(other, ast.Slice) and self._from_data(other):
                self._add(statement, other)

    def _indexed(self, part: ast.Slice) -> ast.Subscript:
        """What a slice is the index of, or a part of it."""
        above = self.parents[part]
        node = self.parents[above] if isinstance(above, ast.Tuple) else above
        assert isinstance(node, ast.Subscript)
        return node

    def _from_data(self, part: ast.Slice) -> bool:
        values = [self.analysis.values.get(b) for b in (part.lower, part.upper) if b is not None]
        return any(v is not None and v.kinds & (Kind.TENSOR | Kind.SCALAR) for v in values)

    def _add(self, statement: ast.stmt, part: ast.Slice) -> None:
        node = self._indexed(part)
        found = self.slices.setdefault(statement, {})
        parts = found.setdefault(node, [])
        if part in parts:
            return
        parts.append(part)
        self._check_neighbours(node, parts)
        self._check_index(node, part)
        if isinstance(node.ctx, ast.Load):
            self._check_read(node)
        self._bounds(part)

    def _bounds(self, part: ast.Slice) -> None:
        """What was read for the bounds of a slice takes part."""
        for bound in (part.lower, part.upper):
            for inner in walk(bound) if bound is not None else ():
                if isinstance(inner, ast.expr) and read_tensor(inner, self.analysis) is not None:
                    self.numbers = True
                    self._read(inner)
                if isinstance(inner, ast.Name):
                    self._scalar(inner)

    def _scalar(self, use: ast.Name) -> None:
        """A name in a bound that holds a number read earlier takes part, too."""
        value = self.analysis.values.get(use)
        if value is None or not value.kinds & Kind.SCALAR:
            return
        made = self.definitions.latest(use)
        reads = [
            n
            for n in (walk(made.value) if made is not None else ())
            if isinstance(n, ast.expr) and read_tensor(n, self.analysis) is not None
        ]
        if made is None:
            raise Refused("number-used", f"`{use.id}` was not read here")
        if not reads:
            for inner in walk(made.value):
                if isinstance(inner, ast.Name):
                    self._scalar(inner)
        for read in reads:
            self._read(read)

    def _check_neighbours(self, node: ast.Subscript, parts: list[ast.Slice]) -> None:
        """Places of two dimensions that follow one another stay where they are."""
        if len(parts) == 1:
            return
        assert isinstance(node.slice, ast.Tuple)
        at = [node.slice.elts.index(part) for part in parts]
        if len(parts) > 2 or abs(at[0] - at[1]) != 1:
            raise Refused("two-slices", f"`{ast.unparse(node)}` has two bounds from data")

    def _check_index(self, node: ast.Subscript, part: ast.Slice) -> None:
        """Beside the slice only whole dimensions, slices and integers: each keeps its place."""
        if any(isinstance(n, (ast.Call, ast.NamedExpr)) for n in walk(node.value)):
            raise Refused("impure-target", f"`{ast.unparse(node.value)}` would be evaluated twice")
        base = self.analysis.values.get(node.value)
        if base is None or not base.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN):
            raise Refused("no-tensor", f"`{ast.unparse(node.value)}` is not known to be a tensor")
        if base.kinds & ~(Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN):
            raise Refused("no-tensor", f"`{ast.unparse(node.value)}` may be no tensor")
        if not base.tensor and not (
            isinstance(node.slice, ast.Tuple) and isinstance(node.ctx, ast.Store)
        ):
            raise Refused("no-tensor", f"`{ast.unparse(node.value)}` is not known to be a tensor")
        for other in node.slice.elts if isinstance(node.slice, ast.Tuple) else []:
            value = self.analysis.values.get(other)
            whole = isinstance(other, ast.Constant) and other.value is Ellipsis
            static = value is not None and value.only(Kind.STATIC)
            if not (isinstance(other, ast.Slice) or whole or static):
                raise Refused(
                    "index-mixed", f"`{ast.unparse(node)}` is indexed in another way, too"
                )

    def _check_read(self, node: ast.Subscript) -> None:
        """What is read must not be kept: a slice is a view, what is indexed is a copy."""
        parent = self.parents[node]
        if self._consumed(node):
            return
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            target = parent.targets[0]
            if isinstance(target, ast.Subscript):
                return
            found = function_effects(self.context.info, self.context.facts)
            quiet = found is not None and not (found.mutated or found.unknown or found.stateful)
            if quiet and isinstance(target, ast.Name):
                uses = self.definitions.loads.get(target.id, [])
                once = all(self.definitions.of(use) is parent for use in uses)
                if once and all(map(self._consumed, uses)):
                    return
        raise Refused("view-kept", f"`{ast.unparse(node)}` is a view that is kept")

    def _consumed(self, node: ast.expr) -> bool:
        """Whether an expression makes a new tensor of a value at once."""
        parent = self.parents[node]
        if isinstance(parent, (ast.BinOp, ast.UnaryOp)):
            return not isinstance(parent, ast.UnaryOp) or not isinstance(parent.op, ast.Not)
        if isinstance(parent, ast.AugAssign):
            return parent.value is node
        name: str | None = None
        if isinstance(parent, ast.Attribute) and isinstance(self.parents[parent], ast.Call):
            name = parent.attr
        elif isinstance(parent, ast.Call) and node in parent.args:
            function = self.analysis.values.get(parent.func)
            reference = (function.reference if function is not None else None) or ""
            name = reference.rsplit(".", 1)[-1] if reference.startswith("torch.") else None
        if name is None or name.endswith("_"):
            return False
        operation = torch_table.method(name)
        return name in _REDUCING or (operation is not None and operation.pointwise)

    def edits(self) -> tuple[Edit, ...]:
        """The compiled path of every statement, and of the names that hold the start.

        Raises:
            Refused: where a length depends on data.
        """
        made = self._starts()
        for statements in self._runs():
            width = width_for(self.context, statements[0])
            lines = self._rewritten(statements)
            body = "\n".join(fitted(line, width, self.context.unit) for line in lines)
            made += beside_all(statements, body, self.torch, [], self.context)
        return tuple(made)

    def _rewritten(self, statements: Sequence[ast.stmt]) -> list[str]:
        """The lines of the compiled path of statements that follow one another."""
        lines: list[str] = []
        named: dict[str, str] = {}
        for statement in statements:
            lines += self._lines(statement, self.slices[statement], named)
        return lines

    def _starts(self) -> list[Edit]:
        """The names that hold what was read, as tensors."""
        made: list[Edit] = []
        for read in self.reads:
            inside = any(
                read in walk(part)
                for found in self.slices.values()
                for parts in found.values()
                for part in parts
            )
            if not inside:
                made += self._start(read, self.parents[read])
        return made

    def _runs(self) -> list[list[ast.stmt]]:
        """The statements, those that follow one another at once together."""
        runs: list[list[ast.stmt]] = []
        for statement in sorted(self.slices, key=lambda s: s.lineno):
            block = block_of(statement, self.context.info.module)
            at = block.index(statement)
            if runs and at and block[at - 1] is runs[-1][-1]:
                runs[-1].append(statement)
            else:
                runs.append([statement])
        return runs

    def _start(self, read: ast.expr, parent: ast.AST) -> tuple[Edit, ...]:
        view = self.context.view
        start, end = view.start(read), view.end(read)
        text = self._tensor(read)
        if self.context.only_compiled:
            return (Edit(start, end, text),)
        line = f"{text} if {compiling(self.torch)} else {flat(view, read)}"
        if not isinstance(parent, ast.Assign):
            line = f"({line})"
        return (Edit(start, end, line),)

    def _tensor(self, read: ast.expr) -> str:
        """The tensor in the place of a number that is read from it."""
        tensor = self.reads[read]
        value = self.analysis.values.get(tensor)
        text = operand(self.context.view, tensor)
        if value is None or not value.zero_dim:
            text = f"{text}.reshape(())"
        whole = value is not None and value.integer
        if not whole and isinstance(read, ast.Call) and isinstance(read.func, ast.Name):
            text = f"{text}.long()"
        parent = self.parents[read]
        inside = not isinstance(parent, (ast.Assign, ast.BinOp)) or value is None or value.unshared
        return text if inside else f"{text}.clone()"

    def _lines(
        self,
        statement: ast.stmt,
        found: dict[ast.Subscript, list[ast.Slice]],
        named: dict[str, str],
    ) -> list[str]:
        view = self.context.view
        edits: dict[tuple[int, int], str] = {}
        lines: list[str] = []
        for node, part in [(n, p) for n, parts in found.items() for p in parts]:
            wanted = window(part, self.analysis, self.definitions)
            length = (
                str(wanted.length) if isinstance(wanted.length, int) else flat(view, wanted.length)
            )
            base = flat(view, node.value)
            text = f"{self._begin(wanted.start)} + "
            text += f"{self.torch}.arange({length}, device={base}.device)"
            if text not in named:
                named[text] = self.context.names.take("places")
                lines.append(f"{named[text]} = {text}")
            first = len(found[node]) > 1 and part is min(found[node], key=view.start)
            edits[view.start(part), view.end(part)] = named[text] + "[:, None]" * first
            if isinstance(statement, ast.Assign) and node in statement.targets:
                value = statement.value
                lead, tail = self._cast(node, value, base)
                edits[view.start(value), view.start(value)] = lead
                edits[view.end(value), view.end(value)] = tail
        text, at = "", view.start(statement)
        for (start, end), new in sorted(edits.items()):
            text += view.slice(at, start) + new
            at = end
        text += view.slice(at, view.end(statement))
        if "\n" in text:
            raise Refused("complex-expression", f"line {statement.lineno} spans several lines")
        return [*lines, text]

    def _begin(self, start: ast.expr) -> str:
        """The start as an operand of a sum: a tensor without dimensions, or with one element."""
        view = self.context.view
        value = self.analysis.values.get(start)
        text = flat(view, start)
        for read in walk(start):
            if isinstance(read, ast.expr) and read in self.reads:
                text = flatten(text.replace(flat(view, read), self._tensor(read)))
        if value is not None and (value.kinds & Kind.SCALAR or value.zero_dim):
            return text
        if value is None or not value.tensor:
            raise Refused("start-unproven", f"`{text}` is not proven to be a tensor")
        if self.ranks.of(start) in {0, 1}:
            return text
        return f"{operand(view, start)}.reshape(())"

    def _cast(self, target: ast.Subscript, value: ast.expr, base: str) -> tuple[str, str]:
        """What stands around a value to convert it as a slice does, which an index does not."""
        mine, given = self.analysis.values.get(target.value), self.analysis.values.get(value)
        if given is None:
            raise Refused("value-unproven", f"`{ast.unparse(value)}` is not proven to be a tensor")
        if given.only(Kind.STATIC | Kind.SCALAR):
            return "", ""
        if given.only(Kind.MAYBE):
            return f"{self.torch}.as_tensor(", f").to({base})"
        if not given.tensor:
            raise Refused("value-unproven", f"`{ast.unparse(value)}` is not proven to be a tensor")
        if mine is not None and mine.dtype == given.dtype:
            return "", ""
        view = self.context.view
        loose = operand(view, value) != flat(view, value)
        return ("(", f").to({base})") if loose else ("", f".to({base})")
