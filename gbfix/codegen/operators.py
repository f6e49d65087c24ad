"""The text of an operator whose kernel is a function of the module: `torch.library.custom_op`.

Takes what has to be written as a value, knows nothing of how it was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Operator:
    """An operator to be written.

    Attributes:
        function: the function that does the work.
        qualified: the operator's name, as `namespace::name`.
        parameters: the types by name, such as `Tensor` or `float | None`.
        by_keyword: parameters that the function takes by keyword only.
        mutated: the tensors that it changes in place.
        results: for each result the expression that makes an empty tensor like it.
        differentiable: the tensors that get gradients; none if there is no backward.
        names: what the definitions are called, by role.
    """

    function: str
    qualified: str
    parameters: Mapping[str, str]
    by_keyword: frozenset[str]
    mutated: Sequence[str]
    results: Sequence[str]
    differentiable: Sequence[str]
    names: Mapping[str, str]


def written(made: Operator, torch: str, unit: str, width: int) -> str:
    """The definitions, two blank lines before each."""
    writer = _Writer(made, torch, unit, width)
    parts = [writer.kernel(), writer.fake()]
    if made.differentiable:
        parts += [writer.backward_kernel(), writer.backward_fake(), *writer.registration()]
    return "".join(f"\n\n\n{part}" for part in parts)


def _targets(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)


class _Writer:
    def __init__(self, made: Operator, torch: str, unit: str, width: int) -> None:
        self.made, self.torch, self.unit, self.width = made, torch, unit, width
        self.names = made.names

    def fit(self, head: str, parts: Iterable[str], tail: str, depth: int = 0) -> str:
        """A call or a signature, on one line or with its parts on lines of their own."""
        around, found = self.unit * depth, list(parts)
        line = f"{around}{head}{', '.join(found)}{tail}"
        if len(line) <= self.width or not found:
            return line
        inner = f"{around}{self.unit}{', '.join(found)}"
        if len(inner) <= self.width:
            return f"{around}{head}\n{inner}\n{around}{tail}"
        lines = [f"{around}{self.unit}{part},\n" for part in found]
        return f"{around}{head}\n{''.join(lines)}{around}{tail}"

    def typed(self) -> list[str]:
        return [f"{name}: {self.type(kind)}" for name, kind in self.made.parameters.items()]

    def type(self, kind: str) -> str:
        return kind.replace("Tensor", f"{self.torch}.Tensor")

    def several(self, count: int) -> str:
        one = f"{self.torch}.Tensor"
        return one if count == 1 else f"tuple[{', '.join([one] * count)}]" if count else "None"

    def decorator(self, name: str, mutated: Sequence[str] = ()) -> str:
        changes = "()" if not mutated else "(" + ", ".join(f'"{m}"' for m in mutated) + ",)"
        if len(mutated) > 1:
            changes = changes.replace(",)", ")")
        return self.fit(
            f"@{self.torch}.library.custom_op(", [f'"{name}"', f"mutates_args={changes}"], ")"
        )

    def call(self) -> list[str]:
        keyword = self.made.by_keyword
        return [f"{n}={n}" if n in keyword else n for n in self.made.parameters]

    def kernel(self) -> str:
        made = self.made
        head = self.fit(
            f"def {self.names['op']}(", self.typed(), f") -> {self.several(len(made.results))}:"
        )
        lines = [self.decorator(made.qualified, made.mutated), head]
        if not made.results:
            lines.append(self.fit(f"{made.function}(", self.call(), ")", 1))
        elif len(made.results) == 1:
            lines.append(self.fit(f"return {made.function}(", self.call(), ").contiguous()", 1))
        else:
            each = self.names["each"]
            head = f"return tuple({each}.contiguous() for {each} in {made.function}("
            lines.append(self.fit(head, self.call(), "))", 1))
        return "\n".join(lines)

    def fake(self) -> str:
        lines = [
            f"@{self.names['op']}.register_fake",
            self.fit(f"def {self.names['fake']}(", self.made.parameters, "):"),
        ]
        results = self.made.results
        if len(results) > 1:
            body = "".join(f"{self.unit * 2}{r},\n" for r in results)
            lines.append(f"{self.unit}return (\n{body}{self.unit})")
        else:
            lines.append(
                f"{self.unit}return {results[0]}" if results else f"{self.unit}return None"
            )
        return "\n".join(lines)

    def backward_kernel(self) -> str:
        """The function is run again with gradients, which no operator's kernel keeps by itself."""
        made, torch, unit = self.made, self.torch, self.unit
        leaves = list(made.differentiable)
        grad = self.names["grad"]
        head = self.fit(
            f"def {self.names['backward_op']}(",
            [f"{grad}: {torch}.Tensor", *self.typed()],
            f") -> {self.several(len(leaves))}:",
        )
        lines = [self.decorator(f"{made.qualified}_backward"), head]
        lines.append(
            f"{unit}# The kernel of an operator runs below autograd; this turns it on again."
        )
        lines.append(f"{unit}with {torch}.inference_mode(False), {torch}.enable_grad():")
        lines += [f"{unit * 2}{n} = {n}.detach().requires_grad_()" for n in leaves]
        result, found = self.names["result"], self.names["found"]
        lines.append(self.fit(f"{result} = {made.function}(", self.call(), ")", 2))
        inputs = f"({', '.join(leaves)}{',' if len(leaves) == 1 else ''})"
        lines.append(
            self.fit(
                f"{found} = {torch}.autograd.grad(",
                [result, inputs, grad, "materialize_grads=True"],
                ")",
                2,
            )
        )
        if len(leaves) == 1:
            lines.append(f"{unit}return {found}[0].clone(memory_format={torch}.contiguous_format)")
        else:
            each = self.names["each"]
            copy = f"{each}.clone(memory_format={torch}.contiguous_format)"
            lines.append(f"{unit}return tuple({copy} for {each} in {found})")
        return "\n".join(lines)

    def backward_fake(self) -> str:
        made = self.made
        head = self.fit(
            f"def {self.names['backward_fake']}(", [self.names["grad"], *made.parameters], "):"
        )
        made_like = [
            f"{self.torch}.empty_like({n}, memory_format={self.torch}.contiguous_format)"
            for n in made.differentiable
        ]
        if len(made_like) == 1:
            body = f"{self.unit}return {made_like[0]}"
        else:
            inner = "".join(f"{self.unit * 2}{m},\n" for m in made_like)
            body = f"{self.unit}return (\n{inner}{self.unit})"
        return "\n".join([f"@{self.names['backward_op']}.register_fake", head, body])

    def registration(self) -> list[str]:
        made, unit = self.made, self.unit
        tensors = [n for n, kind in made.parameters.items() if kind == "Tensor"]
        others = [n for n in made.parameters if n not in tensors]
        ctx, grad = self.names["ctx"], self.names["grad"]
        setup = [
            f"def {self.names['setup']}({ctx}, {self.names['inputs']}, {self.names['output']}):",
            f"{unit}{_targets(list(made.parameters))} = {self.names['inputs']}",
            f"{unit}{ctx}.save_for_backward({', '.join(tensors)})",
            *(f"{unit}{ctx}.{n} = {n}" for n in others),
        ]
        given = [n if n in tensors else f"{ctx}.{n}" for n in made.parameters]
        call = self.fit(
            f"{self.names['found']} = {self.names['backward_op']}(", [grad, *given], ")", 1
        )
        one = len(made.differentiable) == 1
        gradients = [
            (
                self.names["found"]
                if one
                else f"{self.names['found']}[{made.differentiable.index(n)}]"
            )
            if n in made.differentiable
            else "None"
            for n in made.parameters
        ]
        backward = [
            f"def {self.names['backward']}({ctx}, {grad}):",
            f"{unit}{_targets(tensors)} = {ctx}.saved_tensors",
            call,
            f"{unit}return {', '.join(gradients)}",
        ]
        register = self.fit(
            f"{self.names['op']}.register_autograd(",
            [self.names["backward"], f"setup_context={self.names['setup']}"],
            ")",
        )
        return ["\n".join(setup), "\n".join(backward), register]
