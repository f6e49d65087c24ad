"""Boolean selections as dense tensors with a mask: what `x[mask]` is before rows are taken out.

A selection keeps every row and remembers which ones count. Its mask is spelled so that it broadcasts
to values with dimensions of their own. Knows masks and ranks, nothing of statements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gbfix.analysis.conditions import Refused
from gbfix.analysis.flow import Analysis
from gbfix.analysis.ranks import Ranks
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat
from gbfix.codegen.names import used_names
from gbfix.fixes import Context


@dataclass(frozen=True)
class Selection:
    """What a boolean mask selects.

    Attributes:
        key: tells selections apart.
        mask: the mask as text that binds tightly, without a leading `~`.
        inverted: the elements are selected where `mask` is false.
        rank: dimensions of the mask, if known.
        reads: names that the mask reads.
        shape: value number of the mask's shape.
        root: the name of a tensor that has the shape of the mask, and is never bound anew.
        source: the name of a tensor that the mask is computed from, and has its shape there.
    """

    key: str
    mask: str
    inverted: bool
    rank: int | None
    reads: frozenset[str]
    shape: int
    root: str | None = None
    source: str | None = None

    @property
    def text(self) -> str:
        """The mask, true where selected."""
        return f"~{self.mask}" if self.inverted else self.mask

    @property
    def rest(self) -> str:
        """The mask, true where not selected."""
        return self.mask if self.inverted else f"~{self.mask}"

    @property
    def count(self) -> str:
        """The number of selected rows, an integer tensor without dimensions."""
        return f"({self.text}).sum()" if self.inverted else f"{self.mask}.sum()"

    def over(self, mask: str) -> Selection:
        """The same with the mask spelled in another way."""
        return replace(self, mask=mask)


@dataclass(frozen=True)
class Lowered:
    """An expression in dense form.

    Attributes:
        text: the expression.
        bare: it binds more tightly than any operator.
        rows: the selection that it holds rows of; None for what does not depend on one.
        extra: dimensions of one row, if known.
        sample: text of a tensor with as many dimensions as the dense value.
        shape: value number of the dense value's shape; 0 if it is not known.
        count: it is a number of selected rows, a Python integer in the original.
        changed: the text is not the original's.
        number: it is a Python number, or a tensor without dimensions.
        routed: rows were found in pairs with slots, by the mask with this text.
        weighted: weights of all slots of a row have been summed, so rows may only be added.
        resized: it may have more or fewer elements than its sample: it was broadcast, say, or given to
            a layer.
        groups: the sizes that its elements are viewed with, where it is only taken all together.
        zero: the text for which what is not selected is zero, if there is one.
    """

    text: str
    bare: bool = False
    rows: Selection | None = None
    extra: int | None = None
    sample: str = ""
    shape: int = 0
    count: Selection | None = None
    changed: bool = False
    number: bool = False
    routed: str | None = None
    weighted: bool = False
    resized: bool = False
    groups: str = ""
    zero: str = ""

    @property
    def zeroed(self) -> bool:
        """Whether what is not selected is zero, so that a sum needs no fill."""
        return bool(self.zero) and self.zero == self.text

    @property
    def operand(self) -> str:
        """The text as an operand."""
        return self.text if self.bare else f"({self.text})"


def root_of(node: ast.expr) -> tuple[ast.expr, bool]:
    """A mask without its `~`, and whether it was inverted."""
    inverted = False
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        node, inverted = node.operand, not inverted
    return node, inverted


class Masks:
    """The selections of one block of code: their masks get names where they have none."""

    def __init__(self, context: Context, torch: str) -> None:
        self.context = context
        self.torch = torch
        self.ranks = Ranks(context.analysis, context.facts)
        self.tests: list[str] = []
        self.lines: list[str] = []
        self._named: dict[str, tuple[str, frozenset[str]]] = {}
        self._wide: dict[tuple[str, str | int], str] = {}

    def select(self, node: ast.expr) -> Selection:
        """The selection of a mask expression.

        Raises:
            Refused: where nothing says that the expression is a boolean mask.
        """
        root, inverted = root_of(node)
        analysis = self.context.analysis
        text = flat(self.context.view, root)
        reads = frozenset(used_names(root))
        for test in mask_tests(node, analysis, self.torch):
            self.require(test)
        if not isinstance(root, (ast.Name, ast.Attribute)):
            known = self._named.get(text)
            if known is None:
                name = self.context.names.take("mask")
                self._named[text] = known = (name, reads)
                self.lines.append(f"{name} = {text}")
            text = known[0]
            reads = frozenset({text})
        value = analysis.values.get(root)
        rank = self.ranks.of(root)
        shape = value.shape if value is not None and value.tensor else -1
        key = ("~" if inverted else "") + text
        ranks = self.ranks
        return Selection(
            key, text, inverted, rank, reads, shape, ranks.shape_root(root), ranks.source(root)
        )

    def require(self, test: str, implied: str = "") -> None:
        """Ask for something that is decided while tracing, and no longer for what it implies."""
        if implied in self.tests:
            self.tests[self.tests.index(implied)] = test
        elif test not in self.tests:
            self.tests.append(test)

    def asked(self, selection: Selection) -> str | None:
        """What has the dimensions of a mask and is there before, unless the block binds it."""
        own = {name for name, _ in self._named.values()}
        return selection.root or selection.source if selection.mask in own else selection.mask

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Names that masks get meanwhile are forgotten: they are not bound on every path."""
        named, wide = dict(self._named), dict(self._wide)
        yield
        self._named, self._wide = named, wide

    def changed(self, name: str) -> None:
        """A name was bound or changed: masks that were computed from it are computed anew."""
        self._named = {t: n for t, n in self._named.items() if name not in n[1]}
        self._wide = {k: n for k, n in self._wide.items() if k[0] != name}

    def extra(self, selection: Selection, node: ast.expr) -> int | None:
        """How many dimensions a tensor has beyond those of a mask over its leading ones."""
        value = self.context.analysis.values.get(node)
        if value is not None and value.tensor and value.shape == selection.shape:
            return 0
        if selection.root is not None and selection.root == self.ranks.shape_root(node):
            return 0
        rank = self.ranks.of(node)
        if rank is None or selection.rank is None:
            return None
        return rank - selection.rank

    def over(self, selection: Selection, value: Lowered) -> Selection:
        """The selection with a mask that broadcasts to rows with dimensions of their own."""
        extra, sample = value.extra, value.sample
        if extra == 0:
            return selection
        if extra is not None and extra > 0:
            return selection.over(f"{selection.mask}[..., {', '.join(['None'] * extra)}]")
        key = (selection.mask, value.shape or sample)
        if key not in self._wide:
            name = self.context.names.take("rows")
            mask = selection.mask
            self._wide[key] = name
            self.lines.append(
                f"{name} = {mask}.reshape({mask}.shape + (1,) * ({sample}.dim() - {mask}.dim()))"
            )
        return selection.over(self._wide[key])


