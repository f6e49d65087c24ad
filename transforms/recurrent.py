"""Calls the function behind an `nn.RNN`, `nn.GRU` or `nn.LSTM` while compiling.

Dynamo refuses these modules, and gives up the frame that reads one. It traces the functions that they
call, `torch.gru` and its like, so the compiled path calls them with the layer's own parameters. They
are reached through the layer's dictionary of parameters, kept beside the layer: it is the same
dictionary, so that loading, moving and replacing parameters is seen.

Before:

    import torch
    from torch import nn


    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 8, batch_first=True)
            self.head = nn.Linear(8, 2)

        def forward(self, x: torch.Tensor):
            x = x.reshape(1, 4, 4)
            out, _ = self.rnn(x)
            return self.head(out)

After:

    import torch
    from torch import nn


    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 8, batch_first=True)
            self.rnn_parameters = self.rnn._parameters
            self.head = nn.Linear(8, 2)

        def forward(self, x: torch.Tensor):
            x = x.reshape(1, 4, 4)
            if torch.compiler.is_compiling() and x.dim() == 3:
                out, _ = torch.gru(
                    x,
                    x.new_zeros(1, x.shape[0], 8),
                    list(self.rnn_parameters.values()),
                    True,
                    1,
                    0.0,
                    self.training,
                    False,
                    True,
                )
            else:
                out, _ = self.rnn(x)
            return self.head(out)

Sizes that are no plain numbers are read from the parameters, and dropout and directions are kept where
the layer is made. Refused where the layer is made with other arguments that are not plain, is replaced
later, is given a packed sequence, or where its result is neither taken apart at once nor computed with
by one of its parts, `torch.relu(self.rnn(x)[0])`. Hooks of the layer do not run when compiled, and its
dropout follows the module around it.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Refused
from gbfix.analysis.trees import walk
from gbfix.codegen import layout
from gbfix.codegen.expressions import flat
from gbfix.codegen.guards import compiling
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.placement import width_for
from gbfix.lowering.recurrent_layers import STORED, RecurrentLayer, function_call, layer_of
from gbfix.lowering.views import CONDITIONAL
from gbfix.python_diagnoses import RECURRENT_LAYER
from gbfix.source.text import Edit

_REASON = (
    "hooks of the layer do not run, and its dropout follows the module around it, when compiled"
)


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer the function in the compiled path.

    Raises:
        Refused: where the layer or its result is not known well enough.
    """
    call, statement = site.node, site.statement
    assert isinstance(call, ast.Call)
    owner, name = context.info.owner, _attribute(call.func)
    if owner is None or name is None or owner.module is not context.info.module:
        raise Refused("unknown-layer", "the layer is not an attribute of this class")
    layer = layer_of(name, owner, context)
    given = _given(call, context)
    view = context.view
    if not (view.starts_line(statement) and view.ends_line(statement)):
        raise Refused("unusual-place", "the statement shares its line with another")
    torch = context.torch(statement)
    target, after, part = _results(statement, call, layer, context)
    kept = f"{name}_parameters"
    width = width_for(context, statement)
    text = function_call(torch, layer, given, f"self.{name}", target, width, context, part)
    body = "\n".join([text, *after])
    tests = [compiling(torch), f"{given[0]}.dim() == 3"]
    indent, unit = view.indent(statement), context.unit
    head = layout.header("if", tests, width=width_for(context, statement, nested=False), unit=unit)
    lead = layout.indent(f"{head}\n{layout.indent(body, unit)}\nelse:\n", indent)
    start = view.line_start(view.start(statement))
    computed = call.args[0]
    if not isinstance(computed, ast.Name):
        lead = f"{indent}{given[0]} = {view.text(computed)}\n{lead}"
    edits = [
        Edit(start, start, lead),
        *view.indent_lines(start, view.end(statement), unit),
    ]
    if not isinstance(computed, ast.Name):
        if statement.lineno != statement.end_lineno:
            raise Refused("unknown-input", "the call stands on several lines")
        edits.append(Edit(view.start(computed), view.end(computed), given[0]))
    edits = _first_merged(edits)
    stored = {kept: "_parameters"}
    stored |= {f"{name}_{option}": option for option in STORED if layer[option] is None}
    missing = {k: v for k, v in stored.items() if k not in context.facts.writes(owner)}
    if missing:
        at, inner = view.line_end(view.end(layer.made)), view.indent(layer.made)
        lines = (f"\n{inner}self.{k} = self.{name}.{v}" for k, v in missing.items())
        edits.insert(0, Edit(at, at, "".join(lines)))
    return Fix("recurrent", Safety.REVIEW, _REASON, tuple(edits), context.needs_torch)


