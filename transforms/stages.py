"""Leaves what decides or cannot be traced to Python, and compiles the stages between as functions.

A loop that goes on until all sequences are done gives a result whose size depends on data, so that no
single graph can hold it; a break in a loop makes Dynamo give up the whole function, and a sparse tensor
breaks the graph wherever it is handed on. What a person does then is to leave the outline of the
function to Python and to compile the step. The mark `torch.compiler.disable(recursive=False)` does it:
the function itself is not traced, and what it calls is.

Before:

    import torch
    from torch import nn


    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor):
            alive = torch.ones(())
            while True:
                step = torch.tanh(self.cell(x[-1:])) * alive
                x = torch.cat([x, step])
                alive = alive * (step.abs().max() > 0.1).float()
                if alive.max() == 0 or x.shape[0] >= 8:
                    break
            return x

After:

    import torch
    from torch import nn


    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(4, 4)

        def _forward_round(self, x: torch.Tensor, alive):
            step = torch.tanh(self.cell(x[-1:])) * alive
            x = torch.cat([x, step])
            alive = alive * (step.abs().max() > 0.1).float()
            return x, alive

        @torch.compiler.disable(recursive=False)
        def forward(self, x: torch.Tensor):
            alive = torch.ones(())
            while True:
                x, alive = self._forward_round(x, alive)
                if alive.max() == 0 or x.shape[0] >= 8:
                    break
            return x

There are as many graphs as there are stages, and a function that calls this one ends its graph at the
call. It is the last resort: done for a loop that data decides, for sparse tensors that are handed over
and for numbers that Python draws, where nothing else treats the site.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.decorators import decorator_name
from gbfix.analysis.draws import draw
from gbfix.analysis.sites import BreakSite, break_sites, find_sites
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import called, disabled_function
from gbfix.analysis.values import Kind
from gbfix.codegen import layout
from gbfix.diagnoses import DIAGNOSES, LOOP_EXIT, TENSOR_LOOP
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.called import is_only_called
from gbfix.lowering.sparse import sparse_values
from gbfix.lowering.stages import Divided, Divider, Part
from gbfix.python_diagnoses import DISABLED_FUNCTION, RANDOM_CALL, SPARSE_TENSOR
from gbfix.source.text import Edit

_REASON = (
    "the function itself runs in Python and calls stages that are compiled; what calls it ends its "
    "graph there"
)
# Draws that give no number, or fill what they are given.
_NO_NUMBERS = frozenset(
    "Random SystemRandom RandomState default_rng Generator shuffle sample choices permutation".split()
)
_MODES = frozenset({"torch.no_grad", "torch.inference_mode", "torch.enable_grad"})
_FILLING = frozenset("append extend insert pop remove clear appendleft popleft update".split())


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to divide the function of the site.

    Raises:
        Refused: where a stage cannot be a function of its own.
        NotApplicable: where Dynamo's own breaks cost no more.
    """
    info, node = context.info, context.info.node
    modes = {decorator_name(d, info.module) for d in node.decorator_list} <= _MODES
    if info.outer is not None or not isinstance(node, ast.FunctionDef) or not modes:
        raise NotApplicable("not-divided", "only a plain function or method is divided")
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(node)):
        raise NotApplicable("not-divided", "the function is suspended and resumed")
    sites = find_sites(context.analysis, context.facts)
    if not any(_is_worth(s, context) for s in sites):
        raise NotApplicable("not-divided", "what stands around the break is compiled as it is")
    if node.name != "forward" and not is_only_called(info, context.facts):
        raise NotApplicable("not-divided", f"`{node.name}` may be what is compiled")
    sparse, made_sparse = sparse_values(sites, context)
    kept = sparse | _kept(sites, context)
    drawing = [s.node for s in sites if s.diagnosis is RANDOM_CALL or _is_drawn(s, context)]
    if drawing:
        drawing += [n for n in walk(node) if draw(n, context.analysis) and n not in drawing]
    broken = list(dict.fromkeys([*(s.node for s in sites), *drawing]))
    divided = Divider(context, broken, drawing, kept, made_sparse).divide()
    _check_left(divided, sites, context)
    for part in divided.parts:
        _check_part(part, context)
    torch = context.torch(node.body[0])
    edits = _edits(divided, torch, context)
    return Fix("stages", Safety.REVIEW, _REASON, edits, context.needs_torch, last=True)


def _is_worth(site: BreakSite, context: Context) -> bool:
    """Whether Dynamo loses more at a site than the statement that breaks."""
    if site.diagnosis in {LOOP_EXIT, TENSOR_LOOP, SPARSE_TENSOR, RANDOM_CALL}:
        return True
    parents = context.info.module.parents
    above: ast.AST | None = site.node
    while above is not None and above is not context.info.node:
        if isinstance(above, (ast.For, ast.While)):
            return True
        above = parents.get(above)
    return _is_drawn(site, context)


