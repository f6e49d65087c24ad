"""The compiled path of a branch as text: a `torch.cond` with lambdas or functions, or a `torch.where`.

Takes a branch whose hazards have been ruled out and writes the statement that decides its outputs,
at no indentation. Where that statement goes, and what stays around it, is in `placement`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from gbfix.analysis.trees import walk
from gbfix.codegen import layout
from gbfix.codegen.blocks import Changes, copy_statements
from gbfix.codegen.expressions import flat
from gbfix.codegen.fitting import fitted
from gbfix.codegen.predicates import Rendered
from gbfix.fixes import Context
from gbfix.lowering.branch import Branch, Output
from gbfix.lowering.dense_gradients import Replacement, with_replacements
from gbfix.lowering.reads import spared_read
from gbfix.lowering.results import Result, Straight
from gbfix.lowering.stores import value_text

CONTIGUOUS = "contiguous"
"""A copy that must also be contiguous, in the place of a plain True."""
Copy = bool | str
_BARE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


@dataclass
class Writer:
    """Writes the compiled path of one branch.

    `detached` names the attributes that `torch.cond` decides and that take no part in gradients: its
    results require one if anything it reads does, and kept, they would hold on to the graph. `copied`
    names the operands that are handed in as copies, `replacements` what is written for some
    expressions of an arm.
    """

    context: Context
    branch: Branch
    torch: str
    width: int
    operands: tuple[str, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)
    detached: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()
    free: dict[str, str] = field(default_factory=dict)
    copied: frozenset[str] = frozenset()
    replacements: Sequence[Replacement] = ()

    @property
    def unit(self) -> str:
        """One step of indentation."""
        return self.context.unit

    # Results

    def expression(self, result: Result) -> tuple[str, bool]:
        """A result as text, and whether it binds more tightly than any operator."""
        if result.store is not None:
            return value_text(result.store, self.context.view, self.torch), True
        if result.node is None:
            return self.substitute(result.incoming), True
        text = self.substitute(self._without_reads(result.node))
        if result.operator:
            loose = not isinstance(result.node, (*_BARE, ast.Constant))
            value = f"({text})" if loose else text
            return f"{self.substitute(result.incoming)} {result.operator} {value}", False
        return text, isinstance(result.node, _BARE)

    def _without_reads(self, node: ast.expr) -> str:
        """The text of an expression with tensors in the place of `.item()` where that is the same."""
        view, analysis = self.context.view, self.context.analysis
        text = flat(view, node)
        for inner in walk(node):
            tensor = spared_read(inner, analysis)
            if tensor is not None and isinstance(inner, ast.Call):
                single = "" if analysis.values[tensor].zero_dim else ".reshape(())"
                text = text.replace(flat(view, inner), f"{flat(view, tensor)}.detach(){single}")
        return with_replacements(text, self.replacements)

    def cloned(self, result: Result, contiguous: bool = False) -> str:
        """A result copied, so that it shares no storage; contiguous where the other arm's is."""
        text, bare = self.expression(result)
        how = f"memory_format={self.torch}.contiguous_format" if contiguous else ""
        return f"{text}.clone({how})" if bare else f"({text}).clone({how})"

    def substitute(self, text: str) -> str:
        """Attributes that are passed as operands under their local names."""
        for name, local in self.renamed.items():
            text = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w(])", local, text)
        return text

    # Targets

    def targets(self, detached: frozenset[str] = frozenset()) -> tuple[list[str], list[str]]:
        """Assignment targets of the outputs, and the statements that store buffers afterwards."""
        names: list[str] = []
        stores: list[str] = []
        for output in self.branch.outputs:
            tail = ".detach()" if output.name in detached else ""
            if output.call is None and not output.place and not tail:
                names.append(output.name)
                if output.name in self.apart:
                    stores.append(f"{output.name} = {_apart(output.name)}  # a gradient of its own")
                continue
            local = self.free.get(output.name) or self.context.names.take(output.local)
            names.append(local)
            if output.place:
                stores.append(f"{output.place}.copy_({local}{tail})")
            elif output.call is not None:
                stores.append(self._register(output, f"{local}{tail}"))
            else:
                stores.append(f"{output.name} = {local}{tail}")
        return names, stores

    def _register(self, output: Output, local: str) -> str:
        call = output.call
        assert call is not None
        view = self.context.view
        arguments = [flat(view, call.args[0]), local, *(flat(view, a) for a in call.args[2:])]
        arguments += [f"{k.arg}={flat(view, k.value)}" for k in call.keywords if k.arg]
        return layout.call(flat(view, call.func), arguments, width=self.width, unit=self.unit)

    # torch.where

    def where(
        self, predicate: Rendered, arms: tuple[Straight, Straight], *, zero: bool = True
    ) -> str:
        """Statements that select each output with `torch.where`."""
        lines = [self._preparation(), *(self._prelude(a) for a in arms)]
        names, stores = self.targets()
        pairs = list(zip(arms[0].results, arms[1].results, strict=True))
        condition = predicate.text if predicate.boolean else f"{predicate.operand} != 0"
        if len(pairs) > 1:
            local = self.context.names.take("pred")
            lines.append(f"{local} = {condition}")
            condition = local
        calls = [
            layout.call(
                f"{self.torch}.where",
                [condition, self.expression(a)[0], self.expression(b)[0]],
                width=self.width - (len(self._giving()) if self.branch.returns else len(name) + 3),
                unit=self.unit,
            )
            for (a, b), name in zip(pairs, names or ["return"] * len(pairs), strict=True)
        ]
        if self.branch.returns:
            is_tuple = isinstance(self.branch.arms[0].returned, ast.Tuple)
            lines.append(
                f"{self._giving()}{', '.join(calls)}"
                + ("," if is_tuple and len(calls) == 1 else "")
            )
        elif len(calls) == 1 or not self._crossed(pairs):
            lines += [f"{n} = {c}" for n, c in zip(names, calls, strict=True)]
        else:
            lines.append(f"{', '.join(names)} = {', '.join(calls)}")
        if self.branch.leaves:
            stores.append(self.branch.leaves)
        return "\n".join([*(line for line in lines if line), *stores])

    def _crossed(self, pairs: Sequence[tuple[Result, Result]]) -> bool:
        """Whether a later result reads an earlier output, and so must not see its new value."""
        earlier: set[str] = set()
        for output, pair in zip(self.branch.outputs, pairs, strict=True):
            for result in pair:
                texts = {self.expression(result)[0]}
                if any(
                    re.search(rf"(?<![\w.]){re.escape(n)}(?!\w)", t) for t in texts for n in earlier
                ):
                    return True
            earlier.add(output.name)
        return False

    def _preparation(self) -> str:
        statements = [s for arm in self.branch.arms for s in arm.preparation]
        if not statements:
            return ""
        return copy_statements(self.context.view, statements, Changes(), self.unit).rstrip("\n")

    def _prelude(self, arm: Straight) -> str:
        if not arm.prelude:
            return ""
        return copy_statements(self.context.view, arm.prelude, Changes(), self.unit).rstrip("\n")

    # torch.cond

    def cond(
        self,
        predicate: Rendered,
        arms: tuple[Straight, Straight],
        clones: list[list[Copy]],
    ) -> str:
        """A `torch.cond` of two lambdas; of two functions if a lambda would be too long."""
        parameters, operands = self._operands()
        lines = [self._preparation(), *(self._prelude(a) for a in arms)]
        bodies = [self._body(arm, clone) for arm, clone in zip(arms, clones, strict=True)]
        head, stores, tail = self._head()
        colon = f" {', '.join(parameters)}:" if parameters else ":"
        lambdas = [f"lambda{colon} {body}" for body in bodies]
        if any(
            "\n" in text or not layout.fits(f"{self.unit}{text},", self.width) for text in lambdas
        ):
            functions = [
                self._function(name, parameters, f"return {body}")
                for name, body in zip(self._function_names(), bodies, strict=True)
            ]
            return self._with_functions(lines, functions, head, predicate, operands, stores, tail)
        call = self._call(head, [predicate.text, *lambdas], operands, tail)
        return "\n".join([*(line for line in lines if line), call, *stores])

    def cond_of_functions(
        self,
        predicate: Rendered,
        bodies: tuple[Sequence[ast.stmt], Sequence[ast.stmt]],
        returned: tuple[Sequence[str], Sequence[str]],
        changes: Changes,
    ) -> str:
        """A `torch.cond` of two functions with the statements of the arms."""
        parameters, operands = self._operands()
        functions: list[str] = []
        names: list[str] = []
        head, stores, tail = self._head()
        colon = f" {', '.join(parameters)}:" if parameters else ":"
        for name, body, results in zip(self._function_names(), bodies, returned, strict=True):
            if not results:  # the statements return by themselves
                text = self._replaced(copy_statements(self.context.view, body, changes, self.unit))
                functions.append(self._function(name, parameters, text.rstrip("\n")))
                names.append(name)
                continue
            result = with_replacements(self._tuple(results), self.replacements)
            short = f"lambda{colon} {result}"
            if not body and layout.fits(self.unit + short + ",", self.width):
                names.append(short)
                continue
            text = copy_statements(self.context.view, body, changes, self.unit) if body else ""
            text = self._replaced(text)
            value = result[1:-1] if len(results) > 1 else result
            functions.append(self._function(name, parameters, f"{text}return {value}"))
            names.append(name)
        call = self._call(head, [predicate.text, *names], operands, tail)
        ready = self._preparation()
        top = [ready] if ready else []
        return "\n\n".join([*top, *functions, "\n".join([call, *stores])])

    def _replaced(self, text: str) -> str:
        """Statements with sums and parts replaced; a line that grew too long for that is broken."""
        width = self.width - len(self.unit)
        lines: list[str] = []
        before = text.split("\n")
        after = with_replacements(text, self.replacements).split("\n")
        for line in after:
            start = line[: len(line) - len(line.lstrip())]
            if line not in before and len(line) > width:
                line = layout.indent(fitted(line.lstrip(), width - len(start), self.unit), start)
            lines.append(line)
        return "\n".join(lines)

    def _function_names(self) -> tuple[str, str]:
        if not hasattr(self, "_names"):
            take = self.context.names.take
            self._names = (take("true_fn"), take("false_fn"))
        return self._names

    def _head(self) -> tuple[str, list[str], str]:
        """What stands before the arguments of the call, what follows the call, and after them."""
        if self.branch.returns and self.apart:
            count = len(getattr(self.branch.arms[0].returned, "elts", ()))
            results = [self.context.names.take("result") for _ in range(count)]
            given = [_apart(n) if str(i) in self.apart else n for i, n in enumerate(results)]
            comment = "# With gradients of their own:\n"
            back = f"{comment}return {', '.join(given)}"
            return f"{', '.join(results)} = {self.torch}.cond", [back], ""
        if self.branch.returns:
            return f"{self._giving()}{self.torch}.cond", [], ""
        leaves = [self.branch.leaves] if self.branch.leaves else []
        (first, *others) = self.branch.outputs
        if not others and first.name in self.detached and not first.place and first.call is None:
            return f"{first.name} = {self.torch}.cond", leaves, ".detach()"
        names, stores = self.targets(self.detached)
        return f"{', '.join(names)} = {self.torch}.cond", [*stores, *leaves], ""

    def _giving(self) -> str:
        """What stands before the values that both arms give."""
        targets = [flat(self.context.view, target) for target in self.branch.stored]
        return f"{', '.join(targets)} = " if targets else "return "

    def _operands(self) -> tuple[list[str], list[str]]:
        given = [f"{o}.clone()" if o in self.copied else o for o in self.operands]
        return [self.renamed.get(o, o) for o in self.operands], given

    def _body(self, arm: Straight, clones: Sequence[Copy]) -> str:
        parts = [
            self.cloned(result, clone == CONTIGUOUS) if clone else self.expression(result)[0]
            for result, clone in zip(arm.results, clones, strict=True)
        ]
        return self._tuple(parts)

    def _tuple(self, parts: Sequence[str]) -> str:
        """What a branch returns: one value, or a tuple in parentheses."""
        if self.branch.returns and isinstance(self.branch.arms[0].returned, ast.Tuple):
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    def _function(self, name: str, parameters: Sequence[str], body: str) -> str:
        return f"def {name}({', '.join(parameters)}):\n{layout.indent(body, self.unit)}"

    def _with_functions(
        self,
        lines: Sequence[str],
        functions: Sequence[str],
        head: str,
        predicate: Rendered,
        operands: Sequence[str],
        stores: Sequence[str],
        tail: str,
    ) -> str:
        call = self._call(head, [predicate.text, *self._function_names()], operands, tail)
        parts = [line for line in lines if line]
        top = ["\n".join(parts)] if parts else []
        return "\n\n".join([*top, *functions, "\n".join([call, *stores])])

    def _call(
        self, head: str, arguments: list[str], operands: Sequence[str], tail: str = ""
    ) -> str:
        if operands:
            comma = "," if len(operands) == 1 else ""
            arguments = [*arguments, f"({', '.join(operands)}{comma})"]
        return layout.call(head, arguments, width=self.width, unit=self.unit, tail=tail)


def _apart(name: str) -> str:
    """A result whose gradient is no other's, where it has one."""
    return f"{name} * 1 if {name}.requires_grad else {name}"
