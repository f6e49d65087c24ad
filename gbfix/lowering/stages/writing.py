"""Writes a divided function: one for each part, the mark, and calls in place of what was moved.

Knows the text of the source and the parts, nothing of why they were chosen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.analysis.conditions import NotApplicable
from gbfix.analysis.trees import walk
from gbfix.codegen import layout
from gbfix.fixes import Context
from gbfix.lowering.beside import name_beside
from gbfix.lowering.stages.parts import Divided, Part
from gbfix.source.text import Edit


def edits_of(divided: Divided, torch: str, context: Context) -> tuple[Edit, ...]:
    """The functions, the mark, and the calls in place of what was moved."""
    view, node, unit = context.view, context.info.node, context.unit
    indent = view.indent(node)
    receiver = ""
    if context.info.owner is not None:
        arguments = [*node.args.posonlyargs, *node.args.args]
        if not arguments:
            raise NotApplicable("not-divided", "the method has no receiver")
        receiver = arguments[0].arg
    annotated = {
        a.arg: f"{a.arg}: {view.text(a.annotation)}"
        for a in walk(node.args)
        if isinstance(a, ast.arg) and a.annotation is not None
    }
    gap = "\n\n" if receiver else "\n\n\n"
    width = context.settings.line_length
    above: list[str] = []
    calls: dict[int, str] = {}
    for part in divided.parts:
        name = name_beside(part.place, context)
        names = [n for n in part.given if n != receiver]
        head = layout.call(
            f"def {name}",
            [*([receiver] if receiver else []), *(annotated.get(n, n) for n in names)],
            width=width - len(indent) - 1,
            unit=unit,
            tail=":",
        )
        body = layout.indent(_body(part, context), unit)
        above.append(layout.indent(f"{head}\n{body}", indent))
        target = f"{', '.join(part.results)} = " if part.results else ""
        target = "return " if part.returns else target
        inner = view.indent(part.items[-1].statement)
        calls[id(part)] = layout.call(
            f"{target}{receiver}.{name}" if receiver else f"{target}{name}",
            names,
            width=width - len(inner),
            unit=unit,
        )
    at = view.line_start(view.start(node))
    mark = f"{indent}@{torch}.compiler.disable(recursive=False)\n"
    text = "".join(f"{a}{gap}" for a in above)
    edits = [Edit(at, at, text if node.decorator_list else text + mark)]
    if node.decorator_list:
        below = view.line_start(view.source.offset(node.lineno, node.col_offset))
        edits.append(Edit(below, below, mark))
    edits += _replaced(divided, calls, context)
    return tuple(edits)


def _replaced(divided: Divided, calls: dict[int, str], context: Context) -> Iterator[Edit]:
    """For each run of statements that parts or takings apart connect: what stands there afterwards."""
    view = context.view
    owner = {id(item): part for part in divided.parts for item in part.items}
    groups: list[list[ast.stmt]] = []
    linked = [[i.statement for i in p.items] for p in divided.parts]
    linked += [[items[0].statement] for items in divided.apart]
    for statements in sorted(linked, key=lambda g: (g[0].lineno, -g[-1].lineno)):
        if groups and any(s is g for s in statements for g in groups[-1]):
            groups[-1] += [s for s in statements if not any(s is g for g in groups[-1])]
        else:
            groups.append(list(dict.fromkeys(statements)))
    apart = {id(items[0].statement): items for items in divided.apart}
    whole = {id(i.statement): i for p in divided.parts for i in p.items if i.text is None}
    for group in groups:
        inner = view.indent(group[0])
        lines: list[str] = []
        for statement in group:
            items = apart.get(id(statement)) or (whole[id(statement)],)
            for item in items:
                part = owner.get(id(item))
                if part is None:
                    lines.append(item.text or view.text(statement))
                elif part.items[-1] is item:
                    lines.append(calls[id(part)])
        start = view.line_start(view.start(group[0]))
        end = view.line_end(view.end(group[-1]))
        yield Edit(start, end, layout.indent("\n".join(lines), inner))


def _body(part: Part, context: Context) -> str:
    """The statements of a part's function."""
    text, last = _moved(part, context), part.items[-1]
    if not part.results:
        return text
    statement = last.statement
    if len(part.items) == 1 and last.text is not None and last.stays is False:
        name, equals, value = last.text.partition(" = ")
        if equals and [name] == list(part.results):
            return f"return {value}"
    if last.text is None and isinstance(statement, ast.Assign) and len(part.items) == 1:
        if [ast.unparse(t) for t in statement.targets] == list(part.results):
            return f"return {context.view.text(statement.value)}"
    return f"{text}\nreturn {', '.join(part.results)}"


def _moved(part: Part, context: Context) -> str:
    """The text of a part, with the comments between its statements."""
    view = context.view
    inner = view.indent(part.items[0].statement)
    pieces: list[str] = []
    last: int | None = None
    for item in part.items:
        start = view.line_start(view.start(item.statement))
        end = view.line_end(view.end(item.statement))
        if last is not None and start > last:
            pieces.append(view.slice(last, start))
        elif last is not None:
            pieces.append("\n")
        pieces.append(
            view.slice(start, end) if item.text is None else layout.indent(item.text, inner)
        )
        last = end
    return "\n".join(line.removeprefix(inner) for line in "".join(pieces).split("\n"))
