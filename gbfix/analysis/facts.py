"""Facts about the project's functions and classes, found once and kept.

Answers what a function returns, what its parameters are, and what an attribute of a class holds.
The evaluation of expressions and statements is in `evaluate` and `flow`; this module only keeps
their results and breaks recursion.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gbfix.analysis.annotations import annotated
from gbfix.analysis.attribute_writes import (
    AttributeWrite,
    found_writes,
    is_registered,
)
from gbfix.analysis.attributes import attribute_value, writes_above
from gbfix.analysis.call_index import CallIndex
from gbfix.analysis.callers import Callers
from gbfix.analysis.catching import Callee, NamedCall, callee, calls_by_name, catching, may_call
from gbfix.analysis.decorators import disabled
from gbfix.analysis.dynamo_settings import CompilePlace, DynamoSetting, is_patched, process_wide
from gbfix.analysis.layers import fed_to_layers
from gbfix.analysis.modes import IS_COMPILING
from gbfix.analysis.modules import last_name
from gbfix.analysis.observed import Observed
from gbfix.analysis.parameter_values import parameter_values
from gbfix.analysis.project import ClassInfo, FunctionInfo, Module, Project
from gbfix.analysis.records import Records
from gbfix.analysis.trees import walk
from gbfix.analysis.values import (
    NOTHING,
    UNKNOWN,
    Kind,
    Value,
    instance,
    join_all,
    reference,
    replace,
    settled,
    tensor,
)

if TYPE_CHECKING:
    from gbfix.analysis.effects import Effects
    from gbfix.analysis.flow import Analysis

_MAX_DEPTH = 24


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
        self.callers = Callers(self)
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
            found = dict(parameter_values(info, self))
            parameters[info.node] = {
                name: self._observed(info, name, value) for name, value in found.items()
            }
        return parameters[info.node]

    def _observed(self, info: FunctionInfo, name: str, value: Value) -> Value:
        """The value of a parameter of which only a run of the program tells what it holds."""
        if value.kinds & ~(Kind.UNKNOWN | Kind.MAYBE):
            return value
        return self.observed.parameter(info, name) or value

    def fed_to_layers(self, info: FunctionInfo) -> frozenset[str]:
        """Parameters that are passed to layers; none while that is being found out."""
        if info.node in self._feeding:
            return frozenset()
        self._feeding.add(info.node)
        try:
            return fed_to_layers(info, self)
        finally:
            self._feeding.discard(info.node)

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
            writes = writes_above(cls, name, self)
            # An attribute that is computed from itself adds nothing to what it can be.
            attributes[key] = tensor() if is_registered(writes) else NOTHING
            found = attribute_value(cls, name, writes, self)
            attributes[key] = found if found.kinds else UNKNOWN
        return attributes[key]

    def writes(self, cls: ClassInfo) -> dict[str, list[AttributeWrite]]:
        """Every place in a class's own body that sets an attribute, by attribute name."""
        writes = self.kept(cls.module).writes
        if cls.node not in writes:
            writes[cls.node] = found_writes(cls)
        return writes[cls.node]

    def registered(self, cls: ClassInfo, name: str, *, parameters: bool = True) -> bool:
        """Whether an attribute is a buffer (or, unless excluded, a parameter) of the module."""
        return is_registered(writes_above(cls, name, self), parameters=parameters)

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

    def is_asked(self, test: ast.expr, analysis: Analysis) -> bool:
        """Whether an expression asks, where it stands, if `torch.compile` is tracing."""
        value = analysis.values.get(test.func) if isinstance(test, ast.Call) else None
        return value is not None and self.asks_compiling(value.reference)

    def runs_compiled(self, info: FunctionInfo) -> bool:
        """Whether compiled calls run a function, be it left to Python."""
        return info.node in self.region or disabled(info)

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
            isinstance(n, ast.Call) and (last_name(n.func) or "").endswith("is_compiling")
            for n in walk(info.node)
        )
