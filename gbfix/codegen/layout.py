"""Statements laid out within a line length, the way a formatter such as black lays them out.

A call that does not fit gets its arguments on one indented line, else one argument a line with a
trailing comma. Works on text that it is given in pieces; it may not know what the pieces mean.
"""

from __future__ import annotations

from collections.abc import Sequence


def call(
    head: str, arguments: Sequence[str], *, width: int, unit: str = "    ", tail: str = ""
) -> str:
    """`head(arguments)tail` in at most `width` columns if it can be done.

    `head` may be a whole beginning of a statement, such as `y = torch.where`.
    """
    one = f"{head}({', '.join(arguments)}){tail}"
    if fits(one, width):
        return one
    inner = ", ".join(arguments)
    if fits(unit + inner, width) and "\n" not in inner:
        return f"{head}(\n{unit}{inner}\n){tail}"
    lines = "".join(f"{unit}{_shift(a, unit)},\n" for a in arguments)
    return f"{head}(\n{lines}){tail}"


def fits(text: str, width: int) -> bool:
    """Whether every line of a text is within a width, a tab counting as four columns."""
    return all(len(line.expandtabs(4)) <= width for line in text.split("\n"))


def header(keyword: str, operands: Sequence[str], *, width: int, unit: str = "    ") -> str:
    """`keyword a and b:`, broken inside parentheses where it is too long."""
    one = f"{keyword} {' and '.join(operands)}:"
    if fits(one, width) or len(operands) == 1:
        return one
    lines = [f"{unit}{operands[0]}", *(f"{unit}and {o}" for o in operands[1:])]
    return "\n".join([f"{keyword} (", *lines, "):"])


def indent(text: str, by: str) -> str:
    """Indent every line that is not blank."""
    return "\n".join(by + line if line.strip() else line for line in text.split("\n"))


def _shift(text: str, unit: str) -> str:
    return text.replace("\n", "\n" + unit)
