"""Recurrent layers: how one was made, and the call of torch's function with its parameters.

Knows the arguments of `nn.RNN`, `nn.GRU` and `nn.LSTM` and of the functions behind them, nothing of
where the call is put.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused
from gbfix.analysis.project import ClassInfo
from gbfix.codegen import layout
from gbfix.fixes import Context

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
STORED = ("dropout", "bidirectional", "batch_first")


@dataclass(frozen=True)
class RecurrentLayer:
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


def layer_of(name: str, owner: ClassInfo, context: Context) -> RecurrentLayer:
    """How the layer in an attribute is made.

    Raises:
        Refused: where that is not known.
    """
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
        if not isinstance(given, ast.Constant) and option in {*_READ_BACK, *STORED}:
            options[option] = None
            continue
        if not isinstance(given, ast.Constant) or option == "**":
            raise Refused("unknown-layer", f"`{option}` of the layer is no plain number")
        options[option] = given.value
    if "hidden_size" not in options or options["proj_size"]:
        raise Refused("unknown-layer", "the size of the layer's state is not plain")
    return RecurrentLayer(kind, made, options)


def _is_unconditional(made: ast.Assign, method: ast.AST) -> bool:
    return any(s is made for s in getattr(method, "body", []))


def function_call(
    torch: str,
    layer: RecurrentLayer,
    given: tuple[str, str | None],
    name: str,
    target: str,
    width: int,
    context: Context,
    part: str = "",
) -> str:
    """The statements that call the function of a layer; `part` picks one of its results.

    Args:
        given: the texts of the input and of the state, None for zeros.
        name: the text of the layer.
        target: what the result is bound to.
    """
    x, state = given
    parameters = f"{name}_parameters"
    told = {o: f"{name}_{o}" if layer[o] is None else str(layer[o]) for o in STORED}
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
        f"list({parameters}.values())",  # TorchScript takes no starred list
        str(bool(layer["bias"])),
        layers,
        f"float({told['dropout']})" if layer["dropout"] is None else str(float(told["dropout"])),
        "self.training",
        told["bidirectional"] if directions is None else str(directions == 2),
        told["batch_first"] if layer["batch_first"] is None else str(bool(layer["batch_first"])),
    ]
    head = f"{target} = {torch}.{layer.function}"
    return "\n".join(
        [*lines, layout.call(head, arguments, width=width, unit=context.unit, tail=part)]
    )
