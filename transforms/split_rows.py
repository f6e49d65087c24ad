"""Computes all rows for each piece of a split, and takes of each row what its own piece gives.

`torch.split(x, counts.tolist())` cuts a tensor at places that data decide: the tokens of each expert,
sorted by expert. How many pieces there are is known. Where each piece is computed row by row and the
results are put together again, the compiled path computes all rows for every piece and selects.

Before:

    def scaled(x: torch.Tensor):
        positive = (x.sum(-1) > 0).flatten().sum()
        counts = torch.stack([positive, x.shape[0] - positive]).flatten()
        pieces = torch.split(x, counts.tolist())
        out = []
        for i, piece in enumerate(pieces):
            out.append(torch.relu(piece) * (i + 1))
        return torch.cat(out)

After:

    def scaled(x: torch.Tensor):
        positive = (x.sum(-1) > 0).flatten().sum()
        counts = torch.stack([positive, x.shape[0] - positive]).flatten()
        if torch.compiler.is_compiling():
            torch._assert_async(counts.sum() == x.shape[0], "the pieces are not all of `x`")
            pieces_owner = torch.repeat_interleave(
                counts.to(x.device, torch.long), output_size=x.shape[0]
            )
            pieces = [x] * counts.shape[0]
        else:
            pieces = torch.split(x, counts.tolist())
        out = []
        for i, piece in enumerate(pieces):
            out.append(torch.relu(piece) * (i + 1))
        if torch.compiler.is_compiling():
            return torch.stack(out)[pieces_owner, torch.arange(x.shape[0], device=x.device)]
        return torch.cat(out)

It costs as many times the work as there are pieces, which is little beside the stop if there are few.
Weights of a piece without rows get zeros for a gradient in both paths. What mixes rows, draws random
numbers, or has an unbounded derivative is left alone.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.ranks import Ranks
from gbfix.analysis.reads import ReadKind
from gbfix.codegen import layout
from gbfix.codegen.expressions import flat
from gbfix.codegen.fitting import fitted
from gbfix.codegen.guards import compiling
from gbfix.diagnoses import TENSOR_TO_LIST
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.doubling import in_compiled_path
from gbfix.lowering.placement import beside_all, width_for
from gbfix.lowering.rowwise import Needs
from gbfix.lowering.split_pieces import Join, Split, find_join, find_split
from gbfix.source.text import Edit

_REASON = "each piece is computed for all rows, and each row takes what its own piece gives"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to compute all rows for each piece.

    Raises:
        Refused: where a piece is not known to be computed row by row.
    """
    read = site.read
    if read is None or read.kind is not ReadKind.LIST:
        raise NotApplicable("no-split", "no list of counts is read here")
    definitions = definitions_of(context.info.node, context.info.module)
    split = find_split(read.node, definitions, context)
    counts = read.tensor
    if not isinstance(counts, (ast.Name, ast.Attribute)):
        raise Refused("complex-expression", f"`{ast.unparse(counts)}` would be computed twice")
    needs = Needs()
    join = find_join(split, definitions, needs, context)
    for name in (split.rows, counts):
        if not definitions.holds(name, split.binding):
            raise Refused("may-change", f"`{ast.unparse(name)}` is bound anew or changed later")
    if needs.evaluating:
        raise Refused("draws-random", "a layer drops elements in training")
    if in_compiled_path(split.binding, context):
        raise NotApplicable("only-compiled", "there is no eager path to stand beside")
    edits = _edits(split, counts, join, needs, context)
    return Fix("split-rows", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _edits(
    split: Split, counts: ast.expr, join: Join, needs: Needs, context: Context
) -> tuple[Edit, ...]:
    view, binding = context.view, split.binding
    torch = context.torch(binding)
    x, n = flat(view, split.rows), flat(view, counts)
    one = Ranks(context.analysis, context.facts).of(counts) == 1
    tests = [] if one else [f"{n}.dim() == 1"]
    tests += [f"{x}.dim() > 1"] if needs.trailing else []
    # Named after what is bound once, so that another split that comes between has another name.
    owner = context.names.take(f"{split.name if split.named else join.results}_owner")
    whole = f"{x}.shape[0]"
    owners = f"{n}.to({x}.device, {torch}.long), output_size={whole}"
    lines = [
        f'{torch}._assert_async({n}.sum() == {whole}, "the pieces are not all of `{x}`")',
        f"{owner} = {torch}.repeat_interleave({owners})",
        f"{split.name} = [{x}] * {n}.shape[0]",
    ]
    width = width_for(context, binding)
    body = "\n".join(fitted(line, width, context.unit) for line in lines)
    if split.named:
        edits = beside_all(split.statements, body, torch, tests, context)
    else:
        edits = _before_loop(split, body, torch, tests, context)
    place = f"{torch}.arange({x}.shape[0], device={x}.device)"
    joined = f"{torch}.stack({join.results})[{owner}, {place}]"
    start = view.start(join.statement)
    if not (view.starts_line(join.statement) and view.ends_line(join.statement)):
        raise Refused("unusual-place", "the statement shares its line with another")
    text = view.source.text[start : view.end(join.statement)]
    if "\n" in text:
        raise Refused("unusual-place", "the results are joined in a long statement")
    at, end = view.start(join.call) - start, view.end(join.call) - start
    width = width_for(context, join.statement)
    new = fitted(text[:at] + joined + text[end:], width, context.unit)
    return (*edits, *beside_all([join.statement], new, torch, tests, context))


def _before_loop(
    split: Split, body: str, torch: str, tests: list[str], context: Context
) -> tuple[Edit, ...]:
    """The pieces get a name before the loop that goes through them."""
    view, unit = context.view, context.unit
    first = split.statements[0] if split.statements else split.binding
    if not view.starts_line(first) or not all(map(view.ends_line, split.statements)):
        raise Refused("unusual-place", "the statement shares its line with another")
    if view.has_comment(view.start(first), view.start(split.binding)):
        raise Refused("unusual-place", "a comment stands before the loop")
    indent = view.indent(split.binding)
    width = width_for(context, split.binding, nested=False)
    head = layout.header("if", [compiling(torch), *tests], width=width, unit=unit)
    before = [view.text(statement) for statement in split.statements]
    else_ = "\n".join([*before, f"{split.name} = {flat(view, split.call)}"])
    text = f"{head}\n{layout.indent(body, unit)}\nelse:\n{layout.indent(else_, unit)}\n"
    lines = layout.indent(text, indent).removeprefix(indent)
    if split.statements:
        between = view.source.text[view.end(first) : view.start(split.binding)].strip()
        lines = f"{between}\n{indent}{lines}" if between else lines
    return (
        Edit(view.start(first), view.start(split.binding), f"{lines.rstrip()}\n{indent}"),
        Edit(view.start(split.call), view.end(split.call), split.name),
    )


TRANSFORM = Transform(
    name="split-rows",
    codes=(TENSOR_TO_LIST.code,),
    summary="compute all rows for each piece of a split at places that data decide",
    doc=__doc__ or "",
    propose=propose,
    rank=26,
)
