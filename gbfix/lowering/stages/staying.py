"""What of a function is left to Python, and which of its statements and expressions that concerns.

A statement stays if it holds a break, uses a value that must not enter a graph, or decides where
control goes. Is told which nodes break and which values those are, and knows nothing of why.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value
from gbfix.fixes import Context
from gbfix.lowering.views import in_loop_of

_UNUSUAL = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global,
    ast.Nonlocal, ast.Delete, ast.Yield, ast.YieldFrom, ast.Await, ast.Try, ast.Match, ast.NamedExpr,
)  # fmt: skip
_FILLED = frozenset("zeros ones full empty arange tensor eye linspace".split())
# What fills new tensors, and what gives a tensor in another form: no graph makes these faster.
_FREE = frozenset(
    "new_zeros new_ones new_full new_empty new_tensor zeros_like ones_like full_like empty_like "
    "view view_as expand expand_as unsqueeze squeeze transpose "
    "permute t flatten unbind chunk split narrow select detach clone contiguous to type type_as float "
    "half double bfloat16 long int bool cpu cuda size dim numel".split()
).union(_FILLED)
_BUILTINS = frozenset({"max", "min", "len", "abs", "float", "int", "bool", "tuple", "list"})
_TRIFLING = frozenset("Dropout Identity ReLU GELU SiLU Tanh Sigmoid Softmax Flatten".split())


@dataclass(frozen=True)
class Staying:
    """What has to stay in Python.

    Attributes:
        context: the function.
        broken: the nodes that cannot be part of a graph.
        draws: those of them that draw a number in Python.
        kept: names whose values cannot enter a graph.
        kept_calls: the calls of `broken` that give such a value.
    """

    context: Context
    broken: tuple[ast.AST, ...]
    draws: tuple[ast.AST, ...]
    kept: frozenset[str]
    kept_calls: frozenset[ast.AST]


def stays(statement: ast.stmt, staying: Staying, *, final: bool) -> bool:
    """Whether a statement stays as it is written, unless it can be taken apart."""
    if is_broken(statement, staying):
        return True
    nodes = list(walk(statement))
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    if any(isinstance(n, _UNUSUAL) for n in nodes):
        return True
    if any(isinstance(n, ast.Name) and n.id in {*staying.kept, "super"} for n in nodes):
        return True
    return is_exit(statement, final=final)


def is_exit(statement: ast.stmt, *, final: bool) -> bool:
    """Whether a statement leaves the function or the loop that it stands in.

    What is `final` stands at the end of the function, where a return passes over nothing.
    """
    nodes = list(walk(statement))
    returns = any(isinstance(n, ast.Return) for n in nodes) and not final
    return returns or any(
        isinstance(n, (ast.Break, ast.Continue)) and not in_loop_of(n, nodes) for n in nodes
    )


def is_broken(statement: ast.stmt, staying: Staying) -> bool:
    """Whether a break stands in a statement."""
    inside = {id(n) for n in walk(statement)}
    return any(id(b) in inside for b in staying.broken)


def names_kept(node: ast.AST, staying: Staying) -> bool:
    """Whether a value that must not enter a graph is named."""
    return any(isinstance(n, ast.Name) and n.id in staying.kept for n in walk(node))


def gives_tensors(node: ast.AST, staying: Staying) -> bool:
    """Whether tensors are made of others somewhere, if only in another form."""
    values = staying.context.analysis.values
    for inner in walk(node):
        value = values.get(inner)
        if value is None or not value.kinds & (Kind.TENSOR | Kind.MAYBE):
            continue
        if isinstance(inner, (ast.BinOp, ast.UnaryOp, ast.Subscript)):
            return True
        if isinstance(inner, ast.Call):
            if ast.unparse(inner.func).rpartition(".")[2] not in _FILLED:
                return True
    return False


def work(node: ast.AST, staying: Staying) -> int:
    """How many operations compute with tensors that they are given; layers count as three."""
    values = staying.context.analysis.values
    count = 0
    for inner in walk(node):
        value = values.get(inner)
        if value is None:
            continue
        tensor = bool(value.kinds & (Kind.TENSOR | Kind.MAYBE))
        if isinstance(inner, (ast.BinOp, ast.UnaryOp)):
            count += tensor
        # A method that subclasses define gives None here.
        used = not isinstance(staying.context.info.module.parents.get(inner), ast.Expr)
        unknown = not value.static or (value.only(Kind.NONE) and used)
        if isinstance(inner, ast.Call) and (tensor or unknown):
            found = _work_of(inner, staying)
            count += found if tensor or found > 1 else 0
    return count


def _work_of(call: ast.Call, staying: Staying) -> int:
    value = staying.context.analysis.values.get(call.func)
    name = ast.unparse(call.func).rpartition(".")[2]
    if value is not None:
        if staying.context.facts.project.function_info(value.reference) is not None:
            return 2
        if value.kinds & Kind.MODULE:
            return 1 if is_trifling(value) else 3
    if isinstance(call.func, ast.Name) and name in _BUILTINS:
        return 0
    return 0 if name in _FREE else 1


def is_trifling(layer: Value) -> bool:
    """Whether a layer is one operation that nothing is fused with where it stands alone."""
    return (layer.reference or "").rpartition(".")[2] in _TRIFLING


def is_compiled_alone(call: ast.Call, staying: Staying) -> bool:
    """Whether a call is one that Dynamo compiles by itself, of what is at hand."""
    value = staying.context.analysis.values.get(call.func)
    facts = staying.context.facts
    if value is None or value.reference is None:
        return False
    known = facts.project.function_info(value.reference) or facts.project.class_info(
        value.reference
    )
    arguments = [*call.args, *(k.value for k in call.keywords)]
    return known is not None and all(
        not work(a, staying) or any(n in staying.broken for n in walk(a)) for a in arguments
    )
