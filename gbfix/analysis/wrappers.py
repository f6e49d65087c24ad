"""The functions that decorators put around another one, which run whenever that is called.

A decorator itself runs where the function is defined, which compiled code does with inner functions
alone. What it hands back is taken to be what reads the function that it was given. Knows definitions
and names, not values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.analysis.callees import methods
from gbfix.analysis.decorators import decorator_name
from gbfix.analysis.modules import last_name
from gbfix.analysis.parameters import declared, parameter_for
from gbfix.analysis.project import FunctionInfo, Project
from gbfix.analysis.trees import children, walk

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def wrappers(function: FunctionInfo, project: Project) -> Iterator[FunctionInfo]:
    """What runs around a function because of its decorators, as far as the project defines it."""
    for node in function.node.decorator_list:
        decorator = project.function_info(decorator_name(node, function.module))
        if decorator is None:
            continue
        names = map(last_name, decorator.node.decorator_list)
        if function.outer is not None or "contextmanager" in names:  # it runs with each call
            yield decorator
        called = isinstance(node, ast.Call) and last_name(node.func) != "partial"
        yield from _put_around(decorator, called, project)


def _put_around(decorator: FunctionInfo, called: bool, project: Project) -> Iterator[FunctionInfo]:
    """What a decorator puts around functions, if it is one itself, or else makes one when called."""
    key = (decorator.qualified, called)
    if key not in project.wrappers:
        search = _Search(project)
        first = _first_parameter(decorator)
        found = search.made_by(decorator) if called else search.given(decorator, first)
        # By name: their nodes may be let go of before somebody asks again.
        project.wrappers[key] = frozenset((info.module.name, info.qualified) for info in found)
    for name, qualified in sorted(project.wrappers[key]):
        module = project.modules[name]
        yield from (info for info in module.functions() if info.qualified == qualified)


class _Search:
    """Follows a function that is decorated to what reads it later."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._seen: set[tuple[ast.AST, str | None]] = set()

    def given(self, info: FunctionInfo, name: str | None) -> Iterator[FunctionInfo]:
        """What reads the function later that is given to another one as a parameter."""
        if name is None or (info.node, name) in self._seen:
            return
        self._seen.add((info.node, name))
        inside = list(_inside(info))
        running = [inner for inner in inside if _reads(inner.node, name)]
        for inner in running:  # and those beside it that it calls by their names
            running += [i for i in inside if i not in running and _reads(inner.node, i.node.name)]
        yield from running
        for node in _own(info.node):
            if isinstance(node, ast.Lambda) and _reads(node, name):
                yield info  # the lambda has no name by which it could be told from what is around it
            elif isinstance(node, ast.Call):
                yield from self._passed_on(node, name, info)

    def made_by(self, info: FunctionInfo) -> Iterator[FunctionInfo]:
        """What reads the function later that is given to a decorator which another function makes."""
        if (info.node, None) in self._seen:
            return
        self._seen.add((info.node, None))
        for inner in _inside(info):
            if inner.outer == info:
                yield from self.given(inner, _first_parameter(inner))
        for node in _own(info.node):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
                callee = self._named(node.value.func, info)
                if callee is not None:
                    yield from self.made_by(callee)

    def _passed_on(self, call: ast.Call, name: str, info: FunctionInfo) -> Iterator[FunctionInfo]:
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        given = next((v for v in values if isinstance(v, ast.Name) and v.id == name), None)
        if given is None:
            return
        for value in values:
            beside = self._named(value, info)  # `partial(run, function)`
            if beside is not None:
                yield beside
        if isinstance(call.func, ast.Call):
            maker = self._named(call.func.func, info)
            if maker is not None:
                yield from self.made_by(maker)
            return
        callee = self._named(call.func, info)
        if callee is not None:
            yield from self.given(callee, parameter_for(call, given, callee))
            return
        cls = self._project.class_info(info.module.qualify(call.func))
        if cls is not None:
            yield from methods(cls, ("__call__",), self._project)

    def _named(self, node: ast.expr, info: FunctionInfo) -> FunctionInfo | None:
        """The function that a name stands for inside of another one."""
        if isinstance(node, ast.Name):
            for inner in _inside(info):
                if inner.node.name == node.id and inner.outer == info:
                    return inner
        return self._project.function_info(info.module.qualify(node))


def _inside(info: FunctionInfo) -> Iterator[FunctionInfo]:
    """The functions that are defined in another one, at any depth."""
    for other in info.module.functions():
        outer = other.outer
        while outer is not None and outer != info:
            outer = outer.outer
        if outer is not None:
            yield other


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function that belong to none which is defined in it."""
    todo = list(children(function))
    while todo:
        node = todo.pop()
        if not isinstance(node, _SCOPES):
            yield node
            todo += children(node)


def _reads(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str) -> bool:
    """Whether a function reads a name of what is around it when it is called."""
    body = function.body if isinstance(function.body, list) else [function.body]
    nodes = [node for part in body for node in walk(part)]
    return all(a.arg != name for a in walk(function.args) if isinstance(a, ast.arg)) and any(
        isinstance(node, ast.Name) and node.id == name for node in nodes
    )


def _first_parameter(info: FunctionInfo) -> str | None:
    return next(iter(declared(info.node)), None)
