"""Iterates without a progress bar while compiling.

`tqdm(steps)` gives the same items as `steps`; what it shows cannot be part of a graph. Statements that
only set the text of the bar are skipped together with it.

Before:

    from tqdm import tqdm


    def refine(x: torch.Tensor):
        bar = tqdm(range(3))
        for step in bar:
            x = x * 0.5 + step
            bar.set_description(f"step {step}")
        return x

After:

    from tqdm import tqdm


    def refine(x: torch.Tensor):
        bar = range(3) if torch.compiler.is_compiling() else tqdm(range(3))
        for step in bar:
            x = x * 0.5 + step
            if not torch.compiler.is_compiling():
                bar.set_description(f"step {step}")
        return x

The fix is refused where the bar is used for more than that, or is told its items in another way.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.effects import effects
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import called
from gbfix.codegen import layout
from gbfix.codegen.expressions import flat
from gbfix.codegen.guards import compiling
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.guarding import guarded_runs
from gbfix.python_diagnoses import PROGRESS_BAR
from gbfix.source.text import Edit

_REASON = "no progress is shown in the compiled path"


def propose(site: BreakSite, context: Context) -> Fix:
    """Choose between the bar and its items by whether the code is being compiled.

    Raises:
        Refused: where the bar is needed for more than its items.
    """
    call, statement = site.node, site.statement
    assert isinstance(call, ast.Call)
    items = _items(call, context)
    if isinstance(statement, ast.Assign):
        statements = _uses(statement, call, context)
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        statements = []
    else:
        raise NotApplicable("not-iterated", "the bar is not iterated over")
    torch = context.torch(statement)
    view = context.view
    start, end = view.start(call), view.end(call)
    text = f"{items} if {compiling(torch)} else {flat(view, call)}"
    bare = isinstance(statement, ast.Assign) or statement.iter is call
    first = view.slice(view.line_start(start), start)
    tail = view.slice(end, view.line_end(end))
    alone = _only_argument(call, context)
    if "\n" in view.slice(*alone) or not layout.fits(
        f"{first}{text}{tail}", context.settings.line_length
    ):
        indent = view.indent(statement)
        lines = _laid_out(items, call, torch, indent + context.unit, context)
        if bare:
            text = f"(\n{lines}\n{indent})"
        elif alone != (start, end):
            (start, end), text = alone, f"\n{lines}\n{indent}"
    if not bare and isinstance(context.info.module.parents[call], (ast.BinOp, ast.Attribute)):
        text = f"({text})"
    edits = [Edit(start, end, text), *guarded_runs(statements, context)]
    return Fix("progress", Safety.REVIEW, _REASON, tuple(edits), context.needs_torch)


def _only_argument(call: ast.Call, context: Context) -> tuple[int, int]:
    """Where the arguments of the call around a bar stand, if the bar is all of them; else the bar."""
    view, parent = context.view, context.info.module.parents[call]
    start, end = view.start(call), view.end(call)
    if not isinstance(parent, ast.Call) or parent.args != [call] or parent.keywords:
        return start, end
    opening, closing = view.end(parent.func) + 1, view.end(parent) - 1
    around = view.slice(opening, start) + view.slice(end, closing)
    return (opening, closing) if not around.strip() else (start, end)


def _laid_out(items: str, call: ast.Call, torch: str, indent: str, context: Context) -> str:
    """The choice over three lines or more."""
    view, width = context.view, context.settings.line_length - len(indent)
    function = f"else {flat(view, call.func)}"
    last = f"{function}({view.slice(view.end(call.func) + 1, view.end(call) - 1).strip()})"
    if "\n" in last or not layout.fits(last, width):
        given = [flat(view, a) for a in call.args]
        given += [f"{k.arg}={flat(view, k.value)}" if k.arg else f"**{flat(view, k.value)}"
                  for k in call.keywords]  # fmt: skip
        spaced = layout.call(function, given, width=width, unit=context.unit)
        last = spaced if "\n" in spaced or "\n" in last else last
    return layout.indent("\n".join([items, f"if {compiling(torch)}", last]), indent)


def _items(call: ast.Call, context: Context) -> str:
    """What the bar iterates over, as text."""
    name = called(call, context.analysis) or ""
    view = context.view
    if name.endswith(".trange"):
        if not call.args or any(isinstance(a, ast.Starred) for a in call.args):
            raise Refused("unknown-items", "what the bar iterates over is not told plainly")
        return f"range({', '.join(flat(view, a) for a in call.args)})"
    given = call.args[0] if call.args else None
    if given is None:
        given = next((k.value for k in call.keywords if k.arg in {"iterable", "sequence"}), None)
    if given is None:
        raise NotApplicable("no-items", "the bar is advanced by hand")
    if isinstance(given, ast.Starred):
        raise Refused("unknown-items", "what the bar iterates over is not told plainly")
    found = effects([given], context.analysis, context.facts)
    if found.mutated or found.attributes or found.random or found.control:
        raise Refused("effectful-arguments", "what the bar is given has effects of its own")
    text = flat(view, given)
    return f"({text})" if isinstance(given, (ast.IfExp, ast.Lambda, ast.NamedExpr)) else text


def _uses(statement: ast.Assign, call: ast.Call, context: Context) -> list[ast.stmt]:
    """The statements that only handle the bar: `bar.set_description(...)`, `bar.close()`.

    Raises:
        Refused: where the bar is used in another way than to be iterated over.
    """
    target = statement.targets[0]
    if (
        statement.value is not call
        or len(statement.targets) != 1
        or not isinstance(target, ast.Name)
    ):
        raise Refused("bar-used", "the bar is kept where it is not followed")
    parents = context.info.module.parents
    found: list[ast.stmt] = []
    for node in walk(context.info.node):
        if not isinstance(node, ast.Name) or node.id != target.id or node is target:
            continue
        parent = parents[node]
        if isinstance(node.ctx, ast.Store) and isinstance(parent, ast.Assign):
            continue  # `steps = range(n)` where no bar is wanted
        if node in call.args or any(k.value is node for k in call.keywords):
            continue
        if isinstance(parent, (ast.For, ast.AsyncFor)) and parent.iter is node:
            continue
        if isinstance(parent, ast.Call) and node in parent.args and _is_enumerate(parent):
            continue
        above = parents[parent]
        whole = parents.get(above)
        if (
            isinstance(parent, ast.Attribute)
            and isinstance(above, ast.Call)
            and above.func is parent
            and isinstance(whole, ast.Expr)
        ):
            effect = effects(
                [*above.args, *(k.value for k in above.keywords)], context.analysis, context.facts
            )
            if not (effect.mutated or effect.attributes or effect.random or effect.control):
                if whole not in context.analysis.eager:
                    found.append(whole)
                continue
        raise Refused("bar-used", f"`{target.id}` is used for more than its items")
    return found


def _is_enumerate(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in {
        "enumerate",
        "zip",
        "list",
        "reversed",
    }


TRANSFORM = Transform(
    name="progress",
    codes=(PROGRESS_BAR.code,),
    summary="iterate without a progress bar while compiling",
    doc=__doc__ or "",
    propose=propose,
    rank=10,
)
