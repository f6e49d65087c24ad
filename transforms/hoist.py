"""Evaluates a condition once, outside the compiled region, where its tensors never change.

A test on a module-level tensor, or on a tensor that the function closes over, gives the same answer
at every call, so it becomes a plain Python boolean that Dynamo treats as a constant.

Before:

    threshold = torch.tensor([0.5, 1.5])


    def scale(x: torch.Tensor):
        if threshold.sum() > 1:
            return x * 2
        return x

After:

    threshold = torch.tensor([0.5, 1.5])


    threshold_sum_gt_1 = bool(threshold.sum() > 1)


    def scale(x: torch.Tensor):
        if threshold_sum_gt_1:
            return x * 2
        return x

Offered only where nothing in the project rebinds the name, changes the tensor in place, or hands it
to code that could. A buffer or parameter of a module can be loaded, moved or trained at any time, so
for those the fix is `unsafe`: it reads the value at the end of `__init__`.
"""

from __future__ import annotations

import ast
import re

from gbfix.analysis.bindings import binds
from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused, data_kind, leaves
from gbfix.analysis.effects import effects
from gbfix.analysis.stability import check_stable_attribute, check_stable_name
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.codegen import layout
from gbfix.codegen.expressions import flat
from gbfix.codegen.names import Names, used_names
from gbfix.diagnoses import LOOP_EXIT, TENSOR_ASSERT, TENSOR_BRANCH, TENSOR_LOOP, TENSOR_RAISE
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.source.text import Edit


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to evaluate the tensor operands of a test once, outside.

    Raises:
        Refused: where a value may change, or there is no place outside.
    """
    if site.test is None:
        raise NotApplicable("no-test", "nothing is tested here")
    data = [leaf for leaf in leaves(site.test) if data_kind(leaf, context.analysis)]
    if not data:
        raise NotApplicable("no-test", "nothing is tested here")
    for leaf in data:
        found = effects([leaf], context.analysis, context.facts)
        if not found.pure or found.random or found.partial or found.dynamic:
            raise Refused("impure-condition", "evaluating the condition elsewhere could be noticed")
    roots = {_root(node, context) for leaf in data for node in walk(leaf)} - {None}
    if any(root is not None and root.startswith("self.") for root in roots):
        return _from_module(data, {r for r in roots if r}, context)
    return _from_scope(data, {r for r in roots if r}, context)


def _root(node: ast.AST, context: Context) -> str | None:
    """The outer name, or attribute of `self`, that a node reads."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id == "self":
            return f"self.{node.attr}"
    if not isinstance(node, ast.Name) or node.id == "self":
        return None
    value = context.analysis.values.get(node)
    if value is not None and value.kinds == Kind.REFERENCE and value.reference is not None:
        if not any(binds(n, node.id) for n in walk(context.info.node)):
            return None  # torch and other namespaces
    return node.id


