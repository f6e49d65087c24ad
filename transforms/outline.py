"""Moves what cannot be traced into a function of its own, which is left to Python.

A break in a loop, a `try` or a `with` makes Dynamo give up the whole function, and a generator or a
sparse tensor that one statement makes breaks the graph again at every statement that uses it. Taken
together into one function with the mark `torch.compiler.disable`, they end the graph once, and what
stands around them is compiled.

Before:

    def forward(x: torch.Tensor):
        h = torch.relu(x) * 2
        generator = torch.Generator()
        generator.manual_seed(3)
        noise = torch.rand(4, 4, generator=generator)
        return torch.tanh(h + noise)

After:

    @torch.compiler.disable
    def _forward_in_python():
        generator = torch.Generator()
        generator.manual_seed(3)
        noise = torch.rand(4, 4, generator=generator)
        return noise


    def forward(x: torch.Tensor):
        h = torch.relu(x) * 2
        noise = _forward_in_python()
        return torch.tanh(h + noise)

One break is left, and `fullgraph=True` still fails. It is not done where nothing would be left to
compile, nor to code that calls layers, which Dynamo compiles by themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.effects import effects
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import called
from gbfix.analysis.values import Kind
from gbfix.codegen import layout
from gbfix.diagnoses import DIAGNOSES
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.beside import check_strings, name_beside
from gbfix.lowering.bindings import defined
from gbfix.lowering.outside import calls_functions, calls_layers
from gbfix.lowering.reached import is_always_reached
from gbfix.lowering.views import block_of, in_loop_of
from gbfix.python_diagnoses import DISABLED_FUNCTION, SEEDING, SPARSE_TENSOR
from gbfix.source.text import Edit

_TOGETHER = "the graph ends once, at the call, instead of at every use"
_AROUND = "what stands around the call is compiled, which the break made Dynamo give up"
_LEAVING = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete)
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_MAKING = frozenset({"torch.Generator", "torch.sparse_coo_tensor", "torch.sparse_csr_tensor"})
_FORKS = frozenset({"torch.random.fork_rng"})


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to move the statements around the site.

    Raises:
        Refused: where they cannot stand in a function of their own.
    """
    info = context.info
    if info.outer is not None or isinstance(info.node, ast.AsyncFunctionDef):
        raise NotApplicable("not-outlined", "the function is nested or suspended")
    statements, reason = _part(site, context)
    _check_stays(statements, context)
    given, results = _interface(statements, context)
    _check_crossing(statements, given, results, context)
    if not is_always_reached(site, context, within=statements[0]):
        raise Refused("not-always-reached", "many calls may pass without a break, in one graph")
    edits = _edits(statements, given, results, context)
    return Fix("outline", Safety.REVIEW, reason, edits, context.needs_torch, last=True)


def _part(site: BreakSite, context: Context) -> tuple[list[ast.stmt], str]:
    """The statements to move, and what that is good for.

    Raises:
        NotApplicable: where nothing is gained.
    """
    parents, function = context.info.module.parents, context.info.node
    outermost: ast.stmt = site.statement
    current: ast.AST | None = site.statement
    while current is not None and current is not function:
        skips = isinstance(current, (ast.For, ast.While, ast.Try)) or _forks(current, context)
        if isinstance(current, ast.stmt) and skips:
            outermost = current
        current = parents.get(current)
    block = block_of(outermost, context.info.module)
    first = block.index(outermost)
    if outermost is not site.statement or isinstance(outermost, (ast.For, ast.While, ast.With)):
        if not _forks(outermost, context) and not _work_around([outermost], context):
            raise NotApplicable("not-outlined", "nothing around it would be compiled")
        return [outermost], _TOGETHER if _forks(outermost, context) else _AROUND
    made = site.node
    if site.diagnosis not in {SEEDING, SPARSE_TENSOR} or not isinstance(made, ast.Call):
        raise NotApplicable("not-outlined", "there is one break, which would stay")
    name = called(made, context.analysis)
    if not isinstance(outermost, ast.Assign):
        raise NotApplicable("not-outlined", "the call is part of a larger statement")
    if name is not None and name.startswith("torch.sparse.") and made.args:
        if _is_local(made.args[0], context):
            raise NotApplicable("not-outlined", "the sparse tensor comes from elsewhere")
        return [outermost], _AROUND
    if name not in _MAKING:
        raise NotApplicable("not-outlined", "there is one break, which would stay")
    last = _last_use(outermost, block, first)
    if last == first:
        raise NotApplicable("not-outlined", "there is one break, which would stay")
    return list(block[first : last + 1]), _TOGETHER


