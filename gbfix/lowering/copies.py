"""Expressions that are a copy of a tensor, equal to it in every value.

Knows syntax and tensors, nothing of why something is copied.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.effects import function_effects
from gbfix.analysis.modules import FunctionInfo
from gbfix.analysis.trees import walk
from gbfix.fixes import Context

_COPIES = frozenset({"clone", "contiguous"})


def copied_name(node: ast.expr) -> str | None:
    """The name of the tensor that an expression copies: `x.clone()`, `torch.clone(x)`."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in _COPIES:
        owner = node.func.value
        if copied := copied_name(owner):
            return copied
        if isinstance(owner, ast.Name) and owner.id != "torch":
            return owner.id
        if len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            return node.args[0].id
    return None


def copies_only(body: Sequence[ast.stmt]) -> bool:
    """Whether statements only replace tensors by copies of them: `x = x.clone()`."""
    for statement in body:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return False
        target = statement.targets[0]
        if not isinstance(target, ast.Name) or copied_name(statement.value) != target.id:
            return False
    return bool(body)


def check_unchanged(
    names: Collection[str], info: FunctionInfo, context: Context, *, returned: bool
) -> None:
    """Where a copy is left out, neither it nor the original may be changed in place.

    Raises:
        Refused: if the function does, or one that is given the result.
    """
    _check_function(names, info, context)
    if not returned:
        return
    for call, caller in calls_of(info, context):
        parent = caller.module.parents[call]
        if isinstance(parent, ast.Attribute) and parent.attr.endswith("_"):
            raise Refused("alias-then-mutate", "the result is changed in place by a caller")
        given = {n.id for n in walk(call) if isinstance(n, ast.Name)}
        targets = parent.targets if isinstance(parent, ast.Assign) else []
        given |= {n.id for t in targets for n in walk(t) if isinstance(n, ast.Name)}
        _check_function(given, caller, context)


def _check_function(names: Collection[str], info: FunctionInfo, context: Context) -> None:
    found = function_effects(info, context.facts)
    if found is None:
        raise Refused("alias-then-mutate", "what the function changes in place is not known")
    for target, _ in found.mutated:
        root: ast.expr = target
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if isinstance(root, ast.Name) and root.id in names:
            raise Refused("alias-then-mutate", f"`{root.id}` is changed in place")


def calls_of(info: FunctionInfo, context: Context) -> Iterator[tuple[ast.Call, FunctionInfo]]:
    """The calls of a function by its name under `torch.compile`, with the functions they stand in."""
    for module in context.facts.project.naming(info.node.name):
        for node in module.naming(info.node.name):
            call = module.parents.get(node)
            if not isinstance(call, ast.Call) or call.func is not node:
                continue
            above: ast.AST = call
            while above in module.parents and above not in module.function_of:
                above = module.parents[above]
            caller = module.function_of.get(above)
            if caller is not None and caller.node in context.facts.region:
                yield call, caller
