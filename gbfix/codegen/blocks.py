"""Statements of the source copied to another indentation, with small changes on the way.

libcst carries layout and strings over, so that a copied statement reads like the one it was copied
from. Comments stay with the original, which stays in the file. Knows syntax, not meaning.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gbfix.analysis.expressions import dotted
from gbfix.codegen.view import View

if TYPE_CHECKING:
    import libcst as cst


@dataclass(frozen=True)
class Changes:
    """What to change in copied statements.

    Attributes:
        names: dotted names to be replaced by local names.
        buffers: `register_buffer` of these dotted names becomes an assignment to a local name.
        out_of_place: names whose augmented assignment becomes a plain one.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    buffers: Mapping[str, str] = field(default_factory=dict)
    out_of_place: frozenset[str] = frozenset()


def copy_statements(view: View, statements: Sequence[ast.stmt], changes: Changes, unit: str) -> str:
    """The statements at no indentation, changed, without comments; ends with a newline."""
    lines = [_plain(view, statement, changes) for statement in statements]
    if all(line is not None for line in lines):
        return "".join(f"{line}\n" for line in lines)
    return copied_by_tree(view, statements, changes, unit)


def copied_by_tree(view: View, statements: Sequence[ast.stmt], changes: Changes, unit: str) -> str:
    """The same, whatever the statements are; it takes libcst, which takes long to load."""
    import libcst as cst

    nodes: list[cst.SimpleStatementLine | cst.BaseCompoundStatement] = []
    for statement in statements:
        for node in _parse(view, statement):
            if nodes and any(isinstance(n, cst.FunctionDef) for n in (node, nodes[-1])):
                node = node.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
            nodes.append(node)
    module = cst.Module(nodes, default_indent=unit)
    changed = module.visit(_changer(changes))
    return changed.code


def _plain(view: View, statement: ast.stmt, changes: Changes) -> str | None:
    """A simple statement on one line; None where there is more to it."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)):
        return None
    if getattr(statement, "lineno", None) is None:
        return None
    if isinstance(statement, ast.AugAssign) and dotted(statement.target) in changes.out_of_place:
        return None
    text = view.text(statement)
    # Offsets of nodes count bytes, and nodes inside of a string have none of their own.
    if "\n" in text or not text.isascii() or (changes.names and "{" in text):
        return None
    if changes.buffers and ".register_buffer" in text:
        return None
    first = statement.col_offset
    for node in reversed(_replaced(statement, changes)):
        assert node.end_col_offset is not None
        start, end = node.col_offset - first, node.end_col_offset - first
        name = dotted(node) or ""
        if text[start:end] != name:  # a node that is not from this text
            return None
        text = f"{text[:start]}{changes.names[name]}{text[end:]}"
    return text


def _replaced(statement: ast.stmt, changes: Changes) -> list[ast.Attribute]:
    """The attributes that are another name in the copy, in the order of the text."""
    found: list[ast.Attribute] = []
    todo: list[ast.AST] = [statement] if changes.names else []
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Attribute) and dotted(node) in changes.names:
            found.append(node)
        else:
            todo += ast.iter_child_nodes(node)
    return sorted(found, key=lambda node: node.col_offset)


def _parse(
    view: View, statement: ast.stmt
) -> list[cst.SimpleStatementLine | cst.BaseCompoundStatement]:
    import libcst as cst

    indent = view.indent(statement) or " "
    code = view.text(statement)
    if isinstance(statement, ast.If):
        code = code.removeprefix("el")  # an `elif` that becomes a statement of its own
    text = f"if 1:\n{indent}{code}\n"
    if not view.indent(statement):
        body = code.split("\n")
        text = "if 1:\n" + "\n".join(f" {line}" for line in body) + "\n"
    parsed = cst.parse_module(text).body[0]
    assert isinstance(parsed, cst.If)
    assert isinstance(parsed.body, cst.IndentedBlock)
    return [
        s.with_changes(leading_lines=[])
        for s in parsed.body.body
        if isinstance(s, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
    ]


def _changer(changes: Changes) -> cst.CSTTransformer:
    import libcst as cst

    class Change(cst.CSTTransformer):
        def leave_EmptyLine(
            self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine
        ) -> cst.EmptyLine | cst.RemovalSentinel:
            return cst.RemoveFromParent() if updated_node.comment else updated_node

        def leave_TrailingWhitespace(
            self, original_node: cst.TrailingWhitespace, updated_node: cst.TrailingWhitespace
        ) -> cst.TrailingWhitespace:
            if updated_node.comment is None:
                return updated_node
            return updated_node.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))

        def leave_Attribute(
            self, original_node: cst.Attribute, updated_node: cst.Attribute
        ) -> cst.BaseExpression:
            local = changes.names.get(_dotted(original_node) or "")
            return cst.Name(local) if local else updated_node

        def leave_Expr(
            self, original_node: cst.Expr, updated_node: cst.Expr
        ) -> cst.BaseSmallStatement | cst.RemovalSentinel:
            call = original_node.value
            if not isinstance(call, cst.Call) or len(call.args) < 2:
                return updated_node
            owner = _dotted(call.func) or ""
            name = call.args[0].value
            if owner.endswith(".register_buffer") and isinstance(name, cst.SimpleString):
                buffer = f"{owner.removesuffix('.register_buffer')}.{name.evaluated_value!s}"
                local = changes.buffers.get(buffer)
                if local:
                    updated = updated_node.value
                    assert isinstance(updated, cst.Call)
                    given = updated.args[1].value
                    if isinstance(given, cst.Name) and given.value == local:
                        return cst.RemoveFromParent()
                    target = cst.AssignTarget(cst.Name(local))
                    return cst.Assign([target], updated.args[1].value)
            return updated_node

        def leave_AugAssign(
            self, original_node: cst.AugAssign, updated_node: cst.AugAssign
        ) -> cst.BaseSmallStatement:
            name = _dotted(original_node.target)
            if name not in changes.out_of_place:
                return updated_node
            operator = cst.Module([]).code_for_node(original_node.operator).strip()[:-1]
            target = cst.Module([]).code_for_node(updated_node.target)
            value = cst.Module([]).code_for_node(updated_node.value)
            if not isinstance(
                updated_node.value, (cst.Name, cst.Call, cst.Attribute, cst.BaseNumber)
            ):
                value = f"({value})"
            made = cst.parse_statement(f"{target} = {target} {operator} {value}")
            assert isinstance(made, cst.SimpleStatementLine)
            return made.body[0]

    return Change()


def _dotted(node: cst.CSTNode) -> str | None:
    import libcst as cst

    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr.value}" if base else None
    return None
