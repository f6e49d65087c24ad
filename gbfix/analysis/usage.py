"""Kinds from use: a parameter without annotation is a tensor if it is used as only a tensor can be.

This is duck typing read backwards. Attributes and methods that strings, lists, dictionaries, numbers
or common configuration objects also have say nothing. The module looks at one function at a time.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence

from gbfix.analysis import torch_table
from gbfix.analysis.project import Function, Module
from gbfix.analysis.trees import kept, of_kind, walk

_ATTRIBUTES = frozenset({"requires_grad", "grad_fn", "is_cuda", "is_leaf", "mT", "ndim"})
_COMMON = frozenset(
    {n for t in (str, bytes, list, dict, set, tuple, int, float) for n in dir(t)}
    | {
        "add",
        "apply_",
        "sum_",
        "get",
        "select",
        "where",
        "type",
        "share_memory_",
        "to",
        "cpu",
        "cuda",
    }
    | {"half", "float", "double", "bfloat16", "train", "eval", "names", "size", "values", "save"}
    | {"register_hook", "map_", "set_", "item", "numpy", "resize", "norm", "unique", "multiply"}
)
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
# Methods of numpy arrays too: proof of a tensor only where the module does not use numpy.
_ARRAY = frozenset(
    "all any argmax argmin argsort clip cumprod cumsum diagonal dot flatten max mean min "
    "nonzero prod ravel repeat reshape sort squeeze std sum swapaxes take tolist trace "
    "transpose var view round conj".split()
)


_SHAPED = frozenset({"shape", "dtype", "device"})
# What no comparison of numbers or arrays has: `(x == 1).float()`.
_CASTS = frozenset("float double half long int short byte bool to type bfloat16".split())


def proves_tensor(method: str, module: Module) -> bool:
    """Whether calling a method of this name proves that the receiver is a tensor."""
    return _proves(method, arrays=module.uses_numpy)


def _proves(method: str, *, arrays: bool) -> bool:
    """The same where the receiver may, or may not, be an array of numpy."""
    if method in _COMMON or method.startswith("__"):
        return False
    if method in _ARRAY:
        return not arrays
    return torch_table.method(method) is not None


def tensor_parameters(function: Function, module: Module) -> frozenset[str]:
    """Names of parameters that the function uses as tensors before rebinding matters."""
    return _used_as_tensors(function, module, _bare(function), arrays=module.uses_numpy)


def array_parameters(function: Function, module: Module) -> frozenset[str]:
    """Parameters used as only tensors and arrays of numpy can be, and never as an array alone can."""
    names = _bare(function)
    for call in of_kind(function, ast.Call) if names else ():
        called = module.qualify(call.func) or ""
        if called.startswith("numpy.") or called == "builtins.isinstance":
            given = [*call.args, *(k.value for k in call.keywords)]
            names -= {n.id for n in given if isinstance(n, ast.Name)}
    return _used_as_tensors(function, module, names, arrays=False)


def _bare(function: Function) -> set[str]:
    """The parameters of which nothing is said."""
    arguments = function.args
    return {
        a.arg
        for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        if a.arg not in {"self", "cls"} and a.annotation is None
    }


@kept
def tensor_locals(function: Function, module: Module) -> frozenset[str]:
    """Names that the function binds once, in one place, and uses as tensors."""
    if module.uses_numpy:
        return frozenset()
    stores = Counter(n.id for n in of_kind(function, ast.Name) if isinstance(n.ctx, ast.Store))
    given = {a.arg for a in walk(function.args) if isinstance(a, ast.arg)}
    alone = (s.targets[0] for s in of_kind(function, ast.Assign) if len(s.targets) == 1)
    names = {t.id for t in alone if isinstance(t, ast.Name) and stores[t.id] == 1} - given
    return _used_as_tensors(function, module, names, arrays=False, strict=True)


def _used_as_tensors(
    function: Function, module: Module, names: set[str], *, arrays: bool, strict: bool = False
) -> frozenset[str]:
    """The names of which a use tells that they hold tensors; where there may be arrays, fewer do."""
    found: set[str] = set()
    if not names:
        return frozenset()
    compared = _compared(function, names)
    for call in of_kind(function, ast.Call):
        found |= _from_call(call, names, module, arrays=arrays, strict=strict)
        if compared and isinstance(call.func, ast.Attribute):
            base = call.func.value
            if isinstance(base, ast.Name) and _proves(call.func.attr, arrays=arrays):
                found |= compared.get(base.id, set())
    telling = _ATTRIBUTES if arrays else _ATTRIBUTES | _SHAPED
    # Layers of some libraries have a dtype and a device, too.
    for attribute in of_kind(function, ast.Attribute) if not strict else ():
        if attribute.attr in telling and isinstance(attribute.value, ast.Name):
            found.add(attribute.value.id)
    for item in of_kind(function, ast.Subscript):
        if isinstance(item.value, ast.Name) and _tensor_index(item.slice):
            found.add(item.value.id)
        chosen = _chosen_by(item.slice, compared) if not arrays else None
        if chosen is not None and _is_tensor_use(item, module, arrays=arrays):
            found |= chosen
            if isinstance(item.value, ast.Name):
                found.add(item.value.id)
    for operation in of_kind(function, ast.BinOp):
        if isinstance(operation.op, ast.MatMult):
            operands = (operation.left, operation.right)
            found |= {n.id for n in operands if isinstance(n, ast.Name)}
    return frozenset(found & names)


def _is_tensor_use(node: ast.expr, module: Module, *, arrays: bool) -> bool:
    """Whether something is an argument of torch, or has a method that only tensors have."""
    parent = module.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return _proves(parent.attr, arrays=arrays)
    if not isinstance(parent, ast.Call) or node not in parent.args:
        return False
    return (module.qualify(parent.func) or "").startswith("torch.")


def _chosen_by(index: ast.expr, compared: dict[str, set[str]]) -> set[str] | None:
    """The parameters whose comparison is an index, which only one with a tensor can be."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for part in parts:
        while isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Invert):
            part = part.operand
        if isinstance(part, ast.Name) and part.id in compared:
            return compared[part.id]
    return None


