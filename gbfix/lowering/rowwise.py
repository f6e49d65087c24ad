"""Whether code treats every row of its input alone: what it gives for one row depends on no other.

Such code gives the same for a row whether the rows around it were selected before or are selected
after. Elementwise operations are row-wise, and so are layers that work along the last dimension;
batch normalisation, attention, sorting and reductions over rows are not. What is not known to be
row-wise is not.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from gbfix.analysis import torch_table
from gbfix.analysis.dynamic import operands, operation_name
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import ClassInfo, FunctionInfo
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value

_ELEMENTWISE_LAYERS = frozenset(
    "Identity ReLU ReLU6 GELU SiLU Mish ELU CELU SELU Tanh Sigmoid LogSigmoid Hardswish Hardsigmoid "
    "Hardtanh LeakyReLU Softplus Softsign Hardshrink Softshrink Tanhshrink Threshold".split()
)
_LAST_LAYERS = frozenset("Linear LayerNorm RMSNorm Embedding".split())
_RANDOM_LAYERS = frozenset("Dropout AlphaDropout".split())
_ELEMENTWISE = frozenset(
    "relu gelu silu mish elu celu selu leaky_relu hardswish hardsigmoid hardtanh logsigmoid "
    "softplus softsign relu6 to type type_as float double half bfloat16 clone detach contiguous "
    "expit quick_gelu addcmul addcdiv where maximum minimum".split()
)
_LAST = frozenset("linear layer_norm rms_norm".split())
# Row-wise with a dimension that counts from the end.
_ALONG = frozenset(
    "softmax log_softmax sum mean var std amax amin logsumexp norm normalize chunk split cumsum glu "
    "softmin prod any all unsqueeze cat flip roll".split()
)
_KEEPING = frozenset(
    "softmax log_softmax softmin normalize cumsum flip roll layer_norm rms_norm dropout".split()
)
_KEEPING_LAYERS = _ELEMENTWISE_LAYERS | _RANDOM_LAYERS | {"LayerNorm", "RMSNorm"}
_TRANSFORMERS_ACTIVATIONS = "activations.ACT2FN"
_MOST_CALLS = 12


class NotRowwise(Exception):
    """Code that may mix rows, with the piece of it that does."""


@dataclass
class Needs:
    """What must hold for the answer, found on the way.

    Attributes:
        trailing: rows have at least one dimension of their own.
        evaluating: layers that draw random numbers in training must be in evaluation mode.
    """

    trailing: bool = False
    evaluating: bool = False
    depth: int = field(default=0, repr=False)


def call_is_rowwise(
    node: ast.Call,
    analysis: Analysis,
    facts: Facts,
    rows: set[ast.expr],
    needs: Needs,
    name: str | None = None,
) -> None:
    """Check one call in which `rows` are the argument expressions that hold rows.

    Raises:
        NotRowwise: unless the call is known to treat each row alone.
    """
    function = analysis.values.get(node.func)
    name = name or operation_name(node, analysis)
    if name is not None:
        _operation(node, name, analysis, rows, needs)
        return
    if function is None:
        raise NotRowwise(ast.unparse(node.func))
    if function.reference is None:
        if _activation(node.func, analysis, facts):
            return
        raise NotRowwise(ast.unparse(node.func))
    if function.kinds & (Kind.MODULE | Kind.OBJECT):
        if rows != set(node.args) or node.keywords:
            if not set(node.args) >= rows:
                raise NotRowwise(ast.unparse(node.func))
        _module(function, node, facts, needs, [a in rows for a in node.args])
        return
    info = facts.project.function_info(function.reference)
    if info is None:
        raise NotRowwise(ast.unparse(node.func))
    _function(info, node, rows, facts, needs)


def keeps_elements(node: ast.Call, name: str | None, analysis: Analysis) -> bool:
    """Whether a row-wise call with one tensor gives as many elements as that has."""
    if name is not None:
        operation = torch_table.method(name)
        pointwise = operation is not None and operation.pointwise
        return pointwise or name in _ELEMENTWISE or name in _KEEPING
    function = analysis.values.get(node.func)
    layer = function.reference if function is not None and function.reference else ""
    return layer.rpartition(".")[2] in _KEEPING_LAYERS


def module_is_rowwise(value: Value, node: ast.Call, facts: Facts, needs: Needs) -> None:
    """Check the call of a module with rows as its first argument."""
    _module(value, node, facts, needs, [True])


def _operation(
    node: ast.Call, name: str, analysis: Analysis, rows: set[ast.expr], needs: Needs
) -> None:
    arguments = operands(node, analysis)
    if isinstance(node.func, ast.Attribute) and node.func.value in rows:
        arguments = [node.func.value, *node.args]
    keywords = {k.arg: k.value for k in node.keywords}
    if "out" in keywords or (name.endswith("_") and not name.endswith("__")):
        raise NotRowwise(ast.unparse(node.func))
    inplace = keywords.get("inplace")
    if inplace is not None and not (isinstance(inplace, ast.Constant) and inplace.value is False):
        raise NotRowwise(ast.unparse(node.func))
    function = analysis.values.get(node.func)
    reference = function.reference if function is not None and function.reference else ""
    operation = torch_table.function(reference) or torch_table.method(name)
    if name == "dropout":
        _dropout(node, needs)
        return
    if name == "unsqueeze":
        if not _negative(arguments[1] if len(arguments) > 1 else keywords.get("dim")):
            raise NotRowwise(ast.unparse(node))
        return
    if operation is not None and operation.random:
        raise NotRowwise(ast.unparse(node.func))
    if (operation is not None and operation.pointwise) or name in _ELEMENTWISE:
        return
    if name in _LAST:
        if set(arguments[:1]) != rows:
            raise NotRowwise(ast.unparse(node.func))
        needs.trailing = True
        return
    if name in _ALONG:
        dim = keywords.get("dim")
        if dim is None:
            position = 2 if name in {"chunk", "split", "norm", "normalize", "roll"} else 1
            dim = arguments[position] if len(arguments) > position else None
        if not _negative(dim):
            raise NotRowwise(ast.unparse(node))
        needs.trailing = True
        return
    if name in {"matmul", "mm"} and rows == set(arguments[:1]):
        needs.trailing = True
        return
    raise NotRowwise(ast.unparse(node.func))


def _dropout(node: ast.Call, needs: Needs) -> None:
    training = next((k.value for k in node.keywords if k.arg == "training"), None)
    if training is None and len(node.args) > 2:
        training = node.args[2]
    if isinstance(training, ast.Constant) and training.value is False:
        return
    if training is None or not ast.unparse(training).endswith(".training"):
        raise NotRowwise(ast.unparse(node.func))
    needs.evaluating = True


def _negative(node: ast.expr | None) -> bool:
    """Whether a dimension is the last one."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return len(node.elts) == 1 and _negative(node.elts[0])
    return node is not None and ast.unparse(node) == "-1"