def mask_tests(node: ast.expr, analysis: Analysis, torch: str) -> list[str]:
    """What has to be asked while tracing, so that an index is known to be a boolean tensor.

    Raises:
        Refused: where no plain name can be asked.
    """
    root, _ = root_of(node)
    value = analysis.values.get(root)
    if value is not None and value.tensor and value.boolean:
        return []
    text = ast.unparse(root)
    if isinstance(root, (ast.Name, ast.Attribute)):
        tests = [f"{text}.dtype == {torch}.bool"]
        if value is None or not value.tensor:
            tests.insert(0, f"isinstance({text}, {torch}.Tensor)")
        return tests
    if isinstance(root, ast.Compare) and not any(
        isinstance(o, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for o in root.ops
    ):
        unknown = [
            n
            for n in (root.left, *root.comparators)
            if (v := analysis.values.get(n)) is not None and v.kinds & (Kind.MAYBE | Kind.UNKNOWN)
        ]
        if any(
            (v := analysis.values.get(n)) is not None and v.tensor
            for n in (root.left, *root.comparators)
        ):
            return []
        if unknown and isinstance(unknown[0], (ast.Name, ast.Attribute)):
            return [f"isinstance({ast.unparse(unknown[0])}, {torch}.Tensor)"]
    raise Refused("mask-unproven", f"`{text}` is not proven to be a boolean mask")
