"""Context managers that only measure: what they do on the way in and out can be left out as a whole.

Knows classes with `__enter__` and `__exit__`, and what their statements do; nothing of edits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.analysis.conditions import Refused
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.logs import is_log_call
from gbfix.analysis.modules import ClassInfo, FunctionInfo
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import called, untraced
from gbfix.fixes import Context
from gbfix.lowering.views import is_eager, walk_scope
from gbfix.python_diagnoses import HOUSEKEEPING, MEASUREMENT

MANAGER_METHODS = frozenset({"__enter__", "__exit__"})
_RECORDS = frozenset({"append", "update", "add", "setdefault"})
_WAITS = frozenset({"torch.cuda.synchronize", "torch.cuda.current_stream", "torch.cuda.Event"})
_HARMLESS = frozenset("float int round str repr len max min sum abs getattr isinstance".split())


def measuring_statements(context: Context) -> list[ast.stmt]:
    """The statements of both methods of the class, if they only measure, record and tell.

    Raises:
        Refused: if they do more, or compiled code reads what they record.
    """
    owner = context.info.owner
    if owner is None:
        raise Refused("does-more", "the context manager is no class of its own")
    found: list[ast.stmt] = []
    recorded: set[str] = set()
    methods = [
        n for n in owner.node.body if isinstance(n, ast.FunctionDef) and n.name in MANAGER_METHODS
    ]
    if len(methods) != len(MANAGER_METHODS):
        raise Refused("does-more", "the context manager inherits how it is entered or left")
    for method in methods:
        info = owner.module.function_of.get(method)
        analysis = context.facts.analysis(info) if info is not None else None
        if analysis is None:
            raise Refused("does-more", "the context manager is not followed")
        for statement in _working(method):
            _check_measures(statement, analysis, context.facts)
            recorded |= _recorded(statement)
            found.append(statement)
    _check_unread(owner, recorded, methods, context)
    return found


def _working(method: ast.FunctionDef) -> list[ast.stmt]:
    """The statements of a method without its docstring and a plain `return` at its end."""
    body = [s for s in method.body if not _says_nothing(s)]
    last = body[-1] if body else None
    if isinstance(last, ast.Return):
        value = last.value
        bound = {n.id for s in body for n in walk(s) if _is_stored(n) and isinstance(n, ast.Name)}
        if not (value is None or isinstance(value, (ast.Constant, ast.Name))):
            raise Refused("value-used", "the context manager gives a value back")
        swallows = isinstance(value, ast.Constant) and bool(value.value)
        if swallows or (isinstance(value, ast.Name) and value.id in bound):
            raise Refused("value-used", "the context manager gives a value back")
        body = body[:-1]
    return body


def _says_nothing(statement: ast.stmt) -> bool:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Pass)


def _is_stored(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _check_measures(statement: ast.stmt, analysis: Analysis, facts: Facts) -> None:
    """Refuse a statement that does more than measure, record or tell."""
    if statement in analysis.eager:
        return
    if isinstance(statement, ast.If):
        for inner in [*statement.body, *statement.orelse]:
            _check_measures(inner, analysis, facts)
        _check_calls(statement.test, analysis, facts)
        return
    if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Pass)):
        raise Refused("does-more", "the context manager does more than measure")
    _check_calls(statement, analysis, facts)


def _check_calls(node: ast.AST, analysis: Analysis, facts: Facts) -> None:
    for inner in walk_scope(node):
        if isinstance(inner, (ast.NamedExpr, ast.Lambda, ast.Yield, ast.YieldFrom, ast.Await)):
            raise Refused("does-more", "the context manager does more than measure")
        if isinstance(inner, ast.Call) and not _only_measures(inner, analysis, facts):
            raise Refused("does-more", f"`{ast.unparse(inner.func)}` is called besides")


def _only_measures(call: ast.Call, analysis: Analysis, facts: Facts) -> bool:
    if is_log_call(call, analysis, facts) or untraced(call, analysis, facts) in _SKIPPED:
        return True
    if called(call, analysis) in _WAITS:
        return True
    if isinstance(call.func, ast.Name):
        return call.func.id in _HARMLESS
    function = call.func
    if not isinstance(function, ast.Attribute):
        return False
    return function.attr in {*_RECORDS, "get", "format", "is_available"}


_SKIPPED = frozenset({MEASUREMENT, HOUSEKEEPING})


def _recorded(statement: ast.stmt) -> set[str]:
    """The attributes that a statement sets, or puts something into."""
    found: set[str] = set()
    for node in walk(statement):
        if isinstance(node, ast.Attribute) and _is_stored(node):
            found.add(node.attr)
        if isinstance(node, ast.Subscript) and _is_stored(node):
            found |= _base(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _RECORDS:
                found |= _base(node.func.value)
    return found


def _base(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _base(node.func.value)
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Name):
        return {node.id}
    raise Refused("does-more", "the context manager records where it is not followed")


def _check_unread(
    owner: ClassInfo, recorded: set[str], methods: list[ast.FunctionDef], context: Context
) -> None:
    """What is recorded, and what the manager is made of, may not be read by compiled code."""
    facts = context.facts
    own = {id(n) for m in methods for n in walk(m)}
    for info in _region(facts):
        analysis = facts.analysis(info)
        if analysis is None or _makes(info, owner):
            continue
        made = _made_of(info.node, owner, analysis)
        given = {ast.unparse(n) for call in made for n in _handed(call)}
        passed = {id(n) for call in made for n in walk(call)}
        for node in walk(info.node):
            if id(node) in own or id(node) in passed or not _is_read(node, analysis):
                continue
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if name in recorded or ast.unparse(node) in given:
                raise Refused("value-used", f"`{ast.unparse(node)}` is read by compiled code")


def _makes(info: FunctionInfo, owner: ClassInfo) -> bool:
    return info.node.name == "__init__" and info.owner is not None and info.owner.node is owner.node


def _region(facts: Facts) -> Iterator[FunctionInfo]:
    """The functions that run in compiled calls, those that are left to Python among them."""
    for module in facts.project.given:
        for info in module.functions():
            if facts.runs_compiled(info):
                yield info


def _made_of(function: ast.AST, owner: ClassInfo, analysis: Analysis) -> list[ast.Call]:
    """The calls that make the context manager for a `with` of a function."""
    return [
        item.context_expr
        for node in walk(function)
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.context_expr, ast.Call)
        and called(item.context_expr, analysis) == owner.qualified
    ]


def _handed(call: ast.Call) -> Iterator[ast.expr]:
    for argument in [*call.args, *(k.value for k in call.keywords)]:
        if isinstance(argument, (ast.Name, ast.Attribute)):
            yield argument


def _is_read(node: ast.AST, analysis: Analysis) -> bool:
    if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
        return False
    return not is_eager(node, analysis)
