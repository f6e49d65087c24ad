"""What becomes of a mask that selects everything where None could have been: nothing that shows.

Follows the name of a mask to all that is done with it: into blocks under `is not None`, into attention
layers of torch, and into functions of the project that it is handed to. Knows uses, nothing of why the
mask is neutral.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.analysis.facts import Facts
from gbfix.analysis.modules import Module
from gbfix.analysis.parameters import binding_statements, parameter_for
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.lowering.neutral import Neutral, unchanged

# Attention that leaves out what a mask marks, or adds it: all false, and zero, do neither.
_MARKING = {
    "torch.nn.MultiheadAttention": {"key_padding_mask", "attn_mask"},
    "torch.nn.TransformerEncoderLayer": {"src_key_padding_mask", "src_mask"},
    "torch.nn.TransformerEncoder": {"src_key_padding_mask", "mask"},
    "torch.nn.TransformerDecoderLayer": {"tgt_key_padding_mask", "memory_key_padding_mask"},
    "torch.nn.TransformerDecoder": {"tgt_key_padding_mask", "memory_key_padding_mask"},
}
# Attention that keeps what a boolean mask marks.
_KEEPING = {"torch.nn.functional.scaled_dot_product_attention": {"attn_mask"}}
_DEEPEST = 3


def check_uses(
    scope: ast.AST, module: Module, name: str, mask: Neutral, after: int, facts: Facts
) -> None:
    """Every use of a name after a line is one that a neutral mask leaves as None would.

    Raises:
        Refused: naming one that is not.
    """
    if not _Uses(facts).followed(scope, module, name, mask, after, _DEEPEST):
        raise Refused("consumer-unknown", f"a caller never applies `{name}`")


class _Uses:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def followed(
        self, scope: ast.AST, module: Module, name: str, mask: Neutral, after: int, depth: int
    ) -> int:
        """How often the mask is applied."""
        seen = 0
        for use in walk(scope):
            if not isinstance(use, ast.Name) or use.id != name or use.lineno <= after:
                continue
            if not isinstance(use.ctx, ast.Load):
                raise Refused("consumer-unknown", f"a caller rebinds `{name}`")
            parent = module.parents[use]
            if isinstance(parent, ast.Compare) and _opens_block(parent, module, name, mask):
                continue
            if _stands_under(use, module, name) or self._handed_on(use, scope, module, mask, depth):
                seen += 1
                continue
            raise Refused(
                "consumer-uses-mask", f"a caller does more with `{name}` than apply it as a mask"
            )
        return seen

    def _handed_on(
        self, use: ast.Name, scope: ast.AST, module: Module, mask: Neutral, depth: int
    ) -> bool:
        """Whether what the mask is given to does nothing with it."""
        return handed_on(use, scope, module, mask, self.facts, depth)


def handed_on(
    node: ast.expr, scope: ast.AST, module: Module, mask: Neutral, facts: Facts, depth: int = 3
) -> bool:
    """Whether a neutral mask that is an argument does what None would."""
    parent = module.parents[node]
    keyword = parent.arg if isinstance(parent, ast.keyword) else None
    call = module.parents[parent] if isinstance(parent, ast.keyword) else parent
    info = next((i for i in module.functions() if i.node is scope), None)
    analysis = facts.analysis(info) if info is not None else None
    if not isinstance(call, ast.Call) or node is call.func or analysis is None:
        return False
    value = analysis.values.get(call.func)
    reference = value.reference if value is not None else None
    if value is None or reference is None:
        return False
    if keyword in _MARKING.get(reference, ()) and value.kinds & Kind.MODULE:
        return mask.nothing
    if keyword in _KEEPING.get(reference, ()):
        return mask.boolean and not mask.nothing
    callee = facts.project.function_info(reference)
    if value.kinds & Kind.MODULE:
        cls = facts.project.class_info(reference)
        callee = facts.project.method(cls, "forward") if cls is not None else None
    if callee is None or depth == 0:
        return False
    name = parameter_for(call, node, callee)
    if name is None or binding_statements(callee.node, name):
        return False
    uses = _Uses(facts)
    uses.followed(
        callee.node, callee.module, name, mask.renamed(name), callee.node.lineno, depth - 1
    )
    return True


def _opens_block(node: ast.Compare, module: Module, name: str, mask: Neutral) -> bool:
    """Whether `name is not None` opens a block in which a neutral mask changes nothing."""
    block = module.parents[node]
    if not isinstance(block, ast.If) or block.test is not node or block.orelse:
        return False
    if ast.unparse(node) != f"{name} is not None":
        return False
    return all(_leaves_unchanged(s, mask) for s in block.body)


def _leaves_unchanged(statement: ast.stmt, mask: Neutral) -> bool:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    return isinstance(target, ast.Name) and unchanged(statement.value, target.id, mask)


def _stands_under(use: ast.Name, module: Module, name: str) -> bool:
    """Whether a use stands in a block that `is not None` opens, all of which was looked at."""
    statement: ast.AST = use
    while not isinstance(statement, ast.stmt):
        statement = module.parents[statement]
    block = module.parents[statement]
    return (
        isinstance(block, ast.If)
        and statement in block.body
        and not block.orelse
        and ast.unparse(block.test) == f"{name} is not None"
    )
