"""Tells shape, dtype, device, memory and gradients of what a function returns, from its text.

The function is run with abstract values, both ways of each branch; loops until nothing changes. What
is not known to give a definite shape gives none. Knows nothing of operators.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gbfix.analysis.conditions import Refused
from gbfix.analysis.trees import children, walk
from gbfix.fixes import Context
from gbfix.lowering import operator_values as known
from gbfix.lowering.operator_sizes import RESHAPING, named_sizes, reshaped, with_sizes
from gbfix.lowering.operator_values import NUMBER, Holds, Known, joined

_Env = dict[str, Known]
_DTYPES = frozenset("float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 bool".split())
_ALIASES = {
    "long": "int64",
    "int": "int32",
    "float": "float32",
    "double": "float64",
    "half": "float16",
}
_CASTS = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16"}
_WHOLE = {"long": "int64", "int": "int32", "bool": "bool"}
_UNTRACKED = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.NamedExpr)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Match)
_SIZES = (
    ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.BinOp,
    ast.operator, ast.expr_context, ast.UnaryOp, ast.unaryop, ast.Slice,
)  # fmt: skip


@dataclass
class Results:
    """What a function returns, on each way out, and what it changes.

    Attributes:
        returned: for each `return`, the values and the expressions.
        mutated: parameters that are changed in place.
        unknown: calls of which nothing is known.
        untracked: parameters whose arrays are read, which only works without gradients.
        autocast: whether it calls what autocast gives another dtype.
    """

    returned: list[list[tuple[Known, ast.expr]]] = field(default_factory=list)
    mutated: set[str] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    untracked: set[str] = field(default_factory=set)
    autocast: bool = False


def results(context: Context, tensors: Sequence[str], numbers: Sequence[str]) -> Results:
    """What the function returns.

    Args:
        context: the function.
        tensors: parameters that are tensors.
        numbers: parameters that are Python numbers, or lists of them.

    Raises:
        Refused: where it does what is not followed.
    """
    node = context.info.node
    for inner in walk(ast.Module(node.body, [])):
        if isinstance(inner, (*_UNTRACKED, *_DEFINITIONS)):
            raise Refused("not-followed", f"`{type(inner).__name__.lower()}` is not followed here")
    environment = dict.fromkeys(numbers, NUMBER)
    for name in tensors:
        me = frozenset({name})
        environment[name] = Known(Holds.TENSOR, (name,), exact=True, grads=me, bases=me)
    run = _Run(context, environment)
    if run.block(node.body, dict(environment)) is not None:
        run.results.returned.append([])
    return run.results


class _Run:
    def __init__(self, context: Context, parameters: _Env) -> None:
        self.context = context
        self.parameters = parameters
        self.results = Results()
        self.environment: _Env = {}
        self.rebound = {
            n.id
            for n in walk(context.info.node)
            if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
        }
        self.sizes = named_sizes(context.info.node, parameters)

    # Statements

    def block(self, body: Sequence[ast.stmt], environment: _Env) -> _Env | None:
        """Run statements; None if the end cannot be reached."""
        self.environment = environment
        for statement in body:
            if not self.run(statement):
                return None
        return self.environment

    def run(self, statement: ast.stmt) -> bool:
        """Run one statement; False if what follows cannot be reached from it."""
        if isinstance(statement, ast.Return):
            self._return(statement)
            return False
        if isinstance(statement, ast.Raise):
            return False
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            if statement.value is not None:
                value = self.value(statement.value)
                for target in getattr(statement, "targets", None) or [statement.target]:  # type: ignore[union-attr]
                    self.bind(target, value)
        elif isinstance(statement, ast.AugAssign):
            self._augmented(statement)
        elif isinstance(statement, ast.If):
            self.value(statement.test)
            entry = self.environment
            ends = [self.block(body, dict(entry)) for body in (statement.body, statement.orelse)]
            return self._meet(ends)
        elif isinstance(statement, (ast.For, ast.While)):
            self._loop(statement)
        elif isinstance(statement, ast.With):
            if any(i.optional_vars for i in statement.items):
                raise Refused("not-followed", "`with` binds a name here")
            self._context_managers(statement)
            return self.block(statement.body, self.environment) is not None
        elif isinstance(statement, ast.Expr):
            self.value(statement.value)
        elif isinstance(statement, ast.Assert):
            self.value(statement.test)
        elif not isinstance(
            statement, (ast.Pass, ast.Break, ast.Continue, ast.Import, ast.ImportFrom)
        ):
            kind = type(statement).__name__.lower()
            raise Refused("not-followed", f"`{kind}` is not followed here")
        return True

    def _context_managers(self, statement: ast.With) -> None:
        for item in statement.items:
            call = item.context_expr
            name = self.qualified(call.func) if isinstance(call, ast.Call) else None
            if name != "torch.no_grad":
                raise Refused("not-followed", f"`with {ast.unparse(call)}` is not followed here")
        # In there values carry no gradients; which of them are used outside is not followed.
        self.environment = {n: replace(v, grads=None) if v.grads else v
                            for n, v in self.environment.items()}  # fmt: skip

    def _meet(self, ends: Sequence[_Env | None]) -> bool:
        reached = [end for end in ends if end is not None]
        if not reached:
            return False
        first = reached[0]
        for other in reached[1:]:
            names = first.keys() | other.keys()
            first = {name: joined(first.get(name), other.get(name)) for name in names}
        self.environment = first
        return True

    def _loop(self, node: ast.For | ast.While) -> None:
        """Rounds until nothing changes; a `break` leaves with what some round has reached."""
        if node.orelse:
            raise Refused("not-followed", "`else` of a loop is not followed here")
        entry = self.environment
        has_exit = any(isinstance(n, (ast.Break, ast.Continue)) for n in walk(node))
        for _ in range(8):
            self.environment = dict(entry)
            if isinstance(node, ast.While):
                self.value(node.test)
            else:
                over = self.value(node.iter)
                grads, bases = known.of(over)
                counted = over.holds is Holds.NUMBER
                self.bind(
                    node.target, NUMBER if counted else Known(Holds.OTHER, grads=grads, bases=bases)
                )
            before = dict(self.environment)
            end = self.block(node.body, self.environment)
            ends: list[_Env | None] = [entry, before, end]
            if has_exit and end is not None:
                # Names that are bound on the way may be left in between.
                stored = {n.id for n in walk(node) if isinstance(n, ast.Name)
                          and isinstance(n.ctx, ast.Store)}  # fmt: skip
                ends.append(
                    {
                        n: v
                        if n not in stored or before.get(n) == v
                        else Known(Holds.OTHER, grads=None, bases=v.bases)
                        for n, v in end.items()
                    }
                )
            self._meet(ends)
            if self.environment == entry:
                return
            entry = self.environment
        raise Refused("not-followed", "a loop changes what its values are in each round")

    def _return(self, node: ast.Return) -> None:
        value = node.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            self.results.returned.append([])
            return
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        self.results.returned.append([(self.value(part), part) for part in parts])

    def bind(self, target: ast.expr, value: Known) -> None:
        """Store a value."""
        if isinstance(target, ast.Name):
            self.environment[target.id] = value
        elif isinstance(target, ast.Subscript):
            self._written(target.value, value)
            self.value(target.slice)
        elif isinstance(target, (ast.Tuple, ast.List)):
            part = value if value.holds is Holds.NUMBER else replace(
                Known(Holds.OTHER), grads=value.grads, bases=value.bases)  # fmt: skip
            for element in target.elts:
                self.bind(element, part)
        else:
            raise Refused("keeps-state", f"`{ast.unparse(target)}` outlives the call")

    def _written(self, target: ast.expr, value: Known) -> None:
        """A tensor or array that is changed in place takes the gradients of what it is given."""
        while isinstance(target, ast.Subscript):
            target = target.value
        if not isinstance(target, ast.Name):
            raise Refused("keeps-state", f"`{ast.unparse(target)}` is changed in place")
        old = self.environment.get(target.id)
        if old is None:
            raise Refused("keeps-state", f"`{target.id}` is changed and outlives the call")
        self.results.mutated |= old.bases
        if old.bases and old.holds is not Holds.TENSOR and old.grads is None:
            raise Refused("keeps-state", f"it cannot be told what `{target.id}` shares")
        grads, _ = known.of(old, value)
        for name, other in list(self.environment.items()):
            if other.ident == old.ident:
                self.environment[name] = replace(other, grads=grads)

    def _augmented(self, node: ast.AugAssign) -> None:
        value = self.value(node.value)
        if not isinstance(node.target, ast.Name):
            self.bind(node.target, value)
            return
        old = self.environment.get(node.target.id)
        if old is None:
            raise Refused("keeps-state", f"`{node.target.id}` outlives the call")
        if old.holds is Holds.NUMBER:
            self.environment[node.target.id] = self._arithmetic([old, value])
        else:
            self._written(node.target, value)

    # Expressions

    def qualified(self, node: ast.expr) -> str | None:
        """The name of a function or constant of a module."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in self.environment:
            return None
        if isinstance(node, ast.Name) and node.id not in self.context.info.module.bindings:
            return f"builtins.{node.id}"
        return self.context.info.module.qualify(node)

    def value(self, node: ast.expr) -> Known:
        """What is known of an expression."""
        if isinstance(node, ast.Constant):
            return NUMBER
        if isinstance(node, ast.Name):
            bound = self.context.info.module.bindings.get(node.id, [])
            constant = len(bound) == 1 and isinstance(bound[0], ast.Constant)
            return self.environment.get(node.id, NUMBER if constant else Known(Holds.OTHER))
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.BinOp):
            return self._arithmetic([self.value(node.left), self.value(node.right)])
        if isinstance(node, ast.UnaryOp):
            inner = self.value(node.operand)
            if isinstance(node.op, ast.Not):
                return NUMBER
            exact = inner.exact and isinstance(node.op, ast.USub)
            return inner.fresh(exact=exact) if inner.holds is not Holds.NUMBER else NUMBER
        if isinstance(node, ast.Compare):
            parts = [self.value(node.left), *(self.value(c) for c in node.comparators)]
            return self._truth(parts)
        if isinstance(node, ast.IfExp):
            self.value(node.test)
            return joined(self.value(node.body), self.value(node.orelse))
        if isinstance(node, ast.Subscript):
            base, at = self.value(node.value), self.value(node.slice)
            if base.holds is Holds.NUMBER and at.holds is Holds.NUMBER:
                return NUMBER
            return Known(Holds.OTHER, grads=base.grads, bases=base.bases)
        inner_values = [self.value(n) for n in children(node) if isinstance(n, ast.expr)]
        if isinstance(node, (ast.Tuple, ast.List, ast.BoolOp)) and all(
            v.holds is Holds.NUMBER for v in inner_values
        ):
            return NUMBER
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            raise Refused("not-followed", "a comprehension is not followed here")
        grads, bases = known.of(*inner_values)
        return Known(Holds.OTHER, grads=grads, bases=bases)

    def _attribute(self, node: ast.Attribute) -> Known:
        if self.qualified(node) is not None:
            return Known(Holds.OTHER)
        base = self.value(node.value)
        if node.attr in ("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda"):
            return NUMBER
        grads = frozenset() if node.attr == "data" else base.grads
        return Known(Holds.OTHER, grads=grads, bases=base.bases)

    def _arithmetic(self, parts: Sequence[Known]) -> Known:
        """The result of a pointwise computation."""
        grads, bases = known.of(*parts)
        if all(p.holds is Holds.NUMBER for p in parts):
            return NUMBER
        made = [p for p in parts if p.holds is not Holds.NUMBER]
        # A single element of the same dtype has no say in shape or dtype.
        whole = [p for p in made if p.shape is None or p.shape != "()"]
        made = [p for p in made if p in whole or not whole or p.dtype != whole[0].dtype]
        if len({p.holds for p in made}) > 1 or not all(p.like and p.shape is None for p in made):
            return Known(Holds.OTHER, grads=grads, bases=bases)
        dtypes, places = {p.dtype for p in made}, {p.cpu for p in made}
        if len(places) > 1:
            return Known(Holds.OTHER, grads=grads, bases=bases)
        like = tuple(dict.fromkeys(name for p in made for name in p.like))
        dtype = dtypes.pop() if len(dtypes) == 1 else known.UNKNOWN_DTYPE
        if dtype is not None and not dtype.startswith("float"):
            dtype = known.UNKNOWN_DTYPE
        return made[0].fresh(like=like, dtype=dtype, exact=False, grads=grads)

    def _truth(self, parts: Sequence[Known]) -> Known:
        result = self._arithmetic(parts)
        if not result.shaped:
            return NUMBER if result.holds is Holds.NUMBER else replace(result, grads=frozenset())
        return result.fresh(dtype="bool", grads=frozenset())

    def _call(self, node: ast.Call) -> Known:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(
            k.arg is None for k in node.keywords
        ):
            raise Refused("not-followed", "a call with `*` or `**` is not followed here")
        given = [self.value(a) for a in node.args]
        named = {k.arg: self.value(k.value) for k in node.keywords if k.arg}
        name = self.qualified(node.func)
        if "out" in named:
            raise Refused("not-followed", "`out=` is not followed here")
        if name is None and isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value)
            return self._method(node, node.func.attr, base, [base, *given], named)
        if name is None:
            raise Refused("not-followed", f"`{ast.unparse(node.func)}` is a value of the call")
        short = name.rpartition(".")[2]
        values = [*given, *named.values()]
        if name in known.NUMERIC_CALLS or name.startswith("math."):
            return NUMBER
        if name in ("builtins.range", "builtins.min", "builtins.max", "builtins.sum") and all(
            v.holds is Holds.NUMBER for v in values
        ):
            return NUMBER
        if name in known.COLLECTING:
            grads, bases = known.of(*values)
            return Known(Holds.OTHER, grads=grads, bases=bases)
        if name.startswith(("numpy.", "scipy.")) and not name.startswith("numpy.random"):
            return self._numpy(name, short, values)
        if name in ("torch.from_numpy", "torch.as_tensor", "torch.tensor"):
            return self._from_array(node, short, values, given)
        if name.startswith(("torch.nn.functional.", "torch.special.")) or name.count(".") == 1:
            if name.startswith("torch."):
                return self._torch(node, short, values, given)
        self.results.unknown.append(ast.unparse(node.func))
        grads, bases = known.of(*values)
        return Known(Holds.OTHER, grads=None if grads else grads, bases=bases)

    def _torch(
        self, node: ast.Call, short: str, values: Sequence[Known], given: Sequence[Known]
    ) -> Known:
        if short in ("zeros", "ones", "empty", "full", "eye"):
            return self._static(node, short)
        if (given and given[0].holds is not Holds.NUMBER) or short in known.POINTWISE:
            return self._operation(node, short, values)
        grads, bases = known.of(*values)
        return Known(Holds.OTHER, grads=grads, bases=bases)

    def _operation(self, node: ast.Call, short: str, values: Sequence[Known]) -> Known:
        """A function of torch, or the method of that name."""
        grads, bases = known.of(*values)
        base = next((v for v in values if v.holds is not Holds.NUMBER), NUMBER)
        options = {k.arg for k in node.keywords}
        self.results.autocast |= short in known.AUTOCAST
        plain = not options & {"dtype", "device", "memory_format", "inplace"}
        if short == "where" and len(values) == 3 and values[0].shaped:
            mask, kept = values[0], self._arithmetic(values[1:])
            if kept.shaped and kept.holds is Holds.TENSOR and not kept.shape:
                like = tuple(dict.fromkeys([*kept.like, *mask.like]))
                return kept.fresh(like=like, grads=known.of(*values[1:])[0])
        elif short in known.POINTWISE and short != "where" and plain:
            return replace(self._arithmetic(values), grads=grads)
        if base.shaped and base.holds is Holds.TENSOR and plain:
            if short in known.EXACT:
                only = values[:1] if short == "masked_fill" else values
                if short == "masked_fill" and not (base.like and values[1].like == base.like):
                    return Known(Holds.OTHER, grads=grads)
                return base.fresh(grads=known.of(*only)[0])
            if short in known.LIKE:
                return base.fresh(grads=frozenset())
            if short in known.TRUTHS:
                return self._truth(values)
            if short == "argsort":
                return base.fresh(dtype="int64", grads=frozenset())
            if short in known.REDUCED and len(values) == 1 and not base.dtype:
                return base.fresh(shape="()", exact=False)
            if short in known.SAME:
                return base if short == "contiguous" else replace(base, cpu=True)
        if short in known.LIKE and base.shaped and base.holds is Holds.TENSOR:
            placed = self._to(ast.Call(node.func, [], node.keywords), base)
            if placed.shaped:
                return placed.fresh(grads=frozenset())
        if (
            short in ("nonzero", "argmax", "argmin", "bincount", "any", "all")
            or short in known.TRUTHS
        ):
            return Known(Holds.OTHER)
        return Known(Holds.OTHER, grads=grads, bases=bases)

    def _method(
        self,
        node: ast.Call,
        short: str,
        base: Known,
        values: list[Known],
        named: dict[str, Known],
    ) -> Known:
        grads, bases = known.of(*values, *named.values())
        if short in known.SCALARS:
            return NUMBER
        if base.holds is Holds.ARRAY:
            if short == "copy":
                return base.fresh()
            if short == "astype" and base.shaped and len(node.args) == 1 and not named:
                return base.fresh(dtype=self._dtype(node.args[0]) or known.UNKNOWN_DTYPE)
            return Known(Holds.OTHER, bases=base.bases)
        if short in ("append", "extend", "update", "add", "insert", "pop") and (
            base.holds is Holds.OTHER
        ):
            self._written(node.func.value, self._mixed(values, named))  # type: ignore[attr-defined]
            return Known(Holds.OTHER, grads=grads, bases=bases)
        if short == "detach":
            return replace(base, grads=frozenset())
        if short == "numpy":
            if base.grads is None or base.grads:
                self.results.untracked |= base.bases or base.grads or set()
            if base.holds is Holds.TENSOR:
                return replace(base, holds=Holds.ARRAY, cpu=True, grads=frozenset())
            return Known(Holds.OTHER, bases=bases)
        if short in known.RESHAPED:
            raise Refused("not-followed", f"`{short}` changes what the tensor is")
        if short.endswith("_") and not short.startswith("_"):
            self._written(node.func.value, self._mixed(values, named))  # type: ignore[attr-defined]
            return self.value(node.func.value)  # type: ignore[attr-defined]
        if short.startswith("new_"):
            return self._static(node, short, base)
        if short in ("to", "type_as") and base.shaped and base.holds is Holds.TENSOR:
            return self._to(node, base)
        if short in RESHAPING and base.holds is Holds.TENSOR and base.shape is not None:
            if not named and all(map(self._fixed, node.args)):
                wanted = [with_sizes(a, self.sizes) for a in node.args]
                shape = reshaped(base.shape, short, wanted)
                if shape is not None:
                    bases = frozenset() if short == "repeat" else base.bases
                    return replace(base, shape=shape, bases=bases)
        if short in _CASTS and base.shaped and base.holds is Holds.TENSOR:
            return replace(base, dtype=_CASTS[short])
        if short in _WHOLE:
            if base.shaped and base.holds is Holds.TENSOR:
                return replace(base, dtype=_WHOLE[short], grads=frozenset())
            return Known(Holds.OTHER, bases=bases)
        return self._operation(node, short, [*values, *named.values()])

    def _mixed(self, values: Sequence[Known], named: dict[str, Known]) -> Known:
        grads, _ = known.of(*values, *named.values())
        return Known(Holds.OTHER, grads=grads)

    def _to(self, node: ast.Call, base: Known) -> Known:
        """`to(x)`, `to(x.dtype)`, `to(x.device)` and keywords; `x` is a parameter."""
        wanted = [*node.args, *(k.value for k in node.keywords)]
        if any(k.arg not in ("dtype", "device") for k in node.keywords):
            return Known(Holds.OTHER, grads=base.grads, bases=base.bases)
        for part in wanted:
            whole = isinstance(part, ast.Name)
            root = part.value if isinstance(part, ast.Attribute) else part
            of = self.environment.get(root.id) if isinstance(root, ast.Name) else None
            attribute = part.attr if isinstance(part, ast.Attribute) else None
            is_first = of is not None and of.like[:1] == base.like[:1] and not of.cpu
            if is_first and of is not None and (whole or attribute == "device"):
                base = replace(base, cpu=False)
            if is_first and of is not None and (whole or attribute == "dtype"):
                base = replace(base, dtype=of.dtype, exact=of.exact)
            if is_first and (whole or attribute in ("device", "dtype")):
                continue
            dtype = self._dtype(part)
            if dtype is None:
                return Known(Holds.OTHER, grads=base.grads, bases=base.bases)
            base = replace(base, dtype=dtype)
        if base.dtype and not base.dtype.startswith(("float", "bfloat", "?")):
            base = replace(base, grads=frozenset())
        return base

    def _dtype(self, node: ast.expr) -> str | None:
        name = self.qualified(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if name is None or name.partition(".")[0] not in ("torch", "numpy"):
            return None
        short = name.rpartition(".")[2]
        if name.startswith("torch."):
            short = _ALIASES.get(short, short)
        return short if short in _DTYPES else None

    def _numpy(self, name: str, short: str, values: Sequence[Known]) -> Known:
        grads, bases = known.of(*values)
        arrays = [v for v in values if v.holds is not Holds.NUMBER]
        if grads is None or grads:
            self.results.untracked |= bases
        alike = arrays and all(v.holds is Holds.ARRAY and v.like and not v.shape for v in arrays)
        alike = alike and len({v.like for v in arrays}) == 1
        if name == f"numpy.{short}" and short in known.NUMPY_LIKE and alike:
            values = arrays[1:] if short == "where" and len(arrays) > 1 else arrays
            dtypes = {v.dtype for v in values}
            dtype = dtypes.pop() if len(dtypes) == 1 else known.UNKNOWN_DTYPE
            return arrays[0].fresh(dtype=dtype, exact=False)
        if (
            name.startswith("scipy.ndimage.")
            and short in known.FILTERS
            and len(arrays) == 1
            and alike
        ):
            return arrays[0].fresh(exact=False)
        copied = short in ("quantile", "percentile", "mean", "max", "min", "sum", "std", "median")
        return Known(Holds.OTHER, bases=frozenset() if copied else bases)

    def _from_array(
        self, node: ast.Call, short: str, values: Sequence[Known], given: Sequence[Known]
    ) -> Known:
        grads, bases = known.of(*values)
        base = given[0] if given else NUMBER
        if base.holds is not Holds.ARRAY or not base.shaped or len(node.args) != 1:
            return Known(Holds.OTHER, grads=None if grads else grads, bases=bases)
        tensor = replace(base, holds=Holds.TENSOR, cpu=True)
        if node.keywords:
            tensor = self._to(ast.Call(node.func, [], node.keywords), tensor)
        return tensor.fresh() if short == "tensor" else tensor

    def _static(self, node: ast.Call, short: str, base: Known | None = None) -> Known:
        """A new tensor whose shape is written out in terms of the parameters."""
        count = 1 if short.endswith("full") else len(node.args)
        sizes = node.args[:count] * (2 if short == "eye" and count == 1 else 1)
        options = {k.arg: k.value for k in node.keywords}
        if not sizes or options.keys() - {"dtype", "device"} or not all(map(self._fixed, sizes)):
            return Known(Holds.OTHER)
        text = ", ".join(with_sizes(s, self.sizes) for s in sizes)
        if len(sizes) > 1 or isinstance(sizes[0], ast.Constant):
            text = f"({text},)" if len(sizes) == 1 else f"({text})"
        like = base.like[:1] if base is not None and base.like else ()
        device = options.get("device")
        if isinstance(device, ast.Attribute) and device.attr == "device":
            root = device.value
            owner = self.environment.get(root.id) if isinstance(root, ast.Name) else None
            if owner is None or not owner.like or owner.cpu:
                return Known(Holds.OTHER)
            like = owner.like[:1]
        elif device is not None or not like:
            return Known(Holds.OTHER)
        dtype = base.dtype if base is not None else known.UNKNOWN_DTYPE
        exact = base is not None and base.exact
        wanted = options.get("dtype")
        if isinstance(wanted, ast.Attribute) and wanted.attr == "dtype":
            root = wanted.value
            owner = self.environment.get(root.id) if isinstance(root, ast.Name) else None
            if owner is None or owner.like[:1] != like:
                return Known(Holds.OTHER)
            dtype, exact = owner.dtype, owner.exact
        elif wanted is not None:
            dtype = self._dtype(wanted) or known.UNKNOWN_DTYPE
        elif base is None and short != "full":
            dtype = known.UNKNOWN_DTYPE
        cpu = bool(base and base.cpu)
        return Known(Holds.TENSOR, like, shape=text, dtype=dtype, exact=exact, cpu=cpu)

    def _fixed(self, node: ast.expr) -> bool:
        """Whether an expression reads only parameters that are never bound anew."""
        if isinstance(node, ast.Call):
            return False
        for inner in walk(node):
            if not isinstance(inner, _SIZES):
                return False
            if isinstance(inner, ast.Attribute) and inner.attr != "shape":
                return False
            if isinstance(inner, ast.Name):
                if inner.id in self.sizes:
                    continue
                known_name = self.parameters.get(inner.id)
                if known_name is None or inner.id in self.rebound:
                    return False
                around = self.context.info.module.parents[inner]
                if known_name is not NUMBER and not isinstance(around, ast.Attribute):
                    return False
        return True
