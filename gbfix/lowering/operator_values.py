"""What is known of a value in a function that is to become an operator.

A value has the shape, dtype and device of parameters, or a shape and dtype that are written down, or
none that can be told; it may share memory with parameters, and carries the gradients of some. Data and
the tables of known functions; `operator_calls` computes with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

UNKNOWN_DTYPE = "?"
_idents = itertools.count()


class Holds(Enum):
    """What a value is in Python."""

    TENSOR = "tensor"
    ARRAY = "array"
    NUMBER = "number"
    OTHER = "other"


@dataclass(frozen=True)
class Known:
    """An abstract value.

    Attributes:
        holds: a tensor, a NumPy array, a Python number or constant, or something else.
        like: the parameters whose shapes broadcast to its shape; with `shape`, whose device it has.
        shape: its shape as text, where it is not that of parameters.
        dtype: its dtype as text; None for that of the parameters.
        exact: the dtype of the parameters whatever that is, not only if it is floating.
        cpu: it lies on the CPU wherever the parameters lie.
        grads: the parameters that it carries gradients of; None if that cannot be told.
        bases: the parameters that it may share memory with.
        ident: one number for all names of one value.
    """

    holds: Holds
    like: tuple[str, ...] = ()
    shape: str | None = None
    dtype: str | None = None
    exact: bool = False
    cpu: bool = False
    grads: frozenset[str] | None = frozenset()
    bases: frozenset[str] = frozenset()
    ident: int = field(default_factory=lambda: next(_idents), compare=False)

    @property
    def shaped(self) -> bool:
        """Whether its shape can be told."""
        return bool(self.like) or self.shape is not None

    def fresh(self, **changes: object) -> Known:
        """A new value that shares no memory, with changes."""
        values = {"bases": frozenset(), "ident": next(_idents), **changes}
        return replace(self, **values)  # type: ignore[arg-type]


NUMBER = Known(Holds.NUMBER)


def joined(a: Known | None, b: Known | None) -> Known:
    """What is known of a value that is one or the other."""
    if a is None or b is None:
        return Known(Holds.OTHER, grads=None)
    bases = a.bases | b.bases
    grads = a.grads if a.grads == b.grads else None
    if a == b:
        return a
    exact = a.exact and b.exact
    common = replace(a, bases=bases, grads=grads, exact=exact, ident=next(_idents))
    if common == replace(b, bases=bases, grads=grads, exact=exact):
        return common
    return Known(Holds.OTHER, grads=grads, bases=bases)


def of(*values: Known) -> tuple[frozenset[str] | None, frozenset[str]]:
    """The gradients and the memory of anything made from these values."""
    grads: frozenset[str] | None = frozenset()
    for value in values:
        grads = None if grads is None or value.grads is None else grads | value.grads
    return grads, frozenset[str]().union(*(v.bases for v in values))


def arithmetic(parts: Sequence[Known]) -> Known:
    """The result of a pointwise computation."""
    grads, bases = of(*parts)
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
    dtype = dtypes.pop() if len(dtypes) == 1 else UNKNOWN_DTYPE
    if dtype is not None and not dtype.startswith("float"):
        dtype = UNKNOWN_DTYPE
    return made[0].fresh(like=like, dtype=dtype, exact=False, grads=grads)


def truth(parts: Sequence[Known]) -> Known:
    """The result of a pointwise test."""
    result = arithmetic(parts)
    if not result.shaped:
        return NUMBER if result.holds is Holds.NUMBER else replace(result, grads=frozenset())
    return result.fresh(dtype="bool", grads=frozenset())


# New tensors with the shape of their arguments, and their dtype if it is floating.
POINTWISE = frozenset(
    "abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh "
    "sigmoid relu square reciprocal floor ceil round trunc sign clamp clip clamp_min clamp_max pow "
    "softmax log_softmax cumsum cumprod erf add sub subtract mul multiply div divide true_divide "
    "maximum minimum where nan_to_num silu gelu elu leaky_relu softplus relu6 hardtanh".split()
)
AUTOCAST = frozenset(
    "exp expm1 log log2 log10 log1p pow rsqrt reciprocal tan asin acos sinh cosh softmax log_softmax "
    "softplus cumsum cumprod sum norm std var gelu".split()
)
# Whatever the dtype is.
EXACT = frozenset("clone flip roll tril triu masked_fill".split())
# New tensors of the argument's shape and dtype that carry no gradient.
LIKE = frozenset("zeros_like ones_like empty_like full_like".split())
# The argument, or a copy of it.
SAME = frozenset("contiguous cpu".split())
REDUCED = frozenset("sum mean max min amax amin std var norm".split())
TRUTHS = frozenset(
    "isnan isinf isfinite gt lt ge le eq ne logical_and logical_or logical_not".split()
)
SCALARS = frozenset(
    "item tolist dim numel size is_floating_point stride ndimension nelement".split()
)
NUMERIC_CALLS = frozenset(
    "builtins." + name for name in "int float bool len str isinstance abs round".split()
)
# Of items as they are.
COLLECTING = frozenset(
    "builtins." + name for name in "enumerate zip reversed sorted list tuple".split()
)
NUMPY_LIKE = frozenset(
    "abs exp sqrt log log1p expm1 sin cos tan tanh sort clip maximum minimum cumsum round floor ceil "
    "copy zeros_like ones_like empty_like full_like square negative sign where nan_to_num".split()
)
FILTERS = frozenset(
    "gaussian_filter median_filter uniform_filter maximum_filter minimum_filter".split()
)
# In-place methods after which the tensor is another one in shape or in kind.
RESHAPED = frozenset(
    "resize_ resize_as_ set_ t_ transpose_ squeeze_ unsqueeze_ swapaxes_ swapdims_ requires_grad_ "
    "share_memory_ detach_".split()
)
