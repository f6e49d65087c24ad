"""Calls a layer without its hooks of the backward pass while compiling, where they change no gradient.

Dynamo does not trace a layer that has such a hook, and ends the graph before the call. A hook that
gives nothing back leaves the gradients as they are, so the compiled path can do without it: it calls
`forward` of the layer itself.

Before:

    import torch
    from torch import nn


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)
            self.second.register_full_backward_hook(lambda layer, given, taken: None)

        def forward(self, x: torch.Tensor):
            return self.second(torch.relu(self.first(x))) * 2

After:

    import torch
    from torch import nn


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)
            self.second.register_full_backward_hook(lambda layer, given, taken: None)

        def forward(self, x: torch.Tensor):
            second = self.second.forward if torch.compiler.is_compiling() else self.second
            return second(torch.relu(self.first(x))) * 2

What a hook prints or logs is dropped when compiled. What it stores is not stored, so that the fix is
`unsafe` then. A hook that may give a gradient back is left alone, and so is a layer that its class
gives a hook of the forward pass too. Dynamo's own setting, `torch._dynamo.config.compiled_autograd`,
is not made: backends that use AOTAutograd fail with it where `backward` is called outside of the
compiled code.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.logs import is_log_call
from gbfix.analysis.project import ClassInfo
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import backward_hooks
from gbfix.codegen.guards import compiling
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.python_diagnoses import AUTOGRAD_CALL
from gbfix.source.text import Edit

_REASONS = {
    0: "the hooks of the layer do not run when compiled; the one that its class gives it does nothing",
    1: "the hooks of the layer do not run when compiled; what they print or log is dropped",
    2: "right as long as nobody needs what the hooks of the layer store when compiled",
}
_STORING = frozenset("append extend add update put appendleft insert setdefault".split())


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to call a layer's own `forward`.

    Raises:
        Refused: where a hook may change gradients, or is not known.
    """
    call = site.node
    hooks = (
        backward_hooks(call, context.analysis, context.facts) if isinstance(call, ast.Call) else []
    )
    if not hooks or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        raise NotApplicable("no-hook", "the layer has no hook of the backward pass")
    _check_forward_hooks(call.func.attr, context)
    does = max(_does(given, cls, context) for cls, given in hooks)
    statement, view = site.statement, context.view
    if isinstance(statement, ast.While) or not view.starts_line(statement):
        raise Refused("unusual-place", "no line can be put before the statement")
    torch = context.torch(statement)
    name, layer = context.names.take(call.func.attr), view.text(call.func)
    line = f"{name} = {layer}.forward if {compiling(torch)} else {layer}"
    at = view.line_start(view.start(statement))
    edits = (
        Edit(at, at, f"{view.indent(statement)}{line}\n"),
        Edit(view.start(call.func), view.end(call.func), name),
    )
    safety = Safety.UNSAFE if does == 2 else Safety.REVIEW
    return Fix("unhook", safety, _REASONS[does], edits, context.needs_torch)


def _check_forward_hooks(layer: str, context: Context) -> None:
    owner = context.info.owner
    for cls in context.facts.project.mro(owner) if owner is not None else ():
        for node in walk(cls.node):
            if isinstance(node, ast.Attribute) and node.attr.startswith("register_forward_"):
                if not isinstance(node.value, ast.Attribute) or node.value.attr == layer:
                    raise Refused("forward-hook", f"`{layer}` may have a hook of the forward pass")


def _does(given: ast.Call, cls: ClassInfo, context: Context) -> int:
    """What a hook does besides: nothing (0), output (1), or more (2).

    Raises:
        Refused: where it may give a gradient back.
    """
    hook = given.args[0] if given.args else None
    if isinstance(hook, ast.Lambda):
        body = hook.body
        if isinstance(body, ast.Constant) and body.value is None:
            return 0
        function = body.func if isinstance(body, ast.Call) else None
        if isinstance(function, ast.Name) and function.id == "print":
            return 1
        if isinstance(function, ast.Attribute) and function.attr in _STORING:
            return 2
        raise Refused("changes-gradient", "the hook of the layer may give a gradient back")
    info = None
    project = context.facts.project
    if isinstance(hook, ast.Attribute) and getattr(hook.value, "id", "") == "self":
        info = project.method(cls, hook.attr)
    elif isinstance(hook, ast.Name):
        info = project.function_info(cls.module.qualify(hook))
        # A function that the constructor defines is no function of the module.
        inner = [n for n in walk(cls.node) if isinstance(n, ast.FunctionDef) and n.name == hook.id]
        if info is None and len(inner) == 1:
            return _of_body(inner[0].body, [])
    if info is None or info.node.decorator_list or not isinstance(info.node, ast.FunctionDef):
        raise Refused("unknown-hook", "what the hook of the layer does is not known")
    analysis = context.facts.analysis(info)
    spoken = [
        s
        for s in info.node.body
        if analysis is not None
        and isinstance(s, ast.Expr)
        and is_log_call(s.value, analysis, context.facts)
    ]
    return _of_body(info.node.body, spoken)


def _of_body(body: Sequence[ast.stmt], spoken: Sequence[ast.stmt]) -> int:
    for statement in body:
        for node in walk(statement):
            if isinstance(node, (ast.Yield, ast.YieldFrom)):
                raise Refused("unknown-hook", "what the hook of the layer does is not known")
            if isinstance(node, ast.Return) and node.value is not None:
                if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                    raise Refused("changes-gradient", "the hook of the layer gives a gradient back")
    quiet = [s for s in body if not isinstance(s, (ast.Pass, ast.Return)) and not _is_text(s)]
    if all(any(s is t for t in spoken) for s in quiet):
        return 1 if quiet else 0
    return 2


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


TRANSFORM = Transform(
    name="unhook",
    codes=(AUTOGRAD_CALL.code,),
    summary="call a layer without its hooks of the backward pass while compiling",
    doc=__doc__ or "",
    propose=propose,
    rank=30,
)
