"""`with open(...)` blocks whose only purpose is to write: they can be left out as a whole.

Knows names and effects, nothing of what is written.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.analysis.effects import effects
from gbfix.analysis.trees import walk
from gbfix.fixes import Context
from gbfix.lowering.views import walk_scope

_WRITES = frozenset({"write", "writelines", "flush", "writerow", "writerows", "dump", "save"})


def writing_block(node: ast.With | ast.AsyncWith, call: ast.Call, context: Context) -> ast.stmt:
    """The block, if it opens a file for writing and does nothing but write to it.

    Raises:
        Refused: if it reads, or does anything else.
    """
    if len(node.items) != 1 or node.items[0].context_expr is not call:
        raise Refused("does-more", "the block manages more than a file")
    mode = call.args[1] if len(call.args) > 1 else None
    mode = next((k.value for k in call.keywords if k.arg == "mode"), mode)
    if not (
        isinstance(mode, ast.Constant)
        and isinstance(mode.value, str)
        and mode.value[:1] in {"w", "a", "x"}
        and "+" not in mode.value
    ):
        raise Refused("value-used", "the file is not opened for writing alone")
    target = node.items[0].optional_vars
    if not isinstance(target, ast.Name):
        raise Refused("does-more", "the file has no name")
    for statement in node.body:
        inner = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(inner, ast.Call) or not _writes(inner, target.id):
            raise Refused("does-more", "the block does more than write to the file")
        parts = [*inner.args, *(k.value for k in inner.keywords)]
        found = effects(parts, context.analysis, context.facts)
        if found.mutated or found.attributes or found.random or found.control:
            raise Refused("effectful-arguments", "an argument changes something that is needed")
    inside = {id(n) for s in node.body for n in walk_scope(s)} | {id(target)}
    for other in walk(context.info.node):
        if isinstance(other, ast.Name) and other.id == target.id and id(other) not in inside:
            raise Refused("value-used", f"`{target.id}` is used outside the block")
    return node


def _writes(call: ast.Call, name: str) -> bool:
    """`file.write(...)`, `json.dump(x, file)`, `print(..., file=file)`."""
    given = [*call.args, *(k.value for k in call.keywords)]
    passed = any(isinstance(a, ast.Name) and a.id == name for a in given)
    if isinstance(call.func, ast.Attribute):
        if call.func.attr not in _WRITES:
            return False
        owner = call.func.value
        return passed or (isinstance(owner, ast.Name) and owner.id == name)
    return isinstance(call.func, ast.Name) and call.func.id == "print" and passed
