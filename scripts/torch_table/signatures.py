"""Read signatures out of torch's stubs, annotated sources and operator schemas."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Parameters of unannotated Python functions that hold tensors.
TENSOR_NAMES = {"input", "other", "x1", "x2", "mat", "tensor", "A", "B"}
TENSOR_LIST_NAMES = {"tensors", "operands", "matrices"}

STATIC_TYPES = {
    "_bool", "_int", "_float", "bool", "int", "float", "str", "Size", "_dtype", "_device",
    "_layout", "_qscheme", "dtype", "_int | SymInt", "tuple[_int, ...]", "torch.dtype",
    "torch.device", "_dtype | None", "tuple[int, ...]",
}  # fmt: skip


@dataclass(frozen=True)
class Param:
    """One parameter, with what the table says of it and what a probe may pass for it."""

    name: str
    mark: str = ""
    """T tensor, L sequence of tensors, TN tensor or number, TL tensor or sequence, A anything."""
    sample: str = ""
    """int, float, bool or sequence: what a probe may pass for a parameter that is no tensor."""
    default: bool = False
    keyword_only: bool = False
    variadic: bool = False
    literal: str = ""
    """The one constant (True, False, None) that the overload accepts."""

    def encode(self) -> str:
        mark = f":{self.mark}" if self.mark else ""
        # Only a literal True has to be there: False and None are the values left out.
        default = f"={self.literal}" if self.literal else "=" if self.default else ""
        return f"{'*' if self.variadic else ''}{self.name}{mark}{default}"


@dataclass(frozen=True)
class Signature:
    """One overload."""

    returns: str
    params: tuple[Param, ...]

    def encode(self) -> str:
        """The parameters as the table holds them: `input:T dim keepdim= * out:T=`."""
        words: list[str] = []
        star = False
        for param in self.params:
            if param.keyword_only and not star:
                words.append("*")
            star = star or param.keyword_only or param.variadic
            words.append(param.encode())
        return " ".join(words)

    @property
    def tensors(self) -> tuple[Param, ...]:
        return tuple(param for param in self.params if param.mark in ("T", "TN", "TL", "L"))


def _members(node: ast.expr) -> Iterator[ast.expr]:
    """The alternatives of a union annotation."""
    if isinstance(node, ast.BinOp):
        yield from _members(node.left)
        yield from _members(node.right)
    elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("Optional", "Union"):
        inner = node.slice
        for member in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
            yield from _members(member)
    else:
        yield node


def _mark_and_sample(names: Iterable[str]) -> tuple[str, str]:
    """What the members of a parameter's annotation say about it."""
    kinds = set(names) - {"None"}
    tensor = bool(kinds & {"Tensor", "torch.Tensor"})
    sequence = any("Tensor" in kind and "[" in kind and "Callable" not in kind for kind in kinds)
    number = bool(kinds & {"Number", "_complex", "float", "_float", "number", "int", "_int"})
    sample = ""
    if kinds & {"Number", "number", "float", "_float"}:
        sample = "float"
    elif kinds & {"_int", "int", "SymInt"}:
        sample = "int"
    elif kinds & {"_bool", "bool"}:
        sample = "bool"
    elif not sequence and (
        kinds & {"_size", "_symsize"} or any(kind.startswith(("Seq", "List[int", "BroadcastingL"))
                                             for kind in kinds)
    ):  # fmt: skip
        sample = "sequence"
    if kinds & {"Any", "object"}:
        return "A", sample
    if tensor:
        return ("TN" if number else "TL" if sequence or "list" in kinds else "T"), sample
    return ("L" if sequence else ""), sample


def _param(
    arg: ast.arg, default: bool, *, variadic: bool = False, keyword_only: bool = False
) -> Param:
    mark, sample, literal = _read_annotation(arg)
    return Param(arg.arg, mark, sample, default, keyword_only, variadic, literal)


def _read_annotation(arg: ast.arg) -> tuple[str, str, str]:
    """A parameter's mark, sample and literal."""
    if arg.annotation is None:
        mark = "T" if arg.arg in TENSOR_NAMES else "TL" if arg.arg in TENSOR_LIST_NAMES else ""
        return mark, "", ""
    text = ast.unparse(arg.annotation)
    if text in ("Literal[True]", "Literal[False]", "None"):
        return "", "", text.removeprefix("Literal[").removesuffix("]")
    return *_mark_and_sample(ast.unparse(m) for m in _members(arg.annotation)), ""


def returned(text: str) -> str:
    """The table's word for a return annotation."""
    text = text.strip("'\"").replace("torch.Tensor", "Tensor")
    if text in ("Tensor", "Self", "S"):
        return "tensor"
    if text == "None":
        return "none"
    if text in STATIC_TYPES:
        return "static"
    if text in ("tuple[Tensor, ...]", "Sequence[Tensor]", "list[Tensor]", "Tensor[]"):
        return "tensor_list"
    if text.startswith("torch.return_types."):
        named: Any = getattr(torch.return_types, text.rpartition(".")[2])
        return "other" if named.__name__ == "histogramdd" else _several(named.__match_args__)
    if text.startswith("tuple[") and set(text[6:-1].split(", ")) == {"Tensor"}:
        return f"tensors:{text.count('Tensor')}"
    return "other"


def _several(names: Sequence[str | None]) -> str:
    """The table's word for a tuple of tensors, with the names by which they are read, if any."""
    named = [name for name in names if name]
    fields = ":" + ",".join(named) if len(named) == len(names) else ""
    return f"tensors:{len(names)}{fields}"


def from_function(node: ast.FunctionDef, *, method: bool = False) -> Signature:
    """The signature that a stub or an annotated function declares."""
    args = node.args
    params: list[Param] = []
    positional = [*args.posonlyargs, *args.args]
    required = len(positional) - len(args.defaults)
    for index, arg in enumerate(positional):
        if not (method and index == 0):
            params.append(_param(arg, index >= required))
    if args.vararg is not None:
        params.append(_param(args.vararg, True, variadic=True))
    for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        params.append(_param(arg, value is not None, keyword_only=True))
    returns = ast.unparse(node.returns) if node.returns else ""
    return Signature(returned(returns), tuple(params))


def from_functions(body: Iterable[ast.stmt], *, method: bool = False) -> dict[str, list[Signature]]:
    """Every public function in a module's or class's body, with its overloads."""
    found: dict[str, list[Signature]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found.setdefault(node.name, []).append(from_function(node, method=method))
    return found


def from_schema(schema: Any) -> Signature:
    """The Python signature of an operator, less the arguments that are only there for out=."""
    params = []
    for argument in schema.arguments:
        if argument.is_out:
            continue
        kind = str(argument.type.annotation_str)
        mark, sample = _mark_and_sample([kind.removeprefix("Optional[").removesuffix("]")
                                         if kind.startswith("Optional[") else kind])  # fmt: skip
        name = "input" if argument.name == "self" else argument.name
        params.append(Param(name, mark, sample, argument.has_default_value(), argument.kwarg_only))
    kinds = [str(item.type.annotation_str) for item in schema.returns]
    if kinds == ["List[Tensor]"]:
        returns = "tensor_list"
    elif set(kinds) == {"Tensor"}:
        returns = "tensor" if len(kinds) == 1 else _several([r.name for r in schema.returns])
    else:
        returns = "other"
    return Signature(returns, tuple(params))
