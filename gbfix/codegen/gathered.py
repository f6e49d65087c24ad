"""`any`, `all` and `sum` over tensors of a Python sequence, as one tensor without dimensions.

`any(t.item() for t in parts)` stops at the first true element; a sum of all of them asks the same
without reading any. Knows how such calls are written, nothing of what they decide.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.dynamic import operation_name
from gbfix.analysis.flow import Analysis
from gbfix.analysis.torch_table import method
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import flat, operand
from gbfix.codegen.view import View

_WHOLE = frozenset({"builtins.any", "builtins.all", "builtins.sum"})


@dataclass(frozen=True)
class Gathered:
    """A call of `any`, `all` or `sum` as a number in a tensor.

    Attributes:
        total: the sum; of `any` the number of true elements, of `all` that of false ones.
        name: which of the three it is.
    """

    total: str
    name: str

    @property
    def asked(self) -> str:
        """Whether the answer is true."""
        return f"{self.total} {({'any': '> 0', 'all': '== 0'}).get(self.name, '!= 0')}"

    @property
    def denied(self) -> str:
        """Whether the answer is false."""
        return f"{self.total} {({'any': '== 0', 'all': '> 0'}).get(self.name, '== 0')}"


def gathered(node: ast.expr, view: View, analysis: Analysis, torch: str) -> Gathered | None:
    """The tensor that a call of `any`, `all` or `sum` would read its answer from; None for others."""
    if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
        return None
    function = analysis.values.get(node.func)
    name = function.reference if function is not None else None
    over = node.args[0]
    if name not in _WHOLE or not isinstance(over, (ast.GeneratorExp, ast.ListComp)):
        return None
    if len(over.generators) != 1 or over.generators[0].ifs or over.generators[0].is_async:
        return None
    loop = over.generators[0]
    read = _read(over.elt, analysis)
    given = analysis.values.get(loop.iter)
    if read is None or given is None or given.tensor or not _computes(over, analysis):
        return None
    value = analysis.values[read]
    each = operand(view, read)
    if not value.zero_dim:
        each = f"{each}.reshape(())"
    if name == "builtins.sum":
        if not (value.integer or value.boolean):
            each = f"{each}.double()"  # Python adds as doubles
    elif name == "builtins.any":
        each = each if value.boolean else f"{each} != 0"
    else:
        each = f"~{each}" if value.boolean else f"{each} == 0"
    total = (
        f"{torch}.as_tensor(sum({each} for {flat(view, loop.target)} in {flat(view, loop.iter)}))"
    )
    return Gathered(total, name.removeprefix("builtins."))


def _read(node: ast.expr, analysis: Analysis) -> ast.expr | None:
    """The tensor that an element is, or is read from."""
    if isinstance(node, ast.Call) and not node.keywords:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
            node = node.func.value
        elif isinstance(node.func, ast.Name) and node.func.id in {"bool", "float"}:
            node = node.args[0] if len(node.args) == 1 else node
    value = analysis.values.get(node)
    return node if value is not None and value.tensor else None


def _computes(over: ast.expr, analysis: Analysis) -> bool:
    """Whether elements that Python would not have come to may be computed as well."""
    for node in walk(over):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield)):
            return False
        if isinstance(node, ast.Call):
            name = operation_name(node, analysis)
            if name is None:
                function = analysis.values.get(node.func)
                known = function.reference if function is not None else None
                iterates = isinstance(node.func, ast.Attribute) and node.func.attr in {
                    "values", "items", "parameters", "buffers", "keys",
                }  # fmt: skip
                if not iterates and not (known or "").startswith("builtins."):
                    return False
                continue
            operation = method(name)
            if operation is None or operation.mutates or operation.random:
                return False
    return True
