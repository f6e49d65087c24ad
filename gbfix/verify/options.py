"""How a target is verified: what a caller may ask of the checker. A value, with nothing done here."""

from __future__ import annotations

from dataclasses import dataclass, field

from gbfix.verify.jobs import Limits
from gbfix.verify.verdict import REVIEW, Kind


@dataclass(frozen=True)
class Options:
    """How a target is verified.

    Attributes:
        backend: the backend of compiled runs; None for Inductor where it has a compiler.
        further_backends: backends on which the rewritten code is run too, with gradients if it has any.
        gradients: whether to compare gradients as well.
        fullgraph_before: whether to ask if the original compiles as one graph.
        leeway: differences that compiled runs may show; they are told, but do not count.
        launches: whether host syncs and CUDA-graph launches are counted, where there is CUDA.
        search_seconds: how long to search for inputs.
        both_dynamic: whether breaks are counted with `dynamic=False` as well.
        only_if_fewer: whether no more is asked of a rewrite that, by a cheap count, breaks no less.
        time: whether latencies are measured as well, where nothing is different.
        shrink_seconds: how long to look for a smaller input that shows a difference; 0 for not at all.
    """

    backend: str | None = None
    further_backends: tuple[str, ...] = ()
    device: str = "cpu"
    dtype: str | None = None
    dynamic: bool | None = None
    gradients: bool = True
    fullgraph_before: bool = True
    leeway: frozenset[Kind] = REVIEW
    limits: Limits = field(default_factory=Limits)
    launches: bool = True
    search_seconds: float = 30.0
    shrink_seconds: float = 20.0
    both_dynamic: bool = True
    only_if_fewer: bool = False
    time: bool = False
