"""Runs all layers of a list and selects the result of the one that a tensor picks.

`self.heads[task.item()](h)` needs the number to find the layer. Where all layers of the list are made
alike and do nothing but compute, the compiled path runs each of them.

Before:

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(3))

        def forward(self, x: torch.Tensor):
            h = torch.relu(x)
            task = (h.sum() > 4).long()
            return self.heads[task.item()](h)

After:

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(3))

        def forward(self, x: torch.Tensor):
            h = torch.relu(x)
            task = (h.sum() > 4).long()
            if torch.compiler.is_compiling():
                results = torch.stack([layer(h) for layer in self.heads])
                return results[task.reshape(1).long()].squeeze(0)
            return self.heads[task.item()](h)

It costs as many times the work as there are layers, so it is for heads and adapters. The layers that
are not picked get zeros for a gradient instead of none, which is why the fix asks for a review. A list
that is changed later, or whose layers draw random numbers or keep state, is left alone.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.effects import function_effects
from gbfix.analysis.facts import Facts
from gbfix.analysis.project import ClassInfo
from gbfix.analysis.reads import ReadKind
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import flat, operand
from gbfix.codegen.fitting import fitted
from gbfix.diagnoses import SCALAR_READ
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.constant_tables import check_only_read
from gbfix.lowering.doubling import in_compiled_path
from gbfix.lowering.placement import beside_all, width_for

_REASON = (
    "all layers run and one result is selected; layers that are not picked get gradients of zeros"
)
# Each computes a tensor from one tensor, and nothing else.
_PLAIN = frozenset(
    "Linear LayerNorm RMSNorm GroupNorm Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d".split()
)
# These change their input where an argument says so.
_ACTIVATIONS = frozenset("ReLU ReLU6 GELU SiLU Mish ELU CELU SELU Tanh Sigmoid Hardswish".split())


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to run all layers.

    Raises:
        Refused: where the layers may differ, or do more than compute.
    """
    read = site.read
    if read is None or read.kind is not ReadKind.NUMBER:
        raise NotApplicable("no-layer", "no layer is picked here")
    parents = context.info.module.parents
    picked = parents[read.node]
    if not isinstance(picked, ast.Subscript) or picked.slice is not read.node:
        raise NotApplicable("no-layer", "no layer is picked here")
    held = context.analysis.values.get(picked.value)
    if held is None or held.reference not in {"torch.nn.ModuleList", "torch.nn.modules.ModuleList"}:
        raise NotApplicable("no-layer", "what is picked is no layer of a list")
    call = parents[picked]
    if not isinstance(call, ast.Call) or call.func is not picked:
        raise Refused("layer-kept", "the layer is not called where it is picked")
    _check_alike(picked.value, context)
    _check_arguments(call, context)
    if in_compiled_path(site.statement, context):
        raise NotApplicable("only-compiled", "there is no eager path to stand beside")
    tensor = read.tensor
    value = context.analysis.values.get(tensor)
    if value is not None and value.floating:
        raise Refused("key-unproven", "the tensor does not hold positions")
    torch, view = context.torch(site.statement), context.view
    layer, results = context.names.take("layer"), context.names.take("results")
    start = view.start(site.statement)
    text = view.source.text[start : view.end(site.statement)]
    if "\n" in text:
        raise Refused("unusual-place", "the layer is called in a long statement")
    at, end = view.start(call) - start, view.end(call) - start
    func = view.end(picked) - start
    arguments = text[func:end]
    lead = (
        f"{results} = {torch}.stack([{layer}{arguments} for {layer} in {flat(view, picked.value)}])"
    )
    selected = f"{results}[{operand(view, tensor)}.reshape(1).long()].squeeze(0)"
    width = width_for(context, site.statement)
    lines = [lead, text[:at] + selected + text[end:]]
    body = "\n".join(fitted(line, width, context.unit) for line in lines)
    edits = beside_all([site.statement], body, torch, (), context)
    return Fix("select-layer", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _check_arguments(call: ast.Call, context: Context) -> None:
    """What is given to every layer is there before, and nothing else is called first.

    Raises:
        Refused: where it is computed in the call.
    """
    for argument in [*call.args, *(k.value for k in call.keywords)]:
        if not isinstance(argument, (ast.Name, ast.Constant)):
            raise Refused(
                "complex-expression", f"`{ast.unparse(argument)}` is computed in the call"
            )
    if any(k.arg is None for k in call.keywords):
        raise Refused("complex-expression", "the arguments are not known")
    statement: ast.AST = call
    parents = context.info.module.parents
    while not isinstance(statement, ast.stmt):
        if isinstance(
            statement, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp)
        ):
            raise Refused("unusual-place", "the layer is called in a nested scope or condition")
        statement = parents[statement]
    if not isinstance(statement, (ast.Assign, ast.Return, ast.Expr)):
        raise Refused("unusual-place", "the layer is called in the head of a block")
    inner = set(walk(call))
    for node in walk(statement):
        if isinstance(node, (ast.Call, ast.NamedExpr)) and node not in inner:
            if call not in walk(node):
                raise Refused("complex-expression", f"`{ast.unparse(node)}` stands there too")


