"""Keeps sizes as Python numbers while compiling, where a tensor of them is only read again.

A dict of parameters, an object or an argument that carries `torch.tensor(x.shape)` to another function
costs a graph break at each `int(params["shape"][-1])`. The numbers are known where the tensor is made.
In the compiled path they are kept as they are; eager code still makes the tensor.

Before:

    def measured(x: torch.Tensor):
        return {"shape": torch.tensor(x.shape), "angle": x.mean()}


    def warp(x: torch.Tensor, params):
        height, width = int(params["shape"][-2]), params["shape"][-1].item()
        return x * params["angle"] * height / width


    def augment(x: torch.Tensor):
        return warp(x * 2, measured(x))

After:

    def measured(x: torch.Tensor):
        shape = tuple(x.shape) if torch.compiler.is_compiling() else torch.tensor(x.shape)
        return {"shape": shape, "angle": x.mean()}


    def warp(x: torch.Tensor, params):
        height, width = int(params["shape"][-2]), int(params["shape"][-1])
        return x * params["angle"] * height / width


    def augment(x: torch.Tensor):
        return warp(x * 2, measured(x))

Everything that is done with the tensor has to be seen: it may go through dicts with known keys, plain
objects, arguments and results of the functions of one file, and may only be read there. Whoever looks
into the dict from outside finds a tuple when compiled, so the fix asks for a review.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import flat
from gbfix.codegen.guards import compiling
from gbfix.codegen.names import Names
from gbfix.diagnoses import SCALAR_READ, TENSOR_POSITION, TENSOR_TO_LIST
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.contents import Reader
from gbfix.lowering.held_origins import Made, made_for
from gbfix.lowering.held_uses import Uses, uses_of
from gbfix.source.text import Edit

_REASON = "while compiling, {} holds the Python numbers that the tensor was made of"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to keep the numbers where the tensor is made.

    Raises:
        Refused: where the tensor is needed, or not all that is done with it is seen.
    """
    if site.read is None:
        raise NotApplicable("no-read", "nothing is read here")
    edits: dict[tuple[int, int], Edit] = {}
    ways: list[str] = []
    for made in made_for(site.read.tensor, context.info, context.facts):
        uses = uses_of(made, context.facts)
        ways += uses.ways
        for edit in (*_kept(made, context), *_read(uses, context)):
            edits[edit.start, edit.end] = edit
    held = next((w for w in ways if " of a" in w), ways[0] if ways else "the argument")
    return Fix(
        "keep-sizes",
        Safety.REVIEW,
        _REASON.format(held),
        tuple(edits[at] for at in sorted(edits)),
        context.needs_torch,
    )


def _kept(made: Made, context: Context) -> tuple[Edit, ...]:
    """The edits that make the numbers of a tensor, and the tensor only in eager code."""
    node, info, view = made.node, made.info, context.view
    analysis = context.facts.analysis(info)
    text = Reader(analysis, view).numbers(node) if analysis is not None else None
    if text is None:
        raise Refused("not-kept", f"`{ast.unparse(node)}` is not made of Python integers")
    statement = _statement(node, info.module.parents)
    torch = context.torch(info.node.body[0])
    chosen = f"{text} if {compiling(torch)} else {flat(view, node)}"
    indent = view.indent(statement)
    unit = view.unit(info.node)
    if isinstance(statement, ast.Assign) and statement.value is node:
        head = view.slice(view.start(statement), view.start(node))
        line = _line(head, chosen, indent, unit, context.settings.line_length)
        return (Edit(view.start(node), view.end(node), line.removeprefix(head)),)
    name = Names(info).take(_name_for(node, info.module.parents))
    line = _line(f"{name} = ", chosen, indent, unit, context.settings.line_length)
    at = view.start(statement)
    return (
        Edit(at, at, f"{line}\n{indent}"),
        Edit(view.start(node), view.end(node), name),
    )


def _statement(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.stmt:
    """The statement around a node, which is run once and in order.

    Raises:
        Refused: in a nested scope, or a part that may not be evaluated.
    """
    current = node
    while not isinstance(current, ast.stmt):
        if isinstance(current, (ast.Lambda, ast.ListComp, ast.DictComp, ast.GeneratorExp)):
            raise Refused("unusual-place", "the tensor is made in a nested scope")
        if isinstance(current, (ast.IfExp, ast.BoolOp)):
            raise Refused("unusual-place", "the tensor is made under a condition")
        current = parents[current]
    if not isinstance(current, (ast.Assign, ast.Return, ast.Expr, ast.AnnAssign)):
        raise Refused("unusual-place", "the tensor is made in the head of a block")
    return current


def _name_for(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str:
    """A name for the numbers: the key or the parameter that they are given to."""
    parent = parents[node]
    if isinstance(parent, ast.Dict):
        key = parent.keys[parent.values.index(node)]  # type: ignore[arg-type]
        if isinstance(key, ast.Constant) and str(key.value).isidentifier():
            return str(key.value)
    if isinstance(parent, ast.keyword) and parent.arg is not None:
        return parent.arg
    return "sizes"


def _line(head: str, chosen: str, indent: str, unit: str, width: int) -> str:
    """An assignment of a conditional expression, on several lines where it is too long."""
    if len(indent) + len(head) + len(chosen) <= width:
        return f"{head}{chosen}"
    first, _, rest = chosen.partition(" if ")
    test, _, otherwise = rest.partition(" else ")
    inner = f"{indent}{unit}"
    return f"{head}(\n{inner}{first}\n{inner}if {test}\n{inner}else {otherwise}\n{indent})"


def _read(uses: Uses, context: Context) -> tuple[Edit, ...]:
    """The edits that read numbers as well as tensors."""
    view = context.view
    found = [
        Edit(view.start(call), view.end(call), f"int({flat(view, tensor)})")
        for call, tensor in uses.items.items()
    ]
    for call, tensor in uses.lists.items():
        taken = {n.id for n in walk(tensor) if isinstance(n, ast.Name)}
        name = next(n for n in ("n", "size", "number") if n not in taken)
        text = f"[int({name}) for {name} in {flat(view, tensor)}]"
        found.append(Edit(view.start(call), view.end(call), text))
    return tuple(found)


TRANSFORM = Transform(
    name="keep-sizes",
    codes=(SCALAR_READ.code, TENSOR_TO_LIST.code, TENSOR_POSITION.code),
    summary="keep sizes as Python numbers where a tensor of them is handed on to be read",
    doc=__doc__ or "",
    propose=propose,
    rank=6,
)
