"""Whether a module is still Python after edits, and whether what they name is there.

Only the statements that edits touch are parsed.

What stands on whole lines at the top level and is valid by itself is valid between the statements
before and after it, which are as they were. Knows syntax and scopes, not meaning.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Collection, Iterator, Sequence

from gbfix.analysis.trees import walk
from gbfix.codegen.view import View
from gbfix.source.text import Edit

_NESTED = re.compile(r"\blambda\b|\bdef\b")
_TORCHSCRIPT = frozenset(
    "script is_scripting export unused ignore annotate interface script_if_tracing "
    "_script_if_tracing".split()
)
_EVERYWHERE = frozenset(dir(builtins)) | frozenset(
    {"__file__", "__path__", "__builtins__", "__annotations__", "WindowsError"}
)


def parse_edited(view: View, edits: Sequence[Edit]) -> None:
    """Parse what edits make of a module.

    Raises:
        SyntaxError, ValueError: if it is not valid Python; the line is that of the whole text.
    """
    text = view.source.apply(edits)
    span = _span(view, edits)
    if span is not None:
        try:
            ast.parse(_after(view, span, text))
            return
        except (SyntaxError, ValueError):
            pass  # said of the whole, so that the line is right
    ast.parse(text)


def check_names(view: View, edits: Sequence[Edit], *, imported: Collection[str] = ()) -> None:
    """Make sure that edits make a module read no name that it does not bind.

    A name that the module read before is not asked about: a star import, or whoever runs the module,
    may bind it.

    Args:
        imported: names that will be imported besides.

    Raises:
        ValueError: naming the first one.
    """
    before, after = view.source.text, view.source.apply(edits)
    span = _span(view, edits)
    old, new = before, after
    if span is not None:
        old, new = before[slice(*span)], _after(view, span, after)
    added = _read(new) - _read(old) - _EVERYWHERE - view.module.bindings.keys() - set(imported)
    for name in sorted(added):
        if name not in _read(before) | _bound(after):
            raise ValueError(f"`{name}` would not be defined")


def _after(view: View, span: tuple[int, int], text: str) -> str:
    """What stands after edits where the span of them all was."""
    start, end = span
    return text[start : end + len(text) - len(view.source.text)]


def is_scriptable(
    function: ast.FunctionDef | ast.AsyncFunctionDef, edits: Sequence[Edit], view: View
) -> bool:
    """Whether code that is written for TorchScript can still be scripted after edits.

    TorchScript takes no function in a function, and of one that is marked for Dynamo it only sees the
    wrapper, in whose module it looks for the names that the function reads.
    """
    nested = any(_NESTED.search(edit.text) for edit in edits)
    marked = any(".compiler.disable" in edit.text for edit in edits)
    return not (nested or marked) or not _is_written_for_torchscript(function, view)


def _is_written_for_torchscript(
    function: ast.FunctionDef | ast.AsyncFunctionDef, view: View
) -> bool:
    """Whether a file speaks of TorchScript, other than on functions that are scripted alone."""
    if "jit" not in view.source.text:
        return False
    alone = {
        mark
        for node in walk(view.module.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node is not function
        for mark in node.decorator_list
    }
    return any(
        isinstance(node, ast.Attribute)
        and ast.unparse(node.value).rpartition(".")[2] == "jit"
        and node.attr in _TORCHSCRIPT
        and not (node.attr == "script" and node in alone)
        for node in walk(view.module.tree)
    )


def _read(text: str) -> frozenset[str]:
    """Names that some text looks up in its module."""
    return frozenset(
        symbol.get_name()
        for table in _tables(text)
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module")
    )


def _bound(text: str) -> frozenset[str]:
    """Names that some text binds in its module."""
    return frozenset(
        symbol.get_name()
        for table in _tables(text)
        for symbol in table.get_symbols()
        if (symbol.is_global() or table.get_type() == "module")
        and (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace())
    )


def _tables(text: str) -> Iterator[symtable.SymbolTable]:
    todo = [symtable.symtable(text, "<edited>", "exec")]
    while todo:
        table = todo.pop()
        yield table
        todo += table.get_children()


def _span(view: View, edits: Sequence[Edit]) -> tuple[int, int] | None:
    """Where the whole lines stand that hold all that is edited; None if that cannot be told."""
    if not edits:
        return None
    first, last = min(edit.start for edit in edits), max(edit.end for edit in edits)
    start: int | None = None
    for statement in view.module.tree.body:
        begin = view.start(statement)
        if view.line_start(begin) != begin:  # behind another one on its line
            continue
        if begin <= first:
            start = begin
        if begin > last:
            return None if start is None else (start, begin)
    return None if start is None else (start, len(view.source.text))
