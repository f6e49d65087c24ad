"""Writes a loop that runs as long as a tensor says with `while_loop`.

The compiled path becomes `torch._higher_order_ops.while_loop`: a function for the test, one for a
round, and the tensors that a round hands to the next one. Python counters are carried as tensors. A
`break` or `continue` inside of the loop becomes a flag: what follows it in the round is computed and
kept only where the flag is down. An `if` on a tensor that gives values to names becomes `where`.

Before:

    def forward(self, x: torch.Tensor):
        while x.abs().sum() > self.limit:
            x = x * 0.5
        return x

After:

    def forward(self, x: torch.Tensor):
        if torch.compiler.is_compiling() and not x.requires_grad:

            def cond_fn(x):
                return x.abs().sum() > self.limit

            def body_fn(x):
                x = x * 0.5
                return (x,)

            (x,) = torch._higher_order_ops.while_loop(cond_fn, body_fn, (x,))
        else:
            while x.abs().sum() > self.limit:
                x = x * 0.5
        return x

Every round has to give tensors of the shape, dtype and strides that it got; if one does not, compiling
fails. Where gradients would pass through the loop it is left as it is. What a round changes in place,
prints or stores, and a counter that is used as a Python number, are reasons to leave a loop alone, as
are attributes of one object that are set before and after it, since Dynamo would lose the later ones.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Leaf, Negated, NotApplicable, Refused, data_kind
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.codegen import layout
from gbfix.codegen.blocks import Changes, copy_statements
from gbfix.codegen.expressions import flat
from gbfix.codegen.predicates import Renderer, single
from gbfix.diagnoses import LOOP_EXIT, TENSOR_LOOP
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.loops import Loop, read_choice, read_loop
from gbfix.lowering.lost_stores import check_stores
from gbfix.lowering.placement import beside_all, width_for
from gbfix.lowering.shared_operands import copies_needed


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer `while_loop` for a loop.

    Raises:
        Refused: for a loop that is more than straight code with one exit.
    """
    node = _loop_of(site, context)
    loop = read_loop(node, context.analysis, context.facts, context.liveness)
    check_stores((node, node), (), context.analysis, context.facts, "while_loop")
    torch = context.torch(node)
    body = _Writer(loop, torch, context, _copies(loop, context)).text()
    without = _without_gradients(loop, torch, context)
    edits = beside_all([node], body, torch, (without,), context)
    reason = (
        "every round must give one shape, dtype and stride, which could not be proven; if one does "
        "not, compiling fails"
    )
    return Fix(
        "while-loop",
        Safety.REVIEW,
        reason,
        edits,
        context.needs_torch,
        whole=True,
        sometimes=without.endswith("is_grad_enabled()"),
    )


def _copies(loop: Loop, context: Context) -> frozenset[str]:
    """Carried tensors that go in as copies, since `while_loop` takes no two inputs of one storage.

    Raises:
        Refused: for a tensor that is not carried.
    """
    parts: list[ast.AST] = [*loop.before, *loop.after]
    parts += [t for t in (loop.test, loop.exit and loop.exit.test) if t is not None]
    copies = copies_needed(parts, loop.tensors, loop.node, context.analysis)
    for name in copies:
        if name not in loop.tensors:
            raise Refused("shared-storage", f"the loop reads `{name}` and another view of it")
    return frozenset(copies)


def _loop_of(site: BreakSite, context: Context) -> ast.For | ast.While:
    if isinstance(site.node, ast.While):
        return site.node
    parent = context.info.module.parents.get(site.node)
    if isinstance(site.node, ast.If) and isinstance(parent, (ast.For, ast.While)):
        if site.node in parent.body:
            return parent
    raise NotApplicable("no-loop", "this is not the exit of a loop")


def _without_gradients(loop: Loop, torch: str, context: Context) -> str:
    """The condition under which no gradient is to pass through the loop.

    On torch 2.13 gradients through `while_loop` are wrong where no round runs, and older versions have
    none.
    """
    names = dict.fromkeys(loop.tensors)
    parts: list[ast.AST] = [*loop.before, *loop.after]
    parts += [t for t in (loop.test, loop.exit and loop.exit.test) if t is not None]
    known = context.analysis.before[loop.node]
    for node in (n for part in parts for n in walk(part)):
        value = context.analysis.values.get(node)
        if isinstance(node, ast.Attribute) and value is not None:
            base = context.analysis.values.get(node.value)
            if base is not None and not base.kinds & (Kind.TENSOR | Kind.REFERENCE):
                if value.kinds & (Kind.TENSOR | Kind.MODULE | Kind.MAYBE):
                    return f"not {torch}.is_grad_enabled()"
        elif isinstance(node, ast.Name) and node.id in known and isinstance(node.ctx, ast.Load):
            if known[node.id].kinds & Kind.MODULE and node.id != "self":
                return f"not {torch}.is_grad_enabled()"
            own = {n.id for s in parts for n in walk(s) if isinstance(n, ast.Name)
                   and isinstance(n.ctx, ast.Store)} - set(loop.tensors)  # fmt: skip
            if known[node.id].tensor and node.id not in own:
                names.setdefault(node.id)
    if len(names) == 1:
        return f"not {next(iter(names))}.requires_grad"
    return f"not any(t.requires_grad for t in ({', '.join(names)}))"


