"""Iterates over the list of sizes that a tensor was made of, instead of over the tensor.

Sizes of feature maps that are stacked into a tensor and then iterated over again come out as tensors,
with which Dynamo can shape nothing. Where the list that they were put together in is at hand, compiled
code goes through that: in the loop itself, or where the tensor is given to the function with the loop.

Before:

    def centers(sizes, x: torch.Tensor):
        found = []
        for height, width in sizes:
            found.append(torch.linspace(0.5, height - 0.5, height) * width + x.sum())
        return torch.cat(found)


    def step(x: torch.Tensor, y: torch.Tensor):
        size_list = []
        for one in (x, y):
            height, width = one.shape
            size_list.append((height, width))
        sizes = torch.as_tensor(size_list, dtype=torch.long)
        return centers(sizes, x) + sizes.sum()

After:

    def centers(sizes, x: torch.Tensor):
        found = []
        for height, width in sizes:
            found.append(torch.linspace(0.5, height - 0.5, height) * width + x.sum())
        return torch.cat(found)


    def step(x: torch.Tensor, y: torch.Tensor):
        size_list = []
        for one in (x, y):
            height, width = one.shape
            size_list.append((height, width))
        sizes = torch.as_tensor(size_list, dtype=torch.long)
        known_sizes = size_list if torch.compiler.is_compiling() else sizes
        return centers(known_sizes, x) + sizes.sum()

The list has to be complete when the tensor is made of it, and to hold integers that come from shapes.
Two parameters count as such a pair if all calls in the file give them so. What is iterated over may be
used as numbers only. `height - 0.5` is then computed in Python's double precision, and not in float32.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.project import Function
from gbfix.codegen.names import Names
from gbfix.diagnoses import SCALAR_READ, TENSOR_POSITION
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.paired_lists import PairedLists
from gbfix.source.text import Edit

_REASON = "`{}` holds the same integers as `{}`, which was made of it"
# Functions and methods that are given sizes.
_SIZED = frozenset(
    "linspace arange zeros ones full empty rand randn eye range int float min max view reshape expand "
    "repeat new_zeros new_ones new_full new_empty narrow split unfold append meshgrid tile".split()
)


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to go through the list.

    Raises:
        Refused: where the numbers are needed as tensors.
    """
    if site.read is None:
        raise NotApplicable("no-read", "nothing is read here")
    loop = _loop(site, context)
    if loop is None:
        raise NotApplicable("no-loop", "it is not read from what a loop goes through")
    source = _iterated(loop)
    if source is None:
        raise NotApplicable("no-loop", "the loop goes through something else")
    lists = PairedLists(context.info.module)
    partner = lists.partner(source)
    uses = [source] if partner is not None else _given(source, lists, context)
    if not uses:
        raise NotApplicable("no-list", "no list is known that the tensor was made of")
    _check_numbers(loop, context)
    edits: list[Edit] = []
    names: list[str] = []
    for use in uses:
        name = partner or lists.partner(use)
        if name is not None:
            edits += _edits(use, name, lists, context)
            names = names or [name, use.id]
    if not edits:
        raise NotApplicable("no-list", "no list is known that the tensor was made of")
    reason = _REASON.format(*names)
    return Fix("keep-list", Safety.REVIEW, reason, tuple(edits), context.needs_torch)


def _loop(site: BreakSite, context: Context) -> ast.For | None:
    """The loop whose variables are read."""
    assert site.read is not None
    read = {n.id for n in ast.walk(site.read.tensor) if isinstance(n, ast.Name)}
    parents = context.info.module.parents
    node: ast.AST = site.statement
    while node is not context.info.node:
        node = parents[node]
        if isinstance(node, ast.For) and read & _targets(node):
            return node
    return None


def _targets(loop: ast.For) -> set[str]:
    """The names that hold the items; the count of an `enumerate` is none."""
    target = loop.target
    if _calls(loop.iter, "enumerate") and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        target = target.elts[1]
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}


def _calls(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _iterated(loop: ast.For) -> ast.Name | None:
    source = loop.iter
    if _calls(source, "enumerate") and isinstance(source, ast.Call) and len(source.args) == 1:
        source = source.args[0]
    return source if isinstance(source, ast.Name) else None


def _given(source: ast.Name, lists: PairedLists, context: Context) -> list[ast.Name]:
    """What callers give for the parameter that a loop goes through, which nothing else reads."""
    info = context.info
    definitions = definitions_of(info.node, info.module)
    if source.id not in definitions.parameters or source.id in definitions.stores:
        return []
    for load in definitions.loads[source.id]:
        parent = info.module.parents[load]
        around = info.module.parents[parent]
        counted = isinstance(parent, ast.Call) and _calls(parent, "enumerate")
        over = around if counted else parent
        if not isinstance(over, ast.For) or _iterated(over) is not load:
            raise Refused("needed-as-tensor", f"`{source.id}` is used for more than its items")
    found: list[ast.Name] = []
    arguments = info.node.args
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
    static = any(
        isinstance(d, ast.Name) and d.id == "staticmethod" for d in info.node.decorator_list
    )
    skipped = 1 if info.owner is not None and not static else 0
    position = names.index(source.id) - skipped if source.id in names else None
    for call in lists.calls:
        if not _is_of(call, context) or any(isinstance(a, ast.Starred) for a in call.args):
            continue
        named = {k.arg: k.value for k in call.keywords}
        given = named.get(source.id)
        if given is None and position is not None and 0 <= position < len(call.args):
            given = call.args[position]
        if isinstance(given, ast.Name):
            found.append(given)
    return found


def _is_of(call: ast.Call, context: Context) -> bool:
    """Whether a call is of the function, by name."""
    info = context.info
    if info.owner is None:
        return isinstance(call.func, ast.Name) and call.func.id == info.node.name
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == info.node.name
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in ("self", "cls", info.owner.node.name)
    )


