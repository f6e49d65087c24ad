"""How many dimensions a tensor expression has, where the code of one function says so.

Reads what counts dimensions: sizes given to a factory or a `view`, `b, t, d = x.shape`, `None` and
integers in an index, reductions over one dimension. None means that nothing says so. The answer holds
on every path: a name that is bound in several ways must have one rank in all of them.
"""

from __future__ import annotations

import ast

from gbfix.analysis import torch_table
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind

_FACTORIES = frozenset("zeros ones empty rand randn".split())
_METHOD_FACTORIES = frozenset("new_zeros new_ones new_empty view reshape expand repeat".split())
_LIKE = frozenset("zeros_like ones_like empty_like rand_like randn_like full_like".split())
_SAME = frozenset(
    "softmax log_softmax cumsum cumprod transpose permute sort argsort type_as type to "
    "masked_fill flip roll contiguous clone detach dropout normalize layer_norm tril triu".split()
)
_REDUCING = frozenset(
    "sum mean any all prod amax amin argmax argmin logsumexp norm std var count_nonzero".split()
)
_LOSSES = frozenset(
    "binary_cross_entropy binary_cross_entropy_with_logits cross_entropy gaussian_nll_loss "
    "hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss nll_loss "
    "poisson_nll_loss smooth_l1_loss soft_margin_loss".split()
)
_SAME_LAYERS = frozenset("Linear LayerNorm RMSNorm Identity Dropout Softmax".split())

_BINDING = frozenset(
    {ast.Assign, ast.AnnAssign, ast.For, ast.AsyncFor, ast.NamedExpr, ast.withitem}
    | {ast.comprehension}
)


