"""Takes single functions and classes of a file from another version of it.

Works on text, so that everything else keeps its bytes, and only where it provably cuts cleanly.
"""

from __future__ import annotations

import ast

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def splice(text: str, other: str, name: str) -> str | None:
    """The text with one definition at its top taken from the other version.

    None if the versions also differ in another place that the definition may depend on, such as a value
    that is computed beforehand.
    """
    mine, theirs = ast.parse(text), ast.parse(other)
    if around(mine) != around(theirs):
        return None
    here, there = _definition(mine, name), _definition(theirs, name)
    if here is None or there is None:
        return None
    lines, taken = text.split("\n"), other.split("\n")
    first, last = _lines(here)
    start, end = _lines(there)
    result = "\n".join([*lines[: first - 1], *taken[start - 1 : end], *lines[last:]])
    try:
        found = _definition(ast.parse(result), name)
    except SyntaxError:
        return None
    return result if found is not None and ast.dump(found) == ast.dump(there) else None


def around(tree: ast.Module) -> list[str]:
    """What is at the top of a file besides definitions and `import torch`, and their names."""
    found = []
    for statement in tree.body:
        if isinstance(statement, _Definition):
            found.append(statement.name)
        elif not (
            isinstance(statement, ast.Import) and [a.name for a in statement.names] == ["torch"]
        ):
            found.append(ast.dump(statement))
    return found


def _definition(tree: ast.Module, name: str) -> _Definition | None:
    """The only definition of this name at the top."""
    found = [node for node in tree.body if isinstance(node, _Definition) and node.name == name]
    return found[0] if len(found) == 1 else None


def _lines(node: _Definition) -> tuple[int, int]:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first, node.end_lineno or node.lineno