def _from_scope(data: list[ast.expr], roots: set[str], context: Context) -> Fix:
    info = context.info
    local = {
        n.id for n in walk(info.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    } | {a.arg for a in walk(info.node.args) if isinstance(a, ast.arg)}
    if not roots or roots & local:
        raise NotApplicable("depends-on-call", "the condition depends on values of the call itself")
    outer = info.outer
    scope = outer.node if outer is not None and roots & used_names(outer.node) else None
    if scope is not None and scope in context.facts.region:
        raise Refused("scope-compiled", "the function around it is compiled too")
    for root in sorted(roots):
        check_stable_name(root, scope, info, context.facts)
    anchor = _anchor(info.node, scope, context)
    for root in sorted(roots):
        _check_bound_before(root, anchor, scope, context)
    names = Names(info)
    view = context.view
    lines: list[str] = []
    edits: list[Edit] = []
    for leaf in data:
        text = flat(view, leaf)
        name = names.take(condition_name(leaf))
        lines.append(f"{name} = bool({text})")
        edits.append(Edit(view.start(leaf), view.end(leaf), name))
    indent = view.indent(anchor)
    at = view.start(anchor)
    blank = "\n\n" if not indent else "\n"
    block = layout.indent("\n".join(lines), indent).removeprefix(indent)
    edits.append(Edit(at, at, f"{block}\n{blank}{indent}"))
    return Fix(
        "hoist",
        Safety.SAFE,
        "nothing in the project changes the tensors of this condition",
        tuple(edits),
    )


def _anchor(node: ast.stmt, scope: ast.AST | None, context: Context) -> ast.stmt:
    """The statement of the outer scope that holds the function."""
    parents = context.info.module.parents
    current: ast.AST = node
    stop = scope if scope is not None else context.info.module.tree
    while parents[current] is not stop:
        current = parents[current]
        if isinstance(current, (ast.For, ast.While, ast.If, ast.Try, ast.With)):
            raise Refused("no-place-outside", "the function is defined inside another block")
    assert isinstance(current, ast.stmt)
    return current


def _check_bound_before(
    root: str, anchor: ast.stmt, scope: ast.AST | None, context: Context
) -> None:
    body = scope if scope is not None else context.info.module.tree
    parameters = (
        {a.arg for a in walk(scope.args) if isinstance(a, ast.arg)}
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef))
        else set()
    )
    if root in parameters:
        return
    bound = [
        n.lineno
        for n in walk(body)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == root
    ]
    if not bound or max(bound) >= anchor.lineno:
        raise Refused("bound-later", f"`{root}` is bound after the function is defined")


def _from_module(data: list[ast.expr], roots: set[str], context: Context) -> Fix:
    owner = context.info.owner
    attributes = {r.removeprefix("self.") for r in roots if r.startswith("self.")}
    if owner is None or any(not r.startswith("self.") for r in roots):
        raise NotApplicable("depends-on-call", "the condition depends on values of the call itself")
    for attribute in sorted(attributes):
        check_stable_attribute(attribute, owner, context.facts)
    setup = owner.methods.get("__init__")
    if setup is None or owner.module is not context.info.module or not setup.node.body:
        raise Refused("no-place-outside", "the class has no `__init__` of its own")
    view = context.view
    last = setup.node.body[-1]
    if not view.ends_line(last):
        raise Refused("no-place-outside", "the end of `__init__` shares its line")
    indent = view.indent(last)
    edits: list[Edit] = []
    lines: list[str] = []
    used = used_names(owner.node) | set(context.facts.writes(owner))
    for leaf in data:
        base = name = condition_name(leaf)
        number = 1
        while name in used:
            number += 1
            name = f"{base}_{number}"
        used.add(name)
        lines.append(f"{indent}self.{name} = bool({flat(view, leaf)})")
        edits.append(Edit(view.start(leaf), view.end(leaf), f"self.{name}"))
    at = view.line_end(view.end(last))
    edits.append(Edit(at, at, "\n" + "\n".join(lines)))
    return Fix(
        "hoist",
        Safety.UNSAFE,
        "right as long as the buffer or parameter is not loaded, moved or changed after __init__",
        tuple(edits),
    )


_WORDS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "-": "minus"}


def condition_name(leaf: ast.expr) -> str:
    """A name that says what the condition asks, such as `threshold_sum_gt_1`."""
    if isinstance(leaf, (ast.Name, ast.Attribute)):
        name = ast.unparse(leaf).rsplit(".", 1)[-1]
        return f"{name}_IS_TRUE" if name.isupper() else f"{name}_is_true"
    text = ast.unparse(leaf).replace("self.", "").replace("torch.", "")
    for symbol in ("<=", ">=", "==", "!=", "<", ">", "-"):
        text = text.replace(symbol, f"_{_WORDS[symbol]}_")
    words = [w for w in re.split(r"[^A-Za-z0-9]+", text) if w]
    name = "_".join(words)[:40].rstrip("_")
    return name if name and not name[0].isdigit() else f"condition_{name}"


TRANSFORM = Transform(
    name="hoist",
    codes=(
        LOOP_EXIT.code,
        TENSOR_BRANCH.code,
        TENSOR_RAISE.code,
        TENSOR_ASSERT.code,
        TENSOR_LOOP.code,
    ),
    summary="evaluate a constant condition outside the compiled region",
    doc=__doc__ or "",
    propose=propose,
    rank=5,
)
