"""Which results of an arm share storage with something older, and whether a copy could be noticed.

`torch.cond` refuses an arm that returns an operand, a captured tensor, or a view of one; such a
result is copied with `clone()`. The copy is only right if nothing later changes the original or the
result in place, which is what this module proves or refuses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from gbfix.analysis import torch_table
from gbfix.analysis.conditions import Refused
from gbfix.analysis.effects import effects
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import ClassInfo, Module
from gbfix.analysis.stability import changes_attribute
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value
from gbfix.lowering.gradients import with_gradients


def shared_root(node: ast.expr, analysis: Analysis, own: frozenset[str]) -> str | None:
    """The older name or attribute whose storage an expression may share; None for new storage.

    `own` holds the names that the arm itself has made from new storage. A result that may share
    storage with something that has no name gives an empty string.
    """
    value = analysis.values.get(node)
    if isinstance(node, ast.Name):
        return None if node.id in own else node.id
    if value is not None and value.unshared and not isinstance(node, ast.Attribute):
        return None
    if isinstance(node, ast.Attribute):
        holder = analysis.values.get(node.value)
        named = holder is not None and holder.elements is not None  # `torch.sort(x).values`
        if named or node.attr in {"T", "mT", "H", "mH", "real", "imag", "data"}:
            return shared_root(node.value, analysis, own)
        return dotted(node) or ""
    if isinstance(node, ast.Subscript):
        return shared_root(node.value, analysis, own)
    if isinstance(node, ast.IfExp):
        roots = [shared_root(n, analysis, own) for n in (node.body, node.orelse)]
        return next((r for r in roots if r is not None), None)
    if isinstance(node, ast.Call):
        return _call_root(node, analysis, own)
    return None if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) else ""


def _call_root(node: ast.Call, analysis: Analysis, own: frozenset[str]) -> str | None:
    if isinstance(node.func, ast.Attribute):
        receiver = analysis.values.get(node.func.value)
        operation = torch_table.method(node.func.attr)
        if operation is not None and receiver is not None and receiver.may_be_tensor:
            return shared_root(node.func.value, analysis, own) if operation.alias else None
    function = analysis.values.get(node.func)
    name = function.reference if function is not None else None
    operation = torch_table.function(name) if name else None
    if operation is not None:
        if not operation.alias or not node.args:
            return None
        return shared_root(node.args[0], analysis, own)
    return ""


def surely_bound(statements: Sequence[ast.stmt]) -> frozenset[str]:
    """Names that statements bind on every path through them."""
    found: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.If):
            found |= surely_bound(statement.body) & surely_bound(statement.orelse)
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            found |= surely_bound(statement.body)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            found |= {
                n.id
                for n in walk(statement)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
    return frozenset(found)


def _stored(target: ast.AST) -> set[str]:
    return {n.id for n in walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _makes_new(node: ast.expr, analysis: Analysis, own: frozenset[str]) -> bool:
    if isinstance(node, ast.Tuple):
        return all(shared_root(e, analysis, own) is None for e in node.elts)
    known = analysis.values.get(node)
    if isinstance(node, ast.Call) and known is not None and known.elements is not None:
        return all(e.unshared for e in known.elements)
    return shared_root(node, analysis, own) is None


def alias_groups(statements: Sequence[ast.stmt], analysis: Analysis) -> list[set[str]]:
    """Names that statements make share one storage: `a = b = x + 1`, `b = a`, `b = a.view(-1)`."""
    groups: list[set[str]] = []
    for node in (n for s in statements for n in walk(s)):
        if not isinstance(node, ast.Assign):
            continue
        names = {t.id for t in node.targets if isinstance(t, ast.Name)}
        root = shared_root(node.value, analysis, frozenset())
        names |= {root} if root and "." not in root else set()
        if len(names) > 1:
            merged = [g for g in groups if g & names]
            groups = [g for g in groups if not g & names]
            groups.append(names.union(*merged))
    return groups


def check_attributes_not_changed(
    attributes: Iterable[str], owner: ClassInfo | None, module: Module, facts: Facts
) -> None:
    """Refuse if code of the class changes an attribute in place that would no longer be shared.

    What an attribute holds outlives the call, so every method counts.

    Raises:
        Refused: naming the attribute.
    """
    trees: list[ast.AST] = (
        [c.node for c in facts.project.mro(owner)] if owner is not None else [module.tree]
    )
    for attribute in attributes:
        name = attribute.rsplit(".", 1)[-1]
        for tree in trees:
            if any(changes_attribute(node, name) for node in walk(tree)):
                raise Refused(
                    "alias-then-mutate",
                    f"`{attribute}` is changed in place by another call, and a copy would not follow",
                )


def own_names(statements: Sequence[ast.stmt], analysis: Analysis) -> frozenset[str]:
    """Names that statements bind to new storage on every path, and to nothing else."""
    if not statements:
        return frozenset()
    fresh: set[str] = set()
    old: set[str] = set()
    for node in (n for s in statements for n in walk(s)):
        if isinstance(node, ast.Assign):
            new = _makes_new(node.value, analysis, frozenset(fresh - old))
            for target in node.targets:
                taken_apart = isinstance(target, (ast.Tuple, ast.List))
                known = analysis.values.get(node.value)
                # Taking a tensor apart gives views of it.
                apart = taken_apart and (known is None or known.elements is None)
                (fresh if new and not apart else old).update(_stored(target))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            if node.target.id not in fresh:
                old.add(node.target.id)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            old.update(_stored(node.target))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            fresh.add(node.id)
    environment = analysis.before.get(statements[0], {})
    # A name that had a value before may still have it, unless every path binds it.
    earlier = {n for n in fresh if n in environment and not environment[n].unbound}
    return frozenset(fresh - old - (earlier - surely_bound(statements)))


def check_not_changed_later(
    roots: Iterable[str],
    results: Iterable[str],
    place: tuple[ast.stmt, ast.stmt],
    analysis: Analysis,
    facts: Facts,
) -> None:
    """Refuse if something whose sharing a copy would end is changed in place after the branch.

    `place` holds the first and the last statement that the branch takes up.

    Raises:
        Refused: naming what is changed.
    """
    watched = set(roots) | set(results)
    if not watched:
        return
    later = [s for s in _statements(analysis.info.node) if _may_follow(s, place, analysis)]
    found = effects(later, analysis, facts)
    for target, _ in found.mutated:
        name = _root_name(target)
        value = analysis.values.get(target)
        private = value is not None and value.unshared and name not in watched
        if not private and (
            value is None or value.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN)
        ):
            raise Refused(
                "alias-then-mutate",
                f"`{name or ast.unparse(target)}` is changed in place later, and the arms may share "
                "its storage",
            )


def _root_name(target: ast.expr) -> str | None:
    while True:
        name = dotted(target)
        if name is not None:
            return name.removesuffix(".data")
        if isinstance(target, (ast.Subscript, ast.Attribute)):
            target = target.value
        elif isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
            target = target.func.value
        else:
            return None


def _statements(function: ast.AST) -> list[ast.stmt]:
    simple = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return)
    return [n for n in walk(function) if isinstance(n, simple)]


def _may_follow(statement: ast.stmt, place: tuple[ast.stmt, ast.stmt], analysis: Analysis) -> bool:
    """Whether a statement may run after the branch: later in the text, or in a loop around it."""
    node, last = place
    if node.lineno <= statement.lineno <= (last.end_lineno or last.lineno):
        return False
    if statement.lineno > node.lineno:
        return True
    parent: ast.AST | None = node
    while parent is not None and parent is not analysis.info.node:
        if isinstance(parent, (ast.For, ast.While)) and any(n is statement for n in walk(parent)):
            return True
        parent = analysis.info.module.parents.get(parent)
    return False


def tensor_sources(nodes: Iterable[ast.AST], analysis: Analysis) -> frozenset[str]:
    """Tensors and layers that code reads, by name: what gradients can flow to."""
    found: set[str] = set()
    for node in nodes:
        for inner in with_gradients(node, analysis):
            if not isinstance(inner, (ast.Name, ast.Attribute)):
                continue
            name = dotted(inner)
            value: Value | None = analysis.values.get(inner)
            if name is None or value is None:
                continue
            if value.kinds & (Kind.TENSOR | Kind.MAYBE) or (
                value.kinds & Kind.MODULE and "." in name
            ):
                found.add(name)
            elif isinstance(inner, ast.Attribute) and name.startswith("self."):
                # A method of the module may use any of its parameters.
                if value.kinds & Kind.REFERENCE:
                    found.add(name)
    return frozenset(found)
