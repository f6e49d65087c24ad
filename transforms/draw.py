"""Draws a random number with the one function of its kind that Dynamo takes.

Dynamo draws for `random.uniform` before each call of the graph and hands the number in. It does not
know `random.random()`, which is the same draw: `uniform(a, b)` computes `a + (b - a) * random()`, and
with 0 and 1 that is the same number to the last bit, from the same stream.

Before:

    import random


    def forward(x: torch.Tensor):
        return torch.relu(x) * random.random()

After:

    import random


    def forward(x: torch.Tensor):
        return torch.relu(x) * random.uniform(0.0, 1.0)

Where Python computes with the number first, `drop-read` computes with a tensor instead. A branch that
such a number decides (a layer that is dropped now and then) is treated by `cond` and `where`: their
compiled paths put the comparison into a tensor, and draw in the same way.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.draws import PLAIN, as_uniform, draw, is_computed_with
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.python_diagnoses import RANDOM_CALL
from gbfix.source.text import Edit


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to draw with `random.uniform`.

    Raises:
        Refused: for any other draw, which would give other numbers.
    """
    call = site.node
    if not isinstance(call, ast.Call):
        raise NotApplicable("no-draw", "nothing is drawn here")
    drawn = draw(call, context.analysis)
    if drawn is not None and drawn != PLAIN:
        raise NotApplicable("taken-already", "Dynamo takes this draw")
    if drawn is None:
        what = ast.unparse(call.func)
        raise Refused("no-equal-draw", f"no function that Dynamo takes draws what `{what}` draws")
    if is_computed_with(call, context.analysis):
        raise NotApplicable("computed-with", "Dynamo does not take arithmetic on drawn numbers")
    text = as_uniform(context.view.text(call.func))
    if text is None:
        raise Refused("module-unnamed", "the module `random` has no name here")
    edit = Edit(context.view.start(call), context.view.end(call), text)
    return Fix("draw", Safety.SAFE, "the same number from the same stream", (edit,))


TRANSFORM = Transform(
    name="draw",
    codes=(RANDOM_CALL.code,),
    summary="draw a number from `random` as Dynamo takes it",
    doc=__doc__ or "",
    propose=propose,
    rank=12,
)
