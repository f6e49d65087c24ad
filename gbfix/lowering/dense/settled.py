"""Ways to reduce selected rows between which a setting chooses: `if self.reduction == "sum": ...`.

The test is decided while tracing, so the compiled path asks it as well and each way gets its dense
form. Only ways that return are taken: what they bind is not read by anything after them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.lowering.views import final_returns

if TYPE_CHECKING:
    from gbfix.fixes import Context
    from gbfix.lowering.dense.block import DenseBlock

Add = Callable[["DenseBlock", list[ast.stmt], int], None]


def is_settled(node: ast.stmt, context: Context) -> bool:
    """Whether what a statement chooses between, by a test on no tensor, are ways to return."""
    if isinstance(node, ast.If):
        value = context.analysis.values.get(node.test)
        if value is None or not value.static or not final_returns(node.body):
            return False
        chained = len(node.orelse) == 1 and is_settled(node.orelse[0], context)
        return chained or not node.orelse or bool(final_returns(node.orelse))
    if not isinstance(node, ast.Match):
        return False
    value = context.analysis.values.get(node.subject)
    literal = all(_is_literal(case.pattern) and case.guard is None for case in node.cases)
    return (
        value is not None
        and not value.may_be_tensor
        and literal
        and all(final_returns(case.body) for case in node.cases)
    )


def add_settled(block: DenseBlock, node: ast.If | ast.Match, add: Add) -> None:
    """Lower each way on its own, below its test.

    Raises:
        Refused: where a way has no dense form, or the choice asks for what was selected.
    """
    asked = node.subject if isinstance(node, ast.Match) else node.test
    view, unit = block.context.view, block.context.unit
    if block.mentions(asked):
        raise Refused("rows-leave", f"`{ast.unparse(asked)}` asks for selected rows")
    if isinstance(node, ast.If):
        for head, body in _ways(block, node):
            block.lines.append(head)
            _add_way(block, body, add)
        return
    block.lines.append(f"match {view.text(node.subject)}:")
    for case in node.cases:
        block.lines.append(f"{unit}case {view.text(case.pattern)}:")
        _add_way(block, case.body, add, depth=2)


def _ways(block: DenseBlock, node: ast.If) -> Iterator[tuple[str, list[ast.stmt]]]:
    word = "if"
    while True:
        yield f"{word} {block.context.view.text(node.test)}:", node.body
        chained = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        if not chained or not is_settled(node.orelse[0], block.context):
            break
        (following,) = node.orelse
        assert isinstance(following, ast.If)
        node, word = following, "elif"
    if node.orelse:
        yield "else:", node.orelse


def _add_way(block: DenseBlock, body: list[ast.stmt], add: Add, depth: int = 1) -> None:
    first = len(block.lines)
    with block.apart():
        for position in range(len(body)):
            add(block, body, position)
    margin = block.context.unit * depth
    block.lines[first:] = [f"{margin}{line}" for line in block.lines[first:]]


def _is_literal(pattern: ast.pattern) -> bool:
    if isinstance(pattern, ast.MatchOr):
        return all(_is_literal(one) for one in pattern.patterns)
    if isinstance(pattern, ast.MatchAs):
        return pattern.pattern is None and pattern.name is None
    return isinstance(pattern, (ast.MatchValue, ast.MatchSingleton))
