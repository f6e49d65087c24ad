"""Moves a class that is defined inside a function to the top level of its module.

Dynamo does not trace `class` statements. A class that uses nothing of the function around it is the
same wherever it is defined.

Before:

    def combine(x: torch.Tensor):
        y = x.exp()

        class Pair:
            def __init__(self, first, second):
                self.first, self.second = first, second

        pair = Pair(y, x * 3)
        return pair.first * pair.second

After:

    class Pair:
        def __init__(self, first, second):
            self.first, self.second = first, second


    def combine(x: torch.Tensor):
        y = x.exp()

        pair = Pair(y, x * 3)
        return pair.first * pair.second

The class is then made once and not at each call. That cannot be seen where its instances stay inside
the function and only their attributes are used; where they leave it, the fix is `unsafe`: the class
has another qualified name, and instances of two calls have the same type.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from gbfix.analysis.bindings import binds
from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Refused
from gbfix.analysis.project import BUILTINS
from gbfix.analysis.trees import walk
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.toplevel import top_statement
from gbfix.lowering.views import block_of
from gbfix.python_diagnoses import CLASS_DEFINITION
from gbfix.source.text import Edit

_LOCAL = "nothing outside the function can see where its class is defined"
_SEEN = "the class is made once, under another qualified name, and shared by all calls"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to define the class outside.

    Raises:
        Refused: where it uses what the function binds, or keeps state of its own.
    """
    node = site.node
    assert isinstance(node, ast.ClassDef)
    module = context.info.module
    if node.name in module.bindings or node.name in BUILTINS:
        raise Refused("name-taken", f"`{node.name}` is another thing at the top level")
    outer = _outermost(context)
    if sum(binds(n, node.name) for n in walk(outer)) > 1:
        raise Refused("name-taken", f"`{node.name}` is bound elsewhere in the function as well")
    _check_closed(node, outer, context)
    _check_stateless(node, context)
    safety = Safety.SAFE if _stays_inside(node, context) else Safety.UNSAFE
    anchor = top_statement(context.info.node, context)
    for name in _used_at_once(node):
        if name not in module.bindings and name not in BUILTINS:
            raise Refused("closes-over", f"`{name}` is not known at the top level")
    edits = _move(node, anchor, context)
    return Fix("lift", safety, _LOCAL if safety is Safety.SAFE else _SEEN, edits)


def _outermost(context: Context) -> ast.AST:
    info = context.info
    while info.outer is not None:
        info = info.outer
    return info.node


def _check_closed(node: ast.ClassDef, outer: ast.AST, context: Context) -> None:
    """The class may read nothing that a function around it binds."""
    inside = {id(n) for n in walk(node)}
    bound = {
        n.id
        for n in walk(outer)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and id(n) not in inside
    }
    for n in walk(outer):
        if id(n) in inside:
            continue
        if isinstance(n, ast.arg):
            bound.add(n.arg)
        elif (
            isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and n is not outer
        ):
            bound.add(n.name)
        elif isinstance(n, (ast.Import, ast.ImportFrom)):
            bound |= {(a.asname or a.name).split(".")[0] for a in n.names}
    for n in walk(node):
        if isinstance(n, ast.Nonlocal):
            raise Refused("closes-over", "the class changes names of the function around it")
        if not isinstance(n, ast.Name) or not isinstance(n.ctx, ast.Load) or n.id not in bound:
            continue
        if not _local_to_method(n, node, context):
            raise Refused("closes-over", f"the class uses `{n.id}` of the function around it")


def _local_to_method(name: ast.Name, node: ast.ClassDef, context: Context) -> bool:
    """Whether a name is a parameter or a variable of a method of the class."""
    parents = context.info.module.parents
    current: ast.AST = name
    while current is not node:
        current = parents[current]
        if isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for n in walk(current):
                if isinstance(n, ast.arg) and n.arg == name.id:
                    return True
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == name.id:
                    return True
    return False


