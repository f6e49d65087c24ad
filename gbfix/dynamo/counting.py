"""Counts graph breaks in a running program, without changing what it does.

The file is copied beside a program's overlay and loaded there when Dynamo is, so it uses nothing of
gbfix, and nothing that it does may raise.
"""

from __future__ import annotations

import atexit
import re
import types
from collections.abc import Callable
from typing import Any

Note = Callable[[dict[str, Any]], None]


def attach(symbolic_convert: types.ModuleType, note: Note) -> None:
    """Tell `note` of every break from now on and, at the end, of the number of graphs.

    All breaks pass `InstructionTranslatorBase.log_graph_break`: seen on torch 2.11 and 2.13. A
    version without it is noted as one on which nothing is counted.
    """
    translator = getattr(symbolic_convert, "InstructionTranslatorBase", None)
    original = getattr(translator, "log_graph_break", None)
    if original is None:
        note({"uncounted": True})
        return

    def log_graph_break(self: Any, *given: Any, **named: Any) -> Any:
        try:
            values = [*given, *named.values()]
            error = next((v for v in values if isinstance(v, BaseException)), None)
            if not getattr(error, "logged", False):
                note(_break(next((v for v in values if isinstance(v, str)), ""), error))
        except Exception:
            note({"uncounted": True})
        return original(self, *given, **named)

    translator.log_graph_break = log_graph_break  # type: ignore[union-attr]
    atexit.register(_end, note)


def _break(reason: str, error: Any) -> dict[str, Any]:
    registry = re.search(r"gb\d{4}", reason)
    explained = re.search(r"Explanation: (.*)", reason)
    text = explained.group(1) if explained else str(getattr(error, "gb_type", None) or reason)
    stack = [(frame.filename, frame.lineno or 0) for frame in _stack(error)]
    return {
        "break": text.strip()[:300],
        "registry": registry.group().upper() if registry else None,
        "stack": stack,
    }


def _stack(error: Any) -> list[Any]:
    """The user's frames, outermost first.

    `real_stack` of the exception, or `TracingContext.extract_stack`: seen on torch 2.13.
    """
    import torch._guards

    return list(getattr(error, "real_stack", None) or torch._guards.TracingContext.extract_stack())


def _end(note: Note) -> None:
    """`torch._dynamo.utils.counters`: seen on torch 2.13."""
    try:
        from torch._dynamo.utils import counters

        note({"graphs": int(counters["stats"]["unique_graphs"])})
    except Exception:
        return
