"""Whether a local name is the only way to its tensor, so that it may be bound anew instead.

Knows names and what the analysis says of storage, nothing of why something is rewritten.
"""

from __future__ import annotations

import ast

from gbfix.analysis.trees import walk
from gbfix.fixes import Context


def is_own(name: str, statement: ast.stmt, context: Context) -> bool:
    """Whether nothing else can reach the storage of what a name holds before a statement."""
    if name in context.liveness.captured:
        return False
    before = context.analysis.before.get(statement, {}).get(name)
    declared = any(
        isinstance(n, (ast.Global, ast.Nonlocal)) and name in n.names
        for n in walk(context.info.node)
    )
    return before is not None and before.tensor and before.unshared and not declared