class Ranks:
    """The ranks of the expressions of one analyzed function."""

    def __init__(self, analysis: Analysis, facts: Facts) -> None:
        self.analysis = analysis
        self.facts = facts
        self._bound: dict[str, list[ast.expr | None]] = {}
        self._unpacked: dict[str, int] = {}
        self._active: set[str] = set()
        node = analysis.info.node
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self._parameters = {a.arg for a in arguments}
        self._collect()

    def of(self, node: ast.expr) -> int | None:
        """The rank of a tensor expression; 0 for a Python number; None if unknown."""
        value = self.analysis.values.get(node)
        if value is not None and value.tensor and value.zero_dim:
            return 0
        if value is not None and value.only(Kind.STATIC | Kind.SCALAR):
            return 0
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        found: int | None = handler(node) if handler is not None else None
        return found

    def shape_root(self, node: ast.expr) -> str | None:
        """A name that is never rebound and has the shape of an expression: `x` of `(x > 0)`."""
        for _ in range(8):
            if isinstance(node, ast.Name):
                values = self._bound.get(node.id, [])
                if node.id in self._parameters:
                    return node.id if not values else None
                if len(values) != 1:
                    return None
                made = values[0]
                if not isinstance(made, (ast.Compare, ast.BinOp, ast.UnaryOp)):
                    return node.id
                node = made
            else:
                inner = _of_one_shape(node)
                if inner is None:
                    return None
                node = inner
        return None

    def source(self, node: ast.expr) -> str | None:
        """The name that an expression is computed from, which has its shape: `x` of `(x > 0)`."""
        inner = _of_one_shape(node)
        while inner is not None:
            node, inner = inner, _of_one_shape(inner)
        return node.id if isinstance(node, ast.Name) else None

    def _collect(self) -> None:
        body = self.analysis.info.node.body
        for statement in body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
                owner = _shape_owner(statement.value)
                plain = not any(isinstance(e, ast.Starred) for e in statement.targets[0].elts)
                if owner is not None and plain:
                    self._unpacked.setdefault(owner, len(statement.targets[0].elts))
        for node in walk(self.analysis.info.node):
            if node.__class__ not in _BINDING:
                continue
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._bound.setdefault(target.id, []).append(node.value)
                    else:
                        self._lost(target)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self._bound.setdefault(node.target.id, []).append(node.value)
            elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                self._bound.setdefault(node.target.id, []).append(ast.Starred(node.iter))
            elif isinstance(node, (ast.For, ast.AsyncFor)):
                self._lost(node.target)
            elif isinstance(node, ast.NamedExpr):
                self._bound.setdefault(node.target.id, []).append(node.value)
            elif isinstance(node, (ast.withitem, ast.comprehension)):
                self._lost(node.optional_vars if isinstance(node, ast.withitem) else node.target)

    def _lost(self, target: ast.AST | None) -> None:
        for node in walk(target) if target is not None else ():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._bound.setdefault(node.id, []).append(None)

    def _name(self, node: ast.Name) -> int | None:
        name = node.id
        values = self._bound.get(name, [])
        if not values:
            return self._unpacked.get(name) if name in self._parameters else None
        if name in self._active:
            return None
        given = name in self._parameters and not self._bound_before(name, node)
        if given and name not in self._unpacked:
            return None
        self._active.add(name)
        try:
            ranks = {
                self.of(v) if v is not None else None
                for v in values
                if not (v is not None and _keeps_itself(v, name))
            }
        finally:
            self._active.discard(name)
        if given:
            ranks.add(self._unpacked[name])
        return ranks.pop() if len(ranks) == 1 else None

    def _bound_before(self, name: str, node: ast.Name) -> bool:
        """Whether a statement above, which always runs, gives a name another tensor."""
        for statement in self.analysis.info.node.body:
            if statement.lineno >= node.lineno:
                return False
            if isinstance(statement, ast.Assign) and not _keeps_itself(statement.value, name):
                if any(isinstance(t, ast.Name) and t.id == name for t in statement.targets):
                    return True
        return False

    def _starred(self, node: ast.Starred) -> int | None:
        """Of each element of what a loop goes over, which is kept as if it were starred."""
        rank = self.of(node.value) if self._is_tensor(node.value) else None
        return rank - 1 if rank else None

    def _attribute(self, node: ast.Attribute) -> int | None:
        base = self.analysis.values.get(node.value)
        cls = self.facts.project.class_info(base.reference) if base is not None else None
        if cls is None or base is None or base.kinds & Kind.TENSOR:
            return self.of(node.value) if node.attr in {"data", "grad", "mT"} else None
        writes = [
            w for c in self.facts.project.mro(cls) for w in self.facts.writes(c).get(node.attr, ())
        ]
        ranks = {_literal_rank(w.value) for w in writes}
        return ranks.pop() if len(ranks) == 1 else None

    def _binop(self, node: ast.BinOp) -> int | None:
        if isinstance(node.op, ast.MatMult):
            return None
        return _widest(self.of(node.left), self.of(node.right))

    def _compare(self, node: ast.Compare) -> int | None:
        return _widest(*(self.of(n) for n in (node.left, *node.comparators)))

    def _unaryop(self, node: ast.UnaryOp) -> int | None:
        return self.of(node.operand)

    def _subscript(self, node: ast.Subscript) -> int | None:
        rank = self.of(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if rank is None:
            return None
        for part in parts:
            value = self.analysis.values.get(part)
            if isinstance(part, ast.Slice) or (
                isinstance(part, ast.Constant) and part.value is Ellipsis
            ):
                continue
            if isinstance(part, ast.Constant) and part.value is None:
                rank += 1
            elif value is not None and value.only(Kind.STATIC | Kind.SCALAR):
                rank -= 1
            elif value is not None and value.tensor:
                index = self.of(part)
                if index is None or len([p for p in parts if self._is_tensor(p)]) > 1:
                    return None
                rank += 1 - index if value.boolean else index - 1
            else:
                return None
        return rank

    def _is_tensor(self, node: ast.expr) -> bool:
        value = self.analysis.values.get(node)
        return value is not None and value.may_be_tensor

    def _call(self, node: ast.Call) -> int | None:
        function = self.analysis.values.get(node.func)
        reference = function.reference if function is not None else None
        last = (reference or "").rsplit(".", 1)[-1]
        if isinstance(node.func, ast.Attribute):
            receiver = self.analysis.values.get(node.func.value)
            if receiver is not None and receiver.may_be_tensor:
                return self._method(node, node.func.attr, node.func.value)
        if reference is None:
            return None
        if function is not None and function.kinds & Kind.MODULE and len(node.args) == 1:
            rank = self.of(node.args[0])
            if last == "Embedding":
                return None if rank is None else rank + 1
            layer = last in _SAME_LAYERS and reference.startswith("torch.nn.")
            return rank if layer else None
        if not reference.startswith("torch."):
            return None
        if last in _LOSSES:
            return 0 if _is_reduced(node) else None
        if last in _FACTORIES:
            return _sizes(node.args)
        if last == "full":
            return _sizes(node.args[:1])
        if last == "arange":
            return 1
        if last == "one_hot" and node.args:
            rank = self.of(node.args[0])
            return None if rank is None else rank + 1
        if last in _LIKE and node.args:
            return self.of(node.args[0])
        if last in {"where", "maximum", "minimum"} and len(node.args) > 1:
            return _widest(*(self.of(a) for a in node.args))
        return self._method(node, last, node.args[0], node.args[1:]) if node.args else None

    def _method(
        self,
        node: ast.Call,
        name: str,
        receiver: ast.expr,
        arguments: list[ast.expr] | None = None,
    ) -> int | None:
        given = node.args if arguments is None else arguments
        if name in _METHOD_FACTORIES:
            return _sizes(given)
        rank = self.of(receiver)
        if name == "flatten" and not given and not node.keywords:
            return 1
        if rank is None:
            return None
        if name in _REDUCING:
            return _reduced(rank, given, node.keywords)
        if name == "unsqueeze":
            return rank + 1
        if name == "squeeze" and len(given) == 1 and _integer(given[0]) is not None:
            return None  # only drops the dimension if its size is one
        if name in _SAME:
            return rank
        operation = torch_table.method(name)
        if operation is not None and operation.pointwise:
            return _widest(rank, *(self.of(a) for a in given))
        return None


def _is_reduced(loss: ast.Call) -> bool:
    """Whether a loss function of torch is told, or left, to give a single value."""
    told = [k.value for k in loss.keywords if k.arg == "reduction"]
    if not told:
        return len(loss.args) <= 2 and all(k.arg is not None for k in loss.keywords)
    return isinstance(told[0], ast.Constant) and told[0].value in ("mean", "sum")


def _keeps_itself(node: ast.expr, name: str) -> bool:
    """`x * 2`, `x.to(dtype)`: the name with a number or through something that keeps its shape."""
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
        sides = [node.left, node.right]
        return any(isinstance(s, ast.Name) and s.id == name for s in sides) and any(
            isinstance(s, ast.Constant) for s in sides
        )
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == name
        and node.func.attr in {*_SAME, "float", "half", "double", "bool", "long", "clamp"}
    )


