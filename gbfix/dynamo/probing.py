"""Runs the probes of diagnoses on the installed torch, in a process of its own.

Reads probes as JSON from standard input and writes what it found as JSON to the file that is named
as its argument; what torch prints goes to standard error. It uses public names of torch only, so that
it works on versions on which nothing else here has been tried.
"""

from __future__ import annotations

import contextlib
import json
import sys
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def measure(probes: Mapping[str, str]) -> dict[str, bool]:
    """Whether each probe breaks the graph: it is not compiled to exactly one graph.

    Two graphs mean a break, none a frame that was skipped as a whole; a probe that fails to compile
    at all is broken, too.
    """
    return {code: _breaks(code, text) for code, text in probes.items()}


def _breaks(code: str, text: str) -> bool:
    import torch

    torch.compiler.reset()
    graphs: list[int] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    module = types.ModuleType(f"gbfix_probe_{code}")
    # Dynamo looks the globals of a function up by the name of its module.
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, f"<probe of {code}>", "exec"), module.__dict__)
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            compiled: Any = torch.compile(module.__dict__["probe"], backend=count)
            compiled(torch.ones(3))
    except Exception:
        return True
    finally:
        del sys.modules[module.__name__]
    return len(graphs) != 1


def main() -> None:
    """Measure what standard input asks for, and describe the machine."""
    asked = json.load(sys.stdin)
    from gbfix.dynamo.machine import describe

    answer = {"machine": describe(), "breaks": measure(asked)}
    Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
