"""The places that set the attributes of a class: assignments, and buffers that are registered.

Reads the methods of the class itself. Knows syntax; what the values are is found out in `facts`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from gbfix.analysis.modules import ClassInfo, FunctionInfo, last_name
from gbfix.analysis.trees import first_line, statements, walk

_REGISTER = {"register_buffer", "register_parameter"}
_WRITING = frozenset({ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Call})


class AttributeWrite(NamedTuple):
    """One place that sets an attribute of a class: the method, the value, and how."""

    method: FunctionInfo | None
    node: ast.AST
    value: ast.expr | None
    registered: bool = False


def found_writes(cls: ClassInfo) -> dict[str, list[AttributeWrite]]:
    """Every place in a class's own body that sets an attribute, by attribute name."""
    found: dict[str, list[AttributeWrite]] = {}
    for node in cls.node.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(AttributeWrite(None, node, node.value))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).append(AttributeWrite(None, node, node.value))
    for method in cls.methods.values():
        for name, write in _method_writes(method):
            found.setdefault(name, []).append(write)
    return found


def changes_in_place(node: ast.AST) -> bool:
    """Whether a statement leaves a tensor the tensor that it was: `self.steps += 1`."""
    return isinstance(node, ast.AugAssign) and not isinstance(node.op, ast.MatMult)


def is_registered(
    writes: Sequence[tuple[ClassInfo, AttributeWrite]], *, parameters: bool = True
) -> bool:
    """Whether an attribute is a buffer (or, unless excluded, a parameter) somewhere."""
    if any(_is_parameter(w.value) for _, w in writes):
        return parameters
    return any(w.registered for _, w in writes)


def _is_parameter(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) == "Parameter"


def _unpacked(
    target: ast.Tuple | ast.List, value: ast.expr
) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """The parts of a target with what each is given, where the values stand side by side as well."""
    values: list[ast.expr | None] = [None] * len(target.elts)
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
        if not any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts)):
            values = list(value.elts)
    return zip(target.elts, values, strict=True)


@lru_cache
def _setting(me: str) -> re.Pattern[str]:
    """What the text of a method has wherever it sets an attribute of its object, and also elsewhere."""
    attribute = rf"(?<!\w){me}[\s\\)]*\.[\s\\]*\w+"
    directly = r"[\s\\)]*(?:[-+*/%@&|^<>]{0,3}=(?!=)|:)"
    beside_others = r"[\s\\]*[,)\]][^=]*[^=!<>]=(?!=)"
    return re.compile(rf"{attribute}(?:{directly}|{beside_others})")


def _method_writes(method: FunctionInfo) -> Iterator[tuple[str, AttributeWrite]]:
    if not method.node.args.args:
        return
    me = method.node.args.args[0].arg
    last = method.node.end_lineno or method.node.lineno

    def attribute(target: ast.AST) -> str | None:
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            return target.attr if target.value.id == me else None
        return None

    # Most methods register nothing, and then only statements write; many set nothing at all.
    text = method.module.source.lines_text(first_line(method.node), last)
    registers = "register_" in text
    if not registers and not _setting(me).search(text):
        return
    for node in walk(method.node) if registers else statements(method.node):
        kind = node.__class__
        if kind not in _WRITING:
            continue
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if (name := attribute(target)) is not None:
                    yield name, AttributeWrite(method, node, node.value)
                elif isinstance(target, (ast.Tuple, ast.List)):
                    for element, value in _unpacked(target, node.value):
                        if (name := attribute(element)) is not None:
                            yield name, AttributeWrite(method, node, value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            if (name := attribute(node.target)) is not None:
                yield name, AttributeWrite(method, node, node.value)
        elif (
            isinstance(node, ast.Call)
            and attribute(node.func) in _REGISTER
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            value = node.args[1] if len(node.args) > 1 else None
            yield str(node.args[0].value), AttributeWrite(method, node, value, registered=True)
