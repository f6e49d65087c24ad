"""Skips what only measures, records or waits while compiling.

A clock that is read around a part of `forward`, a counter of memory, a progress bar that is advanced
by hand, `gc.collect()`, `breakpoint()`, a file that is written: none of it can be part of a graph, and
nothing that is computed depends on it. The statements go below a guard, together with every other
statement that only handles their values.

Before:

    import time

    import torch
    from torch import nn


    class Timed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 4)
            self.elapsed = 0.0

        def forward(self, x: torch.Tensor):
            start = time.perf_counter()
            x = torch.relu(self.net(x))
            self.elapsed += time.perf_counter() - start
            return x

After:

    import time

    import torch
    from torch import nn


    class Timed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 4)
            self.elapsed = 0.0

        def forward(self, x: torch.Tensor):
            if not torch.compiler.is_compiling():
                start = time.perf_counter()
            x = torch.relu(self.net(x))
            if not torch.compiler.is_compiling():
                self.elapsed += time.perf_counter() - start
            return x

In the compiled path nothing is measured, so `elapsed` stays what it was: time the call from outside.
The fix is refused where a value is returned, tested, given to a function that may need it, or stored
where compiled code reads it.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.untraced import called, own_calls, untraced
from gbfix.diagnoses import DIAGNOSES
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.files import writing_block
from gbfix.lowering.guarding import guarded_runs
from gbfix.lowering.managers import MANAGER_METHODS, measuring_statements
from gbfix.lowering.reporting import reporting_slice
from gbfix.lowering.views import block_of
from gbfix.python_diagnoses import (
    DEBUGGER,
    FILE_ACCESS,
    HOUSEKEEPING,
    MEASUREMENT,
    PROGRESS_BAR,
)

_REASONS = {
    MEASUREMENT.code: "nothing is measured in the compiled path",
    PROGRESS_BAR.code: "no progress is shown in the compiled path",
    HOUSEKEEPING.code: "the call is not made in the compiled path",
    DEBUGGER.code: "the debugger is not started in the compiled path",
    FILE_ACCESS.code: "nothing is written in the compiled path",
}
_OPENS = frozenset({"builtins.open", "io.open"})
_READS = frozenset({"torch.load", "numpy.load", "numpy.loadtxt", "pickle.load", "json.load"})


def propose(site: BreakSite, context: Context) -> Fix:
    """Guard the statements that only handle what is measured or written.

    Raises:
        Refused: where a value is needed, or the statements do more.
    """
    call, statement = site.node, site.statement
    if not isinstance(call, ast.Call):
        raise NotApplicable("not-a-call", "nothing is called here")
    if called(call, context.analysis) in _READS:
        raise Refused("value-used", "what is read from the file is needed; read it outside")
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        raise NotApplicable("iterated", "the value is iterated over")
    block = context.info.module.parents[statement]
    if site.diagnosis is FILE_ACCESS and isinstance(block, (ast.With, ast.AsyncWith)):
        opened = block.items[0].context_expr
        if isinstance(opened, ast.Call) and called(opened, context.analysis) in _OPENS:
            call, statement = opened, block  # what is left would still open the file
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        statements: list[ast.stmt] = [writing_block(statement, call, context)]
    elif context.info.node.name in MANAGER_METHODS:
        statements = measuring_statements(context)
    else:
        statements = _with_neighbours(reporting_slice(statement, call, context), context)
    edits = guarded_runs(statements, context)
    reason = _REASONS[site.diagnosis.code]
    return Fix("skip", Safety.REVIEW, reason, edits, context.needs_torch)


def _with_neighbours(statements: list[ast.stmt], context: Context) -> list[ast.stmt]:
    """The statements, and those next to them that can be skipped as well: they share a guard."""
    taken = list(statements)
    for statement in taken:  # grows
        block = block_of(statement, context.info.module)
        at = next(i for i, s in enumerate(block) if s is statement)
        for near in [*block[max(at - 1, 0) : at], *block[at + 1 : at + 2]]:
            if any(s is near for s in taken) or near in context.analysis.eager:
                continue
            for call in own_calls(near):
                found = untraced(call, context.analysis, context.facts)
                if found is None or found.code not in _REASONS:
                    continue
                try:
                    more = reporting_slice(near, call, context)
                except Refused:
                    break
                taken += [s for s in more if not any(s is t for t in taken)]
                break
    return taken


TRANSFORM = Transform(
    name="skip",
    codes=tuple(code for code in DIAGNOSES if code in _REASONS),
    summary="skip what only measures, records or waits while compiling",
    doc=__doc__ or "",
    propose=propose,
    rank=11,
)