def _check_numbers(loop: ast.For, context: Context) -> None:
    """Refuse where an item is used in a way that a Python number cannot be.

    Names that are computed from items are numbers as well, and are followed.
    """
    numbers = _targets(loop)
    pending = list(_loads(context.info.node, numbers, loop))
    seen: set[ast.AST] = set()
    while pending:
        use = pending.pop()
        if use in seen:
            continue
        seen.add(use)
        made = _check_use(use, context)
        if made is not None and made not in numbers:
            numbers.add(made)
            pending += _loads(context.info.node, {made}, None)


def _loads(function: Function, names: set[str], within: ast.AST | None) -> Iterator[ast.Name]:
    for node in ast.walk(within or function):
        if isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
            yield node


def _check_use(use: ast.expr, context: Context) -> str | None:
    """The name that a number is stored in, if it is."""
    parents, values = context.info.module.parents, context.analysis.values
    node: ast.AST = use
    while True:
        parent = parents[node]
        if isinstance(parent, ast.BinOp):
            other = parent.right if parent.left is node else parent.left
            value = values.get(other)
            items = {n.id for n in ast.walk(other) if isinstance(n, ast.Name)}
            if value is not None and value.tensor and not _is_number_like(other, use, items):
                return None
            node = parent
        elif isinstance(parent, (ast.UnaryOp, ast.Compare, ast.Tuple, ast.Slice)):
            node = parent
        elif isinstance(parent, ast.Subscript) and parent.slice is node:
            return None
        elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
            return parent.targets[0].id
        elif isinstance(parent, ast.AugAssign) and isinstance(parent.target, ast.Name):
            value = values.get(parent.target)
            return parent.target.id if value is None or not value.tensor else None
        elif isinstance(parent, (ast.If, ast.IfExp)) and parent.test is node:
            return None
        elif isinstance(parent, ast.Call) and node in parent.args:
            function = parent.func
            name = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
            if name not in _SIZED:
                raise Refused("needed-as-tensor", f"`{ast.unparse(use)}` is given to `{name}`")
            return None
        elif isinstance(parent, ast.keyword) and parent.arg in ("dim", "start", "end", "steps"):
            return None
        else:
            text = ast.unparse(use)
            raise Refused("needed-as-tensor", f"`{text}` is used for more than its number")


def _is_number_like(other: ast.expr, use: ast.expr, items: set[str]) -> bool:
    """Whether the other side of an operation is made of items as well."""
    return (
        isinstance(use, ast.Name)
        and isinstance(other, (ast.Name, ast.BinOp))
        and not any(
            isinstance(n, (ast.Call, ast.Subscript, ast.Attribute)) for n in ast.walk(other)
        )
        and bool(items)
    )


def _edits(use: ast.Name, partner: str, lists: PairedLists, context: Context) -> list[Edit]:
    """A line that picks the list when compiling, and its name in place of the use."""
    view, parents = context.view, context.info.module.parents
    statement: ast.AST = use
    while not isinstance(statement, ast.stmt):
        statement = parents[statement]
    plain = isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return, ast.For))
    if not plain or not view.starts_line(statement):
        raise Refused("unusual-place", "the tensor is not used in a plain statement")
    function = lists.function_of(use)
    info = next((i for i in context.info.module.functions() if i.node is function), None)
    if info is None:
        raise Refused("unusual-place", "the tensor is not used in a function")
    name = Names(info).take(f"known_{use.id}")
    torch = context.torch(statement)
    at = view.line_start(view.start(statement))
    line = f"{name} = {partner} if {torch}.compiler.is_compiling() else {use.id}\n"
    return [
        Edit(at, at, view.indent(statement) + line),
        Edit(view.start(use), view.end(use), name),
    ]


TRANSFORM = Transform(
    name="keep-list",
    codes=(SCALAR_READ.code, TENSOR_POSITION.code),
    summary="iterate over the list that a tensor of sizes was made of",
    doc=__doc__ or "",
    propose=propose,
    rank=5,
)
