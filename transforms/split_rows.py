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
from dataclasses import dataclass

from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.definitions import Definitions, definitions_of
from gbfix.analysis.ranks import Ranks
from gbfix.analysis.reads import ReadKind
from gbfix.analysis.sites import BreakSite
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.codegen import layout
from gbfix.codegen.expressions import flat
from gbfix.codegen.fitting import fitted
from gbfix.codegen.guards import compiling
from gbfix.diagnoses import TENSOR_TO_LIST
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.doubling import in_compiled_path
from gbfix.lowering.placement import beside_all, width_for
from gbfix.lowering.rowwise import Needs, NotRowwise, block_is_rowwise
from gbfix.lowering.views import block_of
from gbfix.source.text import Edit

_REASON = "each piece is computed for all rows, and each row takes what its own piece gives"
_UNBOUNDED = frozenset(
    "sqrt rsqrt log log2 log10 log1p pow norm normalize std var reciprocal asin acos atanh acosh logit "
    "xlogy div".split()
)
_JOINING = frozenset({"torch.cat", "torch.concat", "torch.concatenate"})


@dataclass(frozen=True)
class _Split:
    """`torch.split(rows, counts.tolist())`.

    Attributes:
        call: the call.
        rows: what is split.
        statements: what makes the list of counts and the pieces, one after the other.
        name: what the pieces are called.
        binding: the last of the statements, or the loop that goes through the pieces.
        named: whether the pieces have a name, or are gone through where they are made.
    """

    call: ast.Call
    rows: ast.Name
    statements: tuple[ast.stmt, ...]
    name: str
    binding: ast.stmt
    named: bool


@dataclass(frozen=True)
class _Join:
    """`torch.cat(out)`, with the text of what it joins when compiling."""

    call: ast.Call
    statement: ast.stmt
    results: str


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to compute all rows for each piece.

    Raises:
        Refused: where a piece is not known to be computed row by row.
    """
    read = site.read
    if read is None or read.kind is not ReadKind.LIST:
        raise NotApplicable("no-split", "no list of counts is read here")
    definitions = definitions_of(context.info.node, context.info.module)
    split = _split(read.node, definitions, context)
    counts = read.tensor
    if not isinstance(counts, (ast.Name, ast.Attribute)):
        raise Refused("complex-expression", f"`{ast.unparse(counts)}` would be computed twice")
    needs = Needs()
    join = _join(split, definitions, needs, context)
    for name in (split.rows, counts):
        if not definitions.holds(name, split.binding):
            raise Refused("may-change", f"`{ast.unparse(name)}` is bound anew or changed later")
    if needs.evaluating:
        raise Refused("draws-random", "a layer drops elements in training")
    if in_compiled_path(split.binding, context):
        raise NotApplicable("only-compiled", "there is no eager path to stand beside")
    edits = _edits(split, counts, join, needs, context)
    return Fix("split-rows", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _split(node: ast.expr, definitions: Definitions, context: Context) -> _Split:
    parents = context.info.module.parents
    statements: list[ast.stmt] = []
    given = node
    made = parents[node]
    if isinstance(made, ast.Assign) and made.value is node:
        given = _only_use(made, definitions)
        statements.append(made)
    call = parents[given]
    call = parents[call] if isinstance(call, ast.keyword) else call
    rows = _split_rows(call, given, context)
    if not isinstance(call, ast.Call) or rows is None:
        raise NotApplicable(
            "no-split", "the counts do not split a tensor along its first dimension"
        )
    binding = parents[call]
    if not isinstance(rows, ast.Name):
        raise Refused("complex-expression", f"`{ast.unparse(rows)}` would be computed twice")
    target = binding.targets[0] if isinstance(binding, ast.Assign) else None
    loop: ast.AST = binding
    while isinstance(loop, ast.Call):
        loop = parents[loop]
    if isinstance(binding, ast.Assign) and isinstance(target, ast.Name):
        name = target.id
        place: ast.stmt = binding
    elif isinstance(loop, ast.For) and call in walk(loop.iter):
        name, place = context.names.take("pieces"), loop
    else:
        raise Refused("consumer-unknown", "the pieces have no name")
    block = block_of(place, context.info.module)
    named = not isinstance(place, ast.For)
    if statements:
        if statements[0] not in block:
            raise Refused("unusual-place", "the counts are read in another place")
        between = block[block.index(statements[0]) + 1 : block.index(place)]
        if not (all(map(_is_new, between)) and (not between or not named)):
            raise Refused("unusual-place", "the counts are read in another place")
    return _Split(call, rows, (*statements, *([place] if named else [])), name, place, named)


def _is_new(statement: ast.stmt) -> bool:
    """`out = []`, past which a read of counts may be moved."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    empty = isinstance(value, ast.List) and not value.elts
    return empty or isinstance(value, ast.Constant)


