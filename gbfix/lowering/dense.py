"""Blocks of code that select rows with a mask, rewritten without selecting: dense and masked.

Statements are followed in order. A name that holds selected rows holds all rows instead; what is
row-wise is computed for every row, writes to the selected rows become `torch.where`, reductions leave
out what was not selected. Inputs of operations that could fail or have an unbounded derivative
elsewhere are filled with a harmless value first, so that no NaN reaches a gradient.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import operands, operation_name, selected_by, shape_from_data
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flatten
from gbfix.fixes import Context
from gbfix.lowering.reductions import REDUCTIONS, counted, losses, reduced
from gbfix.lowering.routing import (
    Index,
    counted_mask,
    distinct_rows,
    first_match,
    found_in,
    found_rows,
    pair_index,
    row_index,
)
from gbfix.lowering.rowwise import Needs, NotRowwise, call_is_rowwise
from gbfix.lowering.selection import Lowered, Masks, Selection

_BARE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)
_PASSING = frozenset("to float double half bfloat16 clone detach contiguous type_as neg".split())
_SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.Mod: "%",
    ast.FloorDiv: "//", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip


@dataclass
class Found:
    """What a block turned out to do, which decides how much its rewrite asks to be trusted.

    Attributes:
        stores, reductions: how many writes to selected rows and reductions over them there are.
        reordered: a sum is formed in another order.
        asserted: with nothing selected the compiled code raises in the graph.
        unwarned: a warning about too few elements is not given by the compiled code.
        gated: a branch is left out that spared work if nothing was selected.
        routed: rows are routed to layers in pairs with slots.
        applied: layers or functions of the project run on every row.
    """

    stores: int = 0
    reductions: int = 0
    reordered: bool = False
    asserted: bool = False
    unwarned: bool = False
    gated: bool = False
    routed: bool = False
    applied: list[str] = field(default_factory=list)


class DenseBlock:
    """The dense form of consecutive statements of one block."""

    def __init__(self, context: Context, torch: str) -> None:
        self.context = context
        self.torch = torch
        self.masks = Masks(context, torch)
        self.lines = self.masks.lines
        self.found = Found()
        self.held: dict[str, Lowered] = {}
        self.indices: dict[str, Index] = {}
        self.hits: set[str] = set()
        self.numbered: str | None = None
        self.bound: set[str] = set()
        self.known: set[str] = set()
        self.storing = False
        self.statement: ast.stmt = context.info.node

    def selected_by(self, node: ast.Subscript) -> ast.expr | None:
        """The mask of an index, also of something that is only known by being indexed with one."""
        mask = selected_by(node, self.context.analysis)
        if mask is None and ast.unparse(node.slice) in self.known:
            base = self.context.analysis.values.get(node.value)
            if base is not None and base.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN):
                return node.slice
        return mask

    # Statements

    def add(self, statement: ast.stmt) -> None:
        """Lower one statement.

        Raises:
            Refused: where it does something with selected rows that has no dense form.
        """
        self.statement = statement
        for node in ast.walk(statement):
            if isinstance(node, ast.Subscript) and selected_by(node, self.context.analysis):
                self.known.add(ast.unparse(node.slice))
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._assign(statement, statement.targets[0])
        elif isinstance(statement, ast.AugAssign):
            self._augmented(statement)
        elif isinstance(statement, (ast.Return, ast.Expr, ast.AnnAssign)) and statement.value:
            self._copy(statement, statement.value)
        else:
            raise Refused("statement-kind", f"line {statement.lineno} is not a plain statement")

    @property
    def names(self) -> set[str]:
        """Names that hold selected rows, or where they are."""
        return {*self.held, *self.indices}

    def _finds(self, target: ast.expr, value: ast.expr) -> bool:
        """Whether a statement names the indices of what a mask selects."""
        analysis = self.context.analysis
        if isinstance(target, ast.Name):
            mask = found_rows(value, analysis)
            if mask is None:
                return False
            self.indices[target.id] = row_index(mask, self.masks, self.context)
            return True
        if isinstance(target, ast.Tuple):
            mask = found_in(value, analysis)
            names = [e.id for e in target.elts if isinstance(e, ast.Name)]
            if mask is None or len(names) != len(target.elts):
                return False
            if len(names) == 1:
                self.indices[names[0]] = row_index(mask, self.masks, self.context)
                return True
            if len(names) == 2:
                self.pair_distinct = distinct_rows(mask, self.context)
                pair = (names[0], names[1])
                self.indices |= pair_index(pair, mask, self.masks, self.context, self.numbered)
                return True
        return False

    def _index(self, node: ast.expr) -> Index | None:
        return self.indices.get(node.id) if isinstance(node, ast.Name) else None

    def _assign(self, statement: ast.Assign, target: ast.expr) -> None:
        if self._finds(target, statement.value):
            return
        alias = self._index(statement.value)
        if alias is not None and isinstance(target, ast.Name):
            self.indices[target.id] = alias
            return
        if isinstance(target, ast.Subscript):
            selected = self.selected_by(target)
            if selected is not None or self._index(target.slice) is not None:
                self._store(statement, target, selected or target.slice)
                return
        value = self.lower(statement.value, fill=1 if isinstance(target, ast.Name) else None)
        if value.rows is not None:
            if not isinstance(target, ast.Name):
                raise Refused("rows-leave", "selected rows are kept where they are not followed")
            if value.weighted and self.lines[-1].startswith(f"{value.text} = "):
                self.lines[-1] = f"{target.id}{self.lines[-1].removeprefix(value.text)}"
            else:
                self.lines.append(f"{target.id} = {value.text}")
            self._bind(target)
            self.held[target.id] = replace(value, text=target.id, bare=True, changed=True)
            return
        if value.count is not None:
            if not isinstance(target, ast.Name):
                raise Refused("count-leaves", "the number of selected rows is kept elsewhere")
            self.lines.append(f"{target.id} = {value.text}")
            self._bind(target)
            self.held[target.id] = replace(value, text=target.id, bare=True, changed=True)
            return
        self._write(statement, statement.value, value)
        self._bind(target)

    def _bind(self, target: ast.AST) -> None:
        """Names that a target binds hold something new."""
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self.bound.add(node.id)
                self.held.pop(node.id, None)
                self._changed(node.id)
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            base: ast.expr = target
            while isinstance(base, (ast.Attribute, ast.Subscript)):
                base = base.value
            if isinstance(base, ast.Name):
                self._changed(base.id)

    def _changed(self, name: str) -> None:
        self.masks.changed(name)
        for held in self.held.values():
            selection = held.rows or held.count
            if selection is not None and name in selection.reads:
                raise Refused("mask-changes", f"`{name}` changes while its selection is in use")

    def _write(self, statement: ast.stmt, value: ast.expr, lowered: Lowered) -> None:
        """Copy a statement with its value in dense form."""
        view = self.context.view
        start, end = view.start(value), view.end(value)
        head = view.slice(view.start(statement), start)
        tail = view.slice(end, view.end(statement))
        text = f"{head}{lowered.text}{tail}"
        if "\n" in text and not isinstance(statement, ast.Return):
            target = view.slice(view.start(statement), start).strip().rstrip("(").rstrip()
            text = f"{target} {lowered.text}" if head.rstrip().endswith("(") else text
        elif "\n" in text:
            text = f"return {lowered.text}"
        self.lines.append(text)

    def _copy(self, statement: ast.stmt, value: ast.expr) -> None:
        if isinstance(statement, ast.Expr) and isinstance(value, ast.Call):
            if self._accumulate(statement, value):
                return
        lowered = self.lower(value)
        if lowered.rows is not None:
            raise Refused("rows-leave", "selected rows leave the block")
        if lowered.count is not None:
            raise Refused("count-leaves", "the number of selected rows leaves as a Python number")
        self._write(statement, value, lowered)
        if isinstance(statement, ast.AnnAssign):
            self._bind(statement.target)

    # Writes to selected rows

    def _store(self, statement: ast.Assign, target: ast.Subscript, mask: ast.expr) -> None:
        self.storing = True
        value = self.lower(statement.value)
        self.storing = False
        if value.rows is None:
            if value.count is not None:
                raise Refused("count-leaves", "the number of selected rows is stored")
            self._write(statement, statement.value, value)
            self._bind(target)
            return
        if target.slice is not mask:
            raise Refused("mask-not-first", "the mask is one of several indices of what is written")
        selection = self._select(mask)
        if selection.key != value.rows.key:
            raise Refused("other-mask", "what is written was selected by another mask")
        self._put(target, selection, value, cast=False)

    def _put(
        self, target: ast.Subscript, selection: Selection, value: Lowered, *, cast: bool
    ) -> None:
        base = replace(self.lower(target.value), shape=self._shape(target.value))
        if base.rows is not None or base.count is not None:
            raise Refused("nested-selection", "what is written to was itself selected")
        self._check_repeatable(target.value)
        extra = self.masks.extra(selection, target.value)
        if extra is not None and value.extra is not None and extra != value.extra:
            raise Refused("shapes-unproven", "what is written does not have the shape of the rows")
        extra = extra if extra is not None else value.extra
        wide = self.masks.over(selection, replace(base, extra=extra, sample=base.operand))
        arguments = [wide.text, value.text, base.text]
        name = target.value.id if isinstance(target.value, ast.Name) else None
        given = ", ".join(arguments)
        if name is not None and not cast and self._own(name):
            self.lines.append(f"{name} = {self.torch}.where({given})")
        else:
            self.lines.append(f"{base.operand}.copy_({self.torch}.where({given}))")
        self.found.stores += 1
        self._bind(target)

    def _select(self, mask: ast.expr) -> Selection:
        """The selection of a mask, or of indices that are written to.

        Raises:
            Refused: where a row may have been found more than once.
        """
        index = self._index(mask)
        if index is None:
            return self.masks.select(mask)
        if index.slot or (index.routed is not None and not self.pair_distinct):
            raise Refused("row-repeated", "a row may be found more than once, and written as often")
        return index.selection

    def _own(self, name: str) -> bool:
        """Whether a local name is the only way to its storage, so that it may be rebound."""
        if name in self.context.liveness.captured:
            return False
        before = self.context.analysis.before.get(self.statement, {}).get(name)
        declared = any(
            isinstance(n, (ast.Global, ast.Nonlocal)) and name in n.names
            for n in ast.walk(self.context.info.node)
        )
        return before is not None and before.tensor and before.unshared and not declared

    def _check_repeatable(self, node: ast.expr) -> None:
        if any(isinstance(n, (ast.Call, ast.NamedExpr, ast.Await)) for n in ast.walk(node)):
            raise Refused("impure-target", f"`{ast.unparse(node)}` would be evaluated twice")

    def _augmented(self, statement: ast.AugAssign) -> None:
        target = statement.target
        symbol = _SYMBOLS.get(type(statement.op))
        if isinstance(target, ast.Name) and target.id in self.held:
            if symbol is None:
                raise Refused("operation-kind", f"`{ast.unparse(statement)}` has no dense form")
            held = self.held[target.id]
            value = self.lower(statement.value, fill=1)
            self._check_sides(held, value, statement.value)
            self.lines.append(f"{target.id} = {target.id} {symbol} {value.operand}")
            return
        selected = self.selected_by(_loaded(target)) if isinstance(target, ast.Subscript) else None
        if (
            selected is None
            and isinstance(target, ast.Subscript)
            and self._index(target.slice) is not None
        ):
            selected = target.slice
        if selected is None or not isinstance(target, ast.Subscript):
            value = self.lower(statement.value)
            if value.rows is not None or value.count is not None:
                raise Refused("rows-leave", "selected rows are added to something else")
            self._write(statement, statement.value, value)
            self._bind(target)
            return
        if target.slice is not selected or symbol is None:
            raise Refused("mask-not-first", "the mask is one of several indices of what is written")
        selection = self._select(selected)
        old = self.lower(target.value)
        if old.rows is not None:
            raise Refused("nested-selection", "what is written to was itself selected")
        extra = self.masks.extra(selection, target.value)
        mine = Lowered(
            old.text,
            old.bare,
            selection,
            extra,
            old.operand,
            self._shape(target.value),
            changed=True,
        )
        bounded = isinstance(statement.op, (ast.Add, ast.Sub))
        value = self.lower(statement.value, fill=None if bounded else 1)
        self._check_sides(mine, value, statement.value)
        risky = isinstance(statement.op, (ast.Pow, ast.Mod, ast.FloorDiv)) or (
            value.rows is not None and isinstance(statement.op, ast.Mult)
        )
        left = self._filled(mine, 1).operand if risky else mine.operand
        extra = mine.extra if mine.extra is not None else value.extra
        text = f"{left} {symbol} {value.operand}"
        made = replace(mine, text=text, bare=False, extra=extra)
        self._put(target, selection, made, cast=value.rows is not None)

    # Expressions

    def lower(self, node: ast.expr, fill: int | None = None) -> Lowered:
        """An expression in dense form; `fill` replaces what is not selected.

        Raises:
            Refused: where selected rows are used in a way that has no dense form.
        """
        if isinstance(node, ast.Name) and node.id in self.held:
            return self.held[node.id]
        if self._index(node) is not None or found_rows(node, self.context.analysis) is not None:
            raise Refused("index-leaves", f"`{ast.unparse(node)}` is used as more than an index")
        if isinstance(node, ast.Subscript):
            return self._subscript(node, fill)
        if isinstance(node, ast.Call):
            return self._call(node, fill)
        if isinstance(node, ast.BinOp):
            return self._binop(node, fill)
        if isinstance(node, ast.UnaryOp):
            inner = self.lower(node.operand, fill)
            if inner.rows is None and inner.count is None:
                return self._plain(node, [(node.operand, inner)])
            if isinstance(node.op, ast.Not) or inner.count is not None:
                raise Refused("rows-tested", f"`{ast.unparse(node)}` asks selected rows for truth")
            return replace(inner, text=self._compose(node, [(node.operand, inner)]), bare=False)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, fill)
        children = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
        if isinstance(
            node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
        ):
            if self._mentions(node):
                raise Refused("rows-leave", f"`{ast.unparse(node)}` uses selected rows")
            return self._plain(node, [])
        lowered = [(c, self.lower(c)) for c in children]
        if any(v.count is not None for _, v in lowered):
            raise Refused("count-leaves", "the number of selected rows leaves as a Python number")
        if any(v.rows is not None for _, v in lowered):
            raise Refused("rows-leave", f"`{ast.unparse(node)}` keeps or tests selected rows")
        return self._plain(node, lowered)

    def _mentions(self, node: ast.AST) -> bool:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and (inner.id in self.held or inner.id in self.indices):
                return True
            if isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Load):
                if self.selected_by(inner) is not None:
                    return True
        return False

    def _compose(self, node: ast.expr, children: Sequence[tuple[ast.expr, Lowered]]) -> str:
        """The source of a node with changed children put in."""
        view = self.context.view
        start = view.start(node)
        text, at = "", start
        for child, lowered in sorted(children, key=lambda c: view.start(c[0])):
            if not lowered.changed:
                continue
            text += view.slice(at, view.start(child))
            loose = (
                isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp))
                or (isinstance(node, (ast.Attribute, ast.Subscript)) and child is node.value)
                or (isinstance(node, ast.Call) and child is node.func)
            )
            text += lowered.operand if loose and isinstance(child, _BARE) else lowered.text
            at = view.end(child)
        text += view.slice(at, view.end(node))
        return flatten(text) if "\n" in text else text

    def _plain(self, node: ast.expr, children: Sequence[tuple[ast.expr, Lowered]]) -> Lowered:
        return Lowered(
            self._compose(node, children),
            isinstance(node, _BARE),
            changed=any(c.changed for _, c in children),
            number=self._is_number(node),
        )

    def _filled(self, value: Lowered, fill: int) -> Lowered:
        assert value.rows is not None
        if value.routed is not None and fill != 0:
            return value  # every row is routed somewhere, so none holds anything harmful
        wide = self.masks.over(value.rows, value)
        return replace(
            value, text=f"{value.operand}.masked_fill({wide.rest}, {fill})", bare=True, changed=True
        )

    def _subscript(self, node: ast.Subscript, fill: int | None) -> Lowered:
        mask = self.selected_by(node)
        first = first_match(node, self.context.analysis)
        if first is not None:
            return self._first(*first)
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            found = self._found(node.value.value)
            if found is not None and ast.unparse(node.slice) == "0":
                return found
            inner = self.lower(node.value.value)
            if inner.rows is not None:
                if not (isinstance(node.slice, ast.Constant) and node.slice.value == 0):
                    raise Refused("row-shape", f"`{ast.unparse(node)}` asks for the shape of rows")
                return Lowered(inner.rows.count, True, count=inner.rows, changed=True)
        base = self.lower(node.value)
        if mask is None:
            gathered = self._gathered(node, base)
            return gathered if gathered is not None else self._item(node, base)
        if base.rows is not None or base.count is not None:
            raise Refused("nested-selection", "rows are selected from what was itself selected")
        if node.slice is not mask:
            raise Refused("mask-not-first", "the mask is one of several indices")
        selection = self.masks.select(mask)
        found = self._rows(base, node.value, selection, named=fill is not None or not self.storing)
        return found if fill is None else self._filled(found, fill)

    def _first(self, mask: ast.expr, kept: bool) -> Lowered:
        """The first true element of a mask; there must be one."""
        index = row_index(mask, self.masks, self.context)
        text = index.selection.text
        text = f"({text})" if index.selection.inverted else text
        self.lines.append(f'{self.torch}._assert_async({text}.any(), "no element was found")')
        self.found.asserted = True
        self.found.reductions += 1
        options = "0, keepdim=True" if kept else ""
        return Lowered(f"{text}.int().argmax({options})", True, changed=True)

    def _found(self, node: ast.expr) -> Lowered | None:
        """How many indices an expression finds."""
        mask = counted_mask(node, self.context.analysis)
        if mask is None:
            return None
        selection = self.masks.select(mask)
        self.found.reductions += 1
        return Lowered(selection.count, True, count=selection, changed=True)

    def _rows(self, base: Lowered, node: ast.expr, selection: Selection, *, named: bool) -> Lowered:
        """All rows of what a selection is made from."""
        extra = self.masks.extra(selection, node)
        if named and extra is None and not isinstance(node, (ast.Name, ast.Attribute)):
            name = self.context.names.take("values")
            self.lines.append(f"{name} = {base.text}")
            base = Lowered(name, True)
        return Lowered(
            base.text, base.bare, selection, extra, base.operand, self._shape(node), changed=True
        )

    def _shape(self, node: ast.expr) -> int:
        value = self.context.analysis.values.get(node)
        return value.shape if value is not None and value.tensor else 0

    def _gathered(self, node: ast.Subscript, base: Lowered) -> Lowered | None:
        """Rows that are taken by the indices of a selection, or one weight for each of them."""
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        found = [i for p in parts if (i := self._index(p)) is not None]
        if not found:
            return None
        if base.rows is not None or base.count is not None:
            raise Refused("nested-selection", "rows are taken from what was itself selected")
        selection = found[0].selection
        if len(found) == 1 and self._index(parts[0]) is not None and not found[0].slot:
            if any(ast.unparse(p) not in {":", "slice(None, None, None)"} for p in parts[1:]):
                raise Refused("row-position", f"`{ast.unparse(node)}` takes parts of rows")
            rank = self.masks.ranks.of(node.value)
            extra = rank - 1 if rank is not None else None
            return Lowered(
                base.text,
                base.bare,
                selection,
                extra,
                base.operand,
                changed=True,
                routed=found[0].routed,
            )
        weights = found[:2]
        plain = parts[2:] in ([],) or [ast.unparse(p) for p in parts[2:]] == ["None"]
        if len(found) == 2 and weights[0].slot != weights[1].slot and plain:
            routed = found[0].routed
            aligned = routed if not weights[0].slot else f"{routed}.T"
            dim = "-1" if not weights[0].slot else "0"
            keep = len(parts) == 3
            kept = f"dim={dim}, keepdim=True" if keep and dim == "-1" else f"dim={dim}"
            text = f"{self.torch}.where({aligned}, {base.text}, 0).sum({kept})"
            if keep and dim == "0":
                text += ".unsqueeze(-1)"
            weight = self.context.names.take("weight")
            self.lines.append(f"{weight} = {text}")
            return Lowered(
                weight, True, selection, 1 if keep else 0, selection.mask, changed=True,
                routed=routed, weighted=True,
            )  # fmt: skip
        raise Refused("index-use", f"`{ast.unparse(node)}` uses found indices in another way")

    def _item(self, node: ast.Subscript, base: Lowered) -> Lowered:
        if base.count is not None or base.rows is None:
            index = self.lower(node.slice)
            if index.rows is not None or index.count is not None or base.count is not None:
                raise Refused(
                    "rows-as-index", f"`{ast.unparse(node)}` uses selected rows as an index"
                )
            return self._plain(node, [(node.value, base), (node.slice, index)])
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if base.rows.rank == 1 and ast.unparse(node.slice) in {
            "(:, None)",
            "(slice(None, None, None), None)",
            ":, None",
        }:
            text = f"{base.operand}.unsqueeze(-1)"
            extra = None if base.extra is None else base.extra + 1
            if extra != 1:
                raise Refused("row-position", f"`{ast.unparse(node)}` picks rows by position")
            return replace(base, text=text, bare=True, extra=extra, sample=text)
        if ast.unparse(parts[0]) != "..." or base.extra is None:
            raise Refused("row-position", f"`{ast.unparse(node)}` picks rows by position")
        extra = base.extra
        for part in parts[1:]:
            value = self.context.analysis.values.get(part)
            if isinstance(part, ast.Constant) and part.value is None:
                extra += 1
            elif value is not None and value.static and not isinstance(part, ast.Slice):
                extra -= 1
            elif not isinstance(part, ast.Slice):
                raise Refused("row-position", f"`{ast.unparse(node)}` picks rows by position")
        if extra < 0:
            raise Refused("row-position", f"`{ast.unparse(node)}` picks rows by position")
        text = self._compose(node, [(node.value, base)])
        return replace(base, text=text, bare=True, extra=extra, sample=text)

    def _attribute(self, node: ast.Attribute, fill: int | None) -> Lowered:
        inner = self.lower(node.value, fill)
        if inner.rows is None and inner.count is None:
            return self._plain(node, [(node.value, inner)])
        if node.attr in {"dtype", "device"}:
            return Lowered(f"{inner.operand}.{node.attr}", True, changed=True, number=True)
        raise Refused("rows-leave", f"`{ast.unparse(node)}` asks for more than values")

    def _compare(self, node: ast.Compare) -> Lowered:
        sides = [(n, self.lower(n)) for n in (node.left, *node.comparators)]
        held = [s for _, s in sides if s.rows is not None]
        if any(s.count is not None for _, s in sides):
            raise Refused("count-leaves", f"`{ast.unparse(node)}` tests the number of rows")
        if not held:
            return self._plain(node, sides)
        for part, side in sides:
            self._check_sides(held[0], side, part)
        return replace(held[0], text=self._compose(node, sides), bare=False)

    def _check_sides(self, mine: Lowered, other: Lowered, node: ast.expr) -> None:
        """Whether a value can be combined with rows element by element in the dense form too."""
        assert mine.rows is not None
        if other.count is not None:
            return
        if other.rows is not None:
            if other.rows.key != mine.rows.key:
                raise Refused("other-mask", f"`{ast.unparse(node)}` was selected by another mask")
            if mine.extra is not None and other.extra is not None and mine.extra != other.extra:
                if not (mine.weighted or other.weighted):
                    raise Refused("shapes-unproven", "rows of different shapes are combined")
            return
        if other.number:
            return
        rank = self.masks.ranks.of(node)
        if rank == 0 or (rank is not None and mine.extra is not None and rank <= mine.extra):
            return
        raise Refused(
            "operand-unproven",
            f"`{ast.unparse(node)}` is not proven to have no dimension of selected rows",
        )

    def _binop(self, node: ast.BinOp, fill: int | None) -> Lowered:
        op = node.op
        held = self._mentions(node.right)
        number = self._is_number(node.right)
        bounded = isinstance(op, (ast.Add, ast.Sub)) or (
            isinstance(op, (ast.Mult, ast.Div)) and not held and number
        )
        # A product or quotient bounds the derivative of its left side if the right one is filled.
        left_bounded = bounded or (isinstance(op, (ast.Mult, ast.Div)) and held)
        left = self.lower(node.left, fill=fill if left_bounded else 1)
        right = self.lower(node.right, fill=fill if bounded else 1)
        if left.rows is None and right.rows is None:
            return self._numbers(node, left, right)
        mine = left if left.rows is not None else right
        weighted = left.weighted or right.weighted
        if weighted and not (isinstance(op, ast.Mult) and not (left.weighted and right.weighted)):
            raise Refused("weights-used", f"`{ast.unparse(node)}` does more than weigh rows")
        if isinstance(op, ast.MatMult):
            if (
                right.rows is not None
                or (rank := self.masks.ranks.of(node.right)) is None
                or rank != 2
            ):
                raise Refused("not-row-wise", f"`{ast.unparse(node)}` may mix rows")
            self._need_trailing(mine)
        else:
            self._check_sides(mine, left, node.left)
            self._check_sides(mine, right, node.right)
        text = self._compose(node, [(node.left, left), (node.right, right)])
        known = [s.extra for s in (left, right) if s.rows is not None and s.extra is not None]
        extra = max(known) if weighted and known else known[0] if known else None
        mine = replace(mine, weighted=weighted)
        return replace(mine, text=text, bare=False, extra=extra)

    def _is_number(self, node: ast.expr) -> bool:
        value = self.context.analysis.values.get(node)
        return value is not None and (
            value.only(Kind.STATIC | Kind.SCALAR) or (value.tensor and value.zero_dim)
        )

    def _numbers(self, node: ast.BinOp, left: Lowered, right: Lowered) -> Lowered:
        """Arithmetic without rows, which may use how many were selected."""
        children = [(node.left, left), (node.right, right)]
        if left.count is None and right.count is None:
            return self._plain(node, children)
        text = self._compose(node, children)
        for part, side in children:
            value = self.context.analysis.values.get(part)
            if side.count is None and value is not None and value.tensor:
                return Lowered(text, False, changed=True)  # a tensor all along
        for part, side in children:
            if side.count is None and not (
                isinstance(part, ast.Constant) and type(part.value) is int
            ):
                raise Refused("count-leaves", f"`{ast.unparse(node)}` makes a Python number")
        if isinstance(node.op, ast.Div):
            raise Refused("count-leaves", f"`{ast.unparse(node)}` makes a Python number")
        return Lowered(text, False, count=left.count or right.count, changed=True)

    def _need_trailing(self, value: Lowered) -> None:
        """Rows must have a dimension of their own; where it is not known it is asked in tracing."""
        assert value.rows is not None
        if value.extra is None:
            test = f"{value.sample}.dim() > {value.rows.mask}.dim()"
            if dotted(ast.parse(value.sample, mode="eval").body) is None or (
                value.sample in self.bound
            ):
                raise Refused("row-shape", "rows are not proven to have a dimension of their own")
            if test not in self.masks.tests:
                self.masks.tests.append(test)
        elif value.extra < 1:
            raise Refused("row-shape", "selected elements have no dimension of their own")

    # Calls

    def _call(self, node: ast.Call, fill: int | None) -> Lowered:
        name = operation_name(node, self.context.analysis)
        if name == "masked_select":
            return self._masked_select(node, fill)
        reference = self.context.analysis.values.get(node.func)
        known = reference.reference if reference is not None else None
        if known == "builtins.len" and len(node.args) == 1:
            index = self._index(node.args[0])
            if index is not None:
                return Lowered(index.selection.count, True, count=index.selection, changed=True)
            found = self._found(node.args[0])
            if found is not None:
                return found
            inner = self.lower(node.args[0])
            return self._counted(node, inner, [(node.args[0], inner)])
        if known == "builtins.max" and len(node.args) == 2:
            return self._at_least(node)
        if name in {"size", "numel"} or name is None:
            counted = self._size(node)
            if counted is not None:
                return counted
        if node in self.context.analysis.places and shape_from_data(node, self.context.analysis):
            raise Refused("shape-needed", f"the shape of `{ast.unparse(node)}` is used itself")
        wrapped = self._unwrapped(node)
        if wrapped is not None:
            return wrapped
        loss = losses(self, node, name)
        if loss is not None:
            return loss
        if name in REDUCTIONS:
            given = operands(node, self.context.analysis)
            inner = self.lower(given[0])
            if inner.rows is not None:
                made = reduced(self, node, name, given, inner)
                if made is not None:
                    self.found.reductions += 1
                    return made
        return self._applied(node, name, fill)

    def _unwrapped(self, node: ast.Call) -> Lowered | None:
        """`x[None, index].reshape(-1, dim)`, which is `x[index]` of a matrix; `index_select`."""
        if not isinstance(node.func, ast.Attribute):
            return None
        inner = node.func.value
        if node.func.attr == "index_select" and len(node.args) == 2:
            index = self._index(node.args[1])
            if index is not None and ast.unparse(node.args[0]) == "0":
                made = ast.copy_location(ast.Subscript(inner, node.args[1], ast.Load()), node)
                return self._gathered(made, self.lower(inner))
        if node.func.attr not in {"reshape", "view"} or len(node.args) != 2:
            return None
        if not isinstance(inner, ast.Subscript) or not isinstance(inner.slice, ast.Tuple):
            return None
        parts = inner.slice.elts
        if len(parts) != 2 or ast.unparse(parts[0]) != "None" or self._index(parts[1]) is None:
            return None
        if ast.unparse(node.args[0]) != "-1":
            return None
        made = ast.copy_location(ast.Subscript(inner.value, parts[1], ast.Load()), inner)
        found = self._gathered(made, self.lower(inner.value))
        return None if found is None else replace(found, extra=1)

    def _applied(self, node: ast.Call, name: str | None, fill: int | None) -> Lowered:
        """A call whose arguments may hold rows, allowed if it treats each row alone."""
        parts: list[ast.expr] = [*node.args, *(k.value for k in node.keywords)]
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        last = name or getattr(node.func, "attr", "")
        inner = fill if last in _PASSING else 0 if self._is_embedding(node) else 1
        lowered = [(p, self.lower(p, inner)) for p in parts if not isinstance(p, ast.Starred)]
        children = list(lowered)
        if receiver is not None:
            own = self.lower(receiver, inner)
            if own.rows is not None and isinstance(node.func, ast.Attribute):
                name = name or node.func.attr  # rows are a tensor, whatever they were taken from
            children.append((receiver, own))
            if own.rows is not None or own.count is not None:
                lowered.append((receiver, own))
        held = [(p, v) for p, v in lowered if v.rows is not None]
        if any(v.count is not None for _, v in lowered):
            raise Refused(
                "count-leaves", f"`{ast.unparse(node)}` takes the number of selected rows"
            )
        if not held:
            text_children = children
            if receiver is not None:
                text_children = [c for c in children if c[0] is not receiver]
                text_children.append((receiver, children[-1][1]))
            return self._plain_call(node, text_children)
        if any(v.weighted for _, v in held) and name not in {
            *_PASSING,
            "unsqueeze",
            "view",
            "reshape",
        }:
            raise Refused("weights-used", f"`{ast.unparse(node)}` does more than weigh rows")
        needs = Needs()
        try:
            call_is_rowwise(
                node, self.context.analysis, self.context.facts, {p for p, _ in held}, needs, name
            )
        except NotRowwise as mixed:
            raise Refused(
                "not-row-wise", f"`{mixed}` is not known to treat each row alone"
            ) from None
        mine = held[0][1]
        for part, value in lowered:
            if (value.rows is not None or name is not None) and part is not receiver:
                if name is not None and name in _NO_SHAPE:
                    continue
                self._check_sides(mine, value, part)
        layer = name is None and last not in _PASSING
        if needs.trailing and not layer:
            self._need_trailing(mine)
        if needs.evaluating:
            self._need_evaluation()
        if layer:
            self.found.applied.append(ast.unparse(node.func))
            self.found.routed = self.found.routed or mine.routed is not None
        text = self._compose_call(node, children)
        extra = mine.extra
        if last == "unsqueeze" and extra is not None:
            extra += 1
        if name in {"sum", "mean", "var", "std", "amax", "amin", "logsumexp", "norm", "any", "all"}:
            kept = (
                any(k.arg == "keepdim" for k in node.keywords)
                or len(operands(node, self.context.analysis)) > 2
            )
            if kept and extra is not None:
                pass
            elif extra is not None:
                extra -= 1
            sample = f"{text}"
            return replace(mine, text=text, bare=True, extra=extra, sample=sample)
        sample = text if last == "unsqueeze" or self._is_embedding(node) else mine.sample
        if self._is_embedding(node):
            extra = None if extra is None else extra + 1
        return replace(mine, text=text, bare=True, extra=extra, sample=sample)

    def _plain_call(self, node: ast.Call, children: Sequence[tuple[ast.expr, Lowered]]) -> Lowered:
        changed = any(c.changed for _, c in children)
        text = self._compose_call(node, children)
        return Lowered(text, True, changed=changed, number=self._is_number(node))

    def _compose_call(self, node: ast.Call, children: Sequence[tuple[ast.expr, Lowered]]) -> str:
        """A call's source with changed arguments; a changed receiver is put in parentheses."""
        fixed = [
            (c, replace(v, text=v.operand, bare=True))
            if isinstance(node.func, ast.Attribute) and c is node.func.value
            else (c, v)
            for c, v in children
        ]
        return self._compose(node, fixed)

    def _is_embedding(self, node: ast.Call) -> bool:
        value = self.context.analysis.values.get(node.func)
        reference = value.reference if value is not None else None
        return (reference or "").rsplit(".", 1)[-1] in {"Embedding", "embedding"}

    def _need_evaluation(self) -> None:
        owner = self.context.info.owner
        if owner is None or not self.context.facts.project.is_module_class(owner.qualified):
            raise Refused("random-rows", "a layer draws random numbers for the selected rows")
        arguments = self.context.info.node.args.args
        test = f"not {arguments[0].arg}.training"
        if test not in self.masks.tests:
            self.masks.tests.append(test)

    def _masked_select(self, node: ast.Call, fill: int | None) -> Lowered:
        given = operands(node, self.context.analysis)
        if len(given) != 2 or node.keywords:
            raise Refused("mask-unproven", "`masked_select` is called in an unusual way")
        base = self.lower(given[0])
        if base.rows is not None:
            raise Refused("nested-selection", "rows are selected from what was itself selected")
        selection = self.masks.select(given[1])
        if self.masks.extra(selection, given[0]) != 0:
            raise Refused(
                "shapes-unproven", "the mask is not proven to have the shape of the tensor"
            )
        found = Lowered(base.text, base.bare, selection, 0, base.operand, changed=True)
        return found if fill is None else self._filled(found, fill)

    # Counts

    def _counted(
        self, node: ast.Call, inner: Lowered, children: Sequence[tuple[ast.expr, Lowered]]
    ) -> Lowered:
        if inner.rows is None:
            return self._plain_call(node, children)
        return Lowered(inner.rows.count, True, count=inner.rows, changed=True)

    def _size(self, node: ast.Call) -> Lowered | None:
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in {"size", "numel"}:
            return None
        index = self._index(node.func.value)
        if index is not None:
            return Lowered(index.selection.count, True, count=index.selection, changed=True)
        if [ast.unparse(a) for a in node.args] == ["0"]:
            found = self._found(node.func.value)
            if found is not None:
                return found
        inner = self.lower(node.func.value)
        if inner.rows is None:
            return None
        if node.func.attr == "size" and [ast.unparse(a) for a in node.args] == ["0"]:
            return Lowered(inner.rows.count, True, count=inner.rows, changed=True)
        if node.func.attr == "numel":
            wide = self.masks.over(inner.rows, inner)
            return Lowered(counted(inner, wide), True, count=inner.rows, changed=True)
        raise Refused("row-shape", f"`{ast.unparse(node)}` asks for more than the number of rows")

    def _at_least(self, node: ast.Call) -> Lowered:
        """`max(count, 1)`."""
        sides = [(a, self.lower(a)) for a in node.args]
        counts = [s for _, s in sides if s.count is not None]
        if not counts:
            if any(s.rows is not None for _, s in sides):
                raise Refused("rows-leave", f"`{ast.unparse(node)}` compares selected rows")
            return self._plain_call(node, sides)
        other = next((a for a, s in sides if s.count is None), None)
        if not (isinstance(other, ast.Constant) and type(other.value) is int):
            raise Refused("count-leaves", f"`{ast.unparse(node)}` makes a Python number")
        return replace(counts[0], text=f"{counts[0].operand}.clamp(min={other.value})", bare=True)

    def _accumulate(self, statement: ast.Expr, call: ast.Call) -> bool:
        """`out.index_add_(0, index[mask], rows)` and `scatter_add_`: what is not selected adds zero."""
        name = operation_name(call, self.context.analysis)
        if name not in {"index_add_", "scatter_add_"} or not isinstance(call.func, ast.Attribute):
            return False
        if len(call.args) != 3 or call.keywords:
            return False
        found = self._index(call.args[1])
        if found is not None:
            self._add_rows(call, found)
            return True
        index, source = self.lower(call.args[1], fill=0), self.lower(call.args[2])
        if index.rows is None and source.rows is None:
            return False
        if index.rows is None or source.rows is None or index.rows.key != source.rows.key:
            raise Refused("other-mask", "indices and values were not selected by one mask")
        if ast.unparse(call.args[0]) != "0" or index.extra not in {0, None}:
            raise Refused("row-shape", "only rows of the first dimension can be accumulated")
        if name == "scatter_add_" and (index.extra != 0 or source.extra != 0):
            raise Refused("row-shape", "only rows without dimensions of their own can be scattered")
        target = self.lower(call.func.value)
        if target.changed or self._mentions(call.func.value):
            raise Refused("nested-selection", "rows are accumulated into selected rows")
        source = self._filled(source, 0)
        places, added = index.text, source.text
        if index.rows.rank != 1:
            mask = index.rows.mask
            last = f"{mask}.dim() - 1" if index.rows.rank is None else str(index.rows.rank - 1)
            places, added = f"{places}.flatten()", f"{added}.flatten(0, {last})"
        self.lines.append(f"{target.operand}.{name}(0, {places}, {added})")
        self.found.stores += 1
        self.found.reordered = True
        self._bind(call.func.value)
        return True

    def _add_rows(self, call: ast.Call, index: Index) -> None:
        """`out.index_add_(0, index, rows)`: rows that were not found add zero to themselves."""
        assert isinstance(call.func, ast.Attribute)
        target = self.lower(call.func.value)
        source = self.lower(call.args[2])
        if index.slot or ast.unparse(call.args[0]) != "0" or target.changed:
            raise Refused("row-shape", "only rows of the first dimension can be accumulated")
        if source.rows is None or source.rows.key != index.selection.key:
            raise Refused("other-mask", "indices and values were not selected by one mask")
        if index.routed is not None and not source.weighted and not self.pair_distinct:
            raise Refused("row-repeated", "a row without a weight may be added more than once")
        self.lines.append(f"{target.text} += {self._filled(source, 0).text}")
        self.found.stores += 1
        self.found.reordered = True
        self._bind(call.func.value)


_NO_SHAPE = frozenset("to type type_as float unsqueeze softmax log_softmax sum mean linear".split())


def _loaded(target: ast.Subscript) -> ast.Subscript:
    """A target read as an expression, whose parts keep their recorded values."""
    made = ast.Subscript(target.value, target.slice, ast.Load())
    return ast.copy_location(made, target)
