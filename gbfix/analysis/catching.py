"""Which function under `torch.compile` may catch what another one raises.

Callers are found by name, and theirs in turn: an object of which nothing is known may be of any class
that has the method. What a file's functions call is told without nodes, so that the file need not be
parsed again when somebody asks. Knows calls and `try` statements, nothing of checks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from gbfix.analysis.modules import FunctionInfo, Module, last_name
from gbfix.analysis.project import Project
from gbfix.analysis.trees import of_kind

_CONSTRUCTED = frozenset({"__init__", "__post_init__", "forward", "__call__"})
# What stands before the name of a method that is called on `self`, defined, or told of in a comment.
_OWN = re.compile(r"\bself\s*\.\s*\Z|\bdef\s+\Z|^\s*#")


class Callee(NamedTuple):
    """A function as code that calls it sees it.

    Attributes:
        qualified: its name.
        line: where it is defined; a name can be defined twice.
        module: the name of its module.
        called: by which name it is called: that of its class, if calling that or an instance runs it.
        owner: the name of its class, if it is called as a method.
    """

    qualified: str
    line: int
    module: str
    called: str
    owner: str | None

    @property
    def name(self) -> str:
        """Its name in its module or class."""
        return self.qualified.rpartition(".")[2]


class NamedCall(NamedTuple):
    """That a function calls something by a name; `tried` if it may catch what that raises."""

    caller: Callee
    tried: bool


NamedCalls = Mapping[str, tuple[NamedCall, ...]]
"""What functions call, by name."""
CallsTo = Callable[[Callee], Iterable[NamedCall]]
"""The calls of functions under `torch.compile` that may run a function."""


def callee(info: FunctionInfo) -> Callee:
    """A function as code that calls it sees it."""
    info = info.module.function_of.get(info.node, info)
    name, owner = info.node.name, None
    if info.owner is not None:
        owner = info.owner.node.name
        if name in _CONSTRUCTED:
            name, owner = owner, None
    return Callee(info.qualified, info.node.lineno, info.module.name, name, owner)


def catching(function: Callee, calls_to: CallsTo) -> str | None:
    """The name of a function under `torch.compile` that may catch what a function raises."""
    seen = {function[:2]}
    todo: list[Iterator[NamedCall]] = [iter(calls_to(function))]
    while todo:
        call = next(todo[-1], None)
        if call is None:
            todo.pop()
        elif call.tried:
            return call.caller.name
        elif call.caller[:2] not in seen:
            seen.add(call.caller[:2])
            todo.append(iter(calls_to(call.caller)))
    return None


def named_calls(
    functions: Iterable[FunctionInfo], names: Container[str] | None = None
) -> dict[str, tuple[NamedCall, ...]]:
    """What functions of one module call, of some names; those first that are defined first."""
    found: dict[str, dict[NamedCall, None]] = {}
    for info in sorted(functions, key=lambda i: (i.node.lineno, i.node.col_offset)):
        caller: Callee | None = None
        inner = [*of_kind(info.node, ast.FunctionDef), *of_kind(info.node, ast.AsyncFunctionDef)]
        for call in of_kind(info.node, ast.Call):
            name = last_name(call.func)
            if name is None or (names is not None and name not in names):
                continue
            if len(inner) > 1 and function_of(call, info.module) is not info.node:
                continue
            caller = caller or callee(info)
            tried = is_tried(call, info.node, info.module)
            found.setdefault(name, {})[NamedCall(caller, tried)] = None
    return {name: tuple(calls) for name, calls in found.items()}


def calls_by_name(called: Callee, module: Module, region: Container[ast.AST]) -> list[NamedCall]:
    """The calls in a module's functions that may run a function."""
    found: list[NamedCall] = []
    for call in module.uses(called.called).calls:
        info = module.function_of.get(function_of(call, module))
        if info is not None and info.node in region:
            found.append(NamedCall(callee(info), is_tried(call, info.node, module)))
    return found


def may_call(called: Callee, module: Module, project: Project) -> bool:
    """Whether a module may call a function, as far as its text and class names tell.

    `self.check()` runs a method of a class, of one that it derives from, or of one derived from it.
    """
    if module.name == called.module:
        return True
    text, name = module.source.text, called.called
    if not re.search(rf"{name}\s*\(", text):
        return False
    if called.owner is None:
        return True
    before = (text[text.rfind("\n", 0, m.start()) + 1 : m.start()]
              for m in re.finditer(rf"{name}\b", text))  # fmt: skip
    if all(_OWN.search(line) for line in before):
        return not project.related(called.owner).isdisjoint(module.classes)
    return True


def is_tried(node: ast.AST, function: ast.AST, module: Module) -> bool:
    """Whether a node stands where its function catches what it raises."""
    may_catch: list[ast.stmt] = [*of_kind(function, ast.Try), *of_kind(function, ast.With)]
    if not may_catch:
        return False
    current = node
    while current is not function and current in module.parents:
        parent = module.parents[current]
        if isinstance(parent, ast.Try) and current in parent.body:
            if not all(map(_only_converts, parent.handlers)):
                return True
        if isinstance(parent, ast.With) and current in parent.body:
            if any("suppress" in ast.unparse(item.context_expr) for item in parent.items):
                return True
        current = parent
    return False


def _only_converts(handler: ast.ExceptHandler) -> bool:
    """Whether a handler raises in any case: it then makes one exception of another."""
    if not isinstance(handler.body[-1], ast.Raise):
        return False
    leaving = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await)
    return not any(isinstance(n, leaving) for s in handler.body for n in ast.walk(s))


def function_of(node: ast.AST, module: Module) -> ast.AST:
    """The function that a node stands in, or is; the module if there is none."""
    while not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in module.parents:
        node = module.parents[node]
    return node
