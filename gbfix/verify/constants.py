"""Branches that are decided once, before any call, on both sides.

No input reaches the other arm of a test that reads only what calls leave alone. If the rewrite has
the same arms and merely tests a value that was read beforehand, that arm has nothing to verify.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.verify.arms import Branch, branch_of

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Choice = ast.If | ast.IfExp


def decided_once(path: str, original: str, rewritten: str) -> frozenset[Branch]:
    """The branches of a file that no argument and no call decides, and that are tested beforehand."""
    if original == rewritten:
        return frozenset()
    tree = ast.parse(original)
    tests = [(_arms(node), node.test) for node in _choices(ast.parse(rewritten))]
    beforehand = {arms: ast.unparse(test) for arms, test in tests if _is_value(test)}
    changed = _changed(tree)
    found = set()
    for node, local in _with_locals(tree, frozenset()):
        if beforehand.get(_arms(node), ast.unparse(node.test)) != ast.unparse(node.test):
            if _constant(node.test, local, changed):
                found.add(branch_of(path, node))
    return frozenset(found)


def _choices(tree: ast.AST) -> Iterator[_Choice]:
    return (node for node in ast.walk(tree) if isinstance(node, _Choice))


def _arms(node: _Choice) -> str:
    """What the arms are, whatever the test is."""
    if isinstance(node, ast.IfExp):
        return f"{ast.dump(node.body)} {ast.dump(node.orelse)}"
    return " ".join(ast.dump(statement) for part in (node.body, node.orelse) for statement in part)


def _is_value(test: ast.expr) -> bool:
    """`flag`, `self.flag`, `not flag`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    return isinstance(test, ast.Name) or (
        isinstance(test, ast.Attribute) and isinstance(test.value, ast.Name)
    )


def _with_locals(node: ast.AST, local: frozenset[str]) -> Iterator[tuple[_Choice, frozenset[str]]]:
    """Every branch, with the names that the functions around it bind; `self` is not among them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Choice):
            yield child, local
        inner = local | _bound(child) if isinstance(child, _Function) else local
        yield from _with_locals(child, inner)


def _bound(function: _Function) -> frozenset[str]:
    arguments = function.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
    names = {argument.arg for argument in given}
    names |= {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    return frozenset(names - {"self"})


def _changed(tree: ast.Module) -> frozenset[str]:
    """Names of globals and attributes that some function other than a constructor may change."""
    found: set[str] = set()
    for function in ast.walk(tree):
        if not isinstance(function, _Function) or getattr(function, "name", "") == "__init__":
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                found.update(node.names)
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                found |= _names(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr.endswith("_") or node.func.attr.startswith(("set", "register")):
                    found |= _names(node.func.value)
    return frozenset(found)


def _names(node: ast.expr) -> set[str]:
    named = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return named | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def _constant(test: ast.expr, local: frozenset[str], changed: frozenset[str]) -> bool:
    """Whether a test reads nothing that an argument or a call decides."""
    read = _names(test)
    if read & (local | changed) or "random" in read or "time" in read:
        return False
    calls = [node.func for node in ast.walk(test) if isinstance(node, ast.Call)]
    # A method of what is read, or a function of torch; any other function may look elsewhere.
    return all(isinstance(function, ast.Attribute) for function in calls)
