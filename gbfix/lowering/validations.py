"""What code that validates may do besides, so that the check can be made inside a graph.

Knows statements and their effects, nothing of what is checked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.effects import effects
from gbfix.analysis.facts import Facts
from gbfix.analysis.modules import FunctionInfo, Module
from gbfix.fixes import Context

RAISES = "a failing check raises RuntimeError instead of the original exception when compiled"
SKIPS = "the check is not made in the compiled path"

# What stands before the name of a method that is called on `self`, defined, or told of in a comment.
_OWN = re.compile(r"\bself\s*\.\s*\Z|\bdef\s+\Z|^\s*#")


def check_only_raises(body: Sequence[ast.stmt], context: Context) -> None:
    """What stands before the `raise` is skipped when compiled, so it may only prepare or report.

    Raises:
        Refused: if it does more.
    """
    found = effects(body[:-1], context.analysis, context.facts)
    if found.attributes or found.mutated or found.random:
        raise Refused("work-before-raise", "the branch changes something before it raises")
    for statement in body[:-1]:
        if isinstance(statement, (ast.For, ast.While, ast.With, ast.Try, ast.Return)):
            raise Refused("work-before-raise", "the branch does more than prepare an exception")


def check_not_caught(node: ast.stmt, context: Context) -> None:
    """A check inside the graph raises where nothing in the code can catch it.

    Raises:
        Refused: if the function, or one that calls it, would catch it.
    """
    if _is_tried(node, context.info.node, context.info.module):
        raise Refused("caught-exception", "the exception is caught in the same function")
    catching = _catching_caller(context.info, context.facts, set())
    if catching is not None:
        raise Refused("caught-exception", f"the exception is caught in `{catching}`")


def _is_tried(node: ast.AST, function: ast.AST, module: Module) -> bool:
    """Whether a node stands where its function catches what it raises."""
    current = node
    while current is not function and current in module.parents:
        parent = module.parents[current]
        if isinstance(parent, ast.Try) and current in parent.body and parent.handlers:
            return True
        if isinstance(parent, ast.With) and current in parent.body:
            if any("suppress" in ast.unparse(item.context_expr) for item in parent.items):
                return True
        current = parent
    return False


def _catching_caller(info: FunctionInfo, facts: Facts, seen: set[ast.AST]) -> str | None:
    """The name of a function under `torch.compile` that may catch what a function raises."""
    if info.node in seen:
        return None
    seen.add(info.node)
    name = info.node.name
    if info.owner is not None and name in {"__init__", "__post_init__", "forward", "__call__"}:
        name = info.owner.node.name
    for module in facts.project.naming(name):
        if not _may_call(info, name, module, facts) or not facts.reaches(module):
            continue
        for call in module.uses(name).calls:
            function = _function_of(call, module)
            if function not in facts.region:
                continue
            if _is_tried(call, function, module):
                return getattr(function, "name", name)
            caller = module.function_of.get(function)
            found = _catching_caller(caller, facts, seen) if caller is not None else None
            if found is not None:
                return found
    return None


def _may_call(info: FunctionInfo, name: str, module: Module, facts: Facts) -> bool:
    """Whether a module may call a function by a name, as far as its text and class names tell.

    `self.check()` runs a method of a class, of one that it derives from, or of one derived from it.
    """
    if module is info.module:
        return True
    text = module.source.text
    if not re.search(rf"{name}\s*\(", text):
        return False
    if info.owner is None or name != info.node.name:
        return True
    before = (text[text.rfind("\n", 0, m.start()) + 1 : m.start()]
              for m in re.finditer(rf"{name}\b", text))  # fmt: skip
    if all(_OWN.search(line) for line in before):
        return not facts.project.related(info.owner.node.name).isdisjoint(module.classes)
    return True


def _function_of(node: ast.AST, module: Module) -> ast.AST:
    while not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in module.parents:
        node = module.parents[node]
    return node
