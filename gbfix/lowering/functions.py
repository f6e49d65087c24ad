"""Arms as local functions for `torch.cond`: their statements, what they return, what they are given.

Used where an arm needs statements and so cannot be a lambda. Knows arms and aliases, nothing of how
the functions are laid out.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.values import Kind, Value, join
from gbfix.codegen.expressions import copied, flat
from gbfix.fixes import Context
from gbfix.lowering.aliases import (
    alias_groups,
    own_names,
    shared_root,
    surely_bound,
)
from gbfix.lowering.arm_values import check_tensor, given_tensor, held_before, value_after
from gbfix.lowering.bindings import needed_by
from gbfix.lowering.branch import Arm, Branch
from gbfix.lowering.results import before
from gbfix.lowering.views import walk_scope


def function_body(
    arm: Arm, branch: Branch, context: Context
) -> tuple[list[ast.stmt], list[str], list[Value], list[str]]:
    """Statements of an arm, the texts and values of what it returns, and shared roots.

    There are no texts where the statements return by themselves.
    """
    analysis = context.analysis
    own, sure = own_names(arm.statements, analysis), surely_bound(arm.statements)
    roots: list[str] = []
    if branch.returns:
        result, alone = arm.returned, isinstance(arm.statements[-1], ast.Return)
        if result is None:
            raise Refused("several-returns", "an arm does not return at its end")
        elements = result.elts if isinstance(result, ast.Tuple) else [result]
        texts, values = [], []
        for element in elements:
            name = held_before(element, arm.effects.stores, analysis.before[branch.node])
            value = analysis.values[element]
            values.append(given_tensor(value, "what the function returns", name, branch.asked))
            texts.append(maybe_cloned(element, own, roots, context))
        for earlier in _returns(arm.statements[:-1] if alone else arm.statements):
            values = _joined(earlier, values, own, context)
        if not alone:
            return list(arm.statements), [], values, []
        return list(arm.statements[:-1]), texts, values, roots
    texts, values = [], []
    for output in branch.outputs:
        bound = output.name in arm.effects.stores or output.name in arm.effects.attributes
        if bound:
            value = value_after(output.name, branch, arm.truth, analysis)
        else:
            incoming = before(output.name, branch, analysis)
            if incoming is None:
                raise Refused(
                    "undefined-after-if",
                    f"`{output.name}` has no value yet where an arm leaves it alone",
                )
            value = incoming
        name = None if bound else output.name
        value = given_tensor(value, f"`{output.name}`", name, branch.asked)
        values.append(value)
        # On a path that does not bind it, it is still what it was before.
        kept = output.name not in sure and before(output.name, branch, analysis) is not None
        shared = not bound or (kept and not output.is_attribute)
        shared = shared or (output.name not in own and not value.unshared)
        if shared:
            texts.append(f"{output.local}.clone()")
            if not bound and not value.unshared:
                roots.append(output.name)
        else:
            texts.append(output.local)
    for group in alias_groups(arm.statements, analysis):
        together = [i for i, o in enumerate(branch.outputs) if o.name in group]
        for i in together[1:]:
            if not texts[i].endswith(".clone()"):
                texts[i] = f"{texts[i]}.clone()"
        if len(together) > 1:
            roots += [branch.outputs[i].name for i in together]
    statements = list(arm.statements)
    last = statements[-1] if statements else None
    if (
        len(branch.outputs) == 1
        and texts == [branch.outputs[0].name]
        and isinstance(last, ast.Assign)
        and len(last.targets) == 1
        and ast.unparse(last.targets[0]) == texts[0]
    ):
        return statements[:-1], [flat(context.view, last.value)], values, roots
    return statements, texts, values, roots


def _returns(statements: Sequence[ast.stmt]) -> list[ast.Return]:
    """The returns of an arm whose text stays, under tests that are decided while tracing."""
    inner = [n for s in statements for n in walk_scope(s)]
    return [n for n in inner if isinstance(n, ast.Return)]


def _joined(
    earlier: ast.Return, values: list[Value], own: frozenset[str], context: Context
) -> list[Value]:
    """What an arm returns if it may also return here, where the text stays as it is."""
    value = earlier.value
    elements = value.elts if isinstance(value, ast.Tuple) else [value] if value is not None else []
    if len(elements) != len(values):
        raise Refused("several-returns", "an arm returns different numbers of values")
    joined = []
    for element, other in zip(elements, values, strict=True):
        check_tensor(context.analysis.values[element], "what the function returns")
        if shared_root(element, context.analysis, own) is not None:
            raise Refused("several-returns", "an arm also returns a tensor that it was given")
        joined.append(join(context.analysis.values[element], other))
    return joined


def maybe_cloned(node: ast.expr, own: frozenset[str], roots: list[str], context: Context) -> str:
    text = flat(context.view, node)
    root = shared_root(node, context.analysis, own)
    if root is None:
        return text
    if root:
        roots.append(root)
    return copied(node, text)


def carried_names(branch: Branch, context: Context) -> tuple[str, ...]:
    """What must be passed in: names that an arm rebinds and reads before, or leaves as they are.

    A nested function makes them its own.

    Raises:
        Refused: for such a name that does not hold a tensor.
    """
    found: dict[str, None] = {}
    environment = context.analysis.before[branch.node]
    for arm in branch.arms:
        for name in arm.effects.stores:
            if name in environment and not environment[name].unbound:
                found.setdefault(name)
    for output in branch.outputs:
        if before(output.name, branch, context.analysis) is not None:
            if any(
                output.name not in a.effects.stores and output.name not in a.effects.attributes
                for a in branch.arms
            ):
                found.setdefault(output.name)
    read = {n for arm in branch.arms for n in needed_by(arm.statements)} | {
        o.name
        for o in branch.outputs
        if any(o.name not in surely_bound(arm.statements) for arm in branch.arms)
    }
    needed = tuple(n for n in found if n in read or "." in n)
    for name in needed:
        value = before(name, branch, context.analysis)
        if value is None or value.tensor or name in branch.asked:
            continue
        if "." in name or not value.kinds & (Kind.UNKNOWN | Kind.MAYBE):
            raise Refused(
                "rebinds-value", f"an arm rebinds `{name}`, which is not a tensor before it"
            )
        branch.asked.setdefault(name)
    return needed