def _of_one_shape(node: ast.expr) -> ast.expr | None:
    """The operand that an expression has the shape of."""
    if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and _constant(node.comparators[0]):
        return node.left
    if isinstance(node, ast.BinOp) and _constant(node.right):
        return node.left
    return None


def _constant(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _shape_owner(node: ast.expr) -> str | None:
    """The name `x` of `x.shape` or `x.size()`."""
    if isinstance(node, ast.Call) and not node.args and not node.keywords:
        node = node.func
        if not (isinstance(node, ast.Attribute) and node.attr == "size"):
            return None
    elif not (isinstance(node, ast.Attribute) and node.attr == "shape"):
        return None
    return node.value.id if isinstance(node.value, ast.Name) else None


def _sizes(arguments: list[ast.expr]) -> int | None:
    if any(isinstance(a, ast.Starred) for a in arguments) or not arguments:
        return None
    if len(arguments) == 1:
        only = arguments[0]
        if isinstance(only, (ast.Tuple, ast.List)):
            return None if any(isinstance(e, ast.Starred) for e in only.elts) else len(only.elts)
        return 1 if _one_size(only) else None
    return len(arguments)


def _one_size(node: ast.expr) -> bool:
    """Whether an argument is one integer: a literal, or an item of a shape."""
    if _integer(node) is not None:
        return True
    if isinstance(node, ast.Subscript):
        return (
            isinstance(node.value, ast.Attribute)
            and node.value.attr == "shape"
            and (_integer(node.slice) is not None)
        )
    return (
        isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "size" and bool(node.args)
    )


def _integer(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _integer(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None


def _reduced(rank: int, given: list[ast.expr], keywords: list[ast.keyword]) -> int | None:
    options = {k.arg: k.value for k in keywords}
    dim = given[0] if given else options.get("dim")
    keep = given[1] if len(given) > 1 else options.get("keepdim")
    if dim is None:
        return 0 if not keywords else None
    count = (
        len(dim.elts) if isinstance(dim, ast.Tuple) else 1 if _integer(dim) is not None else None
    )
    if count is None:
        return None
    if isinstance(keep, ast.Constant):
        return rank if keep.value else rank - count
    return rank - count if keep is None else None


def _literal_rank(node: ast.expr | None) -> int | None:
    """The rank of what an attribute is set to: `nn.Parameter(torch.zeros(n, d))`."""
    if not isinstance(node, ast.Call):
        return None
    last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if last in {"Parameter", "Buffer"} and node.args:
        return _literal_rank(node.args[0])
    if last in _FACTORIES:
        sizes = list(node.args)
        if len(sizes) == 1 and not isinstance(sizes[0], (ast.Tuple, ast.List, ast.Starred)):
            return 1 if isinstance(sizes[0], (ast.Constant, ast.Name, ast.Attribute)) else None
        return _sizes(sizes)
    return 1 if last == "arange" else None


def _widest(*ranks: int | None) -> int | None:
    known = [r for r in ranks if r is not None]
    return max(known) if len(known) == len(ranks) and known else None
