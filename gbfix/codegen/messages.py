"""The message of an assertion inside a graph: a constant string, from whatever the code would say.

A graph can hold no formatted values, so what an f-string or a `%` would insert is named in the text
instead: `f"got {x.min()}"` says `got <x.min()>`. Knows messages, nothing of checks.
"""

from __future__ import annotations

import ast
import re

from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.flow import Analysis
from gbfix.codegen.view import View

# Places of a format that are filled in order.
_BRACES = re.compile(r"\{(?::[^{}]*)?\}")
_PERCENT = re.compile(r"%[-+ #0-9.]*[a-zA-Z]")


def assertion_message(
    node: ast.expr | None, view: View, analysis: Analysis, test: ast.expr | None = None
) -> str:
    """Source text of a constant string for an exception or an assertion's message."""
    if isinstance(node, ast.Call) and test is None:
        name = ast.unparse(node.func).rsplit(".", 1)[-1]
        if not node.args:
            return _quoted(name, '"')
        return _literal(node.args[0], view, analysis, name)
    if node is None:
        return _quoted(f"assertion failed: {ast.unparse(test)}" if test else "check failed", '"')
    if test is None:
        return _quoted(ast.unparse(node), '"')
    return _literal(node, view, analysis, "assertion failed")


def _literal(node: ast.expr, view: View, analysis: Analysis, otherwise: str) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = view.text(node)
        if "\n" not in text and hasattr(node, "lineno"):
            return text
        return _quoted(node.value, '"')
    if isinstance(node, ast.Name) and (
        _is_constant(node.id, analysis) or _is_local(node, analysis)
    ):
        return node.id
    parts = _parts(node)
    if parts is None:
        return _quoted(f"{otherwise}: {ast.unparse(node)}", '"')
    return _quoted(parts, '"')


def _is_constant(name: str, analysis: Analysis) -> bool:
    """Whether a name is a string constant of the module."""
    bound = analysis.info.module.bindings.get(name, [])
    return (
        name not in analysis.before.get(analysis.info.node.body[0], {})
        and len(bound) == 1
        and isinstance(bound[0], ast.Constant)
        and isinstance(bound[0].value, str)
    )


def _is_local(name: ast.Name, analysis: Analysis) -> bool:
    """Whether a name of the function holds a string that no data decide."""
    made = definitions_of(analysis.info.node, analysis.info.module).of(name)
    if made is None:
        return False
    if isinstance(made.value, ast.Constant):
        return isinstance(made.value.value, str)
    shown = [n.value for n in ast.walk(made.value) if isinstance(n, ast.FormattedValue)]
    values = [analysis.values.get(n) for n in shown]
    return isinstance(made.value, ast.JoinedStr) and all(v is not None and v.static for v in values)


def _parts(node: ast.expr) -> str | None:
    """The text of a string expression with `<...>` where values would stand."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        texts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                texts.append(str(part.value))
            elif isinstance(part, ast.FormattedValue):
                texts.append(f"<{ast.unparse(part.value)}>")
        return "".join(texts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _parts(node.left), _parts(node.right)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _filled(_parts(node.left), node.right, _PERCENT)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "format"
    ):
        return _filled(_parts(node.func.value), ast.Tuple(node.args), _BRACES)
    return None


def _filled(text: str | None, given: ast.expr, places: re.Pattern[str]) -> str | None:
    """A format with the text of each value in its place, where each has one."""
    if text is None:
        return None
    values = list(given.elts) if isinstance(given, ast.Tuple) else [given]
    if len(places.findall(text)) != len(values):
        return text
    texts = iter(f"<{ast.unparse(value)}>" for value in values)
    return places.sub(lambda _: next(texts), text)


def _quoted(text: str, quote: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{quote}{escaped.replace(quote, chr(92) + quote)}{quote}"
