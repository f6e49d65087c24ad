"""The project as an index of modules, classes and functions, found by qualified name.

Modules are parsed on first use. A name is followed through imports and re-exports, across the files
of the packages that the given files belong to. Nothing is imported or run. The index knows syntax
and names, not kinds.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gbfix.source.text import SourceError, SourceFile

Function = ast.FunctionDef | ast.AsyncFunctionDef
BUILTINS = frozenset(dir(builtins))
_MAX_HOPS = 12


@dataclass(frozen=True)
class FunctionInfo:
    """A function or method of the project."""

    qualified: str
    node: Function
    module: Module
    owner: ClassInfo | None = None
    outer: FunctionInfo | None = None

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
            n.name: FunctionInfo(f"{self.qualified}.{n.name}", n, self.module, self)
            for n in self.node.body
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
        }

    @cached_property
    def bases(self) -> tuple[str, ...]:
        """Qualified names of the base classes, as far as they can be resolved."""
        names = (self.module.qualify(b) for b in self.node.bases)
        return tuple(n for n in names if n)


@dataclass(eq=False)
class Module:
    """A parsed module and its top-level bindings."""

    name: str
    source: SourceFile
    tree: ast.Module
    root: Path
    is_package: bool = False

    @cached_property
    def bindings(self) -> dict[str, list[ast.AST | str]]:
        """Each top-level name with what binds it: a definition, an assigned node, or an import."""
        found: dict[str, list[ast.AST | str]] = {}
        for node in _top_level(self.tree.body):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.setdefault(node.name, []).append(node)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                for name, target in import_bindings(node, self).items():
                    found.setdefault(name, []).append(target)
            elif isinstance(node, ast.Assign):
                for target_node in node.targets:
                    for name in stored_names(target_node):
                        simple = isinstance(target_node, ast.Name)
                        found.setdefault(name, []).append(node.value if simple else node)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, []).append(node.value or node)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, []).append(node)
            elif isinstance(node, (ast.For, ast.With)):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        found.setdefault(inner.id, []).append(node)
        return found

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of each node."""
        return {c: n for n in ast.walk(self.tree) for c in ast.iter_child_nodes(n)}

    def qualify(self, node: ast.AST) -> str | None:
        """Qualified name of a dotted expression by the module's own bindings, or None."""
        if isinstance(node, ast.Attribute):
            base = self.qualify(node.value)
            return f"{base}.{node.attr}" if base else None
        if isinstance(node, ast.Subscript):
            return self.qualify(node.value)
        if not isinstance(node, ast.Name):
            return None
        bound = self.bindings.get(node.id)
        if bound is None:
            return f"builtins.{node.id}" if node.id in BUILTINS else None
        last = bound[-1]
        return last if isinstance(last, str) else f"{self.name}.{node.id}"

    def functions(self) -> Iterator[FunctionInfo]:
        """Every function of the module, outermost first; nested ones know their outer one."""

        def walk(
            nodes: Iterable[ast.AST],
            prefix: str,
            owner: ClassInfo | None,
            outer: FunctionInfo | None,
        ) -> Iterator[FunctionInfo]:
            for node in nodes:
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    info = FunctionInfo(f"{prefix}.{node.name}", node, self, owner, outer)
                    yield info
                    yield from walk(node.body, info.qualified, None, info)
                elif isinstance(node, ast.ClassDef):
                    cls = ClassInfo(f"{prefix}.{node.name}", node, self)
                    yield from walk(node.body, cls.qualified, cls, outer)
                else:
                    yield from walk(ast.iter_child_nodes(node), prefix, owner, outer)

        return walk(self.tree.body, self.name, None, None)


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that bind module-level names, also under `if` and `try`."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            blocks = [node.body, node.orelse]
            if isinstance(node, ast.Try):
                blocks += [node.finalbody, *(h.body for h in node.handlers)]
            for block in blocks:
                yield from _top_level(block)


def stored_names(target: ast.AST) -> Iterator[str]:
    """The names that an assignment target binds."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from stored_names(element)
    elif isinstance(target, ast.Starred):
        yield from stored_names(target.value)


def import_bindings(node: ast.Import | ast.ImportFrom, module: Module) -> dict[str, str]:
    """Local name to qualified name for an import statement."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.split(".")[0]: (
                alias.name if alias.asname else alias.name.split(".")[0]
            )
            for alias in node.names
        }
    base = node.module or ""
    if node.level:
        parts = module.name.split(".")
        keep = len(parts) - node.level + (1 if module.is_package else 0)
        base = ".".join([*parts[: max(keep, 0)], *([node.module] if node.module else [])])
    return {
        alias.asname or alias.name: f"{base}.{alias.name}" if base else alias.name
        for alias in node.names
        if alias.name != "*"
    }


def package_root(path: Path) -> Path:
    """The folder from which the module of this file is imported."""
    folder = path.absolute().parent
    while (folder / "__init__.py").exists() and folder.parent != folder:
        folder = folder.parent
    return folder


