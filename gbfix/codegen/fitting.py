"""Single statements that were put together as one line, broken so that they fit the line length.

A call gets its arguments on lines of their own, and so do dictionaries and lists with their items;
anything else goes into parentheses and is broken at its outermost operator. Works on text; what does
not parse as one simple statement stays as it is.
"""

from __future__ import annotations

import ast

from gbfix.codegen import layout

_SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|",
    ast.MatMult: "@",
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
    if not isinstance(value, ast.expr) or _end(line, value) < len(line.rstrip(")")):
        return line
    start = _start(line, value)
    while line[start - 1] == "(" and not isinstance(value, ast.Tuple):
        start -= 1
    head, text = line[:start], line[start:]
    if isinstance(value, ast.Call):
        made = _broken(text, width, unit, len(head))
        if "\n" in made:
            return f"{head}{made}"
    if isinstance(value, (ast.Dict, ast.List)) and text[0] in "{[":
        return f"{head}{_display(line, value, width, unit)}"
    inside = text[1:-1] if text.startswith("(") and isinstance(value, ast.Tuple) else text
    parts = [_part(line, e) for e in value.elts] if isinstance(value, ast.Tuple) else []
    if parts:
        lines = [f"{unit}{layout.indent(p, unit).lstrip()}," for p in _each(parts, width, unit)]
        return "\n".join([f"{head}(", *lines, ")"])
    if inside.startswith("(") and _end(inside, ast.parse(inside, mode="eval").body) < len(inside):
        inside = inside[1:-1]
    body = _broken(inside, width - len(unit), unit, 0)
    return f"{head}(\n{layout.indent(body, unit)}\n)"


def _display(line: str, node: ast.Dict | ast.List, width: int, unit: str) -> str:
    """A dictionary or list with each of its items on lines of their own."""
    items: list[tuple[str, ast.expr]] = []
    if isinstance(node, ast.List):
        items = [("", e) for e in node.elts]
    else:
        for key, value in zip(node.keys, node.values, strict=True):
            items.append((f"{_part(line, key)}: " if key is not None else "**", value))
    inner = width - len(unit) - 1
    parts = [
        f"{lead}{_broken(_part(line, value), inner, unit, len(lead))}" for lead, value in items
    ]
    first, last = ("{", "}") if isinstance(node, ast.Dict) else ("[", "]")
    return "\n".join([first, *(f"{layout.indent(p, unit)}," for p in parts), last])


def _each(parts: list[str], width: int, unit: str) -> list[str]:
    return [_broken(p, width - len(unit) - 1, unit, 0) for p in parts]


def _broken(text: str, width: int, unit: str, used: int) -> str:
    """An expression in lines that fit, where it stands in parentheses or is a call."""
    if len(text) + used <= width:
        return text
    node = ast.parse(text, mode="eval").body
    whole = node.col_offset == 0 and _end(text, node) == len(text)
    if isinstance(node, ast.BinOp) and type(node.op) in _SYMBOLS and whole:
        at = _operator(text, node)
        left, right = text[:at].rstrip(), text[at:]
        symbol, rest = right[0], right[1:].lstrip()
        return f"{_broken(left, width, unit, used)}\n{symbol} {_broken(rest, width - 2, unit, 0)}"
    if not isinstance(node, ast.Call) or not whole:
        return text
    arguments = [_part(text, a) for a in node.args]
    arguments += [f"{k.arg}={_part(text, k.value)}" for k in node.keywords if k.arg]
    function = text[: _opening(text, node)]
    if not arguments or len(arguments) != len(node.args) + len(node.keywords):
        return text
    if len(function) + used + 1 > width and isinstance(node.func, ast.Attribute):
        owner = _part(text, node.func.value)
        if isinstance(node.func.value, ast.Call):
            tail = text[_end(text, node.func.value) :]
            inner = _broken(owner, width - len(tail), unit, used)
            if "\n" in inner:
                return f"{inner}{tail}"
            call = _forced(owner, unit)
            return f"{call}{tail}" if call else text
    made = layout.call(function, arguments, width=width - used, unit=unit)
    if layout.fits(made, width):
        return made
    positional = len(node.args)
    broken = [
        _broken(a, width - len(unit) - 1, unit, 0) if n < positional else a
        for n, a in enumerate(arguments)
    ]
    lines = "".join(f"{layout.indent(b, unit)},\n" for b in broken)
    return f"{function}(\n{lines})"


def _forced(text: str, unit: str) -> str | None:
    """A call with its arguments on a line of their own."""
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call) or not (node.args or node.keywords):
        return None
    at = _opening(text, node)
    return f"{text[:at]}(\n{unit}{text[at + 1 : -1]}\n)"


def _opening(text: str, node: ast.Call) -> int:
    return text.index("(", _end(text, node.func))


def _operator(text: str, node: ast.BinOp) -> int:
    """Where the operator of a binary operation stands."""
    at = _end(text, node.left)
    while text[at] in " )":
        at += 1
    return at


def _start(line: str, node: ast.expr) -> int:
    return len(line.encode()[: node.col_offset].decode())


def _end(line: str, node: ast.expr) -> int:
    assert node.end_col_offset is not None
    return len(line.encode()[: node.end_col_offset].decode())


def _part(line: str, node: ast.expr) -> str:
    return line[_start(line, node) : _end(line, node)]
