"""Tensors that an arm makes anew as its result, written so that `torch.cond` takes them.

Eager code hands on `torch.tensor(0.0)` beside a loss on any device, and lets it require a gradient so
that `backward` runs. `torch.cond` wants one device of both arms, and makes nothing that requires a
gradient: what it gives requires one if the other arm's result does. Knows expressions and their texts,
nothing of how arms are written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused
from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import flat
from gbfix.codegen.view import View
from gbfix.lowering.dense_gradients import Replacement

_FACTORIES = frozenset(
    f"torch.{n}"
    for n in "tensor scalar_tensor zeros ones full empty eye arange linspace rand randn".split()
)


@dataclass(frozen=True)
class Made:
    """What one arm gives: its expressions, and names that it hands on as they were before."""

    nodes: Sequence[ast.AST]
    results: Sequence[ast.expr]
    kept: Sequence[str] = ()


def made_alike(
    arms: tuple[Made, Made], test: ast.expr, at: ast.stmt, analysis: Analysis, view: View
) -> list[Replacement]:
    """The texts of tensors that arms make, and what to write for them.

    Raises:
        Refused: where a result is on the default device and the other arm's may be on another.
    """
    found: dict[ast.Call, str] = {}
    for arm, other in (arms, arms[::-1]):
        _check_gradients(arm)
        for result in arm.results:
            if not isinstance(result, ast.Call) or not _is_factory(result, analysis):
                continue
            text = _arguments(result, view, without="requires_grad")
            if _on_default(result) and not _all_on_default(other, at, analysis):
                text = f"{text}, device={_tensor(other, test, at, analysis)}.device"
            if text != _arguments(result, view):
                found[result] = text
        for name in arm.kept:
            if _made_on_default(name, at, analysis) and not _all_on_default(other, at, analysis):
                raise Refused(
                    "different-devices",
                    f"`{name}` is made on the default device, and the other arm's may be elsewhere",
                )
    return [
        (
            re.compile(rf"(?<![\w.]){re.escape(flat(view, call))}"),
            f"{flat(view, call.func)}({text})",
        )
        for call, text in found.items()
    ]


def _check_gradients(arm: Made) -> None:
    """Refuse what a graph does not make: a tensor that requires a gradient by itself.

    Raises:
        Refused: unless it is what the arm gives, whose gradients come from the other arm.
    """
    for call in (n for top in arm.nodes for n in walk(top) if isinstance(n, ast.Call)):
        wants = [k for k in call.keywords if k.arg == "requires_grad"]
        asked = any(not (isinstance(k.value, ast.Constant) and not k.value.value) for k in wants)
        if asked and call not in arm.results:
            raise Refused(
                "requires-gradient", f"`{ast.unparse(call)}` in an arm is no part of a graph"
            )


def _is_factory(node: ast.Call, analysis: Analysis) -> bool:
    function = analysis.values.get(node.func)
    return function is not None and function.reference in _FACTORIES


def _on_default(call: ast.Call) -> bool:
    """Whether nothing says on which device a tensor is made."""
    return all(k.arg is not None and k.arg != "device" for k in call.keywords)


def _arguments(call: ast.Call, view: View, without: str = "") -> str:
    """The arguments of a call, on one line, but for a keyword."""
    kept = [k for k in call.keywords if k.arg != without]
    named = ((f"{k.arg}=" if k.arg else "**") + flat(view, k.value) for k in kept)
    return ", ".join([*(flat(view, a) for a in call.args), *named])


def _all_on_default(arm: Made, at: ast.stmt, analysis: Analysis) -> bool:
    """Whether all that an arm gives is made on the default device as well."""
    made = (isinstance(r, ast.Call) and _is_factory(r, analysis) for r in arm.results)
    devices = (isinstance(r, ast.Call) and _on_default(r) for r in arm.results)
    return all(made) and all(devices) and all(_made_on_default(n, at, analysis) for n in arm.kept)


def _made_on_default(name: str, at: ast.stmt, analysis: Analysis) -> bool:
    """Whether a name holds, before a statement, what a factory has made on the default device."""
    info = analysis.info
    stores = definitions_of(info.node, info.module).stores.get(name, [])
    before = [s for s in stores if getattr(s, "lineno", 0) < at.lineno]
    if not before:
        return False
    for store in before:
        owner = info.module.parents.get(store)
        value = owner.value if isinstance(owner, ast.Assign) else None
        if not isinstance(value, ast.Call) or not _is_factory(value, analysis):
            return False
        if not _on_default(value):
            return False
    return True


def _tensor(arm: Made, test: ast.expr, at: ast.stmt, analysis: Analysis) -> str:
    """A name for a tensor that an arm reads, or that the test does.

    Raises:
        Refused: if there is none.
    """
    environment = analysis.before[at]
    for node in _names([*arm.nodes, test]):
        value = analysis.values.get(node)
        known = environment.get(node.id)
        if value is not None and value.tensor and known is not None and known.tensor:
            return node.id
    raise Refused(
        "different-devices", "one arm makes a tensor on the default device; the other may not"
    )


def _names(nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    for top in nodes:
        for node in walk(top):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield node
