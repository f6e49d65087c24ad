"""Which settings of Dynamo hold where a function is compiled, as the project's source says it.

A setting counts where it is assigned for the whole process, and where every place that compiles a
function is wrapped in `torch._dynamo.config.patch`. Reads source only; where a setting goes that is
not there yet is not known here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gbfix.analysis.project import Function, FunctionInfo, Module
from gbfix.analysis.trees import walk

CONFIG = "torch._dynamo.config"
PATCH = f"{CONFIG}.patch"


@dataclass(frozen=True)
class DynamoSetting:
    """One setting of `torch._dynamo.config`.

    Attributes:
        name: `capture_scalar_outputs` and the like.
        value: the text of the value that it needs.
        member: the setting is a set, and the value has to be in it.
    """

    name: str
    value: str = "True"
    member: bool = False

    @property
    def keyword(self) -> str:
        """The setting as an argument of `torch._dynamo.config.patch`."""
        return f"{self.name}={{{self.value}}}" if self.member else f"{self.name}={self.value}"

    def line(self, torch: str) -> str:
        """The statement that makes the setting for the whole process."""
        if self.member:
            return f"{torch}._dynamo.config.{self.name}.add({self.value})"
        return f"{torch}._dynamo.config.{self.name} = {self.value}"


FunctionPlace = tuple[str, int, int]
"""A function by its module, line and column, which stay when its file is parsed again."""


def place_of(info: FunctionInfo) -> FunctionPlace:
    """Where a function stands."""
    return info.module.name, info.node.lineno, info.node.col_offset


TRACE_AUTOGRAD = DynamoSetting("trace_autograd_ops")


@dataclass(frozen=True, eq=False)
class CompilePlace:
    """A place that compiles: a decorated function, or a call of `torch.compile`.

    Attributes:
        node: the decorated function, or the call.
        decorator: the decorator, for a function.
        reaches: the functions that run under it, by where they stand.
        calls_only: for a call: what it gives is a function, so that a wrapper can take its place.
    """

    module: Module
    node: Function | ast.Call
    decorator: ast.expr | None
    reaches: frozenset[FunctionPlace]
    calls_only: bool = False

    @property
    def fullgraph(self) -> bool:
        """Whether the place asks for one graph, under which Dynamo captures scalars and shapes."""
        call = self.decorator if self.decorator is not None else self.node
        return isinstance(call, ast.Call) and any(
            k.arg == "fullgraph" and isinstance(k.value, ast.Constant) and k.value.value is True
            for k in call.keywords
        )

    def patches(self) -> Iterator[ast.Call]:
        """The calls of `torch._dynamo.config.patch` around this place."""
        if isinstance(self.node, ast.Call):
            outer = self.module.parents.get(self.node)
            if isinstance(outer, ast.Call) and is_patch(outer.func, self.module):
                assert isinstance(outer.func, ast.Call)
                yield outer.func
            return
        for decorator in self.node.decorator_list:
            if decorator is self.decorator:
                return
            if is_patch(decorator, self.module):
                assert isinstance(decorator, ast.Call)
                yield decorator


def is_patch(node: ast.AST, module: Module) -> bool:
    """Whether a node is a call of `torch._dynamo.config.patch`."""
    return isinstance(node, ast.Call) and module.qualify(node.func) == PATCH


def process_wide(setting: DynamoSetting, modules: Iterable[Module]) -> bool:
    """Whether one of the modules of a project makes a setting for the whole process."""
    return any(_process_wide(setting, module) for module in modules)


def is_patched(setting: DynamoSetting, info: FunctionInfo, places: Iterable[CompilePlace]) -> bool:
    """Whether a setting is made around every place that compiles a function, if there is one."""
    reaching = [place for place in places if place_of(info) in place.reaches]
    captures = setting.name.startswith("capture_") and setting.value == "True"
    return bool(reaching) and all(
        (captures and place.fullgraph) or any(_patched(setting, patch) for patch in place.patches())
        for place in reaching
    )


def _patched(setting: DynamoSetting, patch: ast.Call) -> bool:
    return any(k.arg == setting.name and _holds(setting, k.value) for k in patch.keywords)


def _holds(setting: DynamoSetting, value: ast.expr) -> bool:
    if setting.member:
        return isinstance(value, ast.Set) and setting.value in map(ast.unparse, value.elts)
    return ast.unparse(value) == setting.value


def _process_wide(setting: DynamoSetting, module: Module) -> bool:
    if setting.name not in module.source.text:
        return False
    wanted = f"{CONFIG}.{setting.name}"
    for node in walk(module.tree):
        if isinstance(node, ast.Assign) and not setting.member:
            targets = [t for t in node.targets if module.qualify(t) == wanted]
            if targets and _holds(setting, node.value):
                return True
        elif isinstance(node, ast.Call) and setting.member:
            called = module.qualify(node.func)
            if called == f"{wanted}.add" and [ast.unparse(a) for a in node.args] == [setting.value]:
                return True
    return False