def _activation(node: ast.expr, analysis: Analysis, facts: Facts) -> bool:
    """`self.act`, set to `ACT2FN[config.hidden_act]`: activations of transformers are elementwise."""
    if not isinstance(node, ast.Attribute):
        return False
    base = analysis.values.get(node.value)
    cls = facts.project.class_info(base.reference) if base is not None else None
    if cls is None:
        return False
    writes = [w for c in facts.project.mro(cls) for w in facts.writes(c).get(node.attr, ())]
    return bool(writes) and all(_from_activations(w.value, cls, facts) for w in writes)


def _from_activations(node: ast.expr | None, cls: ClassInfo, facts: Facts) -> bool:
    if not isinstance(node, ast.Subscript):
        return False
    for owner in facts.project.mro(cls):
        name = owner.module.qualify(node.value)
        if name is not None and name.endswith(_TRANSFORMERS_ACTIVATIONS):
            return True
    return False


def _module(value: Value, node: ast.Call, facts: Facts, needs: Needs, given: list[bool]) -> None:
    reference = value.reference or ""
    last = reference.rsplit(".", 1)[-1]
    text = ast.unparse(node.func)
    if reference.startswith("torch.nn."):
        if value.changes_input:
            raise NotRowwise(text)
        if reference == "torch.nn.Sequential" and value.elements is not None:
            for layer in value.elements:
                _module(layer, node, facts, needs, given)
            return
        if last in _ELEMENTWISE_LAYERS:
            return
        if last in _LAST_LAYERS:
            needs.trailing = True
            return
        if last in _RANDOM_LAYERS:
            needs.evaluating = True
            return
        raise NotRowwise(text)
    cls = facts.project.class_info(reference)
    method = facts.project.method(cls, "forward") if cls is not None else None
    if cls is None or method is None or not facts.project.is_module_class(reference):
        raise NotRowwise(text)
    names = [a.arg for a in method.node.args.args][1:]
    tainted = {n for n, is_rows in zip(names, given, strict=False) if is_rows}
    _body(method, tainted, facts, needs)


def _function(
    info: FunctionInfo, node: ast.Call, rows: set[ast.expr], facts: Facts, needs: Needs
) -> None:
    names = [a.arg for a in [*info.node.args.posonlyargs, *info.node.args.args]]
    if info.owner is not None and names and isinstance(node.func, ast.Attribute):
        names = names[1:]
    tainted = {n for n, a in zip(names, node.args, strict=False) if a in rows}
    tainted |= {k.arg for k in node.keywords if k.value in rows and k.arg is not None}
    if info.node.decorator_list:
        raise NotRowwise(ast.unparse(node.func))
    _body(info, tainted, facts, needs)


def _body(info: FunctionInfo, tainted: set[str], facts: Facts, needs: Needs) -> None:
    analysis = facts.analysis(info)
    if analysis is None or needs.depth >= _MOST_CALLS:
        raise NotRowwise(info.node.name)
    needs.depth += 1
    try:
        _Body(analysis, facts, needs, set(tainted)).block(info.node.body)
    finally:
        needs.depth -= 1


