"""Where numbers and sizes that Dynamo captures as symbols have to be known after all.

A symbol cannot decide a branch: the graph ends there, and in a loop the whole frame is given up. A
tensor whose length is a symbol cannot be taken apart into Python values: compiling fails (seen on
torch 2.13). Follows names within one function; knows nothing of settings.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gbfix.analysis.conditions import Refused, leaves
from gbfix.analysis.dynamic import shape_from_data
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import Module
from gbfix.analysis.reads import reads
from gbfix.analysis.trees import walk

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ITERATED = frozenset({"zip", "enumerate", "reversed", "list", "tuple", "map"})


def check_function(analysis: Analysis) -> None:
    """Whether everything of a function can be captured without harm to the rest of it.

    Raises:
        Refused: where the function would not be compiled any more, or would fail to compile.
    """
    if check_function not in analysis.derived:
        analysis.derived[check_function] = _refusal(analysis)
    refusal: tuple[str, str] | None = analysis.derived[check_function]
    if refusal is not None:
        raise Refused(*refusal)


def _refusal(analysis: Analysis) -> tuple[str, str] | None:
    """Why not everything of a function can be captured, as a code and a sentence."""
    for node in _sized(analysis):
        place = _taken_apart(node, analysis)
        if place is not None:
            return (
                "length-unknown",
                f"`{ast.unparse(place)}` takes a tensor apart whose length would be a symbol",
            )
    for node in [*(r.node for r in reads(analysis)), *_sized(analysis)]:
        test = decided(node, analysis)
        if test is not None and _in_loop(test, analysis):
            return (
                "branch-on-symbol",
                f"`{ast.unparse(test)}` would ask a symbol, and in a loop that ends the whole frame",
            )
    return None


def check_read(node: ast.expr, analysis: Analysis) -> None:
    """Whether capturing one number or size helps.

    Raises:
        Refused: where it decides a branch, so that the graph ends there instead.
    """
    test = decided(node, analysis)
    if test is not None:
        raise Refused(
            "branch-on-symbol", f"`{ast.unparse(test)}` would end the graph instead of the read"
        )


def decided(node: ast.expr, analysis: Analysis) -> ast.expr | None:
    """A test that a number or size decides; Dynamo takes over those of assertions."""
    sized = shape_from_data(node, analysis) is not None
    names = derived(node, analysis, through_tensors=sized)
    for condition in analysis.conditions.values():
        if isinstance(condition.owner, ast.Assert) or condition.eager:
            continue
        for leaf in leaves(condition.test):
            value = analysis.values.get(leaf)
            if leaf in analysis.eager or (value is not None and value.tensor):
                continue
            # Whether a name is None is known of a symbol.
            if isinstance(leaf, ast.Compare) and isinstance(leaf.ops[0], (ast.Is, ast.IsNot)):
                continue
            if any(contains(part, node, names) for part in ([leaf] if not sized else _sizes(leaf))):
                return condition.test
    return None


def _sized(analysis: Analysis) -> list[ast.expr]:
    return [
        n
        for n in analysis.places
        if isinstance(n, ast.expr) and shape_from_data(n, analysis) is not None
    ]


def _sizes(test: ast.expr) -> Iterator[ast.expr]:
    """What a test asks the size of."""
    for node in walk(test):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "len":
                yield from node.args
            elif isinstance(node.func, ast.Attribute) and node.func.attr in {"size", "numel"}:
                yield node.func.value
        elif isinstance(node, ast.Attribute) and node.attr == "shape":
            yield node.value


def derived(node: ast.expr, analysis: Analysis, *, through_tensors: bool) -> set[str]:
    """Names that hold something made of a number, or a tensor made of one whose size is meant."""
    names: set[str] = set()
    bound = _bindings(analysis)
    grown = True
    while grown:
        grown = False
        for binding in bound:
            known = analysis.values.get(binding.value)
            if not through_tensors and known is not None and known.tensor:
                continue
            if node not in binding.parts and binding.read.isdisjoint(names):
                continue
            grown = grown or not binding.names <= names
            names |= binding.names
    return names


class _Binding(NamedTuple):
    """A value that names are given: its nodes, and the names that stand in it."""

    names: frozenset[str]
    value: ast.expr
    parts: frozenset[ast.AST]
    read: frozenset[str]


def _bindings(analysis: Analysis) -> list[_Binding]:
    if _bindings not in analysis.derived:
        analysis.derived[_bindings] = [
            _Binding(_names(walk(target)), value, frozenset(walk(value)), _names(walk(value)))
            for target, value in _bound(analysis)
        ]
    found: list[_Binding] = analysis.derived[_bindings]
    return found


def _names(nodes: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(n.id for n in nodes if isinstance(n, ast.Name))


def _bound(analysis: Analysis) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in walk(analysis.info.node):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if not isinstance(target, ast.Subscript):
                    yield target, node.value
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, (ast.For, ast.comprehension)):
            yield node.target, node.iter


def contains(value: ast.AST, node: ast.expr, names: set[str]) -> bool:
    """Whether an expression holds another, or one of some names."""
    return any(n is node or (isinstance(n, ast.Name) and n.id in names) for n in walk(value))


def _taken_apart(node: ast.expr, analysis: Analysis) -> ast.expr | None:
    """Where a tensor whose length is a symbol is read as a list, or looped over."""
    names = derived(node, analysis, through_tensors=True)
    for found in walk(analysis.info.node):
        if isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute):
            if found.func.attr == "tolist" and contains(found.func.value, node, names):
                return found
        elif isinstance(found, (ast.For, ast.comprehension)):
            for part in _looped(found.iter):
                value = analysis.values.get(part)
                if value is not None and value.tensor and contains(part, node, names):
                    return found.iter
    return None


def _looped(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ITERATED:
        for argument in node.args:
            yield from _looped(argument)
    else:
        yield node


def _in_loop(test: ast.expr, analysis: Analysis) -> bool:
    if any(isinstance(n, _COMPREHENSIONS) for n in walk(test)):
        return True
    module: Module = analysis.info.module
    current: ast.AST | None = test
    while current is not None and current is not analysis.info.node:
        if isinstance(current, (ast.For, ast.While, *_COMPREHENSIONS)):
            return True
        current = module.parents.get(current)
    return False
