"""In-place updates under a condition that is a tensor: each is computed, and stored where it holds.

`p.sub_(lr * g)` becomes `p.copy_(torch.where(holds, p.sub(lr * g), p))`, in the loops and static
branches in which it stands, and in functions of the same module that are called for nothing but
their updates, which are written out. Knows statements, nothing of the test that decides.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gbfix.analysis.conditions import Refused, data_kind, leaves
from gbfix.analysis.effects import effects
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flatten
from gbfix.codegen.layout import indent
from gbfix.fixes import Context
from gbfix.lowering.gradients import gradients_are_off
from gbfix.lowering.owned import is_own
from gbfix.lowering.stores import has_value_form, value_of
from gbfix.lowering.unread import is_never_read

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip
_MODES = frozenset({"no_grad", "enable_grad"})
_DEEPEST = 3


@dataclass(frozen=True)
class _Scope:
    """The function that statements stand in, and what its names are called where they are written."""

    analysis: Analysis
    renamed: Mapping[str, str]
    depth: int = 0


@dataclass
class MaskedSteps:
    """Writes statements so that their updates only count where a predicate holds.

    `stored` counts the updates that were written; `kept` names what is updated and held by an object,
    with gradients recorded. `unset` names attributes that are not set, since nothing reads them.
    """

    context: Context
    torch: str
    stored: int = field(default=0, init=False)
    kept: list[str] = field(default_factory=list, init=False)
    unset: list[str] = field(default_factory=list, init=False)
    _inside: set[ast.AST] = field(default_factory=set, init=False)

    def inside(self, statements: Sequence[ast.stmt]) -> None:
        """Tell which statements are written anew, so that the names they alone use are theirs."""
        self._inside = {node for s in statements for node in walk(s)}

    def lines(self, statements: Sequence[ast.stmt], predicate: str) -> list[str]:
        """The statements of an arm.

        Raises:
            Refused: where one does more than update tensors in place.
        """
        return self._block(statements, predicate, _Scope(self.context.analysis, {}))

    def _block(self, statements: Sequence[ast.stmt], predicate: str, scope: _Scope) -> list[str]:
        lines: list[str] = []
        for statement in statements:
            lines += self._statement(statement, predicate, scope)
        return lines

    def _statement(self, statement: ast.stmt, predicate: str, scope: _Scope) -> list[str]:
        if isinstance(statement, ast.Pass):
            return []
        if isinstance(statement, ast.Continue):
            return ["continue"]
        if isinstance(statement, (ast.For, ast.If, ast.With)):
            return self._compound(statement, predicate, scope)
        if isinstance(statement, ast.Expr):
            if isinstance(statement.value, ast.Constant):
                return []
            return self._expression(statement, predicate, scope)
        if isinstance(statement, ast.AugAssign):
            return [self._augmented(statement, predicate, scope)]
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            return self._assigned(statement, statement.targets[0], predicate, scope)
        raise Refused("statement-in-arm", f"line {statement.lineno} is no update in place")

    def _check(self, nodes: Sequence[ast.AST], scope: _Scope) -> None:
        """What is computed although its result may not count must be harmless."""
        found = effects(nodes, scope.analysis, self.context.facts)
        for text in found.unknown:
            raise Refused("impure-arm", f"the effects of `{text}` in an arm are not known")
        for name in found.attributes:
            raise Refused("sets-attribute", f"an arm sets `{name}`")
        for node in found.output:
            raise Refused("output-in-arm", f"`{ast.unparse(node)}` in an arm is output")
        for node in found.random:
            raise Refused("random-in-arm", f"`{ast.unparse(node)}` draws random numbers in an arm")
        for node in found.stateful:
            raise Refused("stateful-layer", f"`{ast.unparse(node)}` changes its own state")
        for node in found.scalar:
            raise Refused("scalar-in-arm", f"`{ast.unparse(node)}` in an arm reads a Python value")
        for node in (*found.partial, *found.dynamic):
            raise Refused("partial-arm", f"`{ast.unparse(node)}` in an arm may fail on some data")
        for target, _ in found.mutated:
            raise Refused("mutates-operand", f"`{ast.unparse(target)}` is changed in an expression")

    def _compound(
        self, statement: ast.For | ast.If | ast.With, predicate: str, scope: _Scope
    ) -> list[str]:
        unit = self.context.unit
        if isinstance(statement, ast.For):
            value = scope.analysis.values.get(statement.iter)
            if statement.orelse or value is None or value.tensor:
                raise Refused("statement-in-arm", "an arm loops over a tensor, or has `else`")
            self._check([statement.iter], scope)
            self._check_fresh(statement.target, scope)
            head = (
                f"for {self._text(statement.target, scope)} in {self._text(statement.iter, scope)}:"
            )
            body = self._block(statement.body, predicate, scope)
        elif isinstance(statement, ast.With):
            names = [ast.unparse(i.context_expr) for i in statement.items]
            if not {_last(n) for n in names} <= _MODES or any(
                i.optional_vars is not None for i in statement.items
            ):
                raise Refused("statement-in-arm", f"an arm enters `{names[0]}`")
            head = f"with {', '.join(names)}:"
            body = self._block(statement.body, predicate, scope)
        else:
            if any(data_kind(leaf, scope.analysis) for leaf in leaves(statement.test)):
                raise Refused("break-in-arm", "an arm branches on a tensor itself")
            self._check([statement.test], scope)
            head = f"if {self._text(statement.test, scope)}:"
            body = self._block(statement.body, predicate, scope)
            if statement.orelse:
                rest = self._block(statement.orelse, predicate, scope)
                made = [head, *_indented(body, unit)]
                return [*made, "else:", *_indented(rest, unit)] if rest else made
        return [head, *_indented(body, unit)]

    def _expression(self, statement: ast.Expr, predicate: str, scope: _Scope) -> list[str]:
        steps: list[ast.Call] = []
        node = statement.value
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if not has_value_form(node):
                break
            steps.insert(0, node)
            node = node.func.value
        if not steps:
            return self._called(statement.value, predicate, scope)
        self._check([a for s in steps for a in (*s.args, *(k.value for k in s.keywords))], scope)
        self._check_place(node, scope)
        place = self._text(node, scope)
        given = [a for s in steps for a in (*s.args, *(k.value for k in s.keywords))]
        own = self._is_own(node, statement, scope)
        start = place
        if not own and not self._is_linear(steps, scope):
            if not gradients_are_off(statement, scope.analysis.info):
                start = f"{place}.clone()"  # what autograd keeps of it may not change
        value = value_of(start, steps, lambda n: self._text(n, scope), self.torch, place)
        last = steps[-1].func
        assert isinstance(last, ast.Attribute)
        if last.attr == "copy_":
            copied = scope.analysis.values.get(steps[-1].args[0])
            mine = scope.analysis.values.get(node)
            if copied is None or not copied.tensor:
                raise Refused("value-unproven", f"`{value}` is not proven to be a tensor")
            if mine is None or mine.dtype != copied.dtype:
                value = f"{_operand(value)}.to({place}.dtype)"
            given = []
        self._keep(node, statement, scope)
        if own:
            return [self._rebound(node, place, value, given, predicate, scope)]
        return [self._stored(place, value, predicate)]

    def _augmented(self, statement: ast.AugAssign, predicate: str, scope: _Scope) -> str:
        symbol = _OPERATORS.get(type(statement.op))
        value = scope.analysis.values.get(statement.target)
        if symbol is None or not isinstance(statement.target, ast.Name):
            raise Refused("statement-in-arm", f"line {statement.lineno} is no update in place")
        if value is None or not value.tensor:
            raise Refused("unknown-result", f"`{statement.target.id}` is not proven to be a tensor")
        self._check([statement.value], scope)
        place = self._text(statement.target, scope)
        right = self._text(statement.value, scope)
        loose = not isinstance(statement.value, (ast.Name, ast.Attribute, ast.Call, ast.Constant))
        right = f"({right})" if loose else right
        text = f"{place} {symbol} {right}"
        if self._is_own(statement.target, statement, scope):
            given = [statement.value]
            return self._rebound(statement.target, place, text, given, predicate, scope)
        factor = scope.analysis.values.get(statement.value)
        linear = isinstance(statement.op, (ast.Add, ast.Sub)) or (
            factor is not None and factor.static
        )
        if not linear and not gradients_are_off(statement, scope.analysis.info):
            text = f"{place}.clone() {symbol} {right}"
        return self._stored(place, text, predicate)

    def _assigned(
        self, statement: ast.Assign, target: ast.expr, predicate: str, scope: _Scope
    ) -> list[str]:
        if isinstance(target, ast.Subscript):
            return self._part(statement, target, predicate, scope)
        if isinstance(target, ast.Attribute) and isinstance(statement.value, ast.Constant):
            value = scope.analysis.values.get(target.value)
            if is_never_read(target.attr, value, self.context.facts):
                self.unset.append(self._text(target, scope))
                return []
        if not isinstance(target, ast.Name):
            raise Refused("statement-in-arm", f"an arm assigns `{ast.unparse(target)}`")
        self._check_fresh(target, scope)
        self._check([statement.value], scope)
        return [f"{self._text(target, scope)} = {self._text(statement.value, scope)}"]

    def _part(
        self, statement: ast.Assign, target: ast.Subscript, predicate: str, scope: _Scope
    ) -> list[str]:
        """A part of a tensor that is assigned to."""
        base = scope.analysis.values.get(target.value)
        given = scope.analysis.values.get(statement.value)
        if base is None or not base.tensor or dotted(target.value) is None:
            raise Refused("statement-in-arm", f"an arm assigns `{ast.unparse(target)}`")
        mask = scope.analysis.values.get(target.slice)
        if mask is not None and mask.tensor and mask.boolean and given is not None:
            if not given.only(Kind.STATIC):
                raise Refused("mask-index", f"`{ast.unparse(target)}` is written by a mask as well")
            self._check([statement.value, target.slice], scope)
            self.stored += 1
            index = _operand(self._text(target.slice, scope))
            place = f"{self._text(target.value, scope)}[{index} & {predicate}]"
            return [f"{place} = {self._text(statement.value, scope)}"]
        for part in target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]:
            self._check_index(part, scope)
        self._check([statement.value], scope)
        place, value = self._text(target, scope), self._text(statement.value, scope)
        if given is None or not (given.tensor or given.static):
            raise Refused("value-unproven", f"`{value}` is not proven to be a tensor or a number")
        if given.tensor and given.dtype != base.dtype:
            value = f"{_operand(value)}.to({self._text(target.value, scope)}.dtype)"
        whole = isinstance(statement.value, ast.Constant) and type(statement.value.value) is int
        if not given.tensor and not (base.floating or whole):
            raise Refused("dtype-unproven", f"`{place}` is not proven to be of a floating dtype")
        self.stored += 1
        lines: list[str] = []
        self._keep(target.value, statement, scope)
        if self._is_own(target.value, statement, scope):  # what autograd keeps of it may not change
            name = self._text(target.value, scope)
            lines.append(f"{name} = {name}.clone()")
        return [*lines, f"{place} = {self.torch}.where({predicate}, {value}, {place})"]

    def _keep(self, node: ast.expr, statement: ast.stmt, scope: _Scope) -> None:
        """Note what is updated, if an object holds it and its graph."""
        name = ast.unparse(node)
        if "." in name and not name.endswith(".data"):
            if not gradients_are_off(statement, scope.analysis.info):
                self.kept.append(name)

    def _check_index(self, part: ast.expr, scope: _Scope) -> None:
        bounds = [part.lower, part.upper, part.step] if isinstance(part, ast.Slice) else [part]
        for bound in bounds:
            value = scope.analysis.values.get(bound) if bound is not None else None
            if bound is not None and not isinstance(bound, (ast.Constant, ast.UnaryOp)):
                if value is None or not value.only(Kind.STATIC | Kind.NONE):
                    raise Refused("impure-target", f"`{ast.unparse(bound)}` may read a tensor")

    def _is_own(self, node: ast.expr, statement: ast.stmt, scope: _Scope) -> bool:
        """Whether a local name is the only way to what is updated, so that it may be rebound."""
        if scope.depth or not isinstance(node, ast.Name):
            return False
        return is_own(node.id, statement, self.context)

    def _is_linear(self, steps: Sequence[ast.Call], scope: _Scope) -> bool:
        """Whether no derivative of the steps needs what was there before."""
        for step in steps:
            assert isinstance(step.func, ast.Attribute)
            values = [scope.analysis.values.get(a) for a in step.args]
            numbers = all(v is not None and v.static for v in values)
            if step.func.attr not in {"add_", "sub_", "copy_", "fill_", "zero_"} and not (
                step.func.attr in {"mul_", "div_"} and numbers
            ):
                return False
        return True

    def _rebound(
        self,
        node: ast.expr,
        place: str,
        value: str,
        given: Sequence[ast.expr],
        predicate: str,
        scope: _Scope,
    ) -> str:
        self.stored += 1
        mine = scope.analysis.values.get(node)
        values = [scope.analysis.values.get(a) for a in given]
        same = mine is not None and all(
            v is not None and ((v.tensor and v.dtype == mine.dtype) or (v.static and mine.floating))
            for v in values
        )
        cast = "" if same else f".to({place}.dtype)"
        return f"{place} = {self.torch}.where({predicate}, {value}, {place}){cast}"

    def _stored(self, place: str, value: str, predicate: str) -> str:
        self.stored += 1
        return f"{place}.copy_({self.torch}.where({predicate}, {value}, {place}))"

    def _check_place(self, node: ast.expr, scope: _Scope) -> None:
        """Whether what is updated can be named twice, and is what stays."""
        base = node
        while isinstance(base, ast.Subscript):
            index = scope.analysis.values.get(base.slice)
            if not isinstance(base.slice, ast.Constant) and (index is None or not index.static):
                raise Refused("impure-target", f"`{ast.unparse(node)}` may be a copy")
            base = base.value
        if dotted(base) is None:
            raise Refused("impure-target", f"`{ast.unparse(node)}` would be evaluated twice")
        value = scope.analysis.values.get(node)
        if value is not None and not value.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN):
            raise Refused("unknown-result", f"`{ast.unparse(node)}` is not proven to be a tensor")

    def _check_fresh(self, target: ast.expr, scope: _Scope) -> None:
        """A name that the arm binds may hold nothing that is read elsewhere."""
        if scope.depth:
            return  # the names of a called function are new here
        for node in walk(target):
            if isinstance(node, ast.Name) and any(
                isinstance(n, ast.Name) and n.id == node.id and n not in self._inside
                for n in walk(scope.analysis.info.node)
            ):
                raise Refused("rebinds-name", f"an arm binds `{node.id}`, which is used elsewhere")

    def _called(self, node: ast.expr, predicate: str, scope: _Scope) -> list[str]:
        """The statements of a function that is called for its updates."""
        call = node
        function = scope.analysis.values.get(call.func) if isinstance(call, ast.Call) else None
        name = function.reference if function is not None else None
        info = self.context.facts.project.function_info(name) if name is not None else None
        text = ast.unparse(call.func if isinstance(call, ast.Call) else call)
        if info is None or not isinstance(call, ast.Call):
            raise Refused("impure-arm", f"what `{text}` does under a tensor test cannot be undone")
        analysis = self.context.facts.analysis(info)
        decorators = [ast.unparse(d) for d in info.node.decorator_list]
        plain = isinstance(info.node, ast.FunctionDef) and all(
            _last(d) in _MODES for d in decorators
        )
        if analysis is None or not plain or info.module is not self.context.info.module:
            raise Refused("call-in-arm", f"`{text}` cannot be written out here")
        if scope.depth == _DEEPEST or any(
            isinstance(n, (ast.Return, ast.Global, ast.Nonlocal, ast.FunctionDef, ast.Lambda))
            for s in info.node.body
            for n in walk(s)
        ):
            raise Refused("call-in-arm", f"`{text}` cannot be written out here")
        self._check([*call.args, *(k.value for k in call.keywords)], scope)
        renamed, lead = self._bound(call, info, scope)
        inner = _Scope(analysis, renamed, scope.depth + 1)
        body = self._block(info.node.body, predicate, inner)
        for decorator in reversed(decorators):
            entered = decorator if decorator.endswith(")") else f"{decorator}()"
            body = [f"with {entered}:", *_indented(body, self.context.unit)]
        return [*lead, *body]

    def _bound(
        self, call: ast.Call, info: FunctionInfo, scope: _Scope
    ) -> tuple[dict[str, str], list[str]]:
        """What the names of a called function are called here, and the arguments that get a name."""
        spec = info.node.args
        parameters = [*spec.posonlyargs, *spec.args]
        given: dict[str, str] = {}
        simple: set[str] = set()
        arguments = list(call.args)
        if info.owner is not None and isinstance(call.func, ast.Attribute):
            arguments.insert(0, call.func.value)
        if spec.vararg or spec.kwarg or any(isinstance(a, ast.Starred) for a in arguments):
            raise Refused("call-in-arm", f"`{info.node.name}` takes any number of arguments")
        pairs = [(p.arg, a) for p, a in zip(parameters, arguments, strict=False)]
        pairs += [(k.arg or "", k.value) for k in call.keywords]
        for parameter, argument in pairs:
            given[parameter] = self._text(argument, scope)
            if isinstance(argument, (ast.Name, ast.Constant)):
                simple.add(parameter)
        defaults = [*zip(reversed(parameters), reversed(spec.defaults), strict=False)]
        defaults += [(p, d) for p, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d]
        for argument_, default in defaults:
            if argument_.arg not in given:
                if not isinstance(default, ast.Constant):
                    raise Refused("call-in-arm", f"`{info.node.name}` has a computed default")
                given[argument_.arg] = ast.unparse(default)
                simple.add(argument_.arg)
        wanted = [p.arg for p in [*parameters, *spec.kwonlyargs]]
        stored = {
            n.id
            for n in walk(info.node)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        if set(given) != set(wanted) or stored & set(wanted):
            raise Refused("call-in-arm", f"`{info.node.name}` cannot be written out here")
        renamed, lead = {}, []
        for parameter in wanted:
            if parameter in simple:
                renamed[parameter] = given[parameter]
            else:
                renamed[parameter] = self.context.names.take(parameter)
                lead.append(f"{renamed[parameter]} = {given[parameter]}")
        renamed |= {name: self.context.names.take(name) for name in sorted(stored)}
        return renamed, lead

    def _text(self, node: ast.expr, scope: _Scope) -> str:
        view = self.context.view
        start = view.start(node)
        text = view.source.text[start : view.end(node)]
        names = [n for n in walk(node) if isinstance(n, ast.Name) and n.id in scope.renamed]
        for name in sorted(names, key=view.start, reverse=True):
            at = view.start(name) - start
            text = text[:at] + scope.renamed[name.id] + text[at + len(name.id) :]
        return flatten(text) if "\n" in text else text


def _last(name: str) -> str:
    return name.removesuffix("()").rsplit(".", 1)[-1]


def _operand(text: str) -> str:
    node = ast.parse(text, mode="eval").body
    bare = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return text if bare else f"({text})"


def _indented(lines: list[str], unit: str) -> list[str]:
    return [indent(line, unit) for line in lines or ["pass"]]