class _Writer:
    def __init__(self, loop: Loop, torch: str, context: Context, copies: frozenset[str]) -> None:
        self.loop = loop
        self.copies = copies
        self.torch = torch
        self.context = context
        self.view = context.view
        self.flag = context.names.take("done") if loop.leaves and not self._leads else ""
        # `_` says that nobody reads it, which is not so any more.
        named = loop.counter.name if loop.counter else ""
        self.counter = context.names.take("step") if named == "_" else named
        self.cond, self.body = context.names.take("cond_fn"), context.names.take("body_fn")

    @property
    def _leads(self) -> bool:
        """Whether the exit is the first thing of a round, and so belongs to the test."""
        return self.loop.leaves and not self.loop.before

    @property
    def carried(self) -> list[str]:
        """All names that a round gets and gives."""
        loop = self.loop
        counter = [self.counter] if loop.counter else []
        return [*counter, *([self.flag] if self.flag else []), *loop.numbers, *loop.tensors]

    def text(self) -> str:
        """The compiled path."""
        unit, names = self.context.unit, ", ".join(self.carried)
        one = "," if len(self.carried) == 1 else ""
        test = layout.indent(f"return {self._test()}\n", unit)
        round_ = layout.indent(self._round() + self._returned(), unit)
        width = width_for(self.context, self.loop.node)
        loop = f"{self.torch}._higher_order_ops.while_loop"
        given = f"({', '.join(self._initial())}{one})"
        kept = [n if n in self.loop.later else "_" for n in self.carried]
        target = f"({kept[0]},)" if one else ", ".join(kept)
        call = layout.call(
            f"{target} = {loop}", [self.cond, self.body, given], width=width, unit=unit
        )
        return f"\ndef {self.cond}({names}):\n{test}\ndef {self.body}({names}):\n{round_}\n{call}"

    def _initial(self) -> list[str]:
        loop = self.loop
        device = f"device={loop.tensors[0]}.device"
        made: list[str] = []
        if loop.counter:
            made.append(f"{self.torch}.tensor({loop.counter.start}, {device})")
        if self.flag:
            made.append(f"{self.torch}.tensor(False, {device})")
        made += [f"{self.torch}.tensor({n}, {device})" for n in loop.numbers]
        return [*made, *(f"{n}.clone()" if n in self.copies else n for n in loop.tensors)]

    def _test(self) -> str:
        parts: list[str] = []
        loop = self.loop
        if loop.counter:
            parts.append(f"{self.counter} < {loop.counter.stop}")
        if self.flag:
            parts.append(f"~{self.flag}")
        if loop.test is not None:
            parts.append(self._predicate(loop.test))
        if self._leads and loop.exit is not None:
            parts.append(self._negated(loop.exit.test))
        if len(parts) == 1:
            return parts[0]
        return " & ".join(p if p.startswith("~") else f"({p})" for p in parts)

    def _predicate(self, test: ast.expr) -> str:
        """A test as one tensor of type bool."""
        if isinstance(test, ast.BoolOp):
            symbol = " & " if isinstance(test.op, ast.And) else " | "
            return symbol.join(f"({self._predicate(v)})" for v in test.values)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._negated(test.operand)
        analysis = self.context.analysis
        kind, value = data_kind(test, analysis), analysis.values.get(test)
        if kind is None or value is None:
            counted = {*self.loop.numbers, *([self.loop.counter.name] if self.loop.counter else [])}
            names = {n.id for n in walk(test) if isinstance(n, ast.Name)}
            if isinstance(test, ast.Compare) and len(test.ops) == 1 and names & counted:
                return flat(self.view, test)
            raise Refused("static-in-loop", f"`{ast.unparse(test)}` is no tensor test")
        if kind == "possible":
            raise Refused("unknown-kind", f"`{ast.unparse(test)}` is not known to be a tensor")
        return self._rendered(Leaf(test, value, kind == "scalar"))

    def _rendered(self, predicate: Leaf | Negated) -> str:
        rendered = single(Renderer(self.view, self.context.analysis, self.torch).render(predicate))
        return rendered.text if rendered.boolean else f"{rendered.operand}.bool()"

    def _negated(self, test: ast.expr) -> str:
        """The opposite of a test as one tensor of type bool."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._predicate(test.operand)
        value = self.context.analysis.values.get(test)
        kind = data_kind(test, self.context.analysis)
        if value is not None and kind in {"tensor", "scalar"} and not isinstance(test, ast.BoolOp):
            return self._rendered(Negated(Leaf(test, value, kind == "scalar")))
        return f"~({self._predicate(test)})"

    def _round(self) -> str:
        loop = self.loop
        text = self._copied(loop.before)
        if loop.exit is not None and not self._leads:
            flag = self.flag or self.context.names.take("skip")
            text += f"{flag} = {self._predicate(loop.exit.test)}\n"
            for statement in loop.after:
                text += self._masked(statement, flag)
            return text
        return text + self._copied(loop.after)

    def _copied(self, statements: tuple[ast.stmt, ...]) -> str:
        at = next((i for i, s in enumerate(statements) if isinstance(s, ast.If)), None)
        if at is not None:
            chosen = self._chosen(statements[at])
            return self._copied(statements[:at]) + chosen + self._copied(statements[at + 1 :])
        if not statements:
            return ""
        names = frozenset(
            s.target.id
            for s in statements
            if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name)
        )
        changes = Changes(out_of_place=names)
        return copy_statements(self.view, statements, changes, self.context.unit)

    def _chosen(self, statement: ast.stmt) -> str:
        """An `if` in a round: both arms are computed, and each name takes one of its values."""
        choice = read_choice(statement)
        assert choice is not None
        flag = self.context.names.take("pred")
        results = []
        for name, values in choice.values.items():
            yes, no = (flat(self.view, v) if v is not None else name for v in values)
            results.append(f"{self.torch}.where({flag}, {yes}, {no})")
        test = f"{flag} = {self._predicate(choice.test)}\n"
        return test + f"{', '.join(choice.values)} = {', '.join(results)}\n"

    def _masked(self, statement: ast.stmt, flag: str) -> str:
        """A statement after the exit: a carried name keeps its value where the flag is up."""
        text = self._copied((statement,))
        carried = {*self.loop.numbers, *self.loop.tensors}
        stored = [n.id for n in walk(statement) if isinstance(n, ast.Name)
                  and isinstance(n.ctx, ast.Store)]  # fmt: skip
        if not carried & set(stored):
            return text
        if len(stored) != 1:
            raise Refused("loop-body", "several names are given values at once after the exit")
        name = stored[0]
        value = text.partition(" = ")[2].rstrip("\n")
        if "\n" in value:
            raise Refused("loop-body", "a value after the exit takes several lines")
        return f"{name} = {self.torch}.where({flag}, {name}, {value})\n"

    def _returned(self) -> str:
        results: list[str] = []
        for name in self.carried:
            if self.loop.counter is not None and name == self.counter:
                results.append(f"{name} + 1")
            elif name in self.loop.tensors and not self._is_fresh(name):
                results.append(f"{name}.clone()")
            else:
                results.append(name)
        return (
            f"return ({results[0]},)\n" if len(results) == 1 else f"return {', '.join(results)}\n"
        )

    def _is_fresh(self, name: str) -> bool:
        """Whether a round ends with a new tensor under a name, which no other name has."""
        for statement in reversed((*self.loop.before, *self.loop.after)):
            stored = [n for n in walk(statement) if isinstance(n, ast.Name)
                      and isinstance(n.ctx, ast.Store) and n.id == name]  # fmt: skip
            if not stored:
                continue
            if isinstance(statement, (ast.AugAssign, ast.If)) or (
                statement in self.loop.after and (self.loop.exit is not None and not self._leads)
            ):
                return True
            assert isinstance(statement, ast.Assign)
            value = self.context.analysis.values.get(statement.value)
            single_name = isinstance(statement.targets[0], ast.Name)
            # A name bound from this one has a copy made of its own.
            if isinstance(statement.value, ast.Name) and statement.value.id in self.carried:
                return False
            return single_name and value is not None and value.unshared
        return False


TRANSFORM = Transform(
    name="while-loop",
    codes=(TENSOR_LOOP.code, LOOP_EXIT.code),
    summary="write a loop on tensor data with while_loop",
    doc=__doc__ or "",
    propose=propose,
    rank=40,
)
