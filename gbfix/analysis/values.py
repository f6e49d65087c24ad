"""The abstract values of the analysis: what kind of thing an expression is, and what is known of it.

A kind is a set of flags, so that a join over paths is a union. Shape and dtype are compared by
value numbers: two tensors that carry the same number have the same shape (or dtype) whatever it is.
The module knows nothing of syntax.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal


class Kind(int):
    """What an expression can be at run time: flags in a plain number, whose operations are fast."""

    NONE = 1
    STATIC = 2  # numbers from shapes, strings, dtypes, flags: constant to Dynamo or guarded
    SCALAR = 4  # a Python number or boolean read from tensor data
    TENSOR = 8
    MODULE = 16
    REFERENCE = 32  # a function, class or namespace that has a qualified name
    OBJECT = 64  # a container, or an instance of some other class
    MAYBE = 128  # unknown, and a tensor would be no surprise
    UNKNOWN = 256  # unknown, with nothing that hints at a tensor


_numbers = itertools.count(1)
_new = object.__new__


def fresh_number() -> int:
    """A value number that no other shape or dtype carries."""
    return next(_numbers)


@dataclass(frozen=True)
class Value:
    """An abstract value.

    Attributes:
        kinds: every kind the value can have.
        boolean: a tensor of dtype `torch.bool`.
        floating: a tensor of a floating dtype.
        integer: a tensor of an integer dtype.
        zero_dim: a tensor of shape `[]`.
        unshared: a tensor whose storage nothing older can reach.
        changes_input: a layer made with `inplace=True`.
        turned: a tensor that was transposed, so that it may not be contiguous.
        shape, dtype: value numbers.
        reference: qualified name of a function, class or namespace, or of an instance's class.
        elements: the items of a tuple or list of known length.
        item: what iterating over the value gives.
        fields: what a dict holds, by keys that are strings, where all its keys are known; what a
            named tuple holds, whose `elements` are known too.
        unbound: the name may have no value on some path.
        literal: `true`, `false` or `none` for that constant, written where it is given by name.
    """

    kinds: int
    boolean: bool = False
    floating: bool = False
    integer: bool = False
    zero_dim: bool = False
    unshared: bool = False
    turned: bool = False
    changes_input: bool = False
    shape: int = field(default_factory=fresh_number, compare=False)
    dtype: int = field(default_factory=fresh_number, compare=False)
    reference: str | None = None
    elements: tuple[Value, ...] | None = None
    item: Value | None = None
    fields: tuple[tuple[str, Value], ...] | None = None
    unbound: bool = False
    literal: Literal["true", "false", "none"] | None = field(default=None, compare=False)

    def only(self, kinds: int) -> bool:
        """Whether the value can be nothing but these kinds."""
        return bool(self.kinds) and not self.kinds & ~kinds

    @property
    def tensor(self) -> bool:
        """Whether the value is a tensor on every path."""
        return self.kinds == Kind.TENSOR

    @property
    def array(self) -> bool:
        """Whether the value is an array of NumPy that was made of a tensor."""
        return self.kinds == Kind.UNKNOWN and self.reference == "numpy.ndarray"

    @property
    def may_be_tensor(self) -> bool:
        """Whether a tensor is among the known kinds."""
        return bool(self.kinds & Kind.TENSOR)

    @property
    def static(self) -> bool:
        """Whether testing the value reads no tensor data."""
        return self.only(Kind.NONE | Kind.STATIC | Kind.MODULE | Kind.REFERENCE | Kind.OBJECT)


def _made(kinds: int, **known: Any) -> Value:
    """A value of some kinds with shape, dtype and more: the constructor, but fast.

    What is not given is read from the class, where a dataclass keeps its defaults.
    """
    made = _new(Value)
    fields = made.__dict__
    fields["kinds"] = kinds
    fields.update(known)
    return made


def replace(value: Value, **changes: Any) -> Value:
    """A value with some fields changed: `dataclasses.replace`, but fast."""
    for name, wanted in changes.items():
        known = getattr(value, name)
        if known is not wanted and known != wanted:
            made = _new(Value)
            fields = made.__dict__
            fields.update(value.__dict__)
            fields.update(changes)
            return made
    return value


def tensor(
    *,
    boolean: bool = False,
    floating: bool = False,
    zero_dim: bool = False,
    unshared: bool = False,
    like: Value | None = None,
) -> Value:
    """A tensor value; `like` gives shape, dtype and floating of another."""
    if like is None:
        made = _new(Value)
        fields = made.__dict__
        fields["kinds"] = Kind.TENSOR
        fields["shape"] = next(_numbers)
        fields["dtype"] = next(_numbers)
        if boolean:
            fields["boolean"] = True
        if floating:
            fields["floating"] = True
        if zero_dim:
            fields["zero_dim"] = True
        if unshared:
            fields["unshared"] = True
        return made
    return _made(
        Kind.TENSOR,
        boolean=like.boolean,
        floating=like.floating,
        integer=like.integer,
        zero_dim=like.zero_dim,
        unshared=unshared,
        turned=like.turned,
        shape=like.shape,
        dtype=like.dtype,
    )


STATIC = Value(Kind.STATIC)
NONE = Value(Kind.NONE)
NOTHING = Value(Kind(0))
UNKNOWN = Value(Kind.UNKNOWN)
MAYBE = Value(Kind.MAYBE)
SCALAR = Value(Kind.SCALAR)
OBJECT = Value(Kind.OBJECT)
# An array of NumPy that was made of a tensor, which Dynamo traces: no method of a tensor fits it.
ARRAY = Value(Kind.UNKNOWN, reference="numpy.ndarray")


def reference(name: str | None) -> Value:
    """A function, class or namespace by qualified name, if that is known."""
    return _made(Kind.REFERENCE, reference=name, shape=next(_numbers), dtype=next(_numbers))


def instance(kind: int, name: str) -> Value:
    """An instance of a class by the qualified name of the class."""
    return _made(kind, reference=name, shape=next(_numbers), dtype=next(_numbers))


def sequence(elements: Iterable[Value]) -> Value:
    """A tuple or list whose items are known."""
    items = tuple(elements)
    return _made(
        Kind.OBJECT,
        elements=items,
        item=join_all(items) if items else None,
        shape=next(_numbers),
        dtype=next(_numbers),
    )


def container(item: Value | None) -> Value:
    """A container of unknown length."""
    return _made(Kind.OBJECT, item=item, shape=next(_numbers), dtype=next(_numbers))


def mapping(fields: Iterable[tuple[str, Value]]) -> Value:
    """A dict whose keys are known strings; a key that comes again gives the later value."""
    known = tuple(dict(fields).items())
    held = container(join_all(value for _, value in known) if known else None)
    return replace(held, fields=known)


def _joined_fields(a: Value, b: Value) -> tuple[tuple[str, Value], ...] | None:
    if a.fields is None or b.fields is None:
        return None
    one, other = dict(a.fields), dict(b.fields)
    if one.keys() != other.keys():
        return None
    return tuple((key, join(value, other[key])) for key, value in one.items())


def join(a: Value, b: Value) -> Value:
    """What is known of a value that comes from either of two paths."""
    if a is b:
        return a
    if a.shape == b.shape and a.dtype == b.dtype and a.item is b.item:
        if a.elements is b.elements and a.fields is b.fields and a == b:
            return a
    elements = None
    if a.elements is not None and b.elements is not None and len(a.elements) == len(b.elements):
        elements = tuple(join(x, y) for x, y in zip(a.elements, b.elements, strict=True))
    item = a.item if b.item is None else b.item if a.item is None else join(a.item, b.item)
    made = _made(
        a.kinds | b.kinds,
        shape=a.shape if a.shape == b.shape else next(_numbers),
        dtype=a.dtype if a.dtype == b.dtype else next(_numbers),
        reference=a.reference if a.reference == b.reference else None,
        elements=elements,
        item=item,
    )
    known = made.__dict__
    if a.boolean and b.boolean:
        known["boolean"] = True
    if a.floating and b.floating:
        known["floating"] = True
    if a.integer and b.integer:
        known["integer"] = True
    if a.zero_dim and b.zero_dim:
        known["zero_dim"] = True
    if a.unshared and b.unshared:
        known["unshared"] = True
    if a.turned or b.turned:
        known["turned"] = True
    if a.changes_input or b.changes_input:
        known["changes_input"] = True
    if a.unbound or b.unbound:
        known["unbound"] = True
    if a.fields is not None:
        known["fields"] = _joined_fields(a, b)
    return made


def join_all(values: Iterable[Value]) -> Value:
    """The join of several values; unknown for none."""
    result: Value | None = None
    for value in values:
        result = value if result is None else join(result, value)
    return UNKNOWN if result is None else result


def settled(value: Value) -> Value:
    """A Python number read from a tensor before the traced code runs is a constant to it."""
    if value.kinds & Kind.SCALAR:
        return replace(value, kinds=(value.kinds & ~Kind.SCALAR) | Kind.STATIC)
    return value
