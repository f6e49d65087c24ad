"""Finds the place of an element without counting what is found.

`(table == t).nonzero()` gives as many rows as there are matches, and `.item()` reads one of them. The
place is a tensor that selects as well as the number does, also where a helper function returns it. For
the second of two matches it is where a cumulative sum exceeds one.

Before:

    def index_of(table: torch.Tensor, limit: torch.Tensor):
        indices = (table.mean(-1) > limit.mean()).nonzero()
        return indices[0].item() if len(indices) > 0 else -1


    def scales(table: torch.Tensor, sigmas: torch.Tensor, limits: torch.Tensor):
        ids = [index_of(table, limit) for limit in limits]
        return sigmas[ids]

After:

    def index_of(table: torch.Tensor, limit: torch.Tensor):
        if torch.compiler.is_compiling():
            found = table.mean(-1) > limit.mean()
            return torch.where(found.any(), found.int().argmax(), -1)
        indices = (table.mean(-1) > limit.mean()).nonzero()
        return indices[0].item() if len(indices) > 0 else -1


    def scales(table: torch.Tensor, sigmas: torch.Tensor, limits: torch.Tensor):
        ids = [index_of(table, limit) for limit in limits]
        if torch.compiler.is_compiling() and ids:
            ids = torch.stack(ids)
        return sigmas[ids]

Where nothing is found and nothing stands in for it, eager code raises IndexError, and the compiled code
RuntimeError from inside the graph: this is why the fix asks for a review. The place has to be used as
an index and nothing else, in the function itself or by all of its callers in the same file.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.codegen.guards import compiling
from gbfix.codegen.layout import indent
from gbfix.diagnoses import NONZERO, SCALAR_READ
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.doubling import twice
from gbfix.lowering.finding import Finder, callers_of
from gbfix.lowering.index_selection import Selection
from gbfix.lowering.routing import counted_mask
from gbfix.source.text import Edit

_REASON = "where nothing is found, compiled code raises RuntimeError in the graph, not IndexError"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to find the place as a tensor.

    Raises:
        Refused: where the indices, or the place, are used for more.
    """
    torch = context.torch(site.statement)
    found = Finder(context, torch).found(_operation(site, context))
    statement = _statement(found.place, context)
    leads = {statement: found.leads}
    if isinstance(statement, ast.Return) and statement.value is found.place:
        texts = {**found.texts, statement: {found.place: found.text}}
        edits = twice(texts, context, leads)
        for call, scope in callers_of(context):
            edits += _used(call, scope, torch, context)
    else:
        selection = Selection(context)
        loose = isinstance(ast.parse(found.text, mode="eval").body, ast.BinOp)
        text = f"({found.text})" if loose else found.text
        selection.select(found.place, f"{text}.reshape(1)")
        for earlier, changes in found.texts.items():
            selection.texts.setdefault(earlier, {}).update(changes)
        edits = selection.edits(leads)
    return Fix("find-index", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _operation(site: BreakSite, context: Context) -> ast.expr:
    """The operation that finds the indices of which one is read."""
    if site.read is None:
        if isinstance(site.node, ast.expr):
            return site.node
        raise NotApplicable("no-place", "no place is looked up here")
    node: ast.expr = site.read.tensor
    while isinstance(node, ast.Subscript) and counted_mask(node, context.analysis) is None:
        node = node.value
    if isinstance(node, ast.Name):
        definition = Finder(context, "torch").definitions.of(node)
        node = definition.value if definition is not None else node
    if counted_mask(node, context.analysis) is None:
        raise NotApplicable("no-place", "no place is looked up here")
    return node


def _used(call: ast.Call, scope: ast.AST, torch: str, context: Context) -> tuple[Edit, ...]:
    """The edits of a caller, which uses the place as an index.

    Raises:
        Refused: where it uses it for more.
    """
    module = context.info.module
    info = next((i for i in module.functions() if i.node is scope), None)
    analysis = context.facts.analysis(info) if info is not None else None
    if info is None or analysis is None or scope is context.info.node:
        raise Refused(
            "consumer-unknown", f"`{ast.unparse(call)}` is called where it is not followed"
        )
    own = Context.of(analysis, context.facts, context.settings, context.view, context.original)
    parent = module.parents[call]
    if isinstance(parent, ast.ListComp) and parent.elt is call:
        return _stacked(parent, torch, own)
    selection = Selection(own)
    try:
        selection.select(call, f"{context.view.text(call)}.reshape(1)")
    except NotApplicable:
        text = ast.unparse(parent)
        raise Refused("consumer-unknown", f"`{text}` needs the place as a number") from None
    return selection.edits()


def _stacked(comprehension: ast.ListComp, torch: str, context: Context) -> tuple[Edit, ...]:
    """A list of places that is an index becomes a tensor when compiling."""
    parents, view = context.info.module.parents, context.view
    statement = parents[comprehension]
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Name):
        raise Refused("consumer-unknown", "a list of places is used without a name")
    names = [n for n in walk(context.info.node) if isinstance(n, ast.Name) and n.id == target.id]
    for name in names:
        if name is target:
            continue
        parent = parents[name]
        base = parent.value if isinstance(parent, ast.Subscript) and parent.slice is name else None
        value = context.analysis.values.get(base) if base is not None else None
        known = value is not None and value.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN)
        if not isinstance(name.ctx, ast.Load) or not known:  # no list takes a list as an index
            raise Refused("consumer-unknown", f"`{target.id}` is used for more than to select")
    if not view.starts_line(statement) or not view.ends_line(statement):
        raise Refused("unusual-place", "the statement shares its line with another")
    ids = target.id
    head = f"if {compiling(torch)} and {ids}:"
    text = f"{head}\n{context.unit}{ids} = {torch}.stack({ids})"
    at = view.end(statement)
    return (Edit(at, at, f"\n{indent(text, view.indent(statement))}"),)


def _statement(node: ast.AST, context: Context) -> ast.stmt:
    parents = context.info.module.parents
    while not isinstance(node, ast.stmt):
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            raise Refused("unusual-place", "the place is read in a nested scope")
        node = parents[node]
    return node


TRANSFORM = Transform(
    name="find-index",
    codes=(NONZERO.code, SCALAR_READ.code),
    summary="find the place of an element without counting what is found",
    doc=__doc__ or "",
    propose=propose,
    rank=6,
)