def _check_alike(node: ast.expr, context: Context) -> None:
    """All layers of a list are made by the same words, and only compute.

    Raises:
        Refused: where they may not.
    """
    owner, facts = context.info.owner, context.facts
    if owner is None or not isinstance(node, ast.Attribute) or ast.unparse(node.value) != "self":
        raise Refused("layers-unknown", "it is not known what the list holds")
    writes = [w for c in facts.project.mro(owner) for w in facts.writes(c).get(node.attr, ())]
    made = writes[0].value if len(writes) == 1 else None
    if not isinstance(made, ast.Call) or len(made.args) != 1 or made.keywords:
        raise Refused("layers-unknown", "it is not known what the list holds")
    check_only_read(node.attr, True, facts.project.naming(node.attr))
    given = made.args[0]
    if isinstance(given, (ast.ListComp, ast.GeneratorExp)):
        bound = {n.id for g in given.generators for n in walk(g.target) if isinstance(n, ast.Name)}
        if any(isinstance(n, ast.Name) and n.id in bound for n in walk(given.elt)):
            raise Refused("layers-differ", f"`{ast.unparse(given.elt)}` may be another each time")
        layers: list[ast.expr] = [given.elt]
    elif isinstance(given, ast.List) and len({ast.unparse(e) for e in given.elts}) == 1:
        layers = given.elts[:1]
    else:
        raise Refused("layers-differ", "the layers are not made by the same words")
    method = writes[0].method
    cls = method.owner if method is not None else None
    if cls is None or not _computes(layers[0], cls, facts):
        raise Refused("layers-unknown", f"`{ast.unparse(layers[0])}` may do more than compute")


def _computes(node: ast.expr, cls: ClassInfo, facts: Facts) -> bool:
    """Whether a layer that is made here computes one tensor and does nothing else."""
    if not isinstance(node, ast.Call):
        return False
    name = cls.module.qualify(node.func) or ""
    if any(k.arg == "inplace" for k in node.keywords):
        return False
    if name == "torch.nn.Sequential":
        return bool(node.args) and all(_computes(a, cls, facts) for a in node.args)
    if name.startswith("torch.nn."):
        last = name.rsplit(".", 1)[-1]
        return last in _PLAIN or (last in _ACTIVATIONS and not node.args)
    own = facts.project.class_info(name)
    forward = facts.project.method(own, "forward") if own is not None else None
    if forward is None or not facts.project.is_module_class(name):
        return False
    found = function_effects(forward, facts)
    if found is None or not replace(found, control=[]).pure:
        return False
    only_returns = all(isinstance(node, ast.Return) for node in found.control)
    reads = found.random or found.scalar or found.dynamic or found.conditions
    returned = facts.returned(forward)
    return only_returns and not reads and returned.tensor and returned.unshared


TRANSFORM = Transform(
    name="select-layer",
    codes=(SCALAR_READ.code,),
    summary="run all layers of a list and select the result of one",
    doc=__doc__ or "",
    propose=propose,
    rank=27,
)
