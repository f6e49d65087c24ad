"""What torch's functions return and do, without importing torch.

The facts are generated from torch by scripts/generate_torch_table.py and shipped as
data/torch_table.json. A flag about dtype or shape (`pointwise`, `boolean`, `floating`, `keeps`,
`keeps_int`, `reduces`) holds for calls that pass only tensors and Python numbers: a `dtype`, an
`out`, a `rounding_mode` or the like can void it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

ArgumentKind = Literal["tensor", "number", "true", "false", "none", "unknown"]
"""What is known of an argument; `true`, `false` and `none` are the constants themselves."""

TENSOR_CLASSES = frozenset(
    {
        "torch.Tensor",
        "torch.nn.Parameter",
        "torch.nn.parameter.Parameter",
        "torch.nn.Buffer",
        "torch.nn.parameter.Buffer",
    }
    | {
        f"torch.{place}{kind}Tensor"
        for place in ("", "cuda.")
        for kind in (
            *("Float", "Double", "Half", "BFloat16"),
            *("Long", "Int", "Short", "Char", "Byte", "Bool"),
        )
    }
)

MODULE_HOMES = {
    "torch.functional": "torch",
    "torch.random": "torch",
    "torch._tensor.Tensor": "Tensor",
    "torch.Tensor": "Tensor",
    "torch._C._nn": "torch.nn.functional",
}
"""Where else the operations of a module can be found."""

CONDITIONAL_WRITES = frozenset({"out", "inplace", "max_norm"})


@dataclass(frozen=True)
class Param:
    """One parameter of one overload."""

    name: str
    mark: str
    """T tensor, L sequence of tensors, TN tensor or number, TL tensor or sequence, A anything."""
    required: bool
    keyword_only: bool
    variadic: bool
    literal: str
    """The one constant (True, False, None) that this overload accepts, if it is so picky."""

    @property
    def is_tensor(self) -> bool:
        return self.mark not in ("", "A")

    def accepts(self, kind: ArgumentKind) -> bool:
        if kind == "unknown":
            return True
        if self.literal:
            return kind == self.literal.lower()
        if kind == "tensor":
            return self.mark != "" and self.mark != "L"
        if kind == "none":
            return not self.required
        return self.mark in ("", "TN", "A")


@dataclass(frozen=True)
class Alternative:
    """One overload: what a call returns that fits these parameters."""

    returns: str
    params: tuple[Param, ...]
    dynamic_shape: bool

    def bind(self, positional: int, keywords: frozenset[str]) -> list[Param] | None:
        """The parameter of each positional argument, or None where the call cannot fit."""
        bound: list[Param] = []
        for param in self.params:
            if len(bound) == positional or param.keyword_only:
                break
            bound += [param] * (positional - len(bound) if param.variadic else 1)
        if len(bound) < positional:
            return None
        taken = {param.name for param in bound}
        names = {param.name for param in self.params}
        if keywords & taken or not keywords <= names:
            return None
        if any(p.required and p.name not in taken | keywords for p in self.params):
            return None
        return bound

    def fits(
        self,
        positional: int,
        keywords: frozenset[str],
        kinds: Sequence[ArgumentKind],
        keyword_kinds: Mapping[str, ArgumentKind],
    ) -> bool:
        bound = self.bind(positional, keywords)
        if bound is None:
            return False
        by_name = {param.name: param for param in self.params}
        return all(param.accepts(kind) for param, kind in zip(bound, kinds, strict=False)) and all(
            by_name[name].accepts(keyword_kinds.get(name, "unknown")) for name in keywords
        )


@dataclass(frozen=True)
class Operation:
    """A function, a method or a property of torch.

    A method's parameters and positional arguments leave out `self`. What a call returns is one of
    `tensor`, `tensors:N` or `tensors:N:values,indices`, `tensor_list`, `number` (a Python value read
    from data), `static` (metadata), `none` and `other`.
    """

    name: str
    alternatives: tuple[Alternative, ...]
    is_property: bool
    alias: bool
    """A result may share storage with an input; an in-place operation's does."""
    mutates: bool
    """Every call writes to an input (or to a module's or an autograd state); see `writes`."""
    random: bool
    dynamic_shape: bool
    """Some call's result has a shape that depends on data."""
    data_dependent: bool
    pointwise: bool
    """Elementwise: one result, of the broadcast shape of the tensor arguments."""
    boolean: bool
    """The result is torch.bool (`any` and `all` of uint8 excepted, which stay uint8)."""
    floating: bool
    """The result is floating for floating and for integer inputs, where the call is allowed."""
    keeps: bool
    """Shape and dtype of a floating first tensor stay when all other arguments are numbers."""
    keeps_int: bool
    """The same for an int64 first tensor when all other arguments are ints or bools."""
    reduces: bool
    """Given nothing but its required tensors, the result has no dimensions."""

    @property
    def returns(self) -> frozenset[str]:
        """Everything that a call may return."""
        return frozenset(alternative.returns for alternative in self.alternatives)

    @cached_property
    def last_name(self) -> str:
        """`relu` of `torch.nn.functional.relu`."""
        return self.name.rpartition(".")[2]

    @cached_property
    def params(self) -> tuple[str, ...]:
        """The names of the parameters of all overloads, in the order in which they appear."""
        return tuple(dict.fromkeys(p.name for p in self._all_params()))

    @cached_property
    def tensor_params(self) -> frozenset[str]:
        """The names of the parameters that hold tensors in some overload, and in none a number."""
        numbers = {p.name for p in self._all_params() if not p.mark}
        return frozenset(
            p.name for p in self._all_params() if p.is_tensor and p.name not in numbers
        )

    @cached_property
    def only_tensor_params(self) -> frozenset[str]:
        """The names of the parameters that hold a tensor in every overload that has them."""
        marks: dict[str, set[str]] = {}
        for param in self._all_params():
            marks.setdefault(param.name, set()).add(param.mark)
        return frozenset(name for name, found in marks.items() if found == {"T"})

    def _all_params(self) -> Iterator[Param]:
        for alternative in self.alternatives:
            yield from alternative.params

    def matching(
        self,
        positional: int,
        keywords: frozenset[str] = frozenset(),
        kinds: Sequence[ArgumentKind] = (),
        keyword_kinds: Mapping[str, ArgumentKind] | None = None,
    ) -> tuple[Alternative, ...]:
        """The overloads that a call may mean: all of them where none seems to fit."""
        found = tuple(
            alternative
            for alternative in self.alternatives
            if alternative.fits(positional, keywords, kinds, keyword_kinds or {})
        )
        return found or self.alternatives

    def result(
        self,
        positional: int,
        keywords: frozenset[str] = frozenset(),
        kinds: Sequence[ArgumentKind] = (),
        keyword_kinds: Mapping[str, ArgumentKind] | None = None,
    ) -> str:
        """What a call returns: `other` where the overloads that it may mean disagree.

        `kinds` says what is known of the positional arguments, `keyword_kinds` of the keywords.
        """
        named = frozenset(keyword_kinds.items()) if keyword_kinds else frozenset()
        call = (positional, keywords, tuple(kinds), named)
        if call not in self._results:
            words = {a.returns for a in self.matching(positional, keywords, kinds, keyword_kinds)}
            self._results[call] = words.pop() if len(words) == 1 else "other"
        return self._results[call]

    @cached_property
    def _results(self) -> dict[object, str]:
        return {}

    def is_dynamic(
        self,
        positional: int,
        keywords: frozenset[str] = frozenset(),
        kinds: Sequence[ArgumentKind] = (),
        keyword_kinds: Mapping[str, ArgumentKind] | None = None,
    ) -> bool:
        """May the shape of this call's result depend on data?"""
        found = self.matching(positional, keywords, kinds, keyword_kinds)
        return any(alternative.dynamic_shape for alternative in found)

    def writes(
        self,
        positional: int,
        keywords: frozenset[str] = frozenset(),
        kinds: Sequence[ArgumentKind] = (),
        keyword_kinds: Mapping[str, ArgumentKind] | None = None,
    ) -> bool:
        """May this call write to one of its arguments, be it through `out` or `inplace=True`?"""
        if self.mutates:
            return True
        off = ("none", "false")
        given = {n for n in keywords if (keyword_kinds or {}).get(n, "unknown") not in off}
        for alternative in self.matching(positional, keywords, kinds, keyword_kinds):
            bound = alternative.bind(positional, keywords) or []
            for index, param in enumerate(bound):
                if index >= len(kinds) or kinds[index] not in off:
                    given.add(param.name)
        return bool(given & CONDITIONAL_WRITES)


