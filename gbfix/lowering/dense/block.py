"""Blocks of code that select rows with a mask, rewritten without selecting: dense and masked.

Statements are followed in order. A name that holds selected rows holds all rows instead; what is
row-wise is computed for every row, writes to the selected rows become `torch.where`, reductions leave
out what was not selected. Inputs of operations that could fail or have an unbounded derivative
elsewhere are filled with a harmless value first, so that no NaN reaches a gradient.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import selected_by
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.fixes import Context
from gbfix.lowering.dense.expressions import lower
from gbfix.lowering.dense.statements import add
from gbfix.lowering.routing import Index
from gbfix.lowering.selection import Lowered, Masks


@dataclass
class Found:
    """What a block turned out to do, which decides how much its rewrite asks to be trusted.

    Attributes:
        stores, reductions: how many writes to selected rows and reductions over them there are.
        reordered: a sum is formed in another order.
        overflowing: a mean may be of half precision, in which the sum that it is made of overflows.
        asserted: with nothing selected the compiled code raises in the graph.
        unwarned: a warning about too few elements is not given by the compiled code.
        guarded: a reduction is zero where the branch around it gave a zero of its own.
        retyped: with nothing selected a tensor may leave where a Python number did.
        gated: a branch is left out that spared work if nothing was selected.
        routed: rows are routed to layers in pairs with slots.
        applied: layers or functions of the project run on every row.
        normed: batch normalisations whose statistics are taken over what is selected.
        bins: the number of bins that something is counted in; empty for none.
        regrouped: selected elements are viewed in groups, into which they may not divide.
        counts_nothing: one of them counts a batch of which nothing is selected.
    """

    stores: int = 0
    reductions: int = 0
    reordered: bool = False
    overflowing: bool = False
    asserted: bool = False
    unwarned: bool = False
    guarded: bool = False
    retyped: bool = False
    gated: bool = False
    routed: bool = False
    applied: list[str] = field(default_factory=list)
    normed: list[str] = field(default_factory=list)
    bins: str = ""
    regrouped: bool = False
    counts_nothing: bool = False

    @property
    def told_of_bins(self) -> str:
        """What a reader has to know of what is counted in bins."""
        return (
            f"an element that is not below `{self.bins}` raises RuntimeError in the graph; eager code "
            "adds a bin"
        )

    @property
    def told_of_norms(self) -> str:
        """What a reader has to know of the normalisations that are written out; empty for none."""
        names = " and ".join(f"`{name}`" for name in dict.fromkeys(self.normed))
        return f"the steps of {names} are written out, without hooks" if names else ""


class DenseBlock:
    """The dense form of consecutive statements of one block."""

    def __init__(self, context: Context, torch: str) -> None:
        self.context = context
        self.torch = torch
        self.masks = Masks(context, torch)
        self.lines = self.masks.lines
        self.found = Found()
        self.held: dict[str, Lowered] = {}
        self.unread: set[str] = set()
        self.indices: dict[str, Index] = {}
        self.hits: set[str] = set()
        self.numbered: str | None = None
        self.bound: set[str] = set()
        self.known: set[str] = set()
        self.pair_distinct = False
        self.storing = False
        self.gate: str | None = None
        self.guarded: str | None = None
        self.passed: ast.stmt | None = None
        self.grouped: dict[str, str] = {}
        self.statement: ast.stmt = context.info.node

    def selected_by(self, node: ast.Subscript) -> ast.expr | None:
        """The mask of an index, also of something that is only known by being indexed with one."""
        if self.index(node.slice) is not None:
            return None
        mask = selected_by(node, self.context.analysis)
        if mask is None and ast.unparse(node.slice) in self.known:
            base = self.context.analysis.values.get(node.value)
            if base is not None and base.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN):
                return node.slice
        return mask

    @property
    def names(self) -> set[str]:
        """Names that hold selected rows, or where they are."""
        return {*self.held, *(name.partition("[")[0] for name in self.indices)}

    def index(self, node: ast.expr) -> Index | None:
        """Indices that were found: a name, or one of the tuple that it holds, `found[1]`."""
        plain = isinstance(node, (ast.Name, ast.Subscript))
        return self.indices.get(ast.unparse(node)) if plain and self.indices else None

    def mentions(self, node: ast.AST) -> bool:
        names = self.names
        for inner in walk(node):
            if isinstance(inner, ast.Name) and inner.id in names:
                return True
            if isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Load):
                if self.selected_by(inner) is not None:
                    return True
        return False

    def bind(self, target: ast.AST) -> None:
        """Names that a target binds hold something new."""
        for node in walk(target):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self.bound.add(node.id)
                self.held.pop(node.id, None)
                self.changed(node.id)
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            base: ast.expr = target
            while isinstance(base, (ast.Attribute, ast.Subscript)):
                base = base.value
            if isinstance(base, ast.Name):
                self.changed(base.id)

    def changed(self, name: str) -> None:
        self.masks.changed(name)
        for held in self.held.values():
            selection = held.rows or held.count
            if selection is not None and name in selection.reads:
                raise Refused("mask-changes", f"`{name}` changes while its selection is in use")

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Lower statements that run in some calls only: what they name and bind is theirs."""
        held, indices, unread = dict(self.held), dict(self.indices), set(self.unread)
        with self.masks.apart():
            yield
        self.held, self.indices, self.unread = held, indices, unread & self.unread

    def add(self, statement: ast.stmt) -> None:
        """Lower one statement.

        Raises:
            Refused: where it does something with selected rows that has no dense form.
        """
        add(self, statement)

    def lower(self, node: ast.expr, fill: int | None = None) -> Lowered:
        """An expression in dense form; `fill` replaces what is not selected.

        Raises:
            Refused: where selected rows are used in a way that has no dense form.
        """
        return lower(self, node, fill)
