"""Expressions of the source as one line of text, their formatting otherwise kept.

Uses libcst to take line breaks and comments out of an expression without touching quotes, spacing
or operators. It may not know what an expression means.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gbfix.codegen.joining import joined
from gbfix.codegen.view import View

if TYPE_CHECKING:
    import libcst as cst

_BARE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.List, ast.Dict)


def flat(view: View, node: ast.expr) -> str:
    """The text of an expression on one line (triple-quoted strings excepted)."""
    text = view.text(node)
    return text if "\n" not in text else flatten(text)


def operand(view: View, node: ast.expr) -> str:
    """The text of an expression, in parentheses unless it binds more tightly than any operator."""
    text = flat(view, node)
    return text if isinstance(node, _BARE) else f"({text})"


def copied(node: ast.expr, text: str) -> str:
    """A tensor expression, given with its text, as a copy that shares no storage."""
    bare = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return f"{text}.clone()" if bare else f"({text}).clone()"


def flatten(text: str) -> str:
    """An expression without line breaks or comments outside of its strings."""
    found = joined(text)
    return found if found is not None else by_tree(text)


def by_tree(text: str) -> str:
    """The same, whatever is in the expression; it takes libcst, which takes long to load."""
    import libcst as cst

    class Flatten(cst.CSTTransformer):
        def leave_ParenthesizedWhitespace(
            self,
            original_node: cst.ParenthesizedWhitespace,
            updated_node: cst.ParenthesizedWhitespace,
        ) -> cst.SimpleWhitespace:
            return cst.SimpleWhitespace(" ")

        def leave_LeftParen(
            self, original_node: cst.LeftParen, updated_node: cst.LeftParen
        ) -> cst.LeftParen:
            return updated_node.with_changes(whitespace_after=cst.SimpleWhitespace(""))

        def leave_RightParen(
            self, original_node: cst.RightParen, updated_node: cst.RightParen
        ) -> cst.RightParen:
            return updated_node.with_changes(whitespace_before=cst.SimpleWhitespace(""))

        def leave_Attribute(
            self, original_node: cst.Attribute, updated_node: cst.Attribute
        ) -> cst.Attribute:
            before = original_node.dot.whitespace_before
            if not isinstance(before, cst.ParenthesizedWhitespace):
                return updated_node
            dot = updated_node.dot.with_changes(whitespace_before=cst.SimpleWhitespace(""))
            return updated_node.with_changes(dot=dot)

        def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
            updated = updated_node.with_changes(whitespace_before_args=cst.SimpleWhitespace(""))
            if not updated.args:
                return updated
            last = updated.args[-1]
            space = cst.SimpleWhitespace("")
            if isinstance(last.comma, cst.Comma):
                last = last.with_changes(comma=cst.MaybeSentinel.DEFAULT)
            last = last.with_changes(whitespace_after_arg=space)
            return updated.with_changes(args=[*updated.args[:-1], last])

        def _display(self, node: cst.List | cst.Tuple) -> cst.List | cst.Tuple:
            elements = node.elements
            single_tuple = isinstance(node, cst.Tuple) and len(elements) == 1
            if elements and isinstance(elements[-1].comma, cst.Comma) and not single_tuple:
                last = elements[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                return node.with_changes(elements=[*elements[:-1], last])
            return node

        def leave_List(self, original_node: cst.List, updated_node: cst.List) -> cst.BaseExpression:
            return self._display(updated_node)

        def leave_Tuple(
            self, original_node: cst.Tuple, updated_node: cst.Tuple
        ) -> cst.BaseExpression:
            return self._display(updated_node)

        def leave_Subscript(
            self, original_node: cst.Subscript, updated_node: cst.Subscript
        ) -> cst.Subscript:
            *others, last = updated_node.slice
            part = last.slice
            if not isinstance(part, cst.Slice) or isinstance(last.comma, cst.Comma):
                return updated_node
            if part.upper is None and not isinstance(part.second_colon, cst.Colon):
                colon = part.first_colon.with_changes(whitespace_after=cst.SimpleWhitespace(""))
                last = last.with_changes(slice=part.with_changes(first_colon=colon))
            return updated_node.with_changes(slice=[*others, last])

        def leave_LeftSquareBracket(
            self, original_node: cst.LeftSquareBracket, updated_node: cst.LeftSquareBracket
        ) -> cst.LeftSquareBracket:
            return updated_node.with_changes(whitespace_after=cst.SimpleWhitespace(""))

        def leave_RightSquareBracket(
            self, original_node: cst.RightSquareBracket, updated_node: cst.RightSquareBracket
        ) -> cst.RightSquareBracket:
            return updated_node.with_changes(whitespace_before=cst.SimpleWhitespace(""))

    parsed = cst.parse_expression(f"({text})")
    outer = parsed.with_changes(lpar=parsed.lpar[1:], rpar=parsed.rpar[:-1])
    made = outer.visit(Flatten())
    assert isinstance(made, cst.BaseExpression)
    return cst.Module([]).code_for_node(made)