def _is_local(node: ast.expr, context: Context) -> bool:
    """Whether an operand is a variable of the function, and would have to be handed over."""
    own = _names(context.info.node, ast.Store)
    own |= {a.arg for a in walk(context.info.node.args) if isinstance(a, ast.arg)}
    return not isinstance(node, (ast.Name, ast.Attribute)) or (
        isinstance(node, ast.Name) and node.id in own
    )


def _forks(node: ast.AST, context: Context) -> bool:
    """`with torch.random.fork_rng():`, inside of which nothing is traced."""
    if not isinstance(node, ast.With):
        return False
    calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
    return any(called(call, context.analysis) in _FORKS for call in calls)


def _last_use(statement: ast.Assign, block: Sequence[ast.stmt], first: int) -> int:
    """The position of the last statement of a block that uses what a statement makes."""
    names = {n.id for t in statement.targets for n in walk(t) if isinstance(n, ast.Name)}
    used = [i for i, s in enumerate(block) if i > first and names & _names(s, ast.Load)]
    return max(used, default=first)


def _work_around(statements: Sequence[ast.stmt], context: Context) -> bool:
    """Whether the function computes with tensors outside of some statements."""
    inside = {id(n) for s in statements for n in walk(s)}
    operations = [
        n
        for n in walk(context.info.node)
        if isinstance(n, (ast.Call, ast.BinOp))
        and id(n) not in inside
        and (value := context.analysis.values.get(n)) is not None
        and value.kinds & (Kind.TENSOR | Kind.MAYBE)
    ]
    return len(operations) > 1


def _check_stays(statements: Sequence[ast.stmt], context: Context) -> None:
    for statement in statements:
        inner = list(walk(statement))
        for node in inner:
            if isinstance(node, (*_LEAVING, *_DEFINING)):
                raise NotApplicable("not-outlined", "it leaves the function, or defines something")
            if isinstance(node, (ast.Break, ast.Continue)) and not in_loop_of(node, inner):
                raise NotApplicable("not-outlined", "it leaves or continues a loop")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id == "super":
                    raise NotApplicable("not-outlined", "`super()` belongs to its method")
    if calls_layers(statements, context.analysis, context.facts, set()):
        raise NotApplicable("not-outlined", "it calls layers, which are compiled by themselves")
    view = context.view
    if not (view.starts_line(statements[0]) and view.ends_line(statements[-1])):
        raise NotApplicable("not-outlined", "it shares its line with other code")
    check_strings(statements[0], statements[-1], view)


def _interface(statements: Sequence[ast.stmt], context: Context) -> tuple[list[str], list[str]]:
    """The names that go in and come out.

    Raises:
        Refused: for a name that may have no value.
    """
    before = context.analysis.before[statements[0]]
    live = context.liveness.after.get(statements[-1], frozenset()) | context.liveness.captured
    bound = {n for s in statements for n in _names(s, ast.Store)}
    sure = _surely_bound(statements)
    results = sorted(bound & live)
    for name in results:
        if name not in sure and name not in before:
            raise Refused("undefined-after-if", f"`{name}` may have no value afterwards")
    read = {n for s in statements for n in _names(s, ast.Load)}
    read |= {n for n in results if n not in sure}
    if lost := sorted(read & defined(context.info.node)):
        raise Refused("closes-over", f"`{lost[0]}` is defined inside of the function")
    parameters = [a.arg for a in walk(context.info.node.args) if isinstance(a, ast.arg)]
    order = [*parameters, *before]
    given = [n for n in dict.fromkeys(order) if n in read and n in before and "." not in n]
    own = _names(context.info.node, ast.Store) | set(parameters)
    for name in given:
        if name in own and before[name].unbound:
            raise Refused(
                "unbound-before", f"`{name}` may have no value yet, and would be handed over"
            )
    return [n for n in given if n in own], results