def _compared(function: Function, names: set[str]) -> dict[str, set[str]]:
    """Names that only ever hold `x < 0` and the like, with the parameter that is compared.

    The comparison of anything but a tensor with a number has no methods of a tensor.
    """
    stores: dict[str, list[ast.expr | None]] = {}
    values: dict[ast.AST, ast.expr] = {}
    compares = False
    for statement in of_kind(function, ast.Assign):
        if len(statement.targets) == 1:
            values[statement.targets[0]] = statement.value
            compares = compares or isinstance(statement.value, ast.Compare)
    if not compares:
        return {}
    for node in of_kind(function, ast.Name):
        if isinstance(node.ctx, ast.Store):
            stores.setdefault(node.id, []).append(values.get(node))
    found: dict[str, set[str]] = {}
    for name, given in stores.items():
        value = given[0] if len(given) == 1 else None
        if not isinstance(value, ast.Compare) or not isinstance(value.comparators[0], ast.Constant):
            continue
        if isinstance(value.left, ast.Name) and value.left.id in names - set(stores):
            found[name] = {value.left.id}
    return found


def presumed_tensors(function: Function, module: Module) -> frozenset[str]:
    """Parameters with which a compiled function only calculates, starting from a number.

    `x * 2` and `x + y.item()` prove nothing, since a number could be given as well. In a function that
    is there to be compiled it is a tensor all the same, and whoever relies on that has to say so.
    """
    arguments = function.args
    without = len(arguments.defaults)
    positional = [*arguments.posonlyargs, *arguments.args]
    plain = positional[: len(positional) - without] if without else positional
    plain += [a for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if not d]
    names = {a.arg for a in plain if a.annotation is None and a.arg not in {"self", "cls"}}
    found: set[str] = set()
    for node in of_kind(function, ast.Name) if names else ():
        if node.id not in names:
            continue
        parent = module.parents.get(node)
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, _ARITHMETIC):
            other = parent.right if parent.left is node else parent.left
            if isinstance(other, ast.Constant) or _is_item(other):
                found.add(node.id)
        elif not isinstance(parent, ast.BinOp | ast.UnaryOp | ast.Return | ast.Tuple):
            names.discard(node.id)
    return frozenset(found & names)


def is_returned(function: Function, name: str) -> bool:
    """Whether a function returns what a name holds, as it is."""
    returned = [n.value for n in of_kind(function, ast.Return)]
    return any(isinstance(value, ast.Name) and value.id == name for value in returned)


def is_tested(function: Function, name: str) -> bool:
    """Whether a name takes part in what decides a branch or a loop."""
    tests = [n.test for n in walk(function) if isinstance(n, (ast.If, ast.IfExp, ast.While))]
    return any(isinstance(n, ast.Name) and n.id == name for test in tests for n in walk(test))


