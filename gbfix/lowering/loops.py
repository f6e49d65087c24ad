"""Loops whose rounds depend on tensor data, read as what they carry from round to round.

A loop is its test, its statements before and after one `break` or `continue`, and the names that a
round hands to the next one or to what follows. Python counters become tensors. Knows statements and
names, nothing of how the loop is written.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused, data_kind, leaves
from gbfix.analysis.effects import effects
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.liveness import Liveness, reads
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind

_SIMPLE = (ast.Assign, ast.AugAssign)
_RESHAPING = frozenset(
    "cat concat concatenate stack hstack vstack dstack pad repeat repeat_interleave tile expand "
    "narrow flatten unflatten unsqueeze squeeze view reshape permute diff outer kron".split()
)
_VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "mH"})


@dataclass(frozen=True)
class Counter:
    """The name that `range` binds, with the texts of its bounds."""

    name: str
    start: str
    stop: str


@dataclass(frozen=True)
class Loop:
    """A loop that can be written with `while_loop`.

    Attributes:
        node: the statement.
        test: the test of a `while`, unless it is constant.
        counter: for `for name in range(...)`.
        before, after: the statements before and after the exit; all before where there is none.
        exit: the `if` that breaks or continues.
        leaves: whether the exit leaves the loop.
        tensors: names of carried tensors.
        numbers: names of carried Python integers.
        later: names that are read after the loop.
    """

    node: ast.For | ast.While
    test: ast.expr | None
    counter: Counter | None
    before: tuple[ast.stmt, ...]
    exit: ast.If | None
    leaves: bool
    after: tuple[ast.stmt, ...]
    tensors: tuple[str, ...]
    numbers: tuple[str, ...]
    later: frozenset[str]


def read_loop(
    node: ast.For | ast.While, analysis: Analysis, facts: Facts, liveness: Liveness
) -> Loop:
    """Read a loop.

    Raises:
        Refused: if it is more than straight code with one exit.
    """
    if node.orelse:
        raise Refused("loop-else", "the loop has an `else`")
    test = node.test if isinstance(node, ast.While) else None
    if isinstance(test, ast.Constant) and test.value:
        test = None
    counter = _counter(node) if isinstance(node, ast.For) else None
    before, exit_, after = _parts(node)
    later = liveness.after[node]
    idle = _only_counted([*node.body, *([test] if test else [])], later)
    before, after = ([s for s in part if s not in idle] for part in (before, after))
    body = [*before, *after]
    _check_body(body, node, exit_, analysis, facts)
    stored = _stored(body)
    if counter is not None and (counter.name in later or counter.name in stored):
        raise Refused("counter-used", f"`{counter.name}` is read after the loop or changed in it")
    carried = _carried(test, before, exit_, after, stored, later)
    tensors: list[str] = []
    numbers: list[str] = []
    known = analysis.before[node]
    for name in carried:
        value = known.get(name)
        if value is None or value.unbound:
            raise Refused("unbound-before-loop", f"`{name}` may have no value before the loop")
        if value.tensor:
            tensors.append(name)
        elif value.only(Kind.STATIC) and _is_count(name, body):
            numbers.append(name)
        else:
            raise Refused("carries-object", f"`{name}` is handed on and is no tensor")
    _check_shapes(tensors, body)
    if not tensors:
        raise Refused("carries-nothing", "no tensor is handed on from round to round")
    counted = {*numbers, *([counter.name] if counter else [])}
    for name in counted:
        _check_counter(name, [*body, *([exit_] if exit_ else [])], analysis)
        if name in later:
            raise Refused("counter-used", f"`{name}` is read after the loop as a Python number")
    leaves_loop = exit_ is not None and isinstance(exit_.body[-1], ast.Break)
    return Loop(
        node, test, counter, tuple(before), exit_, leaves_loop, tuple(after), tuple(tensors),
        tuple(numbers), later,
    )  # fmt: skip


def _only_counted(parts: Sequence[ast.AST], later: frozenset[str]) -> set[ast.AST]:
    """The statements that count something which nothing else reads."""
    loads = [
        n.id
        for part in parts
        for n in walk(part)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    ]
    return {
        s
        for s in parts
        if isinstance(s, ast.AugAssign)
        and isinstance(s.target, ast.Name)
        and isinstance(s.value, ast.Constant)
        and s.target.id not in later
        and s.target.id not in loads
    }


def _counter(node: ast.For) -> Counter:
    call = node.iter
    if not (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "range"
        and 1 <= len(call.args) <= 2
        and not call.keywords
        and isinstance(node.target, ast.Name)
    ):
        raise Refused("not-a-range", f"the loop runs over `{ast.unparse(call)}`")
    texts = [ast.unparse(a) for a in call.args]
    return Counter(node.target.id, texts[0] if len(texts) == 2 else "0", texts[-1])


def _parts(node: ast.For | ast.While) -> tuple[list[ast.stmt], ast.If | None, list[ast.stmt]]:
    """The statements before the exit, the exit, and those after it."""
    exits = [
        s
        for s in node.body
        if isinstance(s, ast.If) and any(isinstance(n, (ast.Break, ast.Continue)) for n in walk(s))
    ]
    if not exits:
        return list(node.body), None, []
    exit_ = exits[0]
    if len(exits) > 1 or exit_.orelse or len(exit_.body) != 1:
        raise Refused(
            "several-exits", "the loop is left in more than one way, or does more on its way out"
        )
    at = node.body.index(exit_)
    return list(node.body[:at]), exit_, list(node.body[at + 1 :])


def _check_body(
    body: list[ast.stmt], node: ast.stmt, exit_: ast.If | None, analysis: Analysis, facts: Facts
) -> None:
    choices = [_choice(s, analysis) for s in body]
    for statement, choice in zip(body, choices, strict=True):
        if choice is not None:
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AugAssign):
            targets = [statement.target]
        if not isinstance(statement, _SIMPLE) or len(targets) != 1 or not _plain(targets[0]):
            text = ast.unparse(statement).partition("\n")[0]
            raise Refused("loop-body", f"`{text}` in the loop is more than an assignment to names")
    found = effects([*body, *([exit_.test] if exit_ else [])], analysis, facts)
    if found.output or found.unknown or found.stateful or found.attributes:
        what = found.first_unknown or "a statement"
        raise Refused("impure-loop", f"`{what}` in the loop does more than compute")
    for target, changing in found.mutated:
        if not (isinstance(changing, ast.AugAssign) and isinstance(target, ast.Name)):
            raise Refused(
                "mutates-in-loop", f"`{ast.unparse(target)}` is changed in place in the loop"
            )
        value = analysis.before[node].get(target.id)
        if value is not None and value.kinds & (Kind.TENSOR | Kind.MAYBE) and not value.unshared:
            raise Refused("mutates-in-loop", f"`{target.id}` is changed in place in the loop")
    if found.random:
        raise Refused("random-in-loop", "random numbers are drawn in the loop")
    asked = set(walk(exit_.test)) if exit_ is not None else set()
    broken = [n for n in (*found.scalar, *found.dynamic) if n not in asked]
    if broken:
        which = broken[0]
        raise Refused(
            "break-in-loop", f"`{ast.unparse(which)}` in the loop breaks the graph itself"
        )
    for condition in found.conditions:
        if any(choice is not None and choice.test is condition.test for choice in choices):
            continue
        if any(data_kind(leaf, analysis) for leaf in leaves(condition.test)):
            raise Refused("break-in-loop", "a condition in the loop breaks the graph itself")
    for statement in body:
        for inner in walk(statement):
            if isinstance(inner, ast.Attribute) and inner.attr in _VIEW_ATTRIBUTES:
                raise Refused(
                    "view-attribute",
                    f"`{ast.unparse(inner)}` counts as an alias to `while_loop`; `transpose` does not",
                )


@dataclass(frozen=True)
class Choice:
    """An `if` on a tensor in a round that only gives values to names.

    Attributes:
        test: its test.
        values: for each name its value where the test holds, and where not; None is what it was.
    """

    test: ast.expr
    values: dict[str, tuple[ast.expr | None, ast.expr | None]]


def read_choice(node: ast.stmt) -> Choice | None:
    """Read an `if` whose arms give each name one value; None if it is something else."""
    if not isinstance(node, ast.If):
        return None
    arms = [_given_values(arm) for arm in (node.body, node.orelse)]
    if arms[0] is None or arms[1] is None:
        return None
    names = dict.fromkeys([*arms[0], *arms[1]])
    return Choice(node.test, {n: (arms[0].get(n), arms[1].get(n)) for n in names})


def _given_values(arm: list[ast.stmt]) -> dict[str, ast.expr] | None:
    """The values that an arm gives to names, none of which reads another."""
    values: dict[str, ast.expr] = {}
    for statement in arm:
        if isinstance(statement, ast.Pass):
            continue
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            return None
        target = statement.targets[0]
        if not isinstance(target, ast.Name) or {target.id, *reads(statement.value)} & set(values):
            return None
        values[target.id] = statement.value
    return values


def _choice(node: ast.stmt, analysis: Analysis) -> Choice | None:
    """A choice between tensors that can be made with `where`."""
    choice = read_choice(node)
    if choice is None or not choice.values:
        return None
    before = analysis.before.get(node, {})
    for name, values in choice.values.items():
        known = [analysis.values.get(v) if v is not None else before.get(name) for v in values]
        if not all(value is not None and value.tensor for value in known):
            return None
    return choice


def _plain(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple):
        return all(isinstance(e, ast.Name) for e in target.elts)
    return isinstance(target, ast.Name)


def _stored(body: list[ast.stmt]) -> list[str]:
    names = [
        n.id
        for s in body
        for n in walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    return list(dict.fromkeys(names))


def _carried(
    test: ast.expr | None,
    before: list[ast.stmt],
    exit_: ast.If | None,
    after: list[ast.stmt],
    stored: list[str],
    later: frozenset[str],
) -> list[str]:
    """Names that a round gets from the one before, or that the last one leaves."""
    bound: set[str] = set()
    exposed: set[str] = set(reads(test)) if test is not None else set()
    parts: list[ast.AST] = [*before, *([exit_.test] if exit_ else []), *after]
    for part in parts:
        read = set(reads(part))
        if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            read.add(part.target.id)
        choice = read_choice(part) if isinstance(part, ast.If) else None
        if choice is not None:
            read |= {name for name, values in choice.values.items() if None in values}
        exposed |= read - bound
        bound |= {
            n.id for n in walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
    return [n for n in stored if n in exposed or n in later]


def _check_shapes(names: list[str], body: list[ast.stmt]) -> None:
    """What a round hands on has to have the shape that it got."""
    for statement in body:
        stored = {n.id for n in walk(statement) if isinstance(n, ast.Name)
                  and isinstance(n.ctx, ast.Store)}  # fmt: skip
        if not stored & set(names):
            continue
        for node in walk(statement):
            grows = isinstance(node, ast.Call) and (
                (isinstance(node.func, ast.Attribute) and node.func.attr in _RESHAPING)
                or (isinstance(node.func, ast.Name) and node.func.id in _RESHAPING)
            )
            cut = (
                isinstance(node, ast.Subscript)
                and isinstance(node.value, ast.Name)
                and node.value.id in names
            )
            inner = not isinstance(statement, ast.Assign) or statement.value is not node
            if (grows or cut) and not (inner and _only_adds_dimensions(node)):
                raise Refused(
                    "shape-changes", f"`{ast.unparse(node)}` may change a shape from round to round"
                )


def _only_adds_dimensions(node: ast.AST) -> bool:
    """`u[:, None]` and `u.unsqueeze(1)`: what is computed with that has the shape of `u`, as a rule."""
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return all(ast.unparse(part) in {":", "None", "..."} for part in parts)
    return isinstance(node, ast.Call) and (
        isinstance(node.func, ast.Attribute) and node.func.attr == "unsqueeze"
    )


def _is_count(name: str, body: list[ast.stmt]) -> bool:
    """Whether all that a round does to a name is adding or taking away an integer."""
    for statement in body:
        names = {n.id for n in walk(statement) if isinstance(n, ast.Name)
                 and isinstance(n.ctx, ast.Store)}  # fmt: skip
        if name not in names:
            continue
        value: ast.expr | None = None
        if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
            value = statement.value
        elif (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.BinOp)
            and isinstance(statement.value.op, (ast.Add, ast.Sub))
            and isinstance(statement.value.left, ast.Name)
            and statement.value.left.id == name
        ):
            value = statement.value.right
        if not (isinstance(value, ast.Constant) and type(value.value) is int):
            return False
    return True


def _check_counter(name: str, body: list[ast.stmt], analysis: Analysis) -> None:
    """A counter that becomes a tensor may be computed with and compared, no more."""
    parents = analysis.info.module.parents
    for statement in body:
        for node in walk(statement):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                if not isinstance(parents[node], (ast.BinOp, ast.Compare, ast.AugAssign)):
                    text = ast.unparse(parents[node])
                    raise Refused("counter-used", f"`{text}` needs `{name}` as a Python number")
