"""Parsed modules: their top-level bindings, functions and classes, and names qualified by imports.

A module knows its own text and what its names are bound to. Following a name into another module is
the business of `project`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gbfix.analysis import late_bodies, module_text
from gbfix.analysis.bindings import top_bindings, top_level
from gbfix.analysis.trees import SIMPLE, Parents, blocks, first_line, nodes_on
from gbfix.source.text import SourceFile

Function = ast.FunctionDef | ast.AsyncFunctionDef
_RECORDS = frozenset({"dataclass", "define", "frozen", "NamedTuple"})
BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True)
class FunctionInfo:
    """A function or method of the project."""

    qualified: str
    node: Function
    module: Module
    owner: ClassInfo | None = None
    outer: FunctionInfo | None = None

    @property
    def text(self) -> str:
        """Its lines, without those of decorators."""
        last = self.node.end_lineno or self.node.lineno
        return self.module.source.lines_text(self.node.lineno, last)

    def __hash__(self) -> int:
        return id(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionInfo) and other.node is self.node


@dataclass(frozen=True, eq=False)
class ClassInfo:
    """A class of the project."""

    qualified: str
    node: ast.ClassDef
    module: Module

    @cached_property
    def methods(self) -> dict[str, FunctionInfo]:
        """Methods by name, of this class alone."""
        return {
            n.name: FunctionInfo(f"{self.qualified}.{n.name}", n, self.module, self, self._outer(n))
            for n in self.node.body
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
        }

    def _outer(self, node: Function) -> FunctionInfo | None:
        """The function that the class of a method is defined in."""
        known = self.module.function_of.get(node) if self.module.has_inner_classes else None
        return known.outer if known is not None else None

    @cached_property
    def is_record(self) -> bool:
        """Whether the class is a dataclass or a named tuple."""
        names = [d.func if isinstance(d, ast.Call) else d for d in self.node.decorator_list]
        last = {last_name(n) for n in (*names, *self.node.bases)}
        return bool(last & _RECORDS)

    @cached_property
    def bases(self) -> tuple[str, ...]:
        """Qualified names of the base classes, as far as they can be resolved."""
        names = (self.module.qualify(b) for b in self.node.bases)
        return tuple(n for n in names if n)


@dataclass(frozen=True, eq=False)
class Uses:
    """How a module uses a name, by itself or as the name of an attribute.

    Attributes:
        calls: the calls of what has the name.
        loaded: whether it is also read without being called.
    """

    calls: tuple[ast.Call, ...]
    loaded: bool


def last_name(node: ast.AST) -> str | None:
    """`c` of `a.b.c` and of `c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


@dataclass(eq=False)
class Module:
    """A parsed module and its top-level bindings.

    Attributes:
        name: its dotted name; two files of a project never have the same.
        source: the file.
        parsed: its tree, where it was made.
        root: the folder from which it is imported.
        is_package: whether it is an `__init__.py`.
        used: when the project last looked into it, by the project's clock.
        renamed: top-level names that stand for another module here than elsewhere in the project.
    """

    name: str
    source: SourceFile
    parsed: ast.Module | None
    root: Path
    is_package: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    used: int = 0

    @property
    def imported_as(self) -> str:
        """What an import of the module itself cannot do without; nothing for a package."""
        return "" if self.is_package else self.name.rpartition(".")[2].partition("@")[0]

    def known_as(self, name: str) -> str:
        """The project's name for a dotted module name that this module uses."""
        top, dot, rest = name.partition(".")
        return f"{self.renamed.get(top, top)}{dot}{rest}"

    @property
    def tree(self) -> ast.Module:
        """The syntax tree, made when it is first asked for; empty where the text is not Python."""
        if self.parsed is None:
            try:
                self.parse()
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self.parsed = ast.Module([], [])
            assert self.parsed is not None
        return self.parsed

    def parse(self) -> None:
        """Make the tree.

        Raises:
            SyntaxError, ValueError: if the text is not Python.
            RecursionError, MemoryError: if it is nested too deeply.
        """
        if self.parsed is None or not self.parsed.body:
            self.parsed = ast.parse(self.source.text, str(self.source.path))

    def outline(self) -> None:
        """Make a tree whose functions are parsed when somebody looks into them.

        Raises:
            SyntaxError, ValueError: if the text is not Python; perhaps not for what is in a function.
            RecursionError, MemoryError: if it is nested too deeply.
        """
        self.parsed = late_bodies.parse(self.source.text, str(self.source.path))

    @cached_property
    def bindings(self) -> dict[str, list[ast.AST | str]]:
        """Each top-level name with what binds it: a definition, an assigned node, or an import."""
        return top_bindings(self)

    @cached_property
    def wrapped(self) -> dict[str, ast.Call]:
        """Functions and methods that top-level code replaces by what a call makes of them."""
        if "disable" not in self.source.text:
            return {}
        found: dict[str, ast.Call] = {}
        for node in top_level(self.tree.body):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            given = ast.unparse(node.value.args[0]) if node.value.args else ""
            if any(ast.unparse(target) == given for target in node.targets):
                found[given] = node.value
        return found

    def forget(self) -> None:
        """Let go of the tree and of what was read from it."""
        self.parsed = None
        for info in self.__dict__.get("function_of", {}).values():
            if info.owner is not None:  # a class and its methods hold each other
                info.owner.__dict__.pop("methods", None)
        for name in ("bindings", "wrapped", "parents", "function_of", "_extents", "_uses"):
            self.__dict__.pop(name, None)
        self.source.__dict__.pop("line_starts", None)

    def naming(self, name: str) -> Iterator[ast.AST]:
        """The nodes that reach over a line on which a name stands, breadth first."""
        lines = module_text.lines_naming(name, self.source)
        return nodes_on(self.tree, lines) if lines else iter(())

    @cached_property
    def uses_numpy(self) -> bool:
        """Whether the module imports numpy or a namesake of it."""
        imported = [b for bound in self.bindings.values() for b in bound if isinstance(b, str)]
        return any(b.split(".")[0] in {"numpy", "jax", "cupy", "tensorflow"} for b in imported)

    @cached_property
    def called_attributes(self) -> frozenset[str]:
        """The names of attributes that are called, as far as the text shows it."""
        return module_text.called_attributes(self.source.text)

    @cached_property
    def classes(self) -> dict[str, frozenset[str]]:
        """What seem to be classes, with the last names of what they are derived from or stand for."""
        return module_text.classes(self.source.text)

    @cached_property
    def defined(self) -> frozenset[str]:
        """The names of functions that are defined anywhere, as far as the text shows it."""
        return module_text.defined(self.source.text)

    def uses(self, name: str) -> Uses:
        """How the module uses a name."""
        if name not in self._uses:
            calls: list[ast.Call] = []
            callees: set[ast.AST] = set()
            loaded = False
            for node in self.naming(name):
                if isinstance(node, ast.Call):
                    if last_name(node.func) == name:
                        calls.append(node)
                        callees.add(node.func)  # seen later: parents come first
                elif isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) == name:
                    if isinstance(node.ctx, ast.Load) and node not in callees:
                        loaded = True
            self._uses[name] = Uses(tuple(calls), loaded)
        return self._uses[name]

    @cached_property
    def _uses(self) -> dict[str, Uses]:
        return {}

    def around(self, node: ast.expr) -> Iterator[FunctionInfo]:
        """The functions that an expression stands in, the outermost first."""
        for first, last, info in self._extents:
            if first <= node.lineno <= last:
                yield info

    @cached_property
    def _extents(self) -> list[tuple[int, int, FunctionInfo]]:
        """The first and last line of every function, decorators included."""
        return [
            (first_line(info.node), info.node.end_lineno or info.node.lineno, info)
            for info in self.functions()
        ]

    @cached_property
    def has_generators(self) -> bool:
        """Whether a function may hand out its results one by one."""
        return "yield" in self.source.text

    @cached_property
    def has_inner_classes(self) -> bool:
        """Whether a class may be defined inside of anything."""
        return module_text.has_inner_classes(self.source.text)

    @cached_property
    def parents(self) -> Parents:
        """The parent of each node."""
        return Parents(self.tree)

    def qualify(self, node: ast.AST) -> str | None:
        """Qualified name of a dotted expression by the module's own bindings, or None."""
        if node.__class__ is ast.Attribute:
            base = self.qualify(node.value)
            return f"{base}.{node.attr}" if base else None
        if node.__class__ is ast.Subscript:
            return self.qualify(node.value)
        if node.__class__ is not ast.Name:
            return None
        bound = self.bindings.get(node.id)
        if bound is None:
            return f"builtins.{node.id}" if node.id in BUILTINS else None
        last = bound[-1]
        return last if isinstance(last, str) else f"{self.name}.{node.id}"

    @cached_property
    def function_of(self) -> dict[ast.AST, FunctionInfo]:
        """Every function of the module by its node, outermost first."""
        return {info.node: info for info in self._functions()}

    def functions(self) -> Iterable[FunctionInfo]:
        """Every function of the module, outermost first; nested ones know their outer one."""
        return self.function_of.values()

    def _functions(self) -> Iterator[FunctionInfo]:
        def defined(
            nodes: Iterable[ast.AST],
            prefix: str,
            owner: ClassInfo | None,
            outer: FunctionInfo | None,
        ) -> Iterator[FunctionInfo]:
            for node in nodes:
                if node.__class__ in SIMPLE:
                    continue
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    info = FunctionInfo(f"{prefix}.{node.name}", node, self, owner, outer)
                    yield info
                    if not late_bodies.defines_nothing(node):
                        yield from defined(node.body, info.qualified, None, info)
                elif isinstance(node, ast.ClassDef):
                    cls = ClassInfo(f"{prefix}.{node.name}", node, self)
                    yield from defined(node.body, cls.qualified, cls, outer)
                else:
                    for block in blocks(node):
                        yield from defined(block, prefix, owner, outer)

        return defined(self.tree.body, self.name, None, None)
