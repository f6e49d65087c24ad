"""Kinds from type annotations: torch.Tensor in all its spellings, numbers, classes of the project.

Understands `Optional`, `Union`, `|`, string annotations, containers, and array types of jaxtyping
(`Float[Tensor, "b n"]`). The module may not look at how a value is used.
"""

from __future__ import annotations

import ast

from gbfix.analysis.project import Module, Project
from gbfix.analysis.values import (
    NONE,
    STATIC,
    UNKNOWN,
    Kind,
    Value,
    container,
    join_all,
    replace,
    sequence,
    tensor,
)

_STATIC = {"int", "float", "bool", "str", "bytes", "complex"}
_STATIC_TORCH = {"torch.dtype", "torch.device", "torch.Size", "torch.memory_format", "torch.layout"}
_FLOATING = {"torch.FloatTensor", "torch.HalfTensor", "torch.DoubleTensor", "torch.BFloat16Tensor"}
_TENSORS = {
    "torch.Tensor", "torch.LongTensor", "torch.IntTensor", "torch.BoolTensor", "torch.ByteTensor",
    "torch.cuda.FloatTensor", "torch.cuda.LongTensor", "torch.nn.Parameter",
    "torch.nn.parameter.Parameter", "torch.types.Tensor", "torch._tensor.Tensor", *_FLOATING,
}  # fmt: skip
_SEQUENCES = {"list", "List", "Sequence", "Iterable", "Iterator", "Collection", "set", "Set"}
_MAPPINGS = {"dict", "Dict", "Mapping", "OrderedDict", "MutableMapping"}
_JAXTYPING_FLOAT = {"Float", "Float16", "Float32", "Float64", "BFloat16"}


def annotated(node: ast.expr | None, module: Module, project: Project) -> Value | None:
    """The value that an annotation promises; None where it says nothing."""
    if node is None:
        return None
    if isinstance(node, ast.Constant):
        if node.value is None:
            return NONE
        if isinstance(node.value, str):
            try:
                return annotated(ast.parse(node.value, mode="eval").body, module, project)
            except SyntaxError:
                return None
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union([node.left, node.right], module, project)
    if isinstance(node, ast.Subscript):
        return _subscript(node, module, project)
    name = module.qualify(node)
    if name is None:
        return None
    return _named(name, project)


def _named(name: str, project: Project) -> Value | None:
    last = name.rsplit(".", 1)[-1]
    if name in _TENSORS or (name.startswith("torch") and last.endswith("Tensor")):
        return tensor(floating=name in _FLOATING, boolean=last == "BoolTensor")
    if name.startswith("jaxtyping.") or name.startswith("torchtyping."):
        return tensor(floating=last in _JAXTYPING_FLOAT, boolean=last == "Bool")
    if name.removeprefix("builtins.") in _STATIC or name in _STATIC_TORCH:
        return STATIC
    if name.startswith("builtins."):
        return container(None)
    if last in {"Any", "object"}:
        return None
    if project.class_info(name) is not None:
        kind = Kind.MODULE if project.is_module_class(name) else Kind.OBJECT
        return Value(kind, reference=name)
    found = project.lookup(name)
    if found is not None and isinstance(found[1], ast.expr):  # an alias: Array = torch.Tensor
        if name in project.aliases:
            return None  # a recursive type: Nested = Tensor | list["Nested"]
        project.aliases.add(name)
        try:
            return annotated(found[1], found[0], project)
        finally:
            project.aliases.discard(name)
    if name.startswith("torch.nn.") and last[:1].isupper():
        return Value(Kind.MODULE, reference=name)
    return None


def _union(parts: list[ast.expr], module: Module, project: Project) -> Value | None:
    values = [annotated(p, module, project) for p in parts]
    if all(v is None for v in values):
        return None
    return join_all(v if v is not None else UNKNOWN for v in values)


def _subscript(node: ast.Subscript, module: Module, project: Project) -> Value | None:
    name = module.qualify(node.value) or ""
    last = name.rsplit(".", 1)[-1]
    inner = node.slice
    parts = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    if last == "Optional":
        return _union([*parts, ast.Constant(None)], module, project)
    if last == "Union":
        return _union(parts, module, project)
    if last in {"Annotated", "Final", "ClassVar", "Required"}:
        return annotated(parts[0], module, project)
    if last == "Literal":
        return STATIC
    if name.startswith("jaxtyping."):
        made = annotated(parts[0], module, project)
        if made is None or not made.may_be_tensor:
            return made
        return replace(made, floating=last in _JAXTYPING_FLOAT, boolean=last == "Bool")
    if name.startswith("torchtyping.") or last == "TensorType":
        return tensor()
    if last in {"tuple", "Tuple"}:
        if len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is ...:
            return container(annotated(parts[0], module, project))
        return sequence(annotated(p, module, project) or UNKNOWN for p in parts)
    if last in _SEQUENCES:
        return container(annotated(parts[0], module, project))
    if last in _MAPPINGS and len(parts) == 2:
        return container(annotated(parts[1], module, project))
    if last in {"Callable", "Type", "type"}:
        return Value(Kind.REFERENCE)
    return annotated(node.value, module, project)