class _Body:
    """Follows rows through the statements of a function."""

    def __init__(self, analysis: Analysis, facts: Facts, needs: Needs, tainted: set[str]) -> None:
        self.analysis = analysis
        self.facts = facts
        self.needs = needs
        self.tainted = tainted

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if statement in self.analysis.eager:
                continue
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Return):
            if node.value is not None:
                self.rows(node.value)
        elif isinstance(node, ast.Assign):
            tainted = self.rows(node.value)
            for target in node.targets:
                self._bind(target, tainted)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, self.rows(node.value))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            # In place on what came in would change more than the rows selected.
            raise NotRowwise(ast.unparse(node))
        elif isinstance(node, ast.If):
            if self.rows(node.test):
                raise NotRowwise(ast.unparse(node.test))
            before = set(self.tainted)
            self.block(node.body)
            after, self.tainted = self.tainted, before
            self.block(node.orelse)
            self.tainted |= after
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            pass
        elif not isinstance(node, ast.Pass):
            raise NotRowwise(ast.unparse(node).split("\n")[0])

    def _bind(self, target: ast.expr, tainted: bool) -> None:
        if isinstance(target, ast.Name):
            (self.tainted.add if tainted else self.tainted.discard)(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._bind(element, tainted)
        else:
            raise NotRowwise(f"{ast.unparse(target)} = ...")

    def rows(self, node: ast.expr) -> bool:
        """Whether an expression holds rows; everything on the way is row-wise."""
        if isinstance(node, ast.Name):
            return node.id in self.tainted
        if isinstance(node, ast.Attribute):
            inside = self.rows(node.value)
            if not inside:
                return False
            if node.attr in {"dtype", "device"}:
                return False
            raise NotRowwise(ast.unparse(node))
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, (ast.Tuple, ast.List)):
            return self._any(node.elts)
        if isinstance(node, ast.UnaryOp):
            inside = self.rows(node.operand)
            if inside and isinstance(node.op, ast.Not):
                raise NotRowwise(ast.unparse(node))
            return inside
        if isinstance(node, ast.BinOp):
            left, right = self.rows(node.left), self.rows(node.right)
            if isinstance(node.op, ast.MatMult) and (left or right):
                if right:
                    raise NotRowwise(ast.unparse(node))
                self.needs.trailing = True
            return left or right
        if isinstance(node, ast.Compare):
            return self._any([node.left, *node.comparators])
        if isinstance(node, ast.IfExp):
            if self.rows(node.test):
                raise NotRowwise(ast.unparse(node.test))
            return self._any([node.body, node.orelse])
        if isinstance(node, ast.Call):
            return self._call(node)
        if any(isinstance(n, ast.Name) and n.id in self.tainted for n in walk(node)):
            raise NotRowwise(ast.unparse(node))
        return False

    def _any(self, nodes: list[ast.expr]) -> bool:
        """Whether any holds rows; each is checked."""
        return True in [self.rows(node) for node in nodes]

    def _subscript(self, node: ast.Subscript) -> bool:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            if self.rows(node.value.value) and ast.unparse(node.slice) != "-1":
                raise NotRowwise(ast.unparse(node))
            return False
        base, index = self.rows(node.value), self.rows(node.slice)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        if base and not index and parts and ast.unparse(parts[0]) == "...":
            self.needs.trailing = True
            return True
        if base or index:
            raise NotRowwise(ast.unparse(node))
        return False

    def _call(self, node: ast.Call) -> bool:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "size":
            if self.rows(node.func.value) and [ast.unparse(a) for a in node.args] != ["-1"]:
                raise NotRowwise(ast.unparse(node))
            return False
        arguments = [*node.args, *(k.value for k in node.keywords)]
        if isinstance(node.func, ast.Attribute) and operation_name(node, self.analysis):
            value = self.analysis.values.get(node.func.value)
            if value is not None and value.may_be_tensor:
                arguments.append(node.func.value)
        rows = {a for a in arguments if self.rows(a)}
        if not rows:
            if any(isinstance(n, ast.Name) and n.id in self.tainted for n in walk(node.func)):
                raise NotRowwise(ast.unparse(node))
            return False
        call_is_rowwise(node, self.analysis, self.facts, rows, self.needs)
        return True


def block_is_rowwise(
    body: list[ast.stmt],
    result: ast.expr,
    rows: str,
    analysis: Analysis,
    facts: Facts,
    needs: Needs,
) -> None:
    """Check statements that end in a result with one row for each row of the name `rows`.

    Raises:
        NotRowwise: unless they are known to treat each row alone.
    """
    follower = _Body(analysis, facts, needs, {rows})
    follower.block(body)
    if not follower.rows(result):
        raise NotRowwise(ast.unparse(result))
