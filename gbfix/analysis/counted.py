"""What operations of torch take as integers: sizes, lengths, shifts, and how many to find.

Knows the signatures of torch and what a call gives for them, nothing of what becomes of a tensor there.
"""

from __future__ import annotations

import ast

from gbfix.analysis import torch_table
from gbfix.analysis.flow import Analysis
from gbfix.analysis.values import Kind

_COUNTED = frozenset(
    "narrow select view reshape repeat tile expand unflatten roll split chunk topk kthvalue tril triu "
    "unfold new_zeros new_ones new_empty new_full pad one_hot interpolate zeros ones empty rand randn "
    "full randint eye".split()
)
_COUNTS = frozenset(
    "start length index size shape repeats dims sizes shifts split_size split_size_or_sections chunks "
    "k diagonal step pad num_classes n m".split()
)


def counted(call: ast.Call, analysis: Analysis) -> list[ast.expr]:
    """What an operation of torch takes as integers: `x.narrow(0, start, length)`, `x.view(n, -1)`.

    Of a sequence that is written there it is the elements.
    """
    operation = _operation(call, analysis)
    if operation is None or any(isinstance(a, ast.Starred) for a in call.args):
        return []
    names: list[set[str]] = [set() for _ in call.args]
    keywords = frozenset(k.arg for k in call.keywords if k.arg is not None)
    for alternative in operation.alternatives:
        for known, param in zip(
            names, alternative.bind(len(call.args), keywords) or (), strict=False
        ):
            known.add(param.name)
    given = [a for a, known in zip(call.args, names, strict=True) if known and known <= _COUNTS]
    given += [k.value for k in call.keywords if k.arg in _COUNTS]
    parts = [e for g in given for e in (g.elts if isinstance(g, (ast.Tuple, ast.List)) else [g])]
    return [part for part in parts if not _is_constant(part, analysis)]


def _is_constant(node: ast.expr, analysis: Analysis) -> bool:
    """A tensor of one number that Dynamo knows: `torch.div(x.size(1), 2)`, `torch.tensor(3) + 1`."""
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return all(_is_constant(s, analysis) or _is_number(s, analysis) for s in sides)
    function = analysis.values.get(node.func) if isinstance(node, ast.Call) else None
    name = function.reference if function is not None else None
    if not isinstance(node, ast.Call) or name is None or not name.startswith("torch."):
        return False
    return bool(node.args) and all(_is_number(a, analysis) for a in node.args)


def _is_number(node: ast.expr, analysis: Analysis) -> bool:
    value = analysis.values.get(node)
    return value is not None and value.only(Kind.STATIC)


def _operation(call: ast.Call, analysis: Analysis) -> torch_table.Operation | None:
    """The operation that a call runs, if it takes integers."""
    function = call.func
    last = function.attr if isinstance(function, ast.Attribute) else ""
    value = analysis.values.get(function)
    name = value.reference if value is not None else None
    if name is not None:
        known = name.rpartition(".")[2] in _COUNTED and name.startswith("torch.")
        return torch_table.function(name) if known else None
    if last not in _COUNTED or not isinstance(function, ast.Attribute):
        return None
    return torch_table.method(last) if _of_tensor(function, analysis) else None


def _of_tensor(method: ast.Attribute, analysis: Analysis) -> bool:
    receiver = analysis.values.get(method.value)
    return receiver is not None and receiver.tensor
