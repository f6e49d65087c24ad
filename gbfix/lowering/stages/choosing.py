"""Chooses what of a function is left to Python: breaks, draws, and values that must not enter a graph.

Sparse tensors break wherever they are handed on; for a generator, or a list that is longer in each
round, a graph would be compiled again and again. Knows diagnoses, nothing of how statements are parted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.decorators import traces_callees
from gbfix.analysis.draws import draw
from gbfix.analysis.sites import break_sites
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import called, disabled_function
from gbfix.diagnosis import Diagnosis
from gbfix.fixes import Context
from gbfix.lowering.sparse import sparse_values
from gbfix.lowering.stages.staying import Staying
from gbfix.python_diagnoses import (
    AUTOGRAD_CALL,
    DISABLED_FUNCTION,
    RANDOM_CALL,
    RECURRENT_LAYER,
    SEEDING,
)

# Draws that give no number, or fill what they are given.
_NO_NUMBERS = frozenset(
    "Random SystemRandom RandomState default_rng Generator shuffle sample choices permutation".split()
)
_FILLING = frozenset("append extend insert pop remove clear appendleft popleft update".split())


def left_to_python(sites: Sequence[BreakSite], context: Context) -> Staying:
    """What has to stay of a function that breaks at the given sites."""
    sparse, made_sparse = sparse_values(sites, context)
    drawing = [s.node for s in sites if s.diagnosis is RANDOM_CALL or calls_drawn(s, context)]
    if drawing:
        nodes = walk(context.info.node)
        drawing += [n for n in nodes if draw(n, context.analysis) and n not in drawing]
    leaves = [*_leaves(sites, context), *_packing(sites, context)]
    broken = dict.fromkeys([*(s.node for s in sites), *drawing, *leaves])
    kept = sparse | _kept(sites, context)
    return Staying(context, tuple(broken), tuple(drawing), kept, made_sparse)


def _leaves(sites: Sequence[BreakSite], context: Context) -> list[ast.Call]:
    """`x.requires_grad_()` where a gradient is asked for: Dynamo lets no such tensor leave a graph."""
    if not any(s.diagnosis is AUTOGRAD_CALL for s in sites):
        return []
    return [
        n
        for n in walk(context.info.node)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr == "requires_grad_"
    ]


def _packing(sites: Sequence[BreakSite], context: Context) -> list[ast.Call]:
    """Calls that pack sequences for a recurrent layer, or unpack what it gives."""
    if not any(s.diagnosis is RECURRENT_LAYER for s in sites):
        return []
    return [
        n
        for n in walk(context.info.node)
        if isinstance(n, ast.Call)
        and (called(n, context.analysis) or "").startswith("torch.nn.utils.rnn.")
    ]


def calls_drawn(site: BreakSite, context: Context) -> bool:
    """Whether a call runs a function that is left to Python because it draws numbers."""
    return _calls_left(site, RANDOM_CALL, context)


def calls_seeding(site: BreakSite, context: Context) -> bool:
    """Whether a call runs a function that is left to Python because it sets what is drawn."""
    return _calls_left(site, SEEDING, context)


def _calls_left(site: BreakSite, diagnosis: Diagnosis, context: Context) -> bool:
    """One whose stages are compiled ends the graph of its caller, which gains nothing from stages."""
    call = site.node
    if site.diagnosis is not DISABLED_FUNCTION or not isinstance(call, ast.Call):
        return False
    info = disabled_function(call, context.analysis, context.facts)
    if info is None or traces_callees(info):
        return False
    analysis = context.facts.analysis(info)
    return analysis is not None and any(
        s.diagnosis is diagnosis for s in break_sites(analysis, context.facts)
    )


def _kept(sites: Sequence[BreakSite], context: Context) -> frozenset[str]:
    """Names of what a graph would be compiled again for: generators, and lists that are filled."""
    found: set[str] = set()
    for site in sites:
        made = site.statement.targets if isinstance(site.statement, ast.Assign) else []
        if site.diagnosis is SEEDING:
            found |= {t.id for t in made if isinstance(t, ast.Name)}
        if site.diagnosis is not RANDOM_CALL or not isinstance(site.node, ast.Call):
            continue
        name = (called(site.node, context.analysis) or "").rpartition(".")[2]
        if name in _NO_NUMBERS:
            found |= {a.id for a in site.node.args if isinstance(a, ast.Name)}
            if isinstance(site.statement, ast.Assign):
                found |= {t.id for t in site.statement.targets if isinstance(t, ast.Name)}
    for node in walk(context.info.node):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in _FILLING and isinstance(node.func.value, ast.Name):
            found.add(node.func.value.id)
    for loop in walk(context.info.node):
        if isinstance(loop, (ast.For, ast.While)):
            found |= set(_growing(loop, context))
    return frozenset(found)


def _growing(loop: ast.For | ast.While, context: Context) -> Iterator[str]:
    """Tuples and lists that get longer in each round: `all_states = all_states + (x,)`."""
    target: ast.expr
    for node in walk(loop):
        if isinstance(node, ast.AugAssign):
            target, value = node.target, node.value
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        else:
            continue
        grows = isinstance(target, ast.Name) and (
            isinstance(node, ast.AugAssign)
            or any(isinstance(n, ast.Name) and n.id == target.id for n in walk(value))
        )
        if not grows or not isinstance(target, ast.Name):
            continue
        parts = [value.left, value.right] if isinstance(value, ast.BinOp) else [value]
        if any(isinstance(p, (ast.Tuple, ast.List)) for p in parts):
            yield target.id
