"""Facts about the project's functions and classes, found once and kept.

Answers what a function returns, what its parameters are, and what an attribute of a class holds.
The evaluation of expressions and statements is in `evaluate` and `flow`; this module only keeps
their results and breaks recursion.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gbfix.analysis.annotations import annotated
from gbfix.analysis.call_index import CallIndex
from gbfix.analysis.callers import Callers
from gbfix.analysis.catching import Callee, NamedCall, callee, calls_by_name, catching, may_call
from gbfix.analysis.decorators import compiled_directly
from gbfix.analysis.dynamo_settings import CompilePlace, DynamoSetting, is_patched, process_wide
from gbfix.analysis.late_bodies import body_text
from gbfix.analysis.layers import fed_to_layers
from gbfix.analysis.modes import IS_COMPILING
from gbfix.analysis.observed import Observed
from gbfix.analysis.project import ClassInfo, Function, FunctionInfo, Module, Project
from gbfix.analysis.records import Records, field_value
from gbfix.analysis.trees import first_line, statements, walk
from gbfix.analysis.usage import is_returned, is_tested, presumed_tensors, tensor_parameters
from gbfix.analysis.values import (
    MAYBE,
    NOTHING,
    OBJECT,
    STATIC,
    UNKNOWN,
    Kind,
    Value,
    container,
    instance,
    join_all,
    reference,
    replace,
    tensor,
)

if TYPE_CHECKING:
    from gbfix.analysis.effects import Effects
    from gbfix.analysis.flow import Analysis

_MAX_DEPTH = 24
_REGISTER = {"register_buffer", "register_parameter"}
_WRITING = frozenset({ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Call})
_MODULE_STATIC = {"training", "device", "dtype"}


class AttributeWrite(NamedTuple):
    """One place that sets an attribute of a class: the method, the value, and how."""

    method: FunctionInfo | None
    node: ast.AST
    value: ast.expr | None
    registered: bool = False


@dataclass
class Kept:
    """What was found out about one module: about its functions, its classes and its names.

    Values name functions and classes and never hold their nodes, so that a module's tree can be let
    go of together with this.
    """

    returns: dict[ast.AST, Value] = field(default_factory=dict)
    analyses: dict[ast.AST, Analysis] = field(default_factory=dict)
    parameters: dict[ast.AST, dict[str, Value]] = field(default_factory=dict)
    given: dict[tuple[ast.AST, str], Value | None] = field(default_factory=dict)
    effects: dict[ast.AST, Effects | None] = field(default_factory=dict)
    helpers: dict[ast.AST, str | None] = field(default_factory=dict)
    attributes: dict[tuple[ast.ClassDef, str], Value] = field(default_factory=dict)
    writes: dict[ast.ClassDef, dict[str, list[AttributeWrite]]] = field(default_factory=dict)
    names: dict[str, Value] = field(default_factory=dict)


class Facts:
    """Lazily computed facts of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._kept: dict[Module, Kept] = {}
        self._active: set[ast.AST] = set()
        self._feeding: set[ast.AST] = set()
        self.failures: dict[Module, str] = {}
        self.region: Container[ast.AST] = frozenset()
        self.observed = Observed()
        self._callers = Callers(self)
        self.find_places: Callable[[], Iterator[CompilePlace]] = lambda: iter(())
        self._made: dict[DynamoSetting, bool] = {}
        self.calling: Callable[[FunctionInfo], Iterable[Analysis]] = CallIndex(self).calling
        # Whether functions that are wanted may lead to a function. `calling` knows the way then.
        self.led_to_by: Callable[[FunctionInfo, Callable[[FunctionInfo], bool]], bool]
        self.led_to_by = lambda info, wanted: True
        self.caught_by: Callable[[FunctionInfo], str | None] = lambda info: self.caught_among(
            info, self.region
        )

    def kept(self, module: Module) -> Kept:
        """What was found out about a module."""
        found = self._kept.get(module)
        if found is None:
            found = self._kept[module] = Kept()
        return found

    def analysed(self, module: Module) -> int:
        """How many functions of a module were analysed."""
        found = self._kept.get(module)
        return 0 if found is None else len(found.analyses)

    def all_kept(self) -> Iterable[tuple[Module, Kept]]:
        """What was found out, by module."""
        return self._kept.items()

    def forget_analyses(self, module: Module) -> None:
        """Let go of what was found out about a module, and not of its tree."""
        self._kept.pop(module, None)

    def forget(self, module: Module) -> None:
        """Let go of a module's tree and of all that was found out about it; it can be asked anew."""
        self._kept.pop(module, None)
        self.project.forget(module)

    def caught_among(self, info: FunctionInfo, region: Container[ast.AST]) -> str | None:
        """The name of a function, among some of the project, that may catch what one raises."""

        def calls_to(called: Callee) -> Iterator[NamedCall]:
            for module in self.project.naming(called.called):
                if may_call(called, module, self.project):
                    yield from calls_by_name(called, module, region)

        return catching(callee(info), calls_to)

    @cached_property
    def places(self) -> tuple[CompilePlace, ...]:
        """The places of the project that compile."""
        return tuple(self.find_places())

    @cached_property
    def records(self) -> Records:
        """Which records the functions of the project are called with."""
        return Records(self.project)

    def is_made(self, setting: DynamoSetting, info: FunctionInfo) -> bool:
        """Whether a setting of Dynamo holds wherever a function is compiled."""
        if setting not in self._made:
            self._made[setting] = process_wide(setting, self.project.given)
        return self._made[setting] or is_patched(setting, info, self.places)

    def parameters(self, info: FunctionInfo) -> dict[str, Value]:
        """Values of a function's parameters by annotation, default and use."""
        parameters = self.kept(info.module).parameters
        if info.node not in parameters:
            found = dict(self._parameter_values(info))
            parameters[info.node] = {
                name: self._observed(info, name, value) for name, value in found.items()
            }
        return parameters[info.node]

    def _observed(self, info: FunctionInfo, name: str, value: Value) -> Value:
        """The value of a parameter of which only a run of the program tells what it holds."""
        if value.kinds & ~(Kind.UNKNOWN | Kind.MAYBE):
            return value
        return self.observed.parameter(info, name) or value

    def _parameter_values(self, info: FunctionInfo) -> Iterator[tuple[str, Value]]:
        arguments = info.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        by_default = dict(
            zip(reversed([a.arg for a in positional]), reversed(arguments.defaults), strict=False)
        )
        by_default |= {
            a.arg: d
            for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if d is not None
        }
        used = tensor_parameters(info.node, info.module) | self.presumed(info)
        used |= self._fed_to_layers(info)
        for position, argument in enumerate([*positional, *arguments.kwonlyargs]):
            if position == 0 and info.owner is not None and not _is_static(info.node):
                yield argument.arg, self.instance(info.owner)
                continue
            value = annotated(argument.annotation, info.module, self.project)
            default = by_default.get(argument.arg)
            if value is not None and value.kinds == Kind.OBJECT and default is None:
                if value.reference is None and value.elements is None:  # a dict, say
                    held = self._callers.given(info, argument.arg)
                    value = held if held is not None and held.fields is not None else value
            if value is not None:
                none_default = isinstance(default, ast.Constant) and default.value is None
                yield (
                    argument.arg,
                    replace(value, kinds=value.kinds | Kind.NONE) if (none_default) else value,
                )
            elif argument.arg in used:
                if default is None:
                    yield argument.arg, tensor()
                else:
                    none = isinstance(default, ast.Constant) and default.value is None
                    yield argument.arg, Value(Kind.TENSOR | (Kind.NONE if none else Kind.STATIC))
            elif default is None:
                # What a constructor is given is configuration, as a rule.
                constructs = info.node.name == "__init__"
                given = None
                if constructs:
                    given = self._callers.constructed(info, argument.arg)
                else:
                    given = self._callers.given(info, argument.arg)
                    given = given or self.records.passed(info, argument.arg)
                yield argument.arg, given or (UNKNOWN if constructs else MAYBE)
            elif isinstance(default, ast.Constant) and default.value is not None:
                yield argument.arg, STATIC
            else:
                yield argument.arg, UNKNOWN
        if arguments.vararg:
            yield arguments.vararg.arg, container(MAYBE)
        if arguments.kwarg:
            yield arguments.kwarg.arg, container(UNKNOWN)

    def calls_in_file(self, info: FunctionInfo) -> Sequence[tuple[ast.Call, FunctionInfo | None]]:
        """The calls of a function in its file with the functions around them.

        None are told of one that is also used without being called, or is called under other names.
        """
        return self._callers.calls_of(info)

    def _fed_to_layers(self, info: FunctionInfo) -> frozenset[str]:
        """Parameters that are passed to layers; none while that is being found out."""
        if info.node in self._feeding:
            return frozenset()
        self._feeding.add(info.node)
        try:
            return fed_to_layers(info, self)
        finally:
            self._feeding.discard(info.node)

    def presumed(self, info: FunctionInfo) -> frozenset[str]:
        """Parameters that are taken to be tensors because the function is there to be compiled."""
        owner = info.owner
        is_layer = (
            owner is not None
            and info.node.name == "forward"
            and self.project.is_module_class(owner.qualified)
        )
        if not is_layer and not compiled_directly(info):
            return frozenset()
        found = presumed_tensors(info.node, info.module)
        if compiled_directly(info):
            return found
        # What a layer returns is a tensor; what else it calculates with may well be a number.
        return frozenset(
            name
            for name in found
            if is_returned(info.node, name) and not is_tested(info.node, name)
        )

    def instance(self, cls: ClassInfo) -> Value:
        """An instance of a class of the project."""
        kind = Kind.MODULE if self.project.is_module_class(cls.qualified) else Kind.OBJECT
        return instance(kind, cls.qualified)

    def returned(self, info: FunctionInfo) -> Value:
        """What a function of the project returns; unknown while it is being found out."""
        node = info.node
        returns = self.kept(info.module).returns
        if node in returns:
            return returns[node]
        promised = annotated(node.returns, info.module, self.project)
        if promised is not None and not promised.kinds & (Kind.OBJECT | Kind.UNKNOWN):
            returns[node] = promised
            return promised
        analysis = self.analysis(info)
        if analysis is None:
            return promised or UNKNOWN
        value = analysis.returned
        if promised is not None and value.kinds & (Kind.UNKNOWN | Kind.MAYBE):
            value = promised
        returns[node] = value
        return value

    def analysis(self, info: FunctionInfo) -> Analysis | None:
        """The analysis of a function; None while it is under way (recursion)."""
        node = info.node
        analyses = self.kept(info.module).analyses
        if node in analyses:
            return analyses[node]
        if node in self._active or len(self._active) > _MAX_DEPTH:
            return None
        self._active.add(node)
        try:
            from gbfix.analysis.flow import analyze

            made = analyze(info, self)
        except RecursionError:
            raise
        except Exception as error:  # the file is given up, not the run
            self.failures[info.module] = f"{type(error).__name__}: {error}"
            return None
        finally:
            self._active.discard(node)
        if not self._active or len(self._active) < _MAX_DEPTH // 2:
            analyses[node] = made
        return made

    def attribute(self, cls: ClassInfo, name: str) -> Value:
        """What an attribute of instances of a class holds."""
        key = (cls.node, name)
        attributes = self.kept(cls.module).attributes
        if key not in attributes:
            writes = self._writes_above(cls, name)
            # An attribute that is computed from itself adds nothing to what it can be.
            attributes[key] = tensor() if _is_registered(writes) else NOTHING
            found = self._attribute(cls, name, writes)
            attributes[key] = found if found.kinds else UNKNOWN
        return attributes[key]

    def _writes_above(self, cls: ClassInfo, name: str) -> list[tuple[ClassInfo, AttributeWrite]]:
        """The places that set an attribute, in a class and its bases, each with its class."""
        return [
            (owner, write)
            for owner in self.project.mro(cls)
            for write in self.writes(owner).get(name, ())
        ]

    def _attribute(
        self, cls: ClassInfo, name: str, writes: Sequence[tuple[ClassInfo, AttributeWrite]]
    ) -> Value:
        method = self.project.method(cls, name)
        if method is not None:
            if any(_last(d) in {"property", "cached_property"} for d in method.node.decorator_list):
                return self.returned(method)
            return reference(method.qualified)
        if writes:
            held = _is_registered(writes)
            return join_all(
                promised
                if owner.is_record and (promised := field_value(w.node, owner, self.project))
                else self._written(w)
                for owner, w in writes
                if not (held and _changes_in_place(w.node))
            )
        if name in _MODULE_STATIC and self.project.is_module_class(cls.qualified):
            return STATIC
        return UNKNOWN

    def writes(self, cls: ClassInfo) -> dict[str, list[AttributeWrite]]:
        """Every place in a class's own body that sets an attribute, by attribute name."""
        writes = self.kept(cls.module).writes
        if cls.node not in writes:
            writes[cls.node] = self._find_writes(cls)
        return writes[cls.node]

    def _find_writes(self, cls: ClassInfo) -> dict[str, list[AttributeWrite]]:
        found: dict[str, list[AttributeWrite]] = {}
        for node in cls.node.body:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(
                            AttributeWrite(None, node, node.value)
                        )
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, []).append(AttributeWrite(None, node, node.value))
        for method in cls.methods.values():
            for name, write in _method_writes(method):
                found.setdefault(name, []).append(write)
        return found

    def _written(self, write: AttributeWrite) -> Value:
        if write.registered:
            if isinstance(write.value, ast.Constant) and write.value.value is None:
                return Value(Kind.TENSOR | Kind.NONE)
            return self._evaluated(write, tensor())
        if isinstance(write.node, ast.AnnAssign) and write.method is None and write.value is None:
            return UNKNOWN
        return self._evaluated(write, UNKNOWN)

    def _evaluated(self, write: AttributeWrite, otherwise: Value) -> Value:
        if write.value is None:
            return otherwise
        if write.method is None:
            return STATIC if isinstance(write.value, ast.Constant) else OBJECT
        analysis = self.analysis(write.method)
        if analysis is None:  # under way: what it finds is being joined already
            return otherwise if write.registered else NOTHING
        value = analysis.values.get(write.value)
        if value is None or (write.registered and not value.may_be_tensor):
            return otherwise
        return settled(replace(value, unshared=False, unbound=False))

    def registered(self, cls: ClassInfo, name: str, *, parameters: bool = True) -> bool:
        """Whether an attribute is a buffer (or, unless excluded, a parameter) of the module."""
        return _is_registered(self._writes_above(cls, name), parameters=parameters)

    def global_value(self, module: Module, name: str) -> Value:
        """What a module-level name holds."""
        known = self.kept(module).names
        if name not in known:
            known[name] = UNKNOWN
            known[name] = self._global(module, name)
        return known[name]

    def _global(self, module: Module, name: str) -> Value:
        from gbfix.analysis.evaluate import Evaluator

        values: list[Value] = []
        for bound in module.bindings.get(name, ()):
            if isinstance(bound, str):
                values.append(self.named(bound))
            elif isinstance(bound, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                values.append(reference(f"{module.name}.{name}"))
            elif isinstance(bound, ast.expr):
                value = Evaluator(self, module).evaluate(bound)
                values.append(replace(value, unshared=False))
            elif isinstance(bound, ast.AugAssign):
                continue
            else:
                values.append(UNKNOWN)
        if {v.reference for v in values} <= IS_COMPILING:  # by other names in older releases
            return values[0] if values else UNKNOWN
        return settled(join_all(values))

    def named(self, qualified: str) -> Value:
        """The value of a qualified name of the project or of a library."""
        found = self.project.lookup(qualified)
        if found is None:
            return reference(qualified)
        module, node = found
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return reference(f"{module.name}.{node.name}")
        return self.global_value(module, qualified.rsplit(".", 1)[-1])

    def asks_compiling(self, qualified: str | None) -> bool:
        """Whether a function tells if `torch.compile` is tracing: torch's own, or a wrapper of it."""
        if qualified is None:
            return False
        if qualified in IS_COMPILING:
            return True
        last = qualified.rsplit(".", 1)[-1]
        if "compiling" not in last and "tracing" not in last:
            return False
        info = self.project.function_info(qualified)
        if info is None or "compiling" not in last:
            return False
        return any(
            isinstance(n, ast.Call) and (_last(n.func) or "").endswith("is_compiling")
            for n in walk(info.node)
        )


def settled(value: Value) -> Value:
    """A Python number read from a tensor before the traced code runs is a constant to it."""
    if value.kinds & Kind.SCALAR:
        return replace(value, kinds=(value.kinds & ~Kind.SCALAR) | Kind.STATIC)
    return value


def _is_static(node: Function) -> bool:
    return any(_last(d) == "staticmethod" for d in node.decorator_list)


def _last(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call):
        return _last(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _changes_in_place(node: ast.AST) -> bool:
    """Whether a statement leaves a tensor the tensor that it was: `self.steps += 1`."""
    return isinstance(node, ast.AugAssign) and not isinstance(node.op, ast.MatMult)


def _is_registered(
    writes: Sequence[tuple[ClassInfo, AttributeWrite]], *, parameters: bool = True
) -> bool:
    if any(_is_parameter(w.value) for _, w in writes):
        return parameters
    return any(w.registered for _, w in writes)


def _is_parameter(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and _last(value.func) == "Parameter"


def _unpacked(
    target: ast.Tuple | ast.List, value: ast.expr
) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """The parts of a target with what each is given, where the values stand side by side as well."""
    values: list[ast.expr | None] = [None] * len(target.elts)
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
        if not any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts)):
            values = list(value.elts)
    return zip(target.elts, values, strict=True)


@lru_cache(maxsize=64)
def _may_write(me: str) -> re.Pattern[str]:
    """Finds all that can set an attribute of what has a name, and a few things that do not."""
    before, after = r"(?:^|[=,;:])[\s(\[*]*", r"(?:[:,)\]]|[^\w\s.([]{0,3}=(?!=))"
    target = rf"{before}\b{me}\s*\.\s*\w+\s*{after}"
    return re.compile(rf"{target}|register_|\\\n", re.MULTILINE)


def _method_writes(method: FunctionInfo) -> Iterator[tuple[str, AttributeWrite]]:
    if not method.node.args.args:
        return
    me = method.node.args.args[0].arg
    last = method.node.end_lineno or method.node.lineno
    left_out = body_text(method.node)
    if left_out is not None and not _may_write(me).search(left_out):
        return  # as a rule, and then it need not be parsed

    def attribute(target: ast.AST) -> str | None:
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            return target.attr if target.value.id == me else None
        return None

    # Most methods register nothing, and then only statements write.
    registers = "register_" in method.module.source.lines_text(first_line(method.node), last)
    for node in walk(method.node) if registers else statements(method.node):
        kind = node.__class__
        if kind not in _WRITING:
            continue
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if (name := attribute(target)) is not None:
                    yield name, AttributeWrite(method, node, node.value)
                elif isinstance(target, (ast.Tuple, ast.List)):
                    for element, value in _unpacked(target, node.value):
                        if (name := attribute(element)) is not None:
                            yield name, AttributeWrite(method, node, value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            if (name := attribute(node.target)) is not None:
                yield name, AttributeWrite(method, node, node.value)
        elif (
            isinstance(node, ast.Call)
            and attribute(node.func) in _REGISTER
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            value = node.args[1] if len(node.args) > 1 else None
            yield str(node.args[0].value), AttributeWrite(method, node, value, registered=True)
