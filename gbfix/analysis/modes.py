"""Which parts of a function run only in eager mode, because a test asked `is_compiling()`.

A test is read as a conjunction of literals. After `if compiling and a: ...` has been left by its
false edge, code that holds `a` cannot be compiling: that is how code that has been rewritten once
is known to be done. Knows propositions over expression texts, nothing of tensors.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import NamedTuple

from gbfix.analysis.trees import walk

# What is asked not of an operation itself: the module, another operand, what is reduced.
OF_OTHERS = re.compile(
    r"attr='training'|attr='shape'.*attr='numel'|attr='dtype'.*attr='float16'"
    r"|attr='is_floating_point'|attr='shape'.*Eq\(\).*attr='shape'"
)

COMPILING = "<compiling>"
IS_COMPILING = frozenset(
    {
        "torch.compiler.is_compiling",
        "torch.compiler.is_dynamo_compiling",
        "torch._dynamo.is_compiling",
        "torch._dynamo.external_utils.is_compiling",
        "torch._utils.is_compiling",
    }
)
# Other ways of tracing: false under `torch.compile`.
OTHER_TRACING = frozenset(
    {"torch.jit.is_tracing", "torch.jit.is_scripting", "torch.onnx.is_in_onnx_export"}
)
Recognize = Callable[[ast.expr], bool]


def _flip(literal: str) -> str:
    return literal[1:] if literal.startswith("!") else "!" + literal


_NEGATIVE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.IsNot: ast.Is,
    ast.NotIn: ast.In,
    ast.NotEq: ast.Eq,
}


def _leaf(test: ast.expr, compiling: Recognize) -> str:
    if compiling(test):
        return COMPILING
    # `x is not None` is the negation of `x is None`, so that either spelling is recognised.
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _NEGATIVE:
        positive = ast.Compare(test.left, [_NEGATIVE[type(test.ops[0])]()], test.comparators)
        return "!" + ast.dump(positive)
    return ast.dump(test)


def when_true(test: ast.expr, compiling: Recognize) -> frozenset[str]:
    """Literals that hold where the test is true."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return when_false(test.operand, compiling)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return frozenset().union(*(when_true(v, compiling) for v in test.values))
    return frozenset({_leaf(test, compiling)})


