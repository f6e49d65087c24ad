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
                    [*self.rnn_parameters.values()],
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
later, is given a packed sequence, or where its result is not taken apart at once. Hooks of the layer
do not run when compiled, and its dropout follows the module around it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused
from gbfix.analysis.project import ClassInfo
from gbfix.analysis.sites import BreakSite
from gbfix.analysis.trees import walk
from gbfix.codegen import layout
from gbfix.codegen.expressions import flat
from gbfix.codegen.guards import compiling
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.placement import width_for
from gbfix.python_diagnoses import RECURRENT_LAYER
from gbfix.source.text import Edit

_REASON = (
    "hooks of the layer do not run, and its dropout follows the module around it, when compiled"
)
_PARAMETERS = (
    "input_size hidden_size num_layers bias batch_first dropout bidirectional proj_size".split()
)
_DEFAULTS: dict[str, object] = {
    "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False,
    "proj_size": 0, "nonlinearity": "tanh",
}  # fmt: skip


# What the parameters tell, where it is no plain number.
_READ_BACK = frozenset({"input_size", "hidden_size", "num_layers"})
# What the layer itself tells where it is made; that it cannot be asked later is what breaks.
_STORED = ("dropout", "bidirectional", "batch_first")


@dataclass(frozen=True)
class _Layer:
    """How a layer was made: its class, and the values of its arguments."""

    kind: str
    made: ast.Assign
    options: dict[str, object]

    def __getitem__(self, name: str) -> object:
        return self.options[name]

    @property
    def function(self) -> str:
        """The function of torch that the layer calls."""
        return f"rnn_{self['nonlinearity']}" if self.kind == "RNN" else self.kind.lower()


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
    layer = _layer(name, owner, context)
    given = _given(call, context)
    view = context.view
    if not (view.starts_line(statement) and view.ends_line(statement)):
        raise Refused("unusual-place", "the statement shares its line with another")
    torch = context.torch(statement)
    target, after = _results(statement, call, layer, context)
    kept = f"{name}_parameters"
    text = _call(
        torch, layer, given, f"self.{name}", target, width_for(context, statement), context
    )
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
    stored |= {f"{name}_{option}": option for option in _STORED if layer[option] is None}
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


def _layer(name: str, owner: ClassInfo, context: Context) -> _Layer:
    writes = context.facts.writes(owner).get(name, [])
    if len(writes) != 1 or writes[0].method is None or writes[0].method.node.name != "__init__":
        raise Refused("unknown-layer", f"`self.{name}` is not made once, in `__init__`")
    made, value = writes[0].node, writes[0].value
    if (
        not isinstance(made, ast.Assign)
        or not isinstance(value, ast.Call)
        or len(made.targets) != 1
    ):
        raise Refused("unknown-layer", f"`self.{name}` is made in a way that is not followed")
    if not (context.view.starts_line(made) and context.view.ends_line(made)):
        raise Refused("unusual-place", "the line that makes the layer has other code")
    if not _is_unconditional(made, writes[0].method.node):
        raise Refused("unknown-layer", f"`self.{name}` is made under a condition")
    kind = (owner.module.qualify(value.func) or "").rsplit(".", 1)[-1]
    options = dict(_DEFAULTS)
    names = list(_PARAMETERS)
    if kind == "RNN":
        names[3:3] = ["nonlinearity"]
    pairs = [*zip(names, value.args, strict=False)]
    pairs += [(k.arg or "**", k.value) for k in value.keywords]
    for option, given in pairs:
        if option in {"device", "dtype"}:
            continue
        if not isinstance(given, ast.Constant) and option in {*_READ_BACK, *_STORED}:
            options[option] = None
            continue
        if not isinstance(given, ast.Constant) or option == "**":
            raise Refused("unknown-layer", f"`{option}` of the layer is no plain number")
        options[option] = given.value
    if "hidden_size" not in options or options["proj_size"]:
        raise Refused("unknown-layer", "the size of the layer's state is not plain")
    return _Layer(kind, made, options)


def _is_unconditional(made: ast.Assign, method: ast.AST) -> bool:
    return any(s is made for s in getattr(method, "body", []))


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
    statement: ast.stmt, call: ast.Call, layer: _Layer, context: Context
) -> tuple[str, list[str]]:
    """The target of the function's result, and lines that put an LSTM's state together."""
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
        return view.text(target), []
    if isinstance(state, ast.Tuple) and len(state.elts) == 2:
        parts = [view.text(e) for e in (first, *state.elts)]
        return ", ".join(parts), []
    if not isinstance(state, ast.Name):
        raise Refused("unknown-result", "the layer's state is not bound to a name")
    used = any(
        isinstance(n, ast.Name) and n.id == state.id and isinstance(n.ctx, ast.Load)
        for n in walk(context.info.node)
    )
    if not used:
        return f"{first.id}, *{state.id}", []
    hidden, cell = context.names.take("h_n"), context.names.take("c_n")
    return f"{first.id}, {hidden}, {cell}", [f"{state.id} = ({hidden}, {cell})"]


def _call(
    torch: str,
    layer: _Layer,
    given: tuple[str, str | None],
    name: str,
    target: str,
    width: int,
    context: Context,
) -> str:
    x, state = given
    parameters = f"{name}_parameters"
    told = {o: f"{name}_{o}" if layer[o] is None else str(layer[o]) for o in _STORED}
    both = f"(2 if {told['bidirectional']} else 1)"
    directions = None if layer["bidirectional"] is None else 2 if layer["bidirectional"] else 1
    each = 4 if layer["bias"] else 2
    if layer["num_layers"] is None:
        layers = f"len({parameters}) // {each * (directions or 1)}"
        layers = layers if directions else f"{layers} // {both}"
        count = f"len({parameters}) // {each}"
    else:
        layers = str(layer["num_layers"])
        count = str(int(layers) * directions) if directions else f"{layers} * {both}"
    hidden = layer["hidden_size"]
    if hidden is None:
        hidden = f'{parameters}["weight_hh_l0"].shape[1]'
    batch = f"{x}.shape[{0 if layer['batch_first'] else 1}]"
    if layer["batch_first"] is None:
        batch = f"{x}.shape[0 if {told['batch_first']} else 1]"
    lines: list[str] = []
    if state is None:
        sizes = [count, batch, str(hidden)]
        room = width - len(context.unit) - 1
        state = layout.call(f"{x}.new_zeros", sizes, width=room, unit=context.unit)
        if layer.kind == "LSTM":
            zeros = context.names.take("zeros")
            lines = [f"{zeros} = {state}"]
            state = f"({zeros}, {zeros})"
    arguments = [
        x,
        state,
        f"[*{parameters}.values()]",
        str(bool(layer["bias"])),
        layers,
        f"float({told['dropout']})" if layer["dropout"] is None else str(float(told["dropout"])),
        "self.training",
        told["bidirectional"] if directions is None else str(directions == 2),
        told["batch_first"] if layer["batch_first"] is None else str(bool(layer["batch_first"])),
    ]
    head = f"{target} = {torch}.{layer.function}"
    return "\n".join([*lines, layout.call(head, arguments, width=width, unit=context.unit)])


TRANSFORM = Transform(
    name="recurrent",
    codes=(RECURRENT_LAYER.code,),
    summary="call the function behind a recurrent layer while compiling",
    doc=__doc__ or "",
    propose=propose,
    rank=20,
)
