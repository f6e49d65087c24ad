"""Asks the machine once, when the code is compiled.

The number of processors or devices does not change while a program runs. A function that only asks
for such a thing, or whose answer is cached anyway, is marked `torch.compiler.assume_constant_result`:
Dynamo calls it while tracing and takes the answer for a constant. In eager mode the mark does nothing.

Before:

    import functools
    import os


    @functools.lru_cache(maxsize=1)
    def block_size():
        return 128 if os.cpu_count() > 8 else 64


    def pad(x: torch.Tensor):
        x = torch.relu(x)
        return torch.nn.functional.pad(x, (0, -x.shape[-1] % block_size()))

After:

    import functools
    import os


    @functools.lru_cache(maxsize=1)
    @torch.compiler.assume_constant_result
    def block_size():
        return 128 if os.cpu_count() > 8 else 64


    def pad(x: torch.Tensor):
        x = torch.relu(x)
        return torch.nn.functional.pad(x, (0, -x.shape[-1] % block_size()))

A question in the middle of a longer function moves into a small function of its own. Files, the working
folder and the number of the process can change, and are refused, unless the function is cached.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Refused
from gbfix.analysis.effects import effects
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import called
from gbfix.analysis.values import Kind
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.toplevel import top_statement
from gbfix.python_diagnoses import PROCESS_PROBE
from gbfix.source.text import Edit

_REASON = "the answer is taken once, when the code is compiled"
_STEADY = frozenset(
    {"os.cpu_count", "os.sysconf", "os.uname", "socket.gethostname", "torch.cuda.device_count"}
)
_CACHES = frozenset({"functools.lru_cache", "functools.cache"})
_MARK = "compiler.assume_constant_result"


def propose(site: BreakSite, context: Context) -> Fix:
    """Mark the function around the question, or move the question into one.

    Raises:
        Refused: where the answer may change, or depends on tensors.
    """
    call = site.node
    assert isinstance(call, ast.Call)
    torch = context.torch(context.info.node)
    if _is_cached(context):
        _check_cached(context)
        return _mark(torch, context)
    name = called(call, context.analysis)
    if name not in _STEADY:
        raise Refused("may-change", f"`{ast.unparse(call.func)}` can answer differently later")
    if _only_asks(context):
        return _mark(torch, context)
    return _move(call, torch, context)


def _is_cached(context: Context) -> bool:
    module = context.info.module
    return any(
        module.qualify(d.func if isinstance(d, ast.Call) else d) in _CACHES
        for d in context.info.node.decorator_list
    )


def _check_cached(context: Context) -> None:
    info = context.info
    for module in context.facts.project.given:
        text = module.source.text
        if "cache_clear" in text and info.node.name in text:
            raise Refused("may-change", "the cache is cleared somewhere")
    values = context.facts.parameters(info)
    used = {n.id for n in walk(info.node) if isinstance(n, ast.Name)}
    for name, value in values.items():
        if value.kinds & Kind.TENSOR or (value.kinds & Kind.MODULE and name in used):
            raise Refused("depends-on-call", f"`{name}` is no constant")


def _only_asks(context: Context) -> bool:
    """Whether a function takes nothing, and gives nothing but what it is told by the machine."""
    info, node = context.info, context.info.node
    if info.owner is not None or info.outer is not None or isinstance(node, ast.AsyncFunctionDef):
        return False
    if any(isinstance(a, ast.arg) for a in walk(node.args)) or node.decorator_list:
        return False
    found = effects(node.body, context.analysis, context.facts)
    if found.mutated or found.attributes or found.output or found.random or found.stateful:
        return False
    for inner in walk(node):
        if isinstance(inner, (ast.Yield, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)):
            return False
        if isinstance(inner, ast.Call) and not _steady_call(inner, context):
            return False
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            bound = info.module.bindings.get(inner.id, [])
            if len(bound) > 1 or any(
                isinstance(b, ast.AST) and not isinstance(b, ast.Constant) for b in bound
            ):
                return False
    return context.analysis.returned.only(Kind.STATIC | Kind.NONE | Kind.UNKNOWN)


def _steady_call(call: ast.Call, context: Context) -> bool:
    name = called(call, context.analysis) or ""
    return name in _STEADY or name.removeprefix("builtins.") in {"int", "max", "min", "str", "bool"}


def _mark(torch: str, context: Context) -> Fix:
    """The mark goes next to the function, below other decorators, which would hide it."""
    view, node = context.view, context.info.node
    indent = view.indent(node)
    at = view.source.offset(node.lineno, node.col_offset)
    edits = (Edit(at, at, f"@{torch}.{_MARK}\n{indent}"),)
    return Fix("constant", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _move(call: ast.Call, torch: str, context: Context) -> Fix:
    """The question as a function of its own, above the definition that asks it."""
    if not all(isinstance(a, ast.Constant) for a in call.args) or call.keywords:
        raise Refused("depends-on-call", "what is asked depends on values of the call")
    if not isinstance(call.func, ast.Attribute):
        raise Refused("unusual-place", "the function that is asked has no module in front")
    root: ast.expr = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    assert isinstance(root, ast.Name)
    if root.id not in context.info.module.bindings:
        raise Refused("unusual-place", f"`{root.id}` is imported inside the function")
    anchor = top_statement(context.info.node, context)
    name = context.names.take(f"_{call.func.attr}")
    view, unit = context.view, context.unit
    text = f"@{torch}.{_MARK}\ndef {name}():\n{unit}return {view.text(call)}\n\n\n"
    at = view.start(anchor)
    edits = (Edit(at, at, text), Edit(view.start(call), view.end(call), f"{name}()"))
    return Fix("constant", Safety.REVIEW, _REASON, edits, context.needs_torch)


TRANSFORM = Transform(
    name="constant",
    codes=(PROCESS_PROBE.code,),
    summary="ask the machine once, when the code is compiled",
    doc=__doc__ or "",
    propose=propose,
    rank=15,
)