def when_false(test: ast.expr, compiling: Recognize) -> frozenset[str]:
    """Literals that hold where the test is false."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return when_true(test.operand, compiling)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return frozenset().union(*(when_false(v, compiling) for v in test.values))
    return frozenset({_flip(_leaf(test, compiling))})


class _Step(NamedTuple):
    """Something that happened on the way to a point: a test was passed, or a name was rebound.

    `test` is None for a rebinding, of which `mark` is the text to look for in literals. `literals`
    are spelled out at once for a test that asks if the code is being compiled.
    """

    before: _Step | None
    test: ast.expr | None
    truth: bool = False
    mark: str = ""
    literals: frozenset[str] | None = None


class Mode(NamedTuple):
    """What is known at a point: literals that hold, and sets that together mean eager mode.

    Literals are only spelled out where something depends on them, which is rare.
    """

    steps: _Step | None = None
    exclusions: frozenset[frozenset[str]] = frozenset()
    eager: bool = False

    def assume(self, test: ast.expr, truth: bool, compiling: Recognize) -> Mode:
        """The mode on the true or the false edge of a test."""
        asks = _asks(test, compiling)
        if not asks and not self.exclusions:
            return Mode(_Step(self.steps, test, truth), self.exclusions, self.eager)
        literals = when_true(test, compiling) if truth else when_false(test, compiling)
        exclusions = self.exclusions
        if asks:
            if not truth:
                # The test is the conjunction of these, so if all others hold this one fails.
                conjunction = when_true(test, compiling)
                if COMPILING in conjunction:
                    exclusions = exclusions | {conjunction - {COMPILING}}
            elif "!" + COMPILING not in literals:
                conjunction = when_false(test, compiling)
                if COMPILING in conjunction:  # true edge of `not compiling or not a`
                    exclusions = exclusions | {conjunction - {COMPILING}}
        steps = _Step(self.steps, test, truth, literals=literals)
        known = _known(steps)
        eager = (
            self.eager
            or "!" + COMPILING in known
            or any(excluded <= known for excluded in exclusions)
        )
        return Mode(steps, exclusions, eager)

    def bound(self, name: ast.Name, value: ast.expr, compiling: Recognize) -> Mode:
        """The mode after a name got the answer: `tracing = other() or is_compiling()`."""
        if not _asks(value, compiling):
            return self
        known = ast.dump(ast.Name(name.id, ast.Load()))
        excluded: set[frozenset[str]] = set()
        if "!" + COMPILING in when_false(value, compiling):
            excluded.add(frozenset({"!" + known}))
        if "!" + COMPILING in when_true(value, compiling):
            excluded.add(frozenset({known}))
        return Mode(self.steps, self.exclusions | excluded, self.eager)

    def excludes(self, test: ast.expr, compiling: Recognize) -> bool:
        """Whether a test that holds, with what is known, would mean eager mode."""
        if not self.exclusions:
            return False
        literals = when_true(test, compiling)
        known = _known(self.steps)
        return any(
            literals <= excluded and excluded - literals <= known for excluded in self.exclusions
        )

    def undecided(self) -> list[frozenset[str]]:
        """Sets of literals of which at least one must fail here, or else this is eager mode."""
        if not self.exclusions:
            return []
        known = _known(self.steps)
        return [excluded - known for excluded in self.exclusions]

    def forget(self, name: str, what: str = "id") -> Mode:
        """The mode after a name or attribute was rebound: what was known of it no longer holds."""
        if self.steps is None and not self.exclusions:
            return self
        mark = f"{what}='{name}'"
        exclusions = self.exclusions
        if exclusions:
            exclusions = frozenset(e for e in exclusions if not any(mark in k for k in e))
        return Mode(_Step(self.steps, None, mark=mark), exclusions, self.eager)


def asked_beside(owner: ast.stmt, mode: Mode) -> bool:
    """Whether a compiled path stands beside a branch, for the tensors that its arms are made of.

    After `if torch.compiler.is_compiling() and isinstance(x, torch.Tensor):` what follows is left for
    other values of `x`.
    """
    names: set[str] | None = None
    for left in mode.undecided():
        if not left or not all(_of_tensor(k) or OF_OTHERS.search(k) for k in left):
            continue
        if names is None:
            names = {n.id for n in walk(owner) if isinstance(n, ast.Name)}
        if all(
            OF_OTHERS.search(literal) or any(f"id='{name}'" in literal for name in names)
            for literal in left
        ):
            return True
    return False


def _of_tensor(literal: str) -> bool:
    """Whether a literal asks `isinstance(x, torch.Tensor)`."""
    return "id='isinstance'" in literal and "attr='Tensor'" in literal


def _asks(test: ast.expr, compiling: Recognize) -> bool:
    """Whether an operand of a test asks if the code is being compiled."""
    if isinstance(test, ast.BoolOp):
        return any(_asks(v, compiling) for v in test.values)
    if isinstance(test, ast.UnaryOp):
        return _asks(test.operand, compiling)
    return compiling(test)


def _never(_: ast.expr) -> bool:
    return False


def _known(last: _Step | None) -> frozenset[str]:
    """The literals that hold after a sequence of steps."""
    steps: list[_Step] = []
    while last is not None:
        steps.append(last)
        last = last.before
    known: frozenset[str] = frozenset()
    for step in reversed(steps):
        if step.test is None:
            known = frozenset(k for k in known if step.mark not in k)
        elif step.literals is not None:
            known |= step.literals
        elif step.truth:
            known |= when_true(step.test, _never)
        else:
            known |= when_false(step.test, _never)
    return known
