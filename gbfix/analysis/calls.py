"""What torch's own functions, methods and layers give back, as abstract values.

Joins the generated table of torch's operations with the values of the arguments: reductions to a
single element, results of dtype bool, results that keep shape and dtype. Knows torch, not syntax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gbfix.analysis import torch_table
from gbfix.analysis.dtypes import FLOATING_DTYPES, INTEGER_DTYPES
from gbfix.analysis.torch_table import ArgumentKind, Operation
from gbfix.analysis.values import (
    MAYBE,
    NONE,
    SCALAR,
    STATIC,
    UNKNOWN,
    Kind,
    Value,
    container,
    fresh_number,
    replace,
    sequence,
    tensor,
)

_VALUES_AND_INDICES = frozenset(
    "max min median nanmedian mode sort topk kthvalue cummax cummin".split()
)
_TURNING = frozenset(
    "t transpose permute swapaxes swapdims movedim moveaxis expand "
    "scaled_dot_product_attention".split()
)
# Contiguous, however what they are given lies in memory.
_DENSE = frozenset(
    "contiguous masked_fill masked_scatter scatter scatter_add index_add index_copy cumsum "
    "softmax log_softmax roll".split()
)
_INTEGER = frozenset(
    ["argmax", "argmin", "argsort", "long", "int", "count_nonzero", "bincount", "searchsorted"]
)
_FOUND = frozenset({"where", "nonzero", "argwhere"})
_ADDING = frozenset("sum prod cumsum cumprod".split())
_KEEPING = frozenset("max min amax amin median".split())
# They arrange the elements of a tensor anew, or pick some, and leave the dtype as it is.
_ARRANGING = frozenset(
    "unsqueeze squeeze expand expand_as broadcast_to view view_as reshape reshape_as flatten unflatten "
    "ravel t transpose permute swapaxes swapdims movedim moveaxis select narrow diagonal unfold repeat "
    "tile gather index_select take_along_dim roll flip contiguous clone".split()
)
_DTYPES = FLOATING_DTYPES | INTEGER_DTYPES | {"torch.bool"}
_OF_DEFAULT_DTYPE = frozenset(
    f"torch.{n}" for n in ("zeros", "ones", "empty", "rand", "randn", "eye", "linspace")
)
_LIKE = frozenset(
    {
        "torch.zeros_like",
        "torch.ones_like",
        "torch.empty_like",
        "torch.rand_like",
        "torch.randn_like",
    }
)


def kind_word(value: Value) -> ArgumentKind:
    """The word by which the table tells argument kinds apart."""
    if value.tensor:
        return "tensor"
    return "number" if value.only(Kind.STATIC | Kind.SCALAR | Kind.NONE) else "unknown"


def operation_result(
    operation: Operation,
    arguments: Sequence[Value],
    keywords: Mapping[str, Value],
    *,
    is_method: bool,
) -> Value:
    """The value of a call; for a method the receiver is the first of `arguments`."""
    given = arguments[1:] if is_method else arguments
    # An option such as `as_tuple=True` tells what is returned; what else is given by name does not.
    named: dict[str, ArgumentKind] = {
        name: value.literal for name, value in keywords.items() if value.literal is not None
    }
    kinds = [kind_word(v) for v in given]
    word = operation.result(len(given), frozenset(keywords), kinds, named)
    if word == "tensor":
        return _tensor_result(operation, arguments, keywords)
    if word.startswith("tensors:"):
        _, length, *names = word.split(":")
        count = int(length)
        items = [tensor(unshared=not operation.alias) for _ in range(count)]
        if operation.last_name == "sort" and arguments and arguments[0].tensor:
            items = [replace(item, shape=arguments[0].shape) for item in items]
        if count == 2 and operation.last_name in _VALUES_AND_INDICES:
            items[1] = replace(items[1], integer=True)
            if arguments and arguments[0].floating:
                items[0] = replace(items[0], floating=True)
        fields = tuple(zip(names[0].split(","), items, strict=True)) if names else None
        return replace(sequence(items), fields=fields)
    if word == "tensor_list":
        return container(replace(tensor(), integer=operation.last_name in _FOUND))
    if word == "number":
        return SCALAR
    if operation.name == "Tensor.tolist":
        return SCALAR if arguments and arguments[0].zero_dim else container(SCALAR)
    if word == "none":
        return NONE
    return STATIC if word == "static" else UNKNOWN


def _tensor_result(
    operation: Operation, arguments: Sequence[Value], keywords: Mapping[str, Value]
) -> Value:
    made = _without_dtype(operation, arguments, keywords)
    wanted = keywords.get("dtype")
    if wanted is None and operation.name == "Tensor.to" and len(arguments) > 1:
        wanted = arguments[1] if arguments[1].reference in _DTYPES else None
    if wanted is None or wanted.only(Kind.NONE):
        plain = operation.name in _OF_DEFAULT_DTYPE and not {"out", "**"} & keywords.keys()
        return replace(made, floating=True) if plain else made
    return replace(
        made,
        dtype=fresh_number(),
        boolean=operation.boolean or wanted.reference == "torch.bool",
        floating=operation.floating or wanted.reference in FLOATING_DTYPES,
        integer=wanted.reference in INTEGER_DTYPES,
    )


def _without_dtype(
    operation: Operation, arguments: Sequence[Value], keywords: Mapping[str, Value]
) -> Value:
    everything = [*arguments, *keywords.values()]
    tensors = [v for v in everything if v.kinds & (Kind.TENSOR | Kind.MAYBE)]
    first = tensors[0] if tensors else None
    result = tensor(
        boolean=operation.boolean,
        floating=operation.floating,
        unshared=not operation.alias and not operation.mutates,
    )
    last = operation.last_name
    if last in _INTEGER or (last in _FOUND and last != "where"):
        result = replace(result, integer=True)
    if operation.name in _LIKE and first is not None:
        return replace(tensor(like=first), unshared=True)
    if operation.reduces and len(everything) == 1:
        result = replace(result, zero_dim=True)
        if first is not None and not operation.boolean:
            result = replace(result, floating=result.floating or first.floating)
            if last in _KEEPING or (last == "mean" and first.floating):
                result = replace(result, dtype=first.dtype, integer=first.integer)
    if first is None or not first.tensor:
        return result
    if last in _ADDING and (first.boolean or first.integer) and "dtype" not in keywords:
        result = replace(result, integer=True)
    if last in _TURNING or (first.turned and (operation.pointwise or operation.alias)):
        result = replace(result, turned=last not in _DENSE)
    others = [v for v in everything if v is not first]
    plain = all(v.only(Kind.STATIC | Kind.NONE) for v in others)
    if (operation.pointwise and len(tensors) == 1 and plain) or (
        operation.pointwise and all(v.tensor and v.shape == first.shape for v in tensors)
    ):
        result = replace(result, shape=first.shape, zero_dim=first.zero_dim)
    elif operation.pointwise and all(v.tensor and v.zero_dim for v in tensors):
        result = replace(result, zero_dim=True)
    if plain and operation.keeps and (first.floating or operation.keeps_int):
        result = replace(
            result,
            shape=first.shape,
            dtype=first.dtype,
            zero_dim=first.zero_dim,
            floating=first.floating,
            boolean=first.boolean or operation.boolean,
        )
    if operation.keeps and first.floating:
        result = replace(result, floating=True)
    if (
        last in _ARRANGING
        and arguments
        and first is arguments[0]
        and (last != "view" or _are_sizes(others))
    ):
        flags = {"boolean": first.boolean, "floating": first.floating, "integer": first.integer}
        result = replace(result, **flags)
    return result


def _are_sizes(values: Sequence[Value]) -> bool:
    """Whether none of the arguments can be a dtype, as in `x.view(torch.int32)`."""
    return all(v.only(Kind.STATIC) and v.reference is None for v in values)


def layer_result(reference: str, arguments: Sequence[Value]) -> Value | None:
    """What calling a `torch.nn` layer gives; None where the table does not know the class."""
    if reference == "torch.nn.Sequential":
        return tensor()
    layer = torch_table.module_class(reference)
    if layer is None:
        return None
    if layer.returns != "tensor":
        # Attention and recurrent layers with the batch first turn their result.
        state = UNKNOWN
        if reference.endswith((".GRU", ".RNN")):
            state = tensor(unshared=True)
        elif reference.endswith(".LSTM"):
            state = sequence([tensor(unshared=True), tensor(unshared=True)])
        return sequence([replace(tensor(unshared=True), turned=True), state])
    floating = not reference.endswith((".Identity", ".Flatten", ".Unflatten", ".Sequential"))
    return tensor(floating=floating, unshared=layer.fresh)


def builtin_result(name: str, arguments: Sequence[Value]) -> Value:
    """What a builtin function gives, as far as tensors matter."""
    first = arguments[0] if arguments else None
    if name in {"int", "float", "bool", "complex"}:
        if first is None:
            return STATIC
        if first.kinds & (Kind.TENSOR | Kind.SCALAR) or first.array:
            return SCALAR
        return MAYBE if first.kinds & Kind.MAYBE else STATIC
    if name in {"abs", "round", "pow", "divmod"} and first is not None:
        if first.array:
            return first
        if first.tensor:
            return replace(tensor(like=first), unshared=True) if name == "abs" else tensor()
        return first if first.kinds & (Kind.SCALAR | Kind.MAYBE) else STATIC
    if name in {"min", "max", "sum", "any", "all", "sorted"}:
        return _fold(name, arguments)
    if name in {"list", "tuple", "reversed", "iter", "set", "frozenset"} and first is not None:
        if first.may_be_tensor:
            return container(tensor())
        return Value(Kind.OBJECT, elements=first.elements, item=first.item)
    if name == "zip":
        return container(sequence(item_of(a) for a in arguments))
    if name == "enumerate" and first is not None:
        return container(sequence([STATIC, item_of(first)]))
    if name == "next" and first is not None:
        return item_of(first)
    if name == "range":
        return container(SCALAR if any(a.kinds & Kind.SCALAR for a in arguments) else STATIC)
    if name in {"map", "filter", "vars", "dict", "getattr", "eval", "super"}:
        return UNKNOWN
    return STATIC


def item_of(value: Value) -> Value:
    """What iterating over a value gives."""
    if value.tensor:
        return tensor()
    if value.item is not None:
        return value.item
    if value.array:
        return value
    if value.only(Kind.SCALAR):  # a row of a nested list
        return value
    return MAYBE if value.kinds & Kind.MAYBE else UNKNOWN


def _fold(name: str, arguments: Sequence[Value]) -> Value:
    values = [item_of(a) for a in arguments] if len(arguments) == 1 else list(arguments)
    if any(v.may_be_tensor for v in values):
        return tensor(unshared=True) if name == "sum" else SCALAR
    if any(v.kinds & Kind.SCALAR for v in values):
        return SCALAR
    return MAYBE if any(v.kinds & Kind.MAYBE for v in values) else STATIC
