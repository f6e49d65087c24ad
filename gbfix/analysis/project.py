"""The project as an index of modules, classes and functions, found by qualified name.

Modules are parsed on first use. A name is followed through imports and re-exports, across the files
of the packages that the given files belong to. Nothing is imported or run. The index knows syntax
and names, not kinds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from gbfix.analysis.modules import (
    BUILTINS,
    ClassInfo,
    Function,
    FunctionInfo,
    Module,
)
from gbfix.analysis.read_files import ReadFiles
from gbfix.analysis.word_index import WordIndex
from gbfix.source.text import SourceError

__all__ = [
    "BUILTINS",
    "ClassInfo",
    "Function",
    "FunctionInfo",
    "Module",
    "Project",
]

_MAX_HOPS = 12
_INSTALLED = frozenset(
    {"site-packages", "dist-packages"}
)  # what stands beside a project is none of it


@dataclass
class _Index:
    """What the project knows that is made of the nodes of one module.

    `mros` tells classes of other modules too, which are not to be held by it.
    """

    names: list[str] = field(default_factory=list)
    classes: list[ast.ClassDef] = field(default_factory=list)
    mros: set[int] = field(default_factory=set)


def _path(node: ast.AST, module: Module) -> str:
    """The qualified name of a definition, by the definitions that it stands in."""
    names: list[str] = []
    current: ast.AST | None = node
    while current is not None:
        if isinstance(current, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.insert(0, current.name)
        current = module.parents.get(current)
    return ".".join([module.name, *names])


class Project:
    """All modules of a run, with lazy look-up of further modules of the same packages."""

    def __init__(self, modules: Iterable[Module], read: ReadFiles | None = None) -> None:
        self._read = read if read is not None else ReadFiles()
        self.modules: dict[str, Module] = {}
        self._given: list[Module] = []
        self.consulted: set[Path] = set()
        self.absent: set[Path] = set()
        self.clock = 0
        self.roots: dict[Path, Mapping[str, str]] = {}
        self.aliases: set[str] = set()  # type aliases that are being resolved
        # What decorators put around functions, by the decorator and whether it is called first.
        self.wrappers: dict[tuple[str, bool], frozenset[tuple[str, str]]] = {}
        self._missing: set[str] = set()
        self._tops: dict[Path, set[str]] = {}
        self._related: dict[str, frozenset[str]] = {}
        self._classes: dict[ast.ClassDef, ClassInfo] = {}
        self._class_named: dict[str, ClassInfo | None] = {}
        self._found: dict[str, tuple[Module, ast.AST] | None] = {}
        self._renamed: dict[str, tuple[str, Module]] = {}
        self._functions: dict[str, FunctionInfo] = {}
        self._is_module: dict[str, bool] = {}
        self._mros: dict[int, tuple[ClassInfo, ...]] = {}  # by the identity of the node
        self._index: dict[Module, _Index] = {}
        for module in modules:
            self._add(module)
            self._given.append(module)
        self._words = WordIndex(self._given)

    @property
    def given(self) -> list[Module]:
        """The modules of the run."""
        return self._given

    def related(self, name: str) -> frozenset[str]:
        """Names of the classes that may share an object with a class: derived ones and their bases."""
        if name not in self._related:
            derived = _spread({name}, self.derived)
            self._related[name] = frozenset(_spread(derived, self._bases))
        return self._related[name]

    @cached_property
    def _bases(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for module in self.given:
            for name, bases in module.classes.items():
                found.setdefault(name, set()).update(bases)
        return found

    @cached_property
    def derived(self) -> dict[str, set[str]]:
        """The names of the classes that are derived from those of a name."""
        found: dict[str, set[str]] = {}
        for name, bases in self._bases.items():
            for base in bases:
                found.setdefault(base, set()).add(name)
        return found

    def naming(self, name: str) -> Sequence[Module]:
        """The modules of the run in whose text a name stands."""
        return self._words.naming(name)

    def _add(self, module: Module) -> Module:
        self.roots.setdefault(module.root, module.renamed)
        top = module.source.path.absolute().relative_to(module.root).parts[0]
        self._tops.setdefault(module.root, set()).add(top.removesuffix(".py"))
        self._renamed |= {new: (old, module) for old, new in module.renamed.items()}
        self.modules.setdefault(module.name, module)
        return module

    def module(self, name: str) -> Module | None:
        """A module by dotted name, read from disk on first use; None if it is not of the project."""
        if name in self.modules:
            found = self.modules[name]
            self.consulted.add(found.source.path)
            return found
        if not name or name in self._missing or name.split(".")[0] == "torch":
            return None
        top, *rest = name.split(".")
        real, like = self._renamed.get(top, (top, None))
        for root, renamed in self.roots.items():
            if (root != like.root) if like is not None else (top in renamed):
                continue
            if root.name in _INSTALLED and real not in self._tops[root]:
                continue
            base = root.joinpath(real, *rest)
            for path in (base.with_suffix(".py"), base / "__init__.py"):
                if path.is_file():
                    self.consulted.add(path)
                    try:
                        found = self._read.module(path)
                        if like is not None:
                            found = replace(found, name=name, renamed=like.renamed)
                        return self._add(found)
                    except (OSError, SourceError, SyntaxError, ValueError, RecursionError):
                        break
                self.absent.add(path)
        self._missing.add(name)
        return None

    def forget(self, module: Module) -> None:
        """Let go of a module's tree; it is parsed again if somebody asks for it."""
        module.forget()
        index = self._index.pop(module, None)
        if index is None:
            return
        for name in index.names:
            self._found.pop(name, None)
            self._functions.pop(name, None)
            self._class_named.pop(name, None)
        for identity in index.mros:
            self._mros.pop(identity, None)
        for node in index.classes:
            # A class and its methods hold each other.
            self._classes.pop(node).__dict__.pop("methods", None)

    def lookup(self, qualified: str) -> tuple[Module, ast.AST] | None:
        """The definition or assigned node that a qualified name stands for, re-exports followed."""
        if qualified not in self._found:
            found = self._found[qualified] = self._lookup(qualified)
            if found is not None:
                self._indexed(found[0]).names.append(qualified)
        found = self._found[qualified]
        if found is not None:
            found[0].used = self.clock
        return found

    def _indexed(self, module: Module) -> _Index:
        if module not in self._index:
            self._index[module] = _Index()
        return self._index[module]

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
                if not isinstance(last, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
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
        if not qualified:
            return None
        if qualified in self._class_named:
            known = self._class_named[qualified]
            if known is not None:
                known.module.used = self.clock
            return known
        found = self.lookup(qualified)
        made = self._class_of(*found) if found is not None else None
        self._class_named[qualified] = made
        return made

    def _class_of(self, module: Module, node: ast.AST) -> ClassInfo | None:
        if not isinstance(node, ast.ClassDef):
            return None
        if node not in self._classes:
            self._classes[node] = ClassInfo(_path(node, module), node, module)
            self._indexed(module).classes.append(node)
        return self._classes[node]

    def function_info(self, qualified: str | None) -> FunctionInfo | None:
        """The function or method of a qualified name, if it is the project's."""
        found = self.lookup(qualified) if qualified else None
        if found is None or qualified is None:
            return None
        module, node = found
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        known = self._functions.get(qualified)
        if known is None:
            owner = self.class_info(qualified.rsplit(".", 1)[0])
            known = self._functions[qualified] = FunctionInfo(qualified, node, module, owner)
        return known

    def mro(self, cls: ClassInfo) -> tuple[ClassInfo, ...]:
        """The class and its bases in the project, nearest first (depth first, no duplicates)."""
        known = self._mros.get(id(cls.node))
        if known is None:
            known = self._mros[id(cls.node)] = tuple(self._mro(cls))
            for module in {c.module for c in known}:
                self._indexed(module).mros.add(id(cls.node))
        if known[-1].module.used != self.clock:
            for above in known:
                above.module.used = self.clock
        return known

    def _mro(self, cls: ClassInfo) -> Iterator[ClassInfo]:
        seen: set[ast.ClassDef] = set()
        todo: list[ClassInfo | str] = [cls]
        while todo:
            above = todo.pop(0)
            # One after the other: the rest need not be found if nobody asks for it.
            current = self.class_info(above) if isinstance(above, str) else above
            if current is None or current.node in seen:
                continue
            seen.add(current.node)
            yield current
            todo = [*current.bases, *todo]

    def method(self, cls: ClassInfo, name: str) -> FunctionInfo | None:
        """A method by name, searched through the bases."""
        known = self.mro(cls) if id(cls.node) in self._mros else self._mro(cls)
        return next((c.methods[name] for c in known if name in c.methods), None)

    def is_module_class(self, qualified: str | None) -> bool:
        """Whether a class is an `nn.Module`, by its bases or, outside the project, by its name."""
        if not qualified:
            return False
        if qualified not in self._is_module:
            self._is_module[qualified] = self._derives_from_module(qualified)
        return self._is_module[qualified]

    def _derives_from_module(self, qualified: str) -> bool:
        cls = self.class_info(qualified)
        if cls is None:
            last = qualified.rsplit(".", 1)[-1]
            return qualified.startswith("torch.nn.") or last.endswith(("Module", "PreTrainedModel"))
        # One after the other: the rest need not be found, nor its files parsed, once one is a module.
        seen, todo = {cls.node}, [*reversed(cls.bases)]
        while todo:
            name = todo.pop()
            above = self.class_info(name)
            if above is None:
                if self.is_module_class(name):
                    return True
            elif above.node not in seen:
                seen.add(above.node)
                todo += reversed(above.bases)
        return False


def _spread(names: set[str], steps: Mapping[str, set[str]]) -> set[str]:
    """Some names with all that steps lead to from them."""
    found, todo = set(names), list(names)
    while todo:
        new = steps.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found
