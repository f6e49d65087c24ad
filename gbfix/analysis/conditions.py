"""Takes a test apart: what is decided while tracing, and what depends on tensor data.

A test is read as `guards and predicate`: the guards are static operands (as they stand, or negated)
under which, and only under which, the predicate decides. `mask is not None and (mask == 0).any()`
has the guard `mask is not None`; `flag or t.any()` has the guard `not flag`. Where that reading
would evaluate something that short-circuiting protects, the test is refused.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.decorators import compiled_directly
from gbfix.analysis.effects import effects
from gbfix.analysis.equality import same_shapes, tensor_test
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.guarded_names import GuardedName, guarded_name
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value

DATA = Kind.TENSOR | Kind.SCALAR
_NUMPY_QUESTIONS = frozenset({"numpy.any", "numpy.all", "numpy.count_nonzero"})


class Refused(Exception):
    """A shape of code that cannot be treated: a stable reason code and a sentence."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


class NotApplicable(Refused):
    """A site that is not of the kind that a transform treats, which is no news to anybody."""


@dataclass(frozen=True)
class Guard:
    """A static operand, and the truth it must have for the predicate to decide.

    One of `shapes` is not in the source: where the shapes differ, `torch.equal` is False.
    """

    node: ast.expr
    truth: bool
    shapes: bool = False


@dataclass(frozen=True)
class Leaf:
    """A tensor operand: the expression, and what is known of its single element."""

    node: ast.expr
    value: Value
    scalar: bool = False


@dataclass(frozen=True)
class Combined:
    """`and`, `or` of predicates."""

    conjunction: bool
    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Negated:
    """`not` of a predicate."""

    part: Predicate


Predicate = Leaf | Combined | Negated


@dataclass(frozen=True)
class Split:
    """A test as guards and a predicate."""

    guards: tuple[Guard, ...]
    predicate: Predicate