def module_name(path: Path, root: Path) -> str:
    """Dotted module name of a file below a root."""
    parts = list(path.absolute().relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) or path.stem


def parse_module(source: SourceFile) -> Module:
    """Parse a file.

    Raises:
        SyntaxError, ValueError: if the text is not Python.
        RecursionError, MemoryError: if it is nested too deeply.
    """
    root = package_root(source.path)
    tree = ast.parse(source.text, str(source.path))
    is_package = source.path.name == "__init__.py"
    return Module(module_name(source.path, root), source, tree, root, is_package)


class Project:
    """All modules of a run, with lazy look-up of further modules of the same packages."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.modules: dict[str, Module] = {}
        self.given: list[Module] = []
        self.roots: set[Path] = set()
        self._missing: set[str] = set()
        self._classes: dict[ast.ClassDef, ClassInfo] = {}
        self._found: dict[str, tuple[Module, ast.AST] | None] = {}
        for module in modules:
            self._add(module)
            self.given.append(module)

    def _add(self, module: Module) -> Module:
        self.roots.add(module.root)
        self.modules.setdefault(module.name, module)
        return module

    def module(self, name: str) -> Module | None:
        """A module by dotted name, read from disk on first use; None if it is not of the project."""
        if name in self.modules:
            return self.modules[name]
        if not name or name in self._missing or name.split(".")[0] == "torch":
            return None
        for root in self.roots:
            base = root.joinpath(*name.split("."))
            for path in (base.with_suffix(".py"), base / "__init__.py"):
                if path.is_file():
                    try:
                        return self._add(parse_module(SourceFile.decode(path, path.read_bytes())))
                    except (OSError, SourceError, SyntaxError, ValueError, RecursionError):
                        break
        self._missing.add(name)
        return None

    def lookup(self, qualified: str) -> tuple[Module, ast.AST] | None:
        """The definition or assigned node that a qualified name stands for, re-exports followed."""
        if qualified not in self._found:
            self._found[qualified] = self._lookup(qualified)
        return self._found[qualified]

    def _lookup(self, qualified: str) -> tuple[Module, ast.AST] | None:
        for _ in range(_MAX_HOPS):
            found = self._split(qualified)
            if found is None:
                return None
            module, rest = found
            bound = module.bindings.get(rest[0])
            if bound is None:
                return None
            last = bound[-1]
            if isinstance(last, str):
                qualified = ".".join([last, *rest[1:]])
                continue
            for name in rest[1:]:
                if not isinstance(last, ast.ClassDef):
                    return None
                inner = next(
                    (
                        n
                        for n in last.body
                        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                        and n.name == name
                    ),
                    None,
                )
                if inner is None:
                    return None
                last = inner
            return module, last
        return None

    def _split(self, qualified: str) -> tuple[Module, list[str]] | None:
        parts = qualified.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            module = self.module(".".join(parts[:cut]))
            if module is not None:
                return module, parts[cut:]
        return None

    def class_info(self, qualified: str | None) -> ClassInfo | None:
        """The class of a qualified name, if it is the project's."""
        found = self.lookup(qualified) if qualified else None
        if found is None:
            return None
        module, node = found
        if not isinstance(node, ast.ClassDef):
            return None
        if node not in self._classes:
            self._classes[node] = ClassInfo(f"{module.name}.{node.name}", node, module)
        return self._classes[node]

    def function_info(self, qualified: str | None) -> FunctionInfo | None:
        """The function or method of a qualified name, if it is the project's."""
        found = self.lookup(qualified) if qualified else None
        if found is None:
            return None
        module, node = found
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        owner = self.class_info(qualified.rsplit(".", 1)[0]) if qualified else None
        return FunctionInfo(qualified or "", node, module, owner)

    def mro(self, cls: ClassInfo) -> Iterator[ClassInfo]:
        """The class and its bases in the project, nearest first (depth first, no duplicates)."""
        seen: set[ast.ClassDef] = set()
        todo = [cls]
        while todo:
            current = todo.pop(0)
            if current.node in seen:
                continue
            seen.add(current.node)
            yield current
            todo = [c for b in current.bases if (c := self.class_info(b))] + todo

    def method(self, cls: ClassInfo, name: str) -> FunctionInfo | None:
        """A method by name, searched through the bases."""
        return next((c.methods[name] for c in self.mro(cls) if name in c.methods), None)

    def is_module_class(self, qualified: str | None) -> bool:
        """Whether a class is an `nn.Module`, by its bases or, outside the project, by its name."""
        if not qualified:
            return False
        cls = self.class_info(qualified)
        if cls is None:
            last = qualified.rsplit(".", 1)[-1]
            return qualified.startswith("torch.nn.") or last.endswith(("Module", "PreTrainedModel"))
        return any(
            self.is_module_class(base)
            for c in self.mro(cls)
            for base in c.bases
            if self.class_info(base) is None
        )