def _is_drawn(site: BreakSite, context: Context) -> bool:
    """Whether a call runs a function that is left to Python because it draws numbers."""
    call = site.node
    if site.diagnosis is not DISABLED_FUNCTION or not isinstance(call, ast.Call):
        return False
    info = disabled_function(call, context.analysis, context.facts)
    analysis = context.facts.analysis(info) if info is not None else None
    if analysis is None:
        return False
    return any(s.diagnosis is RANDOM_CALL for s in break_sites(analysis, context.facts))


def _kept(sites: Sequence[BreakSite], context: Context) -> frozenset[str]:
    """Names of what a graph would be compiled again for: generators, and lists that are filled."""
    found: set[str] = set()
    for site in sites:
        if site.diagnosis is not RANDOM_CALL or not isinstance(site.node, ast.Call):
            continue
        name = (called(site.node, context.analysis) or "").rpartition(".")[2]
        if name in _NO_NUMBERS:
            found |= {a.id for a in site.node.args if isinstance(a, ast.Name)}
            if isinstance(site.statement, ast.Assign):
                found |= {t.id for t in site.statement.targets if isinstance(t, ast.Name)}
    for node in walk(context.info.node):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in _FILLING and isinstance(node.func.value, ast.Name):
            found.add(node.func.value.id)
    for loop in walk(context.info.node):
        if isinstance(loop, (ast.For, ast.While)):
            found |= set(_growing(loop, context))
    return frozenset(found)


def _growing(loop: ast.For | ast.While, context: Context) -> Iterator[str]:
    """Tuples and lists that get longer in each round: `all_states = all_states + (x,)`."""
    target: ast.expr
    for node in walk(loop):
        if isinstance(node, ast.AugAssign):
            target, value = node.target, node.value
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        else:
            continue
        grows = isinstance(target, ast.Name) and (
            isinstance(node, ast.AugAssign)
            or any(isinstance(n, ast.Name) and n.id == target.id for n in walk(value))
        )
        if not grows or not isinstance(target, ast.Name):
            continue
        parts = [value.left, value.right] if isinstance(value, ast.BinOp) else [value]
        if any(isinstance(p, (ast.Tuple, ast.List)) for p in parts):
            yield target.id


def _check_left(divided: Divided, sites: Sequence[BreakSite], context: Context) -> None:
    """Something must be compiled, and no layer may be lost to Python.

    Raises:
        NotApplicable: where nothing is gained.
    """
    moved = {id(n) for p in divided.parts for i in p.items for n in walk(i.statement)}
    own = False
    for node in walk(context.info.node):
        if not isinstance(node, ast.Call) or id(node) in moved:
            continue
        value = context.analysis.values.get(node.func)
        if value is None:
            continue
        facts = context.facts
        known = facts.project.function_info(value.reference)
        made_here = facts.project.class_info(value.reference)
        if known is not None or made_here is not None:
            own = own or disabled_function(node, context.analysis, facts) is None
        elif value.kinds & Kind.MODULE and not any(s.node is node for s in sites):
            text = ast.unparse(node.func)
            raise NotApplicable("layer-left", f"`{text}` would be left to Python")
    if not divided.parts and not own:
        raise NotApplicable("not-divided", "nothing around it would be compiled")


def _check_part(part: Part, context: Context) -> None:
    """Whether a part can stand in a function of its own.

    Raises:
        Refused: for text that cannot be moved, or a counter that picks a layer.
    """
    view = context.view
    counters = {
        n.id
        for loop in walk(context.info.node)
        if isinstance(loop, ast.For)
        for n in walk(loop.target)
        if isinstance(n, ast.Name)
    }
    for item in part.items:
        statement = item.statement
        if not (view.starts_line(statement) and view.ends_line(statement)):
            raise NotApplicable("not-divided", "a statement shares its line with other code")
        lines = range(statement.lineno + 1, (statement.end_lineno or 0) + 1)
        if any(view.string_lines(line) & set(lines) for line in lines):
            raise Refused("unusual-place", "a string of several lines stands in the statement")
        for node in walk(statement):
            if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Name):
                continue
            value = context.analysis.values.get(node.value)
            name = node.slice.id
            if name in counters and name in part.given and not (value and value.tensor):
                raise Refused("counter-crosses", f"each `{name}` would get a graph of its own")


