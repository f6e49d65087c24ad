"""A split of a tensor whose pieces are gone through and put together again, as it stands in a function.

Finds the split from its counts, and the results from the split. Knows what may be computed row by row,
nothing of how it is written otherwise.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.definitions import Definitions, definitions_of
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat
from gbfix.fixes import Context
from gbfix.lowering.rowwise import Needs, NotRowwise, block_is_rowwise
from gbfix.lowering.unbounded import may_have_any_derivative
from gbfix.lowering.views import block_of

_JOINING = frozenset({"torch.cat", "torch.concat", "torch.concatenate"})


@dataclass(frozen=True)
class Split:
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
class Join:
    """`torch.cat(out)`, with the text of what it joins when compiling."""

    call: ast.Call
    statement: ast.stmt
    results: str


def find_split(node: ast.expr, definitions: Definitions, context: Context) -> Split:
    """The split of which an expression is the list of counts.

    Raises:
        NotApplicable: where it is for something else.
        Refused: where the split is not as simple as it has to be.
    """
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
    return Split(call, rows, (*statements, *([place] if named else [])), name, place, named)


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


def find_join(split: Split, definitions: Definitions, needs: Needs, context: Context) -> Join:
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
    split: Split | None,
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
        if may_have_any_derivative(node, context.analysis):
            raise Refused("unbounded-derivative", f"`{ast.unparse(node)}` may have any derivative")


def _is_alike(node: ast.expr, context: Context) -> bool:
    """Whether the elements of something are of one size: of a tensor, or layers."""
    value = context.analysis.values.get(node)
    return value is not None and value.only(Kind.TENSOR | Kind.MODULE | Kind.STATIC)


def _joined(made: ast.Assign, definitions: Definitions, context: Context) -> Join:
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


def _joining(call: ast.AST, results: ast.expr, context: Context) -> Join:
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
    return Join(call, statement, flat(context.view, results))