def _surely_bound(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that are bound whatever happens; a `with` may only swallow exceptions if it says so."""
    found: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.Assign):
            found |= {t.id for t in statement.targets if isinstance(t, ast.Name)}
        elif isinstance(statement, ast.With):
            if not any("suppress" in ast.unparse(item) for item in statement.items):
                found |= _surely_bound(statement.body)
    return found


def _check_crossing(
    statements: Sequence[ast.stmt], given: list[str], results: list[str], context: Context
) -> None:
    """Only tensors may come back: a graph is compiled again for every other number that it is given.

    Raises:
        Refused: naming what would come back.
    """
    analysis = context.analysis
    block = block_of(statements[-1], context.info.module)
    following = block[block.index(statements[-1]) + 1 :]
    after = analysis.before.get(following[0], {}) if following else {}
    for name in results:
        value = after.get(name)
        if value is None or not value.kinds & (Kind.TENSOR | Kind.MAYBE):
            raise Refused("numbers-cross", f"`{name}` is no tensor, and each value gets a graph")
    changed = {
        root
        for target, _ in effects(statements, analysis, context.facts).mutated
        if (root := ast.unparse(target).partition(".")[0].partition("[")[0]) in given
    }
    before = analysis.before[statements[0]]
    for name in sorted(changed):
        if before[name].kinds & (Kind.OBJECT | Kind.UNKNOWN):
            raise Refused("numbers-cross", f"`{name}` is filled, and each content gets a graph")


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    found = {n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}
    if context is ast.Load:
        targets = [n.target for n in walk(node) if isinstance(n, ast.AugAssign)]
        found |= {t.id for t in targets if isinstance(t, ast.Name)}
    return found


def _edits(
    statements: Sequence[ast.stmt], given: list[str], results: list[str], context: Context
) -> tuple[Edit, ...]:
    view, node, unit = context.view, context.info.node, context.unit
    indent, inner = view.indent(node), view.indent(statements[0])
    torch = context.torch(node.body[0])
    owner = context.info.owner
    arguments = node.args.args
    receiver = arguments[0].arg if owner is not None and arguments else ""
    if owner is not None and (node.decorator_list or not receiver):
        raise NotApplicable("not-outlined", "the method is decorated")
    name = name_beside("in_python", context)
    start = view.line_start(view.start(statements[0]))
    end = view.line_end(view.end(statements[-1]))
    text = view.source.text[start:end].rstrip("\n")
    moved = "\n".join(line.removeprefix(inner) for line in text.split("\n"))
    names = [n for n in given if n != receiver]
    head = layout.call(
        f"def {name}", [*([receiver] if receiver else []), *names], width=90, unit=unit
    )
    back = f"\nreturn {', '.join(results)}" if results else ""
    body = layout.indent(f"{moved}{back}", unit)
    traced = calls_functions(statements, context.analysis, context.facts)
    mark = f"@{torch}.compiler.disable{'(recursive=False)' if traced else ''}"
    made = layout.indent(f"{mark}\n{head}:\n{body}", indent)
    called_as = f"{receiver}.{name}" if receiver else name
    call = layout.call(called_as, names, width=90, unit=unit)
    target = f"{', '.join(results)} = " if results else ""
    at = view.line_start(min([view.start(node), *(view.start(d) - 1 for d in node.decorator_list)]))
    gap = "\n\n" if receiver else "\n\n\n"
    return (
        Edit(at, at, f"{made}{gap}"),
        Edit(
            start, end, f"{layout.indent(f'{target}{call}', inner)}{_rest(view.source.text, end)}"
        ),
    )


def _rest(text: str, end: int) -> str:
    """The end of the last line, if it is part of what is replaced."""
    return "\n" if text[end - 1 : end] == "\n" else ""


TRANSFORM = Transform(
    name="outline",
    codes=tuple(code for code in DIAGNOSES if code != DISABLED_FUNCTION.code),
    summary="move what cannot be traced into a function of its own",
    doc=__doc__ or "",
    propose=propose,
    rank=97,
    lessens=True,
)
