"""Single statements that were put together as one line, broken so that they fit the line length.

A call gets its arguments on lines of their own; anything else goes into parentheses and is broken at
its outermost operator. Works on text; what does not parse as one simple statement stays as it is.
"""

from __future__ import annotations

import ast

from gbfix.codegen import layout

_SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip


def fitted(line: str, width: int, unit: str = "    ") -> str:
    """A statement in lines of at most `width` columns, if it can be broken."""
    if layout.fits(line, width) or "\n" in line:
        return line
    try:
        statement = ast.parse(line).body[0]
    except SyntaxError:
        return line
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.expr) or value.end_col_offset != len(line.encode()):
        return line
    start = len(line.encode()[: value.col_offset].decode())
    head, text = line[:start], line[start:]
    if isinstance(value, ast.Call):
        return _call(head, text, value, line, width, unit)
    if isinstance(value, ast.BinOp) and type(value.op) in _SYMBOLS:
        left = _part(line, value.left)
        rest = line[_end(line, value.left) :].lstrip(" )")
        close = line[start : _start(line, value.left)]
        left = f"{close}{left}{')' * close.count('(')}"
        return f"{head}(\n{unit}{left}\n{unit}{rest}\n)"
    return f"{head}(\n{unit}{text}\n)"


def _call(head: str, text: str, value: ast.Call, line: str, width: int, unit: str) -> str:
    arguments = [_part(line, a) for a in value.args]
    arguments += [f"{k.arg}={_part(line, k.value)}" for k in value.keywords if k.arg]
    if len(arguments) != len(value.args) + len(value.keywords) or not arguments:
        return f"{head}(\n{unit}{text}\n)"
    function = _part(line, value.func)
    made = layout.call(f"{head}{function}", arguments, width=width, unit=unit)
    if layout.fits(made, width):
        return made
    if isinstance(value.func, ast.Attribute) and not layout.fits(f"{head}{function}(", width):
        inner = layout.call(function, arguments, width=width - len(unit), unit=unit)
        return f"{head}(\n{layout.indent(inner, unit)}\n)"
    return made


def _start(line: str, node: ast.expr) -> int:
    return len(line.encode()[: node.col_offset].decode())


def _end(line: str, node: ast.expr) -> int:
    assert node.end_col_offset is not None
    return len(line.encode()[: node.end_col_offset].decode())


def _part(line: str, node: ast.expr) -> str:
    return line[_start(line, node) : _end(line, node)]