def _split_rows(call: ast.AST, counts: ast.expr, context: Context) -> ast.expr | None:
    """What a call splits along its first dimension, at the counts."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    names = ["tensor", "split_size_or_sections", "dim"]
    given = list(call.args)
    name = context.info.module.qualify(call.func)
    if name not in {"torch.split", "torch.functional.split"}:
        value = context.analysis.values.get(call.func.value)
        # Nothing but a tensor is split by a list.
        may_be = value is None or value.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN)
        if call.func.attr != "split" or not may_be:
            return None
        given = [call.func.value, *given]
    named = {
        "split_size_or_sections" if k.arg == "split_size" else k.arg: k.value for k in call.keywords
    }
    named |= dict(zip(names, given, strict=False))
    dimension = named.get("dim")
    first = dimension is None or (isinstance(dimension, ast.Constant) and dimension.value == 0)
    if named.get("split_size_or_sections") is not counts or not first or set(named) - set(names):
        return None
    return named.get("tensor")


def _only_use(statement: ast.Assign, definitions: Definitions) -> ast.Name:
    """The one use of a name that is bound once.

    Raises:
        NotApplicable: where it is used more, or bound elsewhere too.
    """
    target = statement.targets[0]
    uses = definitions.loads.get(target.id, []) if isinstance(target, ast.Name) else []
    if len(uses) != 1 or definitions.of(uses[0]) is not statement:
        raise NotApplicable("no-split", "the list is used for more than to split")
    return uses[0]


def _join(split: _Split, definitions: Definitions, needs: Needs, context: Context) -> _Join:
    """Where the results of the pieces are put together.

    Raises:
        Refused: where pieces are not computed row by row, or the results are used for more.
    """
    parents = context.info.module.parents
    use: ast.expr = split.call
    if isinstance(split.binding, ast.Assign):
        use = _only_use(split.binding, definitions)
    above = parents[use]
    places = [0]
    while isinstance(above, ast.Call) and isinstance(above.func, ast.Name):
        if above.func.id == "enumerate" and above.args == [use]:
            places.insert(0, 1)
        elif above.func.id == "zip" and use in above.args and not above.keywords:
            for other in above.args:
                if other is not use and not _is_alike(other, context):
                    raise Refused(
                        "rows-unproven", f"`{ast.unparse(other)}` may hold pieces as well"
                    )
            places.insert(0, above.args.index(use))
        else:
            raise Refused("consumer-unknown", f"`{ast.unparse(above)}` takes the pieces")
        use, above = above, parents[above]
    if isinstance(above, ast.For) and above.iter is use and not above.orelse:
        piece = _element(above.target, places[:-1])
        return _joined(_appended(above, piece, needs, context), definitions, context)
    if isinstance(above, ast.comprehension) and above.iter is use and not above.ifs:
        made = parents[above]
        if isinstance(made, ast.ListComp) and len(made.generators) == 1:
            piece = _element(above.target, places[:-1])
            _check([], made.elt, piece, split, needs, context)
            call = parents[made]
            if isinstance(call, ast.Assign):
                return _joined(call, definitions, context)
            return _joining(call, made, context)
    raise Refused("consumer-unknown", "the pieces are not gone through one by one")


def _element(target: ast.expr, places: list[int]) -> str:
    for place in places:
        if not isinstance(target, (ast.Tuple, ast.List)) or place >= len(target.elts):
            raise Refused("consumer-unknown", "the pieces are not gone through one by one")
        target = target.elts[place]
    if not isinstance(target, ast.Name):
        raise Refused("consumer-unknown", "a piece has no name of its own")
    return target.id


def _appended(loop: ast.For, piece: str, needs: Needs, context: Context) -> ast.Assign:
    """The statement that makes the empty list to which a loop appends one result a round."""
    body, last = loop.body[:-1], loop.body[-1]
    call = last.value if isinstance(last, ast.Expr) else None
    append = call.func if isinstance(call, ast.Call) else None
    if (
        not isinstance(call, ast.Call)
        or not isinstance(append, ast.Attribute)
        or append.attr != "append"
        or not isinstance(append.value, ast.Name)
        or len(call.args) != 1
        or call.keywords
    ):
        raise Refused("consumer-unknown", "the loop does not end by appending a result")
    definitions = definitions_of(context.info.node, context.info.module)
    made = definitions.of(append.value)
    if made is None or not isinstance(made.value, ast.List) or made.value.elts:
        raise Refused("consumer-unknown", f"`{append.value.id}` is not an empty list before")
    if block_of(made, context.info.module) is not block_of(loop, context.info.module):
        raise Refused("consumer-unknown", f"`{append.value.id}` is filled by more than the loop")
    bound = {n.id for n in walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    later = context.liveness.after.get(loop, frozenset()) | context.liveness.captured
    if left := sorted(bound & later):
        raise Refused("consumer-unknown", f"`{left[0]}` of the last round is used later")
    _check(body, call.args[0], piece, None, needs, context)
    return made


def _check(
    body: list[ast.stmt],
    result: ast.expr,
    piece: str,
    split: _Split | None,
    needs: Needs,
    context: Context,
) -> None:
    """Whether a piece is computed row by row, with derivatives that are bounded."""
    try:
        block_is_rowwise(body, result, piece, context.analysis, context.facts, needs)
    except NotRowwise as found:
        raise Refused("not-rowwise", f"`{found}` may mix rows") from None
    for node in (n for top in (*body, result) for n in walk(top)):
        if isinstance(node, ast.Subscript) and not _is_alike(node.value, context):
            raise Refused("rows-unproven", f"`{ast.unparse(node)}` may be a piece as well")
        name = node.func if isinstance(node, ast.Call) else None
        unbounded = isinstance(name, ast.Attribute) and name.attr.rstrip("_") in _UNBOUNDED
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Pow)):
            divisor = context.analysis.values.get(node.right)
            unbounded = (
                divisor is None or not divisor.only(Kind.STATIC) or isinstance(node.op, ast.Pow)
            )
        if unbounded:
            raise Refused("unbounded-derivative", f"`{ast.unparse(node)}` may have any derivative")


def _is_alike(node: ast.expr, context: Context) -> bool:
    """Whether the elements of something are of one size: of a tensor, or layers."""
    value = context.analysis.values.get(node)
    return value is not None and value.only(Kind.TENSOR | Kind.MODULE | Kind.STATIC)


def _joined(made: ast.Assign, definitions: Definitions, context: Context) -> _Join:
    """Where a list of results is put together, and used for nothing else."""
    target = made.targets[0]
    assert isinstance(target, ast.Name)
    parents = context.info.module.parents
    uses = [
        use
        for use in definitions.loads.get(target.id, [])
        if not (isinstance(p := parents[use], ast.Attribute) and p.attr == "append")
    ]
    appends = len(definitions.loads.get(target.id, [])) - len(uses)
    if len(uses) != 1 or definitions.of(uses[0]) is not made or appends > 1:
        raise Refused("consumer-unknown", f"`{target.id}` is used for more than to be joined")
    return _joining(parents[uses[0]], uses[0], context)


def _joining(call: ast.AST, results: ast.expr, context: Context) -> _Join:
    parents = context.info.module.parents
    named = {k.arg: k.value for k in call.keywords} if isinstance(call, ast.Call) else {}
    if (
        not isinstance(call, ast.Call)
        or context.info.module.qualify(call.func) not in _JOINING
        or call.args[:1] != [results]
        or set(named) - {"dim"}
        or len(call.args) + len(named) > 2
    ):
        raise Refused("consumer-unknown", "the results are not joined by `torch.cat`")
    dimension = named.get("dim", call.args[1] if len(call.args) > 1 else None)
    if dimension is not None and not (isinstance(dimension, ast.Constant) and dimension.value == 0):
        raise Refused("consumer-unknown", "the results are joined along another dimension")
    statement: ast.AST = call
    while not isinstance(statement, ast.stmt):
        if isinstance(statement, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.IfExp)):
            raise Refused("unusual-place", "the results are joined in a nested scope or condition")
        statement = parents[statement]
    return _Join(call, statement, flat(context.view, results))


def _edits(
    split: _Split, counts: ast.expr, join: _Join, needs: Needs, context: Context
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
    split: _Split, body: str, torch: str, tests: list[str], context: Context
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
