"""What Dynamo knows where it ended a graph: the stack of the program, and what names held there.

Reads exceptions and what was being traced, and realizes nothing, which would add guards.
"""

from __future__ import annotations

import types
from typing import Any


def user_stack(error: BaseException | None) -> list[Any]:
    """The stack from the program's outermost line to the place of a break.

    `real_stack` of the exception or `TracingContext.extract_stack` is what was being traced; what
    called it is `exc.get_stack_above_dynamo`, with `collapse_resume_frames` joining the parts of a
    function. Seen on torch 2.13.
    """
    import torch
    from torch._dynamo import exc

    traced = getattr(error, "real_stack", None)
    if traced is None:
        traced = torch._guards.TracingContext.extract_stack()
    above: list[Any] = getattr(exc, "get_stack_above_dynamo", list)()
    collapse = getattr(exc, "collapse_resume_frames", list)
    return list(collapse(above + traced))


def names_at(error: BaseException | None) -> tuple[types.CodeType, dict[str, Any]] | None:
    """The function in which tracing ended and what its names held, as values or fakes.

    The innermost `InstructionTranslatorBase` in the traceback has `symbolic_locals`; a lazy variable
    has `original_value`, a tensor its `dtype` and `ndim`. Seen on torch 2.13. Nothing is realized,
    which would add guards.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    translator = None
    traceback = error.__traceback__ if error is not None else None
    while traceback is not None:
        found = traceback.tb_frame.f_locals.get("self")
        if isinstance(found, InstructionTranslatorBase):
            translator = found
        traceback = traceback.tb_next
    if translator is None:
        return None
    held: dict[str, Any] = {}
    variables: dict[str, Any] = translator.symbolic_locals
    for name, variable in variables.items():
        if type(variable).__name__ == "LazyVariableTracker" and not variable.is_realized():
            held[name] = variable.original_value()
        else:
            held[name] = _TraceVariable.of(variable)
    return translator.f_code, held


class _TraceVariable:
    """A variable of a trace: `dtype` and `ndim` of a tensor, or the kind of anything else."""

    def __init__(self, kind: str, dtype: Any = None, ndim: int | None = None) -> None:
        self.kind = kind
        self.dtype = dtype
        self.ndim = ndim

    @classmethod
    def of(cls, variable: Any) -> _TraceVariable:
        """What is known of a `VariableTracker`, by the names of its classes. Seen on torch 2.13."""
        variable = getattr(variable, "realize", lambda: variable)()
        names = {base.__name__ for base in type(variable).__mro__}
        if "TensorVariable" in names:
            return cls("tensor", getattr(variable, "dtype", None), getattr(variable, "ndim", None))
        if "SymNodeVariable" in names:
            return cls("number")
        if "ConstantVariable" in names:
            value = getattr(variable, "value", None)
            return cls("none" if value is None else "number" if _is_number(value) else "other")
        return cls("other")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def kind_of(value: object) -> tuple[str, Any, int | None]:
    """The kind, dtype and rank of a value or of what `names_at` has put in its place."""
    import torch

    if isinstance(value, _TraceVariable):
        return value.kind, value.dtype, value.ndim
    if isinstance(value, torch.Tensor):
        return "tensor", value.dtype, value.ndim
    if value is None:
        return "none", None, None
    return ("number" if _is_number(value) else "other"), None, None


def is_unsupported(error: BaseException) -> bool:
    """Whether an exception says that something cannot be captured.

    `Unsupported`, its subclasses and `UncapturedHigherOrderOpError`: seen on torch 2.13.
    """
    from torch._dynamo import exc

    kinds = [getattr(exc, name, None) for name in ("Unsupported", "UncapturedHigherOrderOpError")]
    return isinstance(error, tuple(kind for kind in kinds if kind is not None))
