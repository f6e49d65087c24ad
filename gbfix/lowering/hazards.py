"""What `torch.cond` cannot have in an arm, found before Dynamo would find it.

Each check is a fact measured on torch 2.13: side effects, in-place changes, scalar reads and
data-dependent shapes inside an arm are hard errors, and a store to an object that Dynamo first met
inside an arm is lost without a word.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from gbfix.analysis.conditions import Refused, data_kind, leaves
from gbfix.analysis.effects import Effects
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import ClassInfo
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value
from gbfix.lowering.aliases import own_names
from gbfix.lowering.bindings import stored
from gbfix.lowering.branch import Arm, Branch
from gbfix.lowering.reads import spared_read
from gbfix.lowering.stale_graphs import held_attributes, stale_graph, standing_for
from gbfix.lowering.turned import check_view_attributes

_SETUP = frozenset(
    {"__init__", "__post_init__", "reset_parameters", "_init_weights", "__setstate__"}
)


def check_arm(arm: Arm, in_place: frozenset[str], analysis: Analysis, facts: Facts) -> None:
    """Refuse an arm that `torch.cond` would refuse.

    `in_place` holds the names whose augmented assignments are written as plain ones.

    Raises:
        Refused: with the first hazard found.
    """
    found = arm.effects
    if found.output:
        raise Refused("output-in-arm", "an arm prints, logs or warns")
    if found.unknown:
        raise Refused(
            "impure-arm", f"the effects of `{found.first_unknown}` in an arm are not known"
        )
    if found.stateful:
        text = ast.unparse(found.stateful[0])
        raise Refused("stateful-layer", f"`{text}` in an arm changes the layer's own state")
    own = own_names(arm.statements, analysis)
    for target, node in found.mutated:
        name = dotted(target)
        if isinstance(node, ast.AugAssign) and name in in_place:
            continue
        if not (isinstance(target, ast.Name) and target.id in own):
            what = name or ast.unparse(target)
            raise Refused("mutates-operand", f"an arm changes `{what}` in place")
        if isinstance(node, ast.Call) and not (
            analysis.values.get(target) is not None and analysis.values[target].may_be_tensor
        ):
            raise Refused("mutates-object", f"an arm changes `{name}` in place")
    check_random(found, analysis)
    needed = [n for n in found.scalar if spared_read(n, analysis) is None]
    if needed:
        text = ast.unparse(needed[0])
        raise Refused("scalar-in-arm", f"`{text}` in an arm reads a Python value from a tensor")
    if found.dynamic:
        text = ast.unparse(found.dynamic[0])
        raise Refused("dynamic-shape-in-arm", f"the shape of `{text}` in an arm depends on data")
    check_view_attributes(arm.statements, analysis)
    floats = _float_parameters(analysis)
    for condition in found.conditions:
        tested = floats & {n.id for n in walk(condition.test) if isinstance(n, ast.Name)}
        if tested:
            raise Refused(
                "number-test-in-arm",
                f"an arm tests the number `{min(tested)}`, which Dynamo may make symbolic",
            )
        if any(data_kind(leaf, analysis) for leaf in leaves(condition.test)):
            raise Refused("break-in-arm", "an arm has a graph break of its own that is not fixed")


def _float_parameters(analysis: Analysis) -> set[str]:
    """Parameters that hold floats: tested in an arm, a symbolic one is a scalar read."""
    arguments = analysis.info.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(positional), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    found = {a.arg for a, d in pairs if isinstance(d, ast.Constant) and isinstance(d.value, float)}
    for argument in [*positional, *arguments.kwonlyargs]:
        if isinstance(argument.annotation, ast.Name) and argument.annotation.id == "float":
            found.add(argument.arg)
    return found


def check_random(found: Effects, analysis: Analysis) -> None:
    """Refuse random draws that gradients pass through.

    Raises:
        Refused: naming the draw.
    """
    for node in found.random:
        if _draws_on_tensors(node, analysis):
            raise Refused(
                "random-in-arm",
                f"`{ast.unparse(node)}` in an arm is drawn again for the backward pass, which gives "
                "wrong gradients",
            )


def _draws_on_tensors(node: ast.AST, analysis: Analysis) -> bool:
    """Whether a random operation has tensors to pass gradients to."""
    if not isinstance(node, ast.Call):
        return True
    function = analysis.values.get(node.func)
    if function is None or function.kinds & Kind.MODULE or "dropout" in ast.unparse(node.func):
        return True
    values = [analysis.values.get(a) for a in node.args]
    if isinstance(node.func, ast.Attribute):
        values.append(analysis.values.get(node.func.value))
    return any(v is not None and v.may_be_tensor and not _plain_factory(v) for v in values)


def _plain_factory(value: Value) -> bool:
    return value.unshared


def check_objects(branch: Branch, analysis: Analysis, facts: Facts) -> None:
    """Refuse arms that call code of objects which change later.

    Raises:
        Refused: naming the object.
    """
    for arm in branch.arms:
        for node in _walk(arm.statements):
            if isinstance(node, ast.Subscript):
                _check_item(node, analysis, branch)
            if not isinstance(node, ast.Call):
                continue
            value = analysis.values.get(node.func)
            if value is None or value.reference is None:
                continue
            cls = facts.project.class_info(value.reference)
            if cls is None and value.kinds & Kind.REFERENCE:
                info = facts.project.function_info(value.reference)
                cls = info.owner if info is not None else None
            if cls is not None and stateful(cls, facts):
                raise Refused(
                    "stateful-object",
                    f"`{ast.unparse(node.func)}` belongs to a {cls.node.name}, which changes its own "
                    "attributes; Dynamo loses such changes after an arm has used the object",
                )


def _check_item(node: ast.Subscript, analysis: Analysis, branch: Branch) -> None:
    value, base = analysis.values.get(node), analysis.values.get(node.value)
    if value is None or base is None or not value.may_be_tensor:
        return
    if base.kinds & Kind.OBJECT and isinstance(node.value, ast.Attribute):
        raise Refused(
            "container-in-arm",
            f"an arm takes a tensor out of `{ast.unparse(node.value)}`; Dynamo loses what is done to "
            "a container that it first meets in an arm",
        )


def stateful(cls: ClassInfo, facts: Facts) -> bool:
    """Whether instances of a class set attributes of their own outside of construction."""
    for owner in facts.project.mro(cls):
        for writes in facts.writes(owner).values():
            for write in writes:
                if write.method is not None and write.method.node.name not in _SETUP:
                    return True
    return False


def attribute_operands(branch: Branch, analysis: Analysis, facts: Facts) -> tuple[str, ...]:
    """Tensor attributes that must be read before the call and passed as operands.

    Dynamo loses stores to a module's buffers if it first met the buffers inside an arm, so where the
    owner stores anything outside of construction, its tensors go in as operands.
    """
    found: dict[str, None] = {}
    for output in branch.outputs:
        # An arm that leaves an attribute alone hands it on, and so reads it.
        if output.is_attribute and not all(
            output.name in a.effects.attributes for a in branch.arms
        ):
            found.setdefault(output.name)
    for arm in branch.arms:
        made = frozenset().union(*map(stored, arm.statements))
        for node in _walk(arm.statements):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            name = dotted(node)
            value = analysis.values.get(node)
            if name is None or value is None or not value.tensor or name.count(".") != 1:
                continue
            base = analysis.values.get(node.value)
            if base is None or base.kinds & Kind.TENSOR or base.elements is not None:
                continue
            if name.partition(".")[0] in made:  # nothing outside of the arm knows the object
                continue
            cls = facts.project.class_info(base.reference)
            if cls is None or stateful(cls, facts):
                found.setdefault(name)
    return tuple(found)


def stale_operand(branch: Branch, analysis: Analysis, facts: Facts) -> str:
    """An attribute that a form with both arms reads in every call, and that may hold an older graph."""
    statements = [s for arm in branch.arms for s in arm.statements]
    read = [
        *attribute_operands(branch, analysis, facts),
        *held_attributes(statements, analysis),
        *(name for o in branch.outputs for name in standing_for(o.name, analysis)),
    ]
    return stale_graph(read, branch.node, analysis, facts)


def _walk(statements: Iterable[ast.stmt]) -> Iterable[ast.AST]:
    for statement in statements:
        yield from walk(statement)