def _check_stateless(node: ast.ClassDef, context: Context) -> None:
    """What the class itself holds has to be the same however often it is made."""
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Pass)):
            continue
        value = getattr(statement, "value", None)
        if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant):
            continue
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            if value is None or isinstance(value, ast.Constant):
                continue
        raise Refused("class-state", "the body of the class does more than define methods")
    for method in node.body:
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            defaults = [*method.args.defaults, *(d for d in method.args.kw_defaults if d)]
            if not all(isinstance(d, ast.Constant) for d in defaults):
                raise Refused("class-state", "a default value is made anew with the class")
    parents = context.info.module.parents
    for use in walk(context.info.node):
        if isinstance(use, ast.Name) and use.id == node.name:
            parent = parents[use]
            written = isinstance(parent, ast.Attribute) and not isinstance(parent.ctx, ast.Load)
            if written or not isinstance(use.ctx, ast.Load):
                raise Refused("class-state", "the class is changed after it was made")


def _used_at_once(node: ast.ClassDef) -> Iterator[str]:
    """Names that are read when the class is made: bases, decorators, annotations."""
    parts: list[ast.AST] = [*node.bases, *node.keywords, *node.decorator_list]
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign):
            parts.append(statement.annotation)
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            parts += [
                *statement.decorator_list,
                *([statement.returns] if statement.returns else []),
            ]
            parts += [
                a.annotation
                for a in walk(statement.args)
                if isinstance(a, ast.arg) and a.annotation
            ]
    for part in parts:
        yield from (n.id for n in walk(part) if isinstance(n, ast.Name))


def _stays_inside(node: ast.ClassDef, context: Context) -> bool:
    """Whether instances are only bound to local names whose attributes are used."""
    parents = context.info.module.parents
    inside = {id(n) for n in walk(node)}
    for use in walk(context.info.node):
        if not isinstance(use, ast.Name) or use.id != node.name or id(use) in inside:
            continue
        call = parents[use]
        if isinstance(call, ast.Attribute):
            continue  # a constant or a static method of the class
        if not isinstance(call, ast.Call) or call.func is not use:
            return False
        holder = parents[call]
        if isinstance(holder, ast.Attribute):
            continue
        if not isinstance(holder, ast.Assign) or len(holder.targets) != 1:
            return False
        target = holder.targets[0]
        if not isinstance(target, ast.Name) or not _only_attributes(target.id, context):
            return False
    return not node.bases or all(
        context.info.module.qualify(b) in {"enum.Enum", "typing.NamedTuple"} for b in node.bases
    )


def _only_attributes(name: str, context: Context) -> bool:
    parents = context.info.module.parents
    return all(
        isinstance(parents[n], ast.Attribute)
        for n in walk(context.info.node)
        if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    )


def _move(node: ast.ClassDef, anchor: ast.stmt, context: Context) -> tuple[Edit, ...]:
    view, module = context.view, context.info.module
    block = block_of(node, module)
    alone = all(isinstance(s, ast.ClassDef) for s in block)  # others may be lifted with it
    if alone or not (view.starts_line(node) and view.ends_line(node)):
        raise Refused("unusual-place", "nothing else is in its block, or the class shares its line")
    start, end = view.line_start(view.start(node)), view.next_line(view.end(node))
    first, last = view.source.position(start)[0], view.source.position(end - 1)[0]
    if any(line in view.string_lines(line) for line in range(first, last + 1)):
        raise Refused("unusual-place", "the class holds text over several lines")
    text = textwrap.dedent(view.slice(start, end)).rstrip("\n")
    at = view.start(anchor)
    # The blank line below the class goes with it.
    rest = view.source.text[end : view.next_line(end)]
    if not rest.strip() and block[0] is not node:
        end = view.next_line(end)
    return (Edit(at, at, f"{text}\n\n\n"), Edit(start, end, ""))


TRANSFORM = Transform(
    name="lift",
    codes=(CLASS_DEFINITION.code,),
    summary="define a class at the top level instead of inside a function",
    doc=__doc__ or "",
    propose=propose,
    rank=15,
)