def _is_item(node: ast.expr) -> bool:
    """`y.item()`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "item"
        and not node.args
    )


def _tensor_index(index: ast.expr) -> bool:
    """`x[..., 0]`, `x[:, None]` and the like, which no list or dictionary takes."""
    return isinstance(index, ast.Tuple) and any(
        isinstance(e, ast.Slice) or (isinstance(e, ast.Constant) and e.value in (..., None))
        for e in index.elts
    )


def _reads_item(node: ast.Call, *, arrays: bool) -> bool:
    """`x.item()`, which numpy scalars have too."""
    attribute = node.func
    return (
        isinstance(attribute, ast.Attribute)
        and attribute.attr == "item"
        and not node.args
        and not arrays
    )


def _is_count(node: ast.expr) -> bool:
    """`x.size(0)`, `x.shape[0]` or `len(x)`."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    function = node.func if isinstance(node, ast.Call) else None
    named = isinstance(function, ast.Name) and function.id == "len"
    return named or (isinstance(function, ast.Attribute) and function.attr in {"size", "numel"})


def _from_call(
    node: ast.Call, names: set[str], module: Module, *, arrays: bool, strict: bool = False
) -> set[str]:
    found: set[str] = set()
    if isinstance(node.func, ast.Attribute):
        base: ast.expr = node.func.value
        compared = isinstance(base, ast.Compare)
        # x.sum() and (x < 0).any(): the comparison of a non-tensor has no such method.
        while isinstance(base, (ast.Compare, ast.BinOp, ast.UnaryOp)):
            base = base.left if isinstance(base, (ast.Compare, ast.BinOp)) else base.operand
        if (
            isinstance(base, ast.Name)
            and base.id in names
            and (_proves(node.func.attr, arrays=arrays) or (compared and node.func.attr in _CASTS))
        ) or (isinstance(base, ast.Name) and base.id in names and _reads_item(node, arrays=arrays)):
            found.add(base.id)
        elif isinstance(base, ast.Name) and base.id in names and node.func.attr == "size":
            if len(node.args) <= 1:
                found.add(base.id)
        if not strict and _proves(node.func.attr, arrays=arrays):
            found |= _given_to_method(node.func, node.args, module) & names
    qualified = module.qualify(node.func)
    operation = torch_table.function(qualified) if qualified else None
    if operation is not None:
        # `torch.zeros(rows, columns)`: all positions are sizes.
        given = node.args if operation.params[:1] != ("size",) else []
        for position, argument in enumerate(given):
            first = position == 0 and _takes_no_number(operation.params)
            if strict and not first:
                break
            plain = argument.id if isinstance(argument, ast.Name) else None
            name = _calculated(argument) if first else plain
            if name not in names or position >= len(operation.params):
                continue
            # `torch.div(x.size(1), n)` is given numbers.
            numbers = any(_is_count(other) for other in given)
            holding = operation.only_tensor_params if numbers else operation.tensor_params
            if operation.params[position] in holding:
                found.add(name)
        for keyword in node.keywords if not strict else ():
            if isinstance(keyword.value, ast.Name) and keyword.arg in operation.tensor_params:
                found |= {keyword.value.id} & names
    return found


def _given_to_method(method: ast.Attribute, given: Sequence[ast.expr], module: Module) -> set[str]:
    """Names that a method of tensors alone is given where it takes nothing but a tensor.

    What `self` or a module is asked for may be a function of the same name.
    """
    operation = torch_table.method(method.attr)
    receiver = method.value
    if operation is None or isinstance(receiver, ast.Attribute):
        return set()
    if isinstance(receiver, ast.Name) and (
        receiver.id in {"self", "cls"} or module.qualify(receiver) is not None
    ):
        return set()
    taken = zip(operation.params, given, strict=False)
    only = operation.only_tensor_params
    return {a.id for name, a in taken if name in only and isinstance(a, ast.Name)}


def _takes_no_number(params: Sequence[str]) -> bool:
    """Whether what an operation of torch is given first has to be a tensor."""
    return params[:1] == ("input",) and "self" not in params


def _calculated(node: ast.expr) -> str | None:
    """The name in `x`, `x + 1.0` and `1.0 - m[0, 0]`: all but it are numbers that are written out.

    What is indexed with several numbers is no list.
    """
    names: set[str] = set()
    todo = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.BinOp):
            todo += [part.left, part.right]
        elif isinstance(part, ast.UnaryOp) and isinstance(part.op, (ast.USub, ast.UAdd)):
            todo.append(part.operand)
        elif isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Tuple):
            todo.append(part.value)
        elif isinstance(part, ast.Name):
            names.add(part.id)
        elif not (isinstance(part, ast.Constant) and isinstance(part.value, (int, float))):
            return None
    return names.pop() if len(names) == 1 else None
