"""What a run of the program has shown about the code: tests on tensor data, and kinds of arguments.

It adds to what can be proven and never takes away: only values of which nothing is known are given a
kind. Where the evidence comes from is not known here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gbfix.analysis.modules import FunctionInfo, Module
from gbfix.analysis.trees import walk
from gbfix.analysis.values import STATIC, Kind, Value, tensor

Position = tuple[int, int]
_READING = frozenset(
    {"item", "tolist", "nonzero", "unique", "unique_consecutive", "masked_select", "equal"}
)


@dataclass(frozen=True)
class TestSeen:
    """A place at which the value of a tensor decided; columns count from 1, None if not known."""

    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


@dataclass(frozen=True)
class Argument:
    """What a parameter held in every recorded call: a kind, and the dtypes of tensors."""

    kind: str  # "tensor", "number", "none", "other"
    dtypes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FunctionSeen:
    """A function that ran, by its name and first line, and what its parameters held."""

    name: str
    line: int
    parameters: Mapping[str, Argument]


@dataclass(frozen=True)
class FileSeen:
    """What was seen of one file.

    `lines` are those at which stacks of breaks stood, `reads` those at which a tensor's data was read.
    """

    tests: tuple[TestSeen, ...] = ()
    functions: tuple[FunctionSeen, ...] = ()
    lines: frozenset[int] = frozenset()
    reads: frozenset[int] = frozenset()


def _where(module: Module, line: int, column: int) -> Position:
    source = module.source
    return source.position(source.offset(line, column))


@dataclass(frozen=True)
class Observed:
    """What was seen of the project's files, by their resolved paths.

    `before` gives the line and column that a node of a module had when the program ran, which differ
    from the present ones once fixes have been made.
    """

    files: Mapping[Path, FileSeen] = field(default_factory=dict)
    before: Callable[[Module, int, int], Position] = _where

    def of(self, module: Module) -> FileSeen | None:
        """What was seen of a module's file."""
        return self.files.get(module.source.path.resolve()) if self.files else None

    def decided(self, module: Module, leaf: ast.expr, *, alone: bool) -> bool:
        """Whether the value of a tensor decided at an operand of a test.

        A place without columns tells of an operand only if it is `alone`, the whole test.
        """
        seen = self.of(module)
        if seen is None or not seen.tests or getattr(leaf, "end_lineno", None) is None:
            return False
        assert leaf.end_lineno is not None and leaf.end_col_offset is not None
        start = self.before(module, leaf.lineno, leaf.col_offset)
        end = self.before(module, leaf.end_lineno, leaf.end_col_offset)
        return any(_same(test, start, end, alone) for test in seen.tests)

    def parameter(self, info: FunctionInfo, name: str) -> Value | None:
        """The value that a parameter of a function was seen to hold, if it was always of one kind."""
        seen = self.of(info.module)
        for function in seen.functions if seen is not None else ():
            if function.name == info.node.name and name in function.parameters:
                first = min((d.lineno for d in info.node.decorator_list), default=info.node.lineno)
                start = self.before(info.module, first, 0)[0]
                end = self.before(info.module, info.node.lineno, 0)[0]
                if start <= function.line <= end:
                    return _value(function.parameters[name])
        return tensor() if seen is not None and self._is_read(info, name, seen.reads) else None

    def _is_read(self, info: FunctionInfo, name: str, lines: frozenset[int]) -> bool:
        """Whether a name is all on some line that can be the tensor whose data was read there.

        Logs tell neither columns nor what parameters held.
        """
        found: dict[int, set[str]] = {}
        for node in walk(info.node) if lines else ():
            source = _read_from(node)
            line = self.before(info.module, source.lineno, 0)[0] if source is not None else 0
            if source is not None and line in lines:
                found.setdefault(line, set()).add(ast.unparse(source))
        return {name} in found.values()

    def ran(self, info: FunctionInfo) -> bool:
        """Whether a stack of a break went through a function."""
        seen = self.of(info.module)
        if seen is None:
            return False
        first = self.before(info.module, info.node.lineno, 0)[0]
        last = self.before(info.module, info.node.end_lineno or info.node.lineno, 0)[0]
        return any(first <= line <= last for line in seen.lines)


def _read_from(node: ast.AST) -> ast.expr | None:
    """What is read by a node that reads data if that is a tensor."""
    if isinstance(node, ast.Subscript):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr in _READING else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        return node.args[0] if node.func.id in ("int", "float", "bool") else None
    return None


def proven(value: Value | None, seen: Value | None = None) -> Value:
    """A value known to be a tensor because the program showed it; what was known otherwise stays."""
    if value is None or not value.kinds & ~(Kind.UNKNOWN | Kind.MAYBE | Kind.OBJECT):
        return seen or tensor()
    if value.may_be_tensor:
        # It held a tensor where it decided; on other paths it may hold what the code allows for.
        return replace(value, kinds=value.kinds & ~(Kind.UNKNOWN | Kind.MAYBE))
    return value


def arguments(seen: Iterable[Mapping[str, Argument]]) -> dict[str, Argument]:
    """What parameters held in several calls: only those that were of one kind in all of them."""
    found: dict[str, Argument] = {}
    mixed: set[str] = set()
    for call in seen:
        for name, argument in call.items():
            known = found.setdefault(name, argument)
            if known.kind != argument.kind:
                mixed.add(name)
            found[name] = Argument(known.kind, known.dtypes | argument.dtypes)
    return {name: argument for name, argument in found.items() if name not in mixed}


def _same(test: TestSeen, start: Position, end: Position, alone: bool) -> bool:
    """Whether a place is that of a node, or in it."""
    if test.column is None or test.end_column is None:
        return alone and start[0] <= test.line <= end[0]
    first, last = (test.line, test.column), (test.end_line or test.line, test.end_column)
    return start <= first and last <= end


def _value(argument: Argument) -> Value | None:
    if argument.kind == "number":
        return STATIC
    if argument.kind != "tensor":
        return None
    dtypes = argument.dtypes
    return replace(
        tensor(
            boolean=dtypes == {"bool"},
            floating=bool(dtypes) and all("float" in dtype for dtype in dtypes),
        ),
        integer=bool(dtypes) and all("int" in dtype for dtype in dtypes),
    )