def leaves(test: ast.expr) -> list[ast.expr]:
    """The operands of a test below `and`, `or` and `not`."""
    if isinstance(test, ast.BoolOp):
        return [leaf for v in test.values for leaf in leaves(v)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return leaves(test.operand)
    return [test]


def data_kind(node: ast.expr, analysis: Analysis) -> str | None:
    """`tensor`, `scalar` or `possible` for an operand that may read data; None for a static one."""
    if node in analysis.eager:
        return None
    value = analysis.values.get(node)
    if value is None:
        return None
    if value.tensor:
        return "tensor"
    if value.kinds & Kind.TENSOR:
        # `if mask:` on an optional tensor; anything else that is a tensor on some paths only.
        certain = value.only(Kind.TENSOR | Kind.NONE) or _guards(node, analysis) is not None
        return "tensor" if certain else "possible"
    if value.kinds & Kind.SCALAR or value.array:
        return "scalar"
    if value.kinds & Kind.UNKNOWN and _asks_array(node, analysis):
        return "possible"
    return "possible" if value.kinds & Kind.MAYBE and _hinted(node, analysis) else None


def _guards(node: ast.expr, analysis: Analysis) -> GuardedName | None:
    """What decides whether a name is a tensor, where that can be asked anywhere."""
    name = guarded_name(node, analysis)
    return name if name is not None and all(is_total(g) for g, _ in name.guards) else None


def _asks_array(node: ast.expr, analysis: Analysis) -> bool:
    """Whether numpy is asked about the elements of something that is not known to be static."""
    for inner in walk(node):
        if isinstance(inner, ast.Call) and len(inner.args) == 1:
            function = analysis.values.get(inner.func)
            name = function.reference if function is not None else None
            given = analysis.values.get(inner.args[0])
            if name in _NUMPY_QUESTIONS and given is not None and not given.static:
                return True
    return False


def _hinted(node: ast.expr, analysis: Analysis) -> bool:
    """Whether anything but its being unknown speaks for a tensor.

    A bare parameter that is tested is a flag as a rule, and so is what an unknown function says of
    an argument of which nothing is known.
    """
    if isinstance(node, ast.Name):
        given = analysis.before.get(analysis.info.node.body[0], {}).get(node.id)
        is_same = given is not None and given is analysis.values.get(node)
        return not is_same or compiled_directly(analysis.info)
    if isinstance(node, ast.Call):
        function = analysis.values.get(node.func)
        if function is not None and function.reference is None and isinstance(node.func, ast.Name):
            arguments = [*node.args, *(k.value for k in node.keywords)]
            return any((v := analysis.values.get(a)) and v.may_be_tensor for a in arguments)
    return True


def split(test: ast.expr, analysis: Analysis, facts: Facts) -> Split:
    """Read a test as guards and a predicate.

    Raises:
        Refused: if the operands cannot be separated without changing what is evaluated.
    """
    guards, predicate = _split(test, analysis, facts)
    if predicate is None:
        raise Refused("static-condition", "the test does not read tensor data")
    return Split(tuple(guards), predicate)


def _split(
    test: ast.expr, analysis: Analysis, facts: Facts
) -> tuple[list[Guard], Predicate | None]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        under, inside = _split(test.operand, analysis, facts)
        if inside is None:
            return under, None
        return under, inside.part if isinstance(inside, Negated) else Negated(inside)
    if not isinstance(test, ast.BoolOp):
        return _leaf(test, analysis)
    conjunction = isinstance(test.op, ast.And)
    guards: list[Guard] = []
    parts: list[Predicate] = []
    for position, operand in enumerate(test.values):
        inner, predicate = _split(operand, analysis, facts)
        if predicate is None:
            if parts and not is_total(operand):
                raise Refused(
                    "partial-condition",
                    f"`{ast.unparse(operand)}` is protected by the tensor test before it",
                )
            if parts:
                raise Refused(
                    "mixed-condition",
                    f"`{ast.unparse(operand)}` is decided while tracing, but asked after the tensor",
                )
            guards.append(Guard(operand, conjunction))
            continue
        if parts:
            if inner:
                raise Refused(
                    "mixed-condition",
                    "static and tensor operands alternate, so no single predicate decides",
                )
            check_unconditional(operand, analysis, facts)
        elif inner and position + 1 < len(test.values):
            rest = test.values[position + 1 :]
            if any(data_kind(leaf, analysis) for r in rest for leaf in leaves(r)):
                raise Refused(
                    "mixed-condition",
                    "static and tensor operands alternate, so no single predicate decides",
                )
        guards += inner
        parts.append(predicate)
    if not parts:
        return guards, None
    return guards, parts[0] if len(parts) == 1 else Combined(conjunction, tuple(parts))


def _leaf(test: ast.expr, analysis: Analysis) -> tuple[list[Guard], Predicate | None]:
    kind = data_kind(test, analysis)
    value = analysis.values.get(test)
    if kind is None or value is None:
        return [], None
    named = None if value.tensor else _guards(test, analysis)
    if named is not None:
        return [Guard(node, truth) for node, truth in named.guards], Leaf(test, named.value)
    leaf = Leaf(test, value, scalar=kind == "scalar")
    shapes = same_shapes(test, analysis.values)
    guards = [Guard(shapes, True, shapes=True)] if shapes is not None else []
    if kind == "possible":  # the compiled path asks for what is not proven
        proof = tensor_test(test, analysis.info.module)
        guards += [Guard(proof, True)] if proof is not None else []
    return guards, leaf


def check_unconditional(operand: ast.expr, analysis: Analysis, facts: Facts) -> None:
    """An operand that short-circuiting may skip must be harmless to evaluate always."""
    found = effects([operand], analysis, facts)
    if not found.pure or found.random:
        raise Refused(
            "impure-condition",
            f"`{ast.unparse(operand)}` does more than compute, and short-circuiting may skip it",
        )
    if found.partial or found.dynamic:
        raise Refused(
            "partial-condition",
            f"`{ast.unparse(operand)}` may fail where the operand before it protects it",
        )


def is_total(node: ast.expr) -> bool:
    """Whether a static operand can be evaluated anywhere without raising."""
    if isinstance(node, (ast.Name, ast.Constant)):
        return True
    if isinstance(node, ast.Attribute):
        return is_total(node.value)
    if isinstance(node, ast.Compare):
        return all(is_total(n) for n in (node.left, *node.comparators))
    if isinstance(node, ast.UnaryOp):
        return is_total(node.operand)
    if isinstance(node, ast.BoolOp):
        return all(is_total(v) for v in node.values)
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        return name in {
            "isinstance",
            "hasattr",
            "len",
            "dim",
            "numel",
            "size",
            "is_compiling",
        } and all(is_total(a) for a in node.args)
    return False