def _first_merged(edits: list[Edit]) -> list[Edit]:
    """The lead and the indentation of the first line stand at one offset."""
    lead, rest = edits[0], edits[1:]
    if rest and rest[0].start == lead.start:
        return [Edit(lead.start, lead.end, lead.text + rest[0].text), *rest[1:]]
    return edits


def _attribute(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else None
    return None


def _given(call: ast.Call, context: Context) -> tuple[str, str | None]:
    """The texts of the input and of the state that the layer is given."""
    if call.keywords or not 1 <= len(call.args) <= 2 or isinstance(call.args[0], ast.Starred):
        raise Refused("unknown-input", "the layer is not given plain arguments")
    value = context.analysis.values.get(call.args[0])
    if value is None or not value.tensor:
        raise Refused(
            "unknown-input", f"`{ast.unparse(call.args[0])}` is not proven to be a tensor"
        )
    state = None
    if len(call.args) == 2:
        known = context.analysis.values.get(call.args[1])
        if known is None or known.kinds & 1:
            raise Refused("unknown-input", "the state that the layer is given may be None")
        state = flat(context.view, call.args[1])
    if isinstance(call.args[0], ast.Name):
        return call.args[0].id, state
    if state is not None and not isinstance(call.args[1], (ast.Name, ast.Tuple)):
        raise Refused("unknown-input", "the layer is given two computed arguments")
    return context.names.take("inputs"), state


def _results(
    statement: ast.stmt, call: ast.Call, layer: RecurrentLayer, context: Context
) -> tuple[str, list[str], str]:
    """The target of the result, the lines after it, and which part of the result is taken."""
    if (picked := _picked(statement, call, layer, context)) is not None:
        return picked
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        raise Refused("unknown-result", "the layer's result is not taken apart at once")
    target = statement.targets[0]
    if statement.value is not call or not isinstance(target, ast.Tuple) or len(target.elts) != 2:
        raise Refused("unknown-result", "the layer's result is not taken apart at once")
    view = context.view
    first, state = target.elts
    if not isinstance(first, ast.Name):
        raise Refused("unknown-result", "the layer's result is not bound to names")
    if layer.kind != "LSTM":
        return view.text(target), [], ""
    if isinstance(state, ast.Tuple) and len(state.elts) == 2:
        parts = [view.text(e) for e in (first, *state.elts)]
        return ", ".join(parts), [], ""
    if not isinstance(state, ast.Name):
        raise Refused("unknown-result", "the layer's state is not bound to a name")
    used = any(
        isinstance(n, ast.Name) and n.id == state.id and isinstance(n.ctx, ast.Load)
        for n in walk(context.info.node)
    )
    if not used:
        return f"{first.id}, *{state.id}", [], ""
    hidden, cell = context.names.take("h_n"), context.names.take("c_n")
    return f"{first.id}, {hidden}, {cell}", [f"{state.id} = ({hidden}, {cell})"], ""


def _picked(
    statement: ast.stmt, call: ast.Call, layer: RecurrentLayer, context: Context
) -> tuple[str, list[str], str] | None:
    """A statement that computes with one part of the result, `torch.relu(self.rnn(x)[0])`.

    Raises:
        Refused: where the call would come before another, or may not be reached.
    """
    parents, view = context.info.module.parents, context.view
    taken = parents.get(call)
    if not isinstance(taken, ast.Subscript) or not isinstance(taken.slice, ast.Constant):
        return None
    if not isinstance(statement, (ast.Assign, ast.Return, ast.Expr)):
        raise Refused("unknown-result", "the statement does more than compute one value")
    if taken.slice.value != 0 and (layer.kind == "LSTM" or taken.slice.value != 1):
        raise Refused("unknown-result", "the part of the layer's result is no tensor")
    above: ast.AST = taken
    while above is not statement:
        above = parents[above]
        if isinstance(above, CONDITIONAL):
            raise Refused("unknown-result", "the layer may not be called")
    start, inside = view.start(call), {id(n) for n in walk(call)}
    for node in walk(statement):
        if isinstance(node, ast.Call) and id(node) not in inside and view.end(node) <= start:
            raise Refused("unknown-result", f"`{ast.unparse(node)}` comes before the layer")
    name = context.names.take("outputs" if taken.slice.value == 0 else "hidden")
    text = view.slice(view.start(statement), view.start(taken)) + name
    text += view.slice(view.end(taken), view.end(statement))
    indent = view.indent(statement)
    lines = [line.removeprefix(indent) for line in text.split("\n")]
    return name, lines, f"[{taken.slice.value}]"


TRANSFORM = Transform(
    name="recurrent",
    codes=(RECURRENT_LAYER.code,),
    summary="call the function behind a recurrent layer while compiling",
    doc=__doc__ or "",
    propose=propose,
    rank=20,
)