@dataclass(frozen=True)
class ModuleClass:
    """A class of torch.nn."""

    name: str
    returns: str
    """What forward returns: `tensor`, `tuple` or `other`."""
    fresh: bool
    """With `inplace` off, forward's result never shares storage with inputs or parameters."""
    stateful: bool
    """Forward may change the module's buffers or parameters."""
    random: bool
    """Forward may draw random numbers in training."""
    breaks: bool
    """Dynamo breaks the graph at a call."""


@cache
def _data() -> dict[str, Any]:
    file = Path(__file__).parent / "data" / "torch_table.json"
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def torch_version() -> str:
    """The version of torch that the table describes."""
    return str(_data()["torch"])


def _params(text: str) -> Iterator[Param]:
    """Read `input:T dim keepdim= * out:T=`."""
    keyword_only = False
    for word in text.split():
        if word == "*":
            keyword_only = True
            continue
        head, default, literal = word.partition("=")
        name, _, mark = head.lstrip("*").partition(":")
        variadic = head.startswith("*")
        # Of the literals only True cannot be the default: it is what selects the overload.
        required = literal == "True" or not (default or variadic)
        yield Param(name, mark, required, keyword_only, variadic, literal)
        keyword_only = keyword_only or variadic


@cache
def _operation(name: str) -> Operation | None:
    entry = _data()["operations"].get(name)
    if entry is None:
        return None
    flags = frozenset(entry.get("flags", ()))
    alternatives = tuple(
        Alternative(returns, tuple(_params(params)), bool(dynamic) or "dynamic_shape" in flags)
        for returns, params, *dynamic in entry["calls"]
    )
    return Operation(
        name=name,
        alternatives=alternatives,
        is_property=bool(entry.get("property")),
        alias="alias" in flags,
        mutates="mutates" in flags,
        random="random" in flags,
        dynamic_shape=any(alternative.dynamic_shape for alternative in alternatives),
        data_dependent="data_dependent" in flags,
        pointwise="pointwise" in flags,
        boolean="bool" in flags,
        floating="float" in flags,
        keeps="keeps" in flags,
        keeps_int="keeps_int" in flags,
        reduces="reduces" in flags,
    )


@cache
def function(qualified_name: str) -> Operation | None:
    """The operation with this name, as in `torch.nn.functional.relu` or `torch.Tensor.add`."""
    home, _, name = qualified_name.rpartition(".")
    if home == "torch.Tensor":
        return method(name)
    return _operation(f"{MODULE_HOMES.get(home, home)}.{name}")


@cache
def method(name: str) -> Operation | None:
    """The method or property of a tensor with this name."""
    return _operation(f"Tensor.{name}")


@cache
def module_class(qualified_name: str) -> ModuleClass | None:
    """The class of torch.nn with this name, also as `torch.nn.modules.linear.Linear`."""
    if qualified_name.startswith("torch.nn.modules."):
        qualified_name = f"torch.nn.{qualified_name.rpartition('.')[2]}"
    entry = _data()["modules"].get(qualified_name)
    if entry is None:
        return None
    flags = entry.get("flags", ())
    return ModuleClass(
        qualified_name,
        entry["returns"],
        fresh="fresh" in flags,
        stateful="stateful" in flags,
        random="random" in flags,
        breaks="breaks" in flags,
    )
