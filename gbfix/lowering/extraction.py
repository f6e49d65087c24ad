"""Takes a run of statements out of a function, as a helper above the definition it stands in.

What the run reads becomes parameters, with the types that can be told; what is read after it becomes
its results. Attributes of `self` that are read are handed over. Knows names and text, nothing of what
the helper is for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused
from gbfix.codegen import layout
from gbfix.fixes import Context
from gbfix.lowering.operator_body import type_of
from gbfix.lowering.toplevel import title, top_statement
from gbfix.lowering.views import block_of, in_loop_of
from gbfix.source.text import Edit

_LONGEST = 6
_TYPES = frozenset(
    f"{kind}{option}"
    for kind in ("Tensor", "int", "float", "bool", "str", "list[int]", "list[float]", "list[bool]")
    for option in ("", " | None")
)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LEAVING = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)


@dataclass(frozen=True)
class Extracted:
    """A helper, and the edits that put it in place."""

    name: str
    edits: tuple[Edit, ...]


def runs(statement: ast.stmt, context: Context) -> Iterator[list[ast.stmt]]:
    """Runs of statements around one, from the smallest on.

    In each block around it, the statement is followed by more and more others, and then preceded.
    """
    module, function = context.info.module, context.info.node
    current: ast.AST = statement
    while current is not function:
        if isinstance(current, ast.stmt):
            block = block_of(current, module)
            at = next(i for i, s in enumerate(block) if s is current)
            first = 1 if block is function.body and ast.get_docstring(function) is not None else 0
            ends = range(at + 1, min(len(block), at + _LONGEST) + 1)
            yield from (list(block[at:end]) for end in ends)
            starts = range(at - 1, max(first, at - _LONGEST) - 1, -1)
            yield from (list(block[start : at + 1]) for start in starts)
            if block is function.body:
                yield from (list(block[start:]) for start in (*starts, first))
        current = module.parents[current]


def extracted(run: Sequence[ast.stmt], context: Context) -> Extracted:
    """Take a run of statements out of its function.

    Raises:
        Refused: where that would change what it does, or a type cannot be told.
    """
    return _Extraction(run, context).made()


class _Extraction:
    def __init__(self, run: Sequence[ast.stmt], context: Context) -> None:
        self.run = run
        self.context = context
        self.view = context.view
        self.nodes = [n for statement in run for n in ast.walk(statement)]
        self.returns = isinstance(run[-1], ast.Return)

    def made(self) -> Extracted:
        self._check()
        stored = {n.id for n in self.nodes if isinstance(n, ast.Name) and _stores(n)}
        results = [] if self.returns else sorted(stored & self.context.liveness.after[self.run[-1]])
        if stored & self.context.liveness.captured:
            raise Refused("not-extracted", "a nested function reads what the statements bind")
        operands = self._operands(stored)
        for name in results:
            if name not in operands and not any(_binds(s, name) for s in self.run):
                raise Refused("may-be-unbound", f"`{name}` is not bound on all ways")
        top = top_statement(self.context.info.node, self.context)
        name = self._name(results)
        signature = [f"{n}: {_annotation(kind, self.torch)}" for n, (kind, _) in operands.items()]
        unit, width = self.context.unit, self.context.settings.line_length
        head = layout.call(f"def {name}", signature, width=width, unit=unit, tail=":")
        body = layout.indent(self._body(operands), unit)
        back = f"\n{unit}return {', '.join(results)}" if results else ""
        helper = f"{head}\n{body}{back}\n\n\n"
        at = self.view.line_start(self.view.start(top))
        given = [text for _, text in operands.values()]
        lead = "return " if self.returns else f"{', '.join(results)} = " if results else ""
        indent = self.view.indent(self.run[0])
        call = layout.call(f"{lead}{name}", given, width=max(width - len(indent), 40), unit=unit)
        start, end = self.view.start(self.run[0]), self.view.end(self.run[-1])
        replaced = Edit(start, end, layout.indent(call, indent).removeprefix(indent))
        return Extracted(name, (Edit(at, at, helper), replaced))

    def _check(self) -> None:
        for node in self.nodes:
            if isinstance(node, (*_LEAVING, *_SCOPES, ast.Delete, ast.Try)):
                kind = type(node).__name__.lower()
                raise Refused("not-extracted", f"`{kind}` is not taken out of its function")
            if isinstance(node, (ast.Break, ast.Continue)) and not in_loop_of(node, self.nodes):
                raise Refused("not-extracted", "a loop around the statements is left or continued")
            if isinstance(node, ast.Return) and node is not self.run[-1]:
                raise Refused("not-extracted", "the statements may return on the way")
            if isinstance(node, ast.Name) and node.id == "super":
                raise Refused("not-extracted", "`super()` is not taken out of its function")
        body = self.context.info.node.body
        if self.returns and self.run[-1] is not body[-1]:
            raise Refused("not-extracted", "the statements return before the end")
        first, last = self.run[0], self.run[-1]
        if not (self.view.starts_line(first) and self.view.ends_line(last)):
            raise Refused("not-extracted", "the statements share their lines with others")
        if any(s in self.context.analysis.eager for s in self.run):
            raise Refused("not-extracted", "the statements are not compiled")

    def _operands(self, stored: set[str]) -> dict[str, tuple[str, str]]:
        """The parameters by name, each with its type and what is given for it."""
        parents = self.context.info.module.parents
        function = self.context.info.node
        own = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)} | {
            n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _stores(n)
        }
        found: dict[str, tuple[str, str]] = {}
        for node in sorted(
            (n for n in self.nodes if isinstance(n, ast.Name) and not _stores(n)),
            key=lambda n: (n.lineno, n.col_offset),
        ):
            if node.id not in own or node.id in found or self._made_here(node, stored):
                continue
            if node.id in ("self", "cls"):
                attribute = parents[node]
                if not isinstance(attribute, ast.Attribute) or _stores(attribute):
                    raise Refused("not-extracted", f"`{node.id}` itself is used")
                around = parents[attribute]
                if isinstance(around, ast.Call) and around.func is attribute:
                    raise Refused("not-extracted", f"`{ast.unparse(attribute)}` is called")
                if attribute.attr in own:
                    raise Refused("not-extracted", f"`{attribute.attr}` is a variable as well")
                found[attribute.attr] = (self._kind(attribute), ast.unparse(attribute))
                continue
            self._check_bound(node.id)
            found[node.id] = (self._kind(node), node.id)
        # What is changed step by step (`y += 1`) is read as well.
        for statement in self.nodes:
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                target = statement.target
                if target.id not in found and not self._made_here(target, stored):
                    self._check_bound(target.id)
                    found[target.id] = (self._kind(target), target.id)
        return dict(sorted(found.items(), key=lambda item: item[1][0] != "Tensor"))

    def _check_bound(self, name: str) -> None:
        """A variable is read where it is handed over, also where the statements would not read it."""
        value = self.context.analysis.before[self.run[0]].get(name)
        if value is None or value.unbound:
            raise Refused("may-be-unbound", f"`{name}` may have no value before the statements")

    def _kind(self, node: ast.Name | ast.Attribute) -> str:
        kind = type_of(node, self.context)
        if kind is None and isinstance(node, ast.Name) and _stores(node):
            same = (n for n in ast.walk(self.context.info.node) if isinstance(n, ast.Name))
            kind = next(
                (k for n in same if n.id == node.id and (k := type_of(n, self.context))), None
            )
        if kind is None or kind not in _TYPES:
            raise Refused("unknown-type", f"it cannot be told what `{ast.unparse(node)}` is")
        return kind

    def _made_here(self, use: ast.Name, stored: set[str]) -> bool:
        """Whether the run itself has surely bound a name before it is used."""
        if use.id not in stored:
            return False
        parents = self.context.info.module.parents
        for statement in self.run:
            if any(n is use for n in ast.walk(statement)):
                # Within one statement, a target comes after the value; loops bind their own.
                current: ast.AST = use
                while current is not statement:
                    below = current
                    current = parents[below]
                    if isinstance(current, ast.For) and below is not current.iter:
                        if _names(current.target, use.id):
                            return True
                    body = getattr(current, "body", None)
                    if isinstance(body, list) and below in body:
                        before = body[: body.index(below)]
                        if any(_binds(s, use.id) for s in before):
                            return True
                return False
            if _binds(statement, use.id):
                return True
        return False

    def _name(self, results: Sequence[str]) -> str:
        own = title(self.context)
        words = [own, *results[:2]] if results else [own, "result" if self.returns else "update"]
        return self.context.names.take("_" + "_".join(words))

    @property
    def torch(self) -> str:
        return self.context.torch(self.run[0])

    def _body(self, operands: dict[str, tuple[str, str]]) -> str:
        """The text of the run, without its indentation, attributes of `self` by their own names."""
        view = self.view
        start, end = view.start(self.run[0]), view.end(self.run[-1])
        parents = self.context.info.module.parents
        pieces: list[tuple[int, int, str]] = []
        for node in self.nodes:
            if isinstance(node, ast.Name) and node.id in ("self", "cls"):
                attribute = parents[node]
                assert isinstance(attribute, ast.Attribute)
                pieces.append((view.start(attribute), view.end(attribute), attribute.attr))
        text, at = "", start
        for first, last, name in sorted(pieces):
            text += view.slice(at, first) + name
            at = last
        text += view.slice(at, end)
        if any(self.view.string_lines(s.lineno) for s in self.run):
            raise Refused("not-extracted", "a string of the statements goes over several lines")
        indent = view.indent(self.run[0])
        first_line, *others = text.split("\n")
        return "\n".join([first_line, *(line.removeprefix(indent) for line in others)])


def _stores(node: ast.Name | ast.Attribute) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _binds(statement: ast.stmt, name: str) -> bool:
    """Whether a statement surely binds a name."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    elif isinstance(statement, ast.If):
        return any(_binds(s, name) for s in statement.body) and any(
            _binds(s, name) for s in statement.orelse
        )
    else:
        return False
    return any(_names(target, name) for target in targets)


def _names(target: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and _stores(n) for n in ast.walk(target))


def _annotation(kind: str, torch: str) -> str:
    return kind.replace("Tensor", f"{torch}.Tensor")
