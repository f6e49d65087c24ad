"""What Dynamo did with a call: graphs, operators, breaks by site, frames it skipped.

Seen on torch 2.13.0. Every break passes `InstructionTranslatorBase.log_graph_break`, while
`counters["graph_break"]` misses plain `if tensor:` jumps; so that is where breaks are recorded.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

import torch
from torch._dynamo import config, convert_frame
from torch._dynamo.symbolic_convert import InstructionTranslatorBase

# A warning breaks inside the library's wrapper; the site is the line that called the wrapper.
WRAPPERS = ("transformers/utils/logging.py", "python3", "torch/")


@dataclass(frozen=True)
class Break:
    """One break: where the user's code stood, and how Dynamo went on from there."""

    site: str
    kind: str
    reason: str


class Recorder:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self) -> None:
        self.operators: list[int] = []
        self.breaks: list[Break] = []
        self.skips: list[str] = []

    def __call__(self, graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        self.operators.append(sum(n.op not in ("placeholder", "output") for n in graph.graph.nodes))
        return graph.forward

    @property
    def graphs(self) -> int:
        return len(self.operators)

    def summary(self) -> dict[str, Any]:
        """The counts and the sites, ready for JSON."""
        return {
            "graphs": self.graphs,
            "fragments": self.graphs - 1,
            "operators": sum(self.operators),
            "operators_by_graph": self.operators,
            "breaks": len(self.breaks),
            "skipped_frames": sum(b.kind == "skip" for b in self.breaks),
            "sites": dict(Counter(b.site for b in self.breaks)),
            "events": [asdict(b) for b in self.breaks],
            "skip_reasons": self.skips,
        }


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record all breaks and skips while the block runs, from a clean state of Dynamo."""
    torch._dynamo.reset()
    recorder = Recorder()
    log_graph_break = InstructionTranslatorBase.log_graph_break
    add_skip_reason = getattr(convert_frame, "add_skip_reason", None)

    def on_break(self: Any, code_options: Any, reason: str, exc: Any) -> None:
        if not exc.logged:
            recorder.breaks.append(_break(reason, exc))
        log_graph_break(self, code_options, reason, exc)

    def on_skip(reason: str, frame: Any) -> None:
        # Frames with nothing to compile are skipped by design.
        if "No ops traced" not in reason and re.search("while tracing|suppressed", reason):
            code = frame.f_code
            where = f"{_short(code.co_filename)}:{code.co_firstlineno} {code.co_name}"
            recorder.skips.append(f"{where}: {reason.splitlines()[0]}")

    InstructionTranslatorBase.log_graph_break = on_break  # type: ignore[method-assign]
    if add_skip_reason is not None:
        convert_frame.add_skip_reason = on_skip
    try:
        yield recorder
    finally:
        InstructionTranslatorBase.log_graph_break = log_graph_break  # type: ignore[method-assign]
        if add_skip_reason is not None:
            convert_frame.add_skip_reason = add_skip_reason


def ignore_logging() -> None:
    """Turn on the baseline: Dynamo drops these calls, no source is changed."""
    functions: list[Any] = [logging.Logger.warning, warnings.warn]
    functions += [f for f in [getattr(logging.Logger, "warning_once", None)] if f]
    config.ignore_logging_functions.update(functions)


def _break(reason: str, exc: Any) -> Break:
    if "Failed to handle graph break gracefully" in reason:
        kind = "skip"
    elif "cannot resume from" in reason:
        kind = "skip-rest"
    else:
        kind = "split"
    explanation = re.search(r"Explanation: (.*)", reason)
    gb_type = getattr(exc, "gb_type", None) or type(exc).__name__
    text = f"{gb_type}: {explanation.group(1)}" if explanation else str(gb_type)
    return Break(_site(exc), kind, text[:200])


def _site(exc: Any) -> str:
    stack = getattr(exc, "real_stack", None) or torch._guards.TracingContext.extract_stack()
    frames = [f"{_short(f.filename)}:{f.lineno}" for f in reversed(list(stack))]
    own = [f for f in frames if not f.startswith(WRAPPERS)]
    return (own or frames or ["unknown"])[0]


def _short(filename: str) -> str:
    """The path from the package's name on, the same for both trees."""
    parts = PurePath(filename).parts
    for package in ("transformers", "torch"):
        if package in parts:
            return "/".join(parts[parts.index(package) :])
    return "/".join(parts[-2:])