def _edits(divided: Divided, torch: str, context: Context) -> tuple[Edit, ...]:
    """The functions, the mark, and the calls in place of what was moved."""
    view, node, unit = context.view, context.info.node, context.unit
    indent = view.indent(node)
    receiver = ""
    if context.info.owner is not None:
        arguments = [*node.args.posonlyargs, *node.args.args]
        if not arguments:
            raise NotApplicable("not-divided", "the method has no receiver")
        receiver = arguments[0].arg
    annotated = {
        a.arg: f"{a.arg}: {view.text(a.annotation)}"
        for a in walk(node.args)
        if isinstance(a, ast.arg) and a.annotation is not None
    }
    gap = "\n\n" if receiver else "\n\n\n"
    width = context.settings.line_length
    above: list[str] = []
    calls: dict[int, str] = {}
    for part in divided.parts:
        name = _free_name(part.place, context)
        names = [n for n in part.given if n != receiver]
        head = layout.call(
            f"def {name}",
            [*([receiver] if receiver else []), *(annotated.get(n, n) for n in names)],
            width=width - len(indent) - 1,
            unit=unit,
            tail=":",
        )
        body = layout.indent(_body(part, context), unit)
        above.append(layout.indent(f"{head}\n{body}", indent))
        target = f"{', '.join(part.results)} = " if part.results else ""
        target = "return " if part.returns else target
        inner = view.indent(part.items[-1].statement)
        calls[id(part)] = layout.call(
            f"{target}{receiver}.{name}" if receiver else f"{target}{name}",
            names,
            width=width - len(inner),
            unit=unit,
        )
    at = view.line_start(view.start(node))
    mark = f"{indent}@{torch}.compiler.disable(recursive=False)\n"
    text = "".join(f"{a}{gap}" for a in above)
    edits = [Edit(at, at, text if node.decorator_list else text + mark)]
    if node.decorator_list:
        below = view.line_start(view.source.offset(node.lineno, node.col_offset))
        edits.append(Edit(below, below, mark))
    edits += _replaced(divided, calls, context)
    return tuple(edits)


def _replaced(divided: Divided, calls: dict[int, str], context: Context) -> Iterator[Edit]:
    """For each run of statements that parts or takings apart connect: what stands there afterwards."""
    view = context.view
    owner = {id(item): part for part in divided.parts for item in part.items}
    groups: list[list[ast.stmt]] = []
    linked = [[i.statement for i in p.items] for p in divided.parts]
    linked += [[items[0].statement] for items in divided.apart]
    for statements in sorted(linked, key=lambda g: (g[0].lineno, -g[-1].lineno)):
        if groups and any(s is g for s in statements for g in groups[-1]):
            groups[-1] += [s for s in statements if not any(s is g for g in groups[-1])]
        else:
            groups.append(list(dict.fromkeys(statements)))
    apart = {id(items[0].statement): items for items in divided.apart}
    whole = {id(i.statement): i for p in divided.parts for i in p.items if i.text is None}
    for group in groups:
        inner = view.indent(group[0])
        lines: list[str] = []
        for statement in group:
            items = apart.get(id(statement)) or (whole[id(statement)],)
            for item in items:
                part = owner.get(id(item))
                if part is None:
                    lines.append(item.text or view.text(statement))
                elif part.items[-1] is item:
                    lines.append(calls[id(part)])
        start = view.line_start(view.start(group[0]))
        end = view.line_end(view.end(group[-1]))
        yield Edit(start, end, layout.indent("\n".join(lines), inner))


def _body(part: Part, context: Context) -> str:
    """The statements of a part's function."""
    text, last = _moved(part, context), part.items[-1]
    if not part.results:
        return text
    statement = last.statement
    if len(part.items) == 1 and last.text is not None and last.stays is False:
        name, equals, value = last.text.partition(" = ")
        if equals and [name] == list(part.results):
            return f"return {value}"
    if last.text is None and isinstance(statement, ast.Assign) and len(part.items) == 1:
        if [ast.unparse(t) for t in statement.targets] == list(part.results):
            return f"return {context.view.text(statement.value)}"
    return f"{text}\nreturn {', '.join(part.results)}"


def _moved(part: Part, context: Context) -> str:
    """The text of a part, with the comments between its statements."""
    view = context.view
    inner = view.indent(part.items[0].statement)
    pieces: list[str] = []
    last: int | None = None
    for item in part.items:
        start = view.line_start(view.start(item.statement))
        end = view.line_end(view.end(item.statement))
        if last is not None and start > last:
            pieces.append(view.slice(last, start))
        elif last is not None:
            pieces.append("\n")
        pieces.append(
            view.slice(start, end) if item.text is None else layout.indent(item.text, inner)
        )
        last = end
    return "\n".join(line.removeprefix(inner) for line in "".join(pieces).split("\n"))


def _free_name(place: str, context: Context) -> str:
    owner = context.info.owner
    wanted = f"_{context.info.node.name.strip('_')}_{place}"
    name = context.names.take(wanted)
    while owner is not None and any(
        name in cls.methods or name in context.facts.writes(cls)
        for cls in context.facts.project.mro(owner)
    ):
        name = context.names.take(wanted)
    return name


TRANSFORM = Transform(
    name="stages",
    codes=tuple(DIAGNOSES),
    summary="leave the outline of a function to Python and compile its stages",
    doc=__doc__ or "",
    propose=propose,
    rank=96,
    lessens=True,
)
