"""Hypothesis strategies for realistic PyTorch programs with tensor branches.

A program is a file with one target: a module `M` whose `forward` takes `x`, `y`, `mask` and `flag`, or
a function of the same arguments. Square tensors (3 by 3) are the common currency, so that most
statements run; names may be rebound, aliased, changed in place, deleted or left undefined on a path,
and then original and rewritten must fail alike. The strategies know nothing of the tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[T]], T]

HEAD = """\
import contextlib
import logging
import warnings
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F

logger = logging.getLogger(__name__)
SCALE = torch.tensor(2.0)
LIMIT = 0.5
seen = []


def scaled(t: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    return t * by


def bumped_(t: torch.Tensor) -> torch.Tensor:
    t.add_(1)
    return t


def same(t: torch.Tensor) -> torch.Tensor:
    return t


def is_large(t: torch.Tensor) -> torch.Tensor:
    return t.abs().max() > 1


def untouched(a, b):  # this   function keeps its odd layout
    total = ( a+b )
    return total   ;
"""

MODULE = """\


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)
        self.act = nn.ReLU(inplace=True)
        self.bn = nn.BatchNorm1d(3)
        self.norm = nn.LayerNorm(3)
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.w = nn.Parameter(torch.full((3, 3), 0.5))
        self.register_buffer("buf", torch.zeros(3, 3))
        self.register_buffer("count", torch.zeros(()))
        self.cache = torch.zeros(3, 3)
        self.limit = 0.5
        self.steps = 0
        self.last = None
        self.wide = True

    def scale_by(self, t: torch.Tensor) -> torch.Tensor:
        return t * self.limit

    def note(self, t: torch.Tensor) -> torch.Tensor:
        self.cache = t
        return t

    def forward({arguments}){returns}:
"""

INPUTS = (
    "(torch.rand(3, 3) + 0.5, torch.rand(3, 3) + 0.6)",
    "dict(x=-torch.rand(3, 3) - 0.5, y=torch.randn(3, 3), mask=torch.zeros(3, 3), flag=False)",
    "dict(x=torch.randn(3, 3), y=-torch.rand(3, 3), mask=torch.ones(3, 3))",
    "(torch.zeros(3, 3), torch.zeros(3, 3), torch.ones(3, 3))",
    "(torch.randn(3, 3) * 4, torch.randn(3, 3) * 4, None, False)",
    "(lambda t: (t, t))(torch.rand(3, 3) + 1)",
    "(lambda t: (t, t))(-torch.rand(3, 3))",
    "(lambda t: (t, t.t()))(torch.randn(3, 3))",
    "(torch.arange(9.0).reshape(3, 3).t(), torch.ones(3, 3), None)",
    "(torch.arange(9).reshape(3, 3) - 2, torch.ones(3, 3, dtype=torch.long))",
    "(torch.arange(9).reshape(3, 3) - 8, torch.ones(3, 3))",
    "(torch.rand(3, 3).half(), torch.rand(3, 3).half())",
    "(-torch.rand(3, 3).half(), torch.rand(3, 3), torch.ones(3, 3).half())",
    "(torch.full((3, 3), float('nan')), torch.rand(3, 3))",
    "(torch.rand(3, 3) > 2, torch.rand(3, 3) > 0)",
    "(torch.rand(3, 3, dtype=torch.float64), -torch.rand(3, 3))",
    "(torch.rand(3), torch.rand(3, 3))",
)


@dataclass(frozen=True)
class Program:
    """A generated file and how to run it."""

    text: str
    target: str
    inputs: tuple[str, ...]
    region: str = "auto"
    decorated: bool = False
    gradients: bool = False

    def __repr__(self) -> str:
        return (
            f"Program({self.target}, region={self.region}, gradients={self.gradients}, inputs=(\n"
            + "".join(f"    {i!r},\n" for i in self.inputs)
            + f"))\n{self.text}"
        )


def _tight(text: str) -> str:
    """An expression that a method can be called on; sometimes in parentheses that it can do without."""
    return text if re.fullmatch(r"[\w.]+(\([\w.]*\))?|\(.*\)", text) else f"({text})"


SQUARE, SCALAR, BOOL = "square", "scalar", "bool"
FRESH = ("a", "b", "h", "z", "out", "tmp", "pred", "true_fn", "false_fn", "res", "buf", "cache")


@dataclass
class _Writer:
    """Writes the body of one function, statement by statement, with what each name holds."""

    draw: Draw[object]
    module: bool
    lines: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    depth: int = 0
    base: int = 0
    loops: int = 0
    branches: int = 0
    functions: dict[str, None] = field(default_factory=dict)

    # Drawing

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; earlier ones are simpler."""
        return options[self.draw(st.integers(0, len(options) - 1))]  # type: ignore[call-overload]

    def chance(self, percent: int) -> bool:
        """True in about so many of a hundred draws."""
        return bool(self.draw(st.integers(0, 99)) >= 100 - percent)  # type: ignore[operator]

    def put(self, line: str) -> None:
        """A line at the present depth, now and then with a comment or a blank line about it."""
        indent = "    " * self.depth
        if self.chance(3):
            self.lines.append("")
        if self.chance(4):
            self.lines.append(f"{indent}# a   comment")
        tail = "  # why" if self.chance(4) and "\n" not in line else ""
        self.lines += [indent + part for part in (line + tail).split("\n")]

    # Names

    def known(self, kind: str) -> str:
        """A name that holds such a value."""
        found = [n for n, k in self.names.items() if k == kind]
        if not found:
            return {SQUARE: "x", SCALAR: "x.sum()", BOOL: "(x > 0).any()"}[kind]
        return self.pick(found)

    def square_name(self) -> str:
        return self.known(SQUARE)

    def target(self) -> str:
        """A name to bind: an old one or a new one."""
        old = [n for n, k in self.names.items() if k == SQUARE]
        if old and self.chance(60):
            return self.pick(old)
        return self.pick(FRESH)

    # Expressions

    def number(self) -> str:
        return self.pick(["2", "0.5", "1", "-1.5"])

    def square(self, deep: int = 1) -> str:
        """An expression for a 3 by 3 tensor."""
        if deep <= 0 or self.chance(25):
            return self.square_name()
        a = _tight(self.square(deep - 1))
        b = self.square_name()
        n = self.number()
        options = [
            f"{a} * {n}",
            f"{a} + {n}",
            f"{a} + {b}",
            f"{a} - {b}",
            f"torch.relu({a})",
            f"{a} / 2",
            f"-{a}",
            f"{a}.clone()",
            f"torch.sigmoid({a})",
            f"F.gelu({a})",
            f"{a}.clamp(min=0)",
            f"torch.where({a} > 0, {a}, {b})",
            f"{a} @ {b}",
            f"{a}.t()",
            f"{a}.view(3, 3)",
            f"{a}.float()",
            f"{a}.to(torch.float32)",
            f"{a}.contiguous()",
            f"{a}.detach()",
            f"{a}[:]",
            f"{a}.transpose(0, 1).contiguous()",
            f"{a}.exp()",
            f"{a} - {a}.mean()",
            f"{a} * {self.scalar()}",
            f"torch.zeros_like({a})",
            "torch.zeros(3, 3)",
            "torch.ones(3, 3)",
            f"{a}.long()",
            f"{a}.half()",
            f"torch.softmax({a}, dim=-1)",
            f"torch.cat([{a}, {b}])[:3]",
            f"torch.stack([{a}, {b}]).sum(0)",
            f"torch.nan_to_num({a})",
            f"scaled({a})",
            f"scaled({a}, by={n})",
            f"same({a})",
            f"bumped_({a})",
            f"bumped_({a}.clone())",
            f"torch.rand_like({a})",
            f"{a} * SCALE",
            f"{a} ** 2",
            f"{a}.masked_fill({a} > 1, 0.0)",
            f"{a}.reshape(3, 3)",
            f"{a}.add(1)",
            f"{a}.add_(1)",
            f"{a}.sum(dim=0, keepdim=True).expand(3, 3)",
            f"F.dropout({a}, 0.5, training=True)",
            f"{a} * ({b} > 0)",
            f"{a} * len({b})",
            f"{a} * {b}.shape[0]",
            f"sum(t * 2 for t in ({a}, {b}))",
            f"torch.stack([t + 1 for t in ({a}, {b})]).sum(0)",
            f"(lambda t: t + {b})({a})",
            f"({a} if flag else {b})",
            f"({a} if {self._operand(self.tensor_test())} else {b})",
            f"({a} * mask if mask is not None else {a})",
        ]
        if self.module:
            options += [
                f"self.lin({a})",
                f"self.drop({a})",
                f"self.act({a})",
                f"self.norm({a})",
                f"self.bn({a})",
                f"self.scale_by({a})",
                f"{a} @ self.w",
                f"{a} + self.buf",
                "self.buf",
                "self.cache",
                "self.w",
                f"{a} * self.limit",
                f"self.note({a})",
                f"{a} * self.count",
            ]
        for function in self.functions:
            options.append(f"{function}({a})")
        return self.pick(options)

    def scalar(self) -> str:
        """An expression for a tensor of one element."""
        a = self.square_name()
        options = [
            f"{a}.sum()",
            f"{a}.mean()",
            f"{a}.max()",
            f"{a}.abs().max()",
            f"torch.norm({a})",
            f"{a}[0, 0]",
            f"({a} > 0).sum()",
            f"{a}.sum().float()",
            self.known(SCALAR),
        ]
        if self.module:
            options += ["self.count", "self.buf.sum()"]
        return self.pick(options)

    def tensor_test(self) -> str:
        """A test that reads one tensor."""
        s, a = self.scalar(), self.square_name()
        options = [
            f"{s} > 0",
            f"{s} > {self.number()}",
            f"{s} > {self.scalar()}",
            f"({a} > 0).any()",
            f"({a} > 0).all()",
            f"torch.isnan({a}).any()",
            f"torch.any({a} > 1)",
            f"{a}.any()",
            f"{s}",
            f"{s} == 0",
            f"{s} != 1",
            f"0 < {s} < 5",
            f"is_large({a})",
            f"bool({s} > 0)",
            f"{s}.item() > 0",
            f"torch.equal({a}, {self.square_name()})",
            f"torch.allclose({a}, {self.square_name()})",
            f"({s} > 0) & ({self.scalar()} < 1)",
            f"~({s} > 0)",
            self.known(BOOL),
            "SCALE > 1",
            f"SCALE > {s}",
            f"(s := {s}) > 0",
            f"(tmp := {a} * 2).sum() > 1",
            f"any(v > 3 for v in {a}[0])",
            f"{a}[0, 0] > 0 if flag else {s} > 1",
        ]
        if self.module:
            options += [f"{s} > self.limit", "self.count > 0", f"{s} > self.count"]
        return self.pick(options)

    def static_test(self) -> str:
        """A test that is decided while tracing."""
        a = self.square_name()
        options = [
            "flag",
            "mask is not None",
            "mask is None",
            f"{a}.dtype == torch.float32",
            f"{a}.shape[0] > 2",
            f"{a}.dim() == 2",
            f"torch.is_floating_point({a})",
            "not flag",
            f"isinstance({a}, torch.Tensor)",
            "torch.is_grad_enabled()",
        ]
        if self.module:
            options += ["self.training", "self.wide", "self.last is None", "self.steps < 1"]
        return self.pick(options)

    def test(self) -> str:
        """A test of an `if`: mostly tensors, also mixed with static operands."""
        t = self.tensor_test
        shape = self.pick(range(14))
        if shape in (0, 1, 2, 3):
            return t()
        options = [
            lambda: f"not {self._operand(t())}",
            lambda: f"{self._operand(t())} and {self._operand(t())}",
            lambda: f"{self._operand(t())} or {self._operand(t())}",
            lambda: f"{self.static_test()} and {self._operand(t())}",
            lambda: f"{self.static_test()} or {self._operand(t())}",
            lambda: "mask is not None and (mask == 0).any()",
            lambda: f"{self._operand(t())} and {self.static_test()}",
            lambda: f"not ({t()} and {t()})",
            lambda: f"{self.static_test()} and ({t()} or {t()})",
            lambda: f"({self.static_test()} or {t()}) and {self._operand(t())}",
        ]
        return options[shape - 4]()

    def _operand(self, text: str) -> str:
        return f"({text})" if " if " in text or ":=" in text else text

    # Statements

    def block(self, least: int = 1, most: int = 3) -> None:
        """Some statements, one step deeper."""
        self.depth += 1
        count = self.draw(st.integers(least, most))
        ended = False
        for _ in range(count):  # type: ignore[call-overload]
            ended = self.statement()
            if ended:
                break
        self.depth -= 1

    def statement(self) -> bool:
        """One statement; true if it ends its block."""
        room = self.branches < 4 and self.depth < 4
        kinds: list[tuple[int, Callable[[], bool | None]]] = [
            (26, self.assign),
            (8, self.augmented),
            (7, self.in_place),
            (5, self.alias),
            (4, self.several),
            (5, self.speak),
            (3, self.check),
            (3, self.odd),
            (6, self.state if self.module else self.outer),
        ]
        if room:
            kinds += [(30, self.branch), (4, self.loop), (3, self.around), (4, self.ternary)]
        if self.depth > self.base:
            kinds.append((9, self.leave))
        total = sum(weight for weight, _ in kinds)
        at = self.draw(st.integers(0, total - 1))
        for weight, make in kinds:
            if at < weight:  # type: ignore[operator]
                return bool(make())
            at -= weight  # type: ignore[operator]
        return False

    def assign(self) -> None:
        if self.chance(15):
            name = self.pick(["s", "norm", "total"])
            self.put(f"{name} = {self.scalar()}")
            self.names[name] = SCALAR
            return
        if self.chance(7):
            self.put(f"big = {self.tensor_test()}")
            self.names["big"] = BOOL
            return
        value = self.square(2)
        name = self.target()
        shape = self.pick(["plain"] * 12 + ["typed", "lines", "two", "chained"])
        if shape == "typed":
            self.put(f"{name}: torch.Tensor = {value}")
        elif shape == "lines":
            self.put(f"{name} = scaled(\n    {value},\n    by=2.0,\n)")
        elif shape == "two":
            self.put(f"{name} = {value}; {name} = {name} + 1")
        elif shape == "chained":
            other = self.pick(FRESH)
            self.put(f"{name} = {other} = {value}")
            self.names[other] = SQUARE
        else:
            self.put(f"{name} = {value}")
        self.names[name] = SQUARE

    def augmented(self) -> None:
        name = self.square_name()
        operator = self.pick(["+=", "*=", "-=", "/="])
        value = self.pick([self.number(), self.square_name(), self.square()])
        self.put(f"{name} {operator} {value}")

    def in_place(self) -> None:
        name = self.square_name()
        options = [
            f"{name}.add_(1)",
            f"{name}.mul_(0.5)",
            f"{name}[0] = 0",
            f"{name}[0, 0] += 1",
            f"{name}.clamp_(min=0)",
            f"{name}.copy_({self.square_name()})",
            f"torch.relu_({name})",
            f"bumped_({name})",
            f"{name}.t().add_(1)",
            f"{name}[{name} > 1] = 0",
            f"F.relu({name}, inplace=True)",
            f"torch.add({name}, 1, out={name})",
            f"{name}.data.mul_(2)",
            f"{name}.masked_fill_({name} > 1, 0.5)",
        ]
        self.put(self.pick(options))

    def alias(self) -> None:
        name, other = self.target(), self.square_name()
        options = [
            f"{name} = {other}",
            f"{name} = {other}.view(3, 3)",
            f"{name} = {other}.t()",
            f"{name} = {other}[:]",
            f"{name} = {other}.detach()",
            f"{name} = same({other})",
            f"{name} = {other}.to(torch.float32)",
            f"{name} = {other}.reshape(3, 3)",
        ]
        self.put(self.pick(options))
        self.names[name] = SQUARE

    def several(self) -> None:
        a, b = self.target(), self.pick(FRESH)
        options = [
            f"{a}, {b} = {self.square()}, {self.square()}",
            f"{a}, {b} = {b if b in self.names else 'y'}, {a if a in self.names else 'x'}",
            f"{a}, {b} = torch.stack([{self.square_name()}, {self.square_name()}])",
            f"({a}, {b}) = (scaled({self.square_name()}), {self.square_name()})",
            f"{a}, {b} = {self.square_name()}.expand(2, 3, 3)",
            f"{a}, *{b} = {self.square_name()}, {self.square_name()}",
        ]
        text = self.pick(options)
        self.put(text)
        self.names[a] = SQUARE
        if "*" in text.split("=")[0]:
            self.names.pop(b, None)
            if b == a:
                self.names.pop(a, None)
        else:
            self.names[b] = SQUARE

    def speak(self) -> None:
        a, s = self.square_name(), self.scalar()
        self.put(
            self.pick(
                [
                    f'print("value", {s})',
                    f'logger.info("norm %s", {s})',
                    'print("here")',
                    'warnings.warn("odd input")',
                    f'print(f"max {{{a}.max().item():.3f}}")',
                    f'logger.warning("shape %s", {a}.shape)',
                    'print("one"); print("two")',
                    f'print("grown", {a}.add_(1).sum())',
                ]
            )
        )

    def check(self) -> None:
        test = self.tensor_test()
        a = self.square_name()
        options = [
            lambda: self.put(f'if {test}:\n    raise ValueError("bad input")'),
            lambda: self.put(f"assert {test}"),
            lambda: self.put(f'assert {test}, f"bad {{{a}.sum()}}"'),
            lambda: self.put(
                f'if torch.isnan({a}).any():\n    raise RuntimeError(f"nan in {{{a}.shape}}")'
            ),
            lambda: self.put(f'assert not torch.isnan({a}).any(), "nan"'),
            lambda: self.put(f'if {self.static_test()} and {test}:\n    raise ValueError("worse")'),
            lambda: self.put(f'if {test}: raise ValueError("inline")'),
            lambda: self.put(f'if {a}.shape[0] != 3:\n    raise ValueError("shape")'),
        ]
        self.pick(options)()

    def odd(self) -> None:
        name = self.square_name()
        shape = self.pick(range(6))
        if shape == 0 and name not in ("x", "y"):
            self.put(f"del {name}")
            self.names.pop(name, None)
        elif shape == 1:
            function = self.pick(["act", "fn"])
            self.put(f"{function} = lambda t: t * 2 + {name}")
            self.functions[function] = None
        elif shape == 2:
            self.put(f"def inner(t):\n    return t + {name}\n")
            self.functions["inner"] = None
        elif shape == 3:
            self.put(f"parts = [t * 2 for t in ({name}, y)]")
            self.put("h = parts[0] + parts[1]")
            self.names["h"] = SQUARE
        elif shape == 4:
            self.put(f"box = {{'k': {name}}}")
            self.put("box['k'].add_(1)" if self.chance(50) else "z = box['k']")
            if self.lines[-1].strip().startswith("z"):
                self.names["z"] = SQUARE
        else:
            self.put("pass")

    def state(self) -> None:
        a = self.square_name()
        self.put(
            self.pick(
                [
                    f"self.cache = {self.square()}",
                    f"self.last = {a}",
                    "self.steps += 1",
                    f"self.buf = {self.square()}",
                    f"self.buf.add_({a})",
                    "self.count += 1",
                    "self.count = self.count + 1",
                    f'self.register_buffer("buf", {self.square()})',
                    f"self.cache += {a}",
                    "self.wide = False",
                    f"self.buf[0] = {a}[0]",
                    f"self.note({a})",
                    f"self.act({a})",
                    "self.cache = self.buf",
                    f"self.last = self.cache = {a}",
                    "self.limit = 0.25",
                    f"self.buf.copy_({a})",
                ]
            )
        )

    def outer(self) -> None:
        self.put(self.pick([f"seen.append({self.scalar()})", f"h = {self.square(2)}"]))
        if self.lines[-1].strip().startswith("h ="):
            self.names["h"] = SQUARE

    def branch(self) -> bool:
        self.branches += 1
        test = self.test()
        if self.chance(6):
            self.put(f"if {test}: {self.square_name()} = {self.square()}")
            return False
        if self.chance(4) and " if " not in test:
            self.put(f"if (\n    {test}\n):")
        else:
            self.put(f"if {test}:")
        before = dict(self.names)
        self.block()
        after = [self.names]
        self.names = dict(before)
        if self.chance(15):
            self.put(f"elif {self.test()}:")
            self.block()
            after.append(self.names)
            self.names = dict(before)
        if self.chance(45):
            self.put("else:")
            self.block()
        after.append(self.names)
        loose = self.chance(8)
        self.names = {
            n: k
            for names in after
            for n, k in names.items()
            if loose or all(other.get(n) == k for other in after)
        }
        return False

    def loop(self) -> None:
        self.put(
            self.pick(
                [
                    "for i in range(2):",
                    f"for row in {self.square_name()}:",
                    "for i, part in enumerate((x, y)):",
                    *(["for layer in self.layers:"] if self.module else []),
                ]
            )
        )
        layered = "layer in" in self.lines[-1]
        before = dict(self.names)
        self.loops += 1
        self.depth += 1
        if layered:
            self.put("x = layer(x)")
        self.branches += 1
        self.put(f"if {self.pick(['', '', 'flag and '])}{self._operand(self.tensor_test())}:")
        self.block(1, 2)
        if self.chance(30):
            self.statement()
        self.depth -= 1
        self.loops -= 1
        self.names = {n: k for n, k in self.names.items() if n in before}

    def around(self) -> None:
        before = dict(self.names)
        shape = self.pick(range(4))
        if shape == 3:
            self.put("try:")
            self.block(1, 2)
            if self.chance(50):
                self.put("except ValueError:")
                self.block(1, 1)
            else:
                self.put("finally:")
                self.put("    seen.append(1)")
        else:
            self.put(
                [
                    "with torch.no_grad():",
                    "with contextlib.nullcontext():",
                    "with torch.enable_grad():",
                ][shape]
            )
            self.block(1, 2)
        self.names = {n: k for n, k in self.names.items() if n in before}

    def ternary(self) -> None:
        name = self.target()
        test = self.tensor_test()
        if " if " in test:
            test = "x.sum() > 0"
        options = [
            f"{name} = {self.square()} if {test} else {self.square()}",
            f"{name} = scaled({self.square_name()} if {test} else {self.square_name()})",
            f"{name} = ({self.square()} if {test} else {self.square_name()}) * 2",
            f"{name} = {self.square_name()} + ({self.number()} if {test} else 3.0)",
            f"{name} = {self.square()} if {self.static_test()} and {test} else {self.square()}",
        ]
        self.put(self.pick(options))
        self.names[name] = SQUARE

    def leave(self) -> bool:
        if self.loops and self.chance(40):
            self.put(self.pick(["break", "continue"]))
            return True
        if self.chance(10):
            self.put("return None" if self.chance(50) else "return")
            return True
        self.returned()
        return True

    def returned(self) -> None:
        self.put(f"return {self.result()}")

    def result(self) -> str:
        a, b = self.square(1), self.square_name()
        many = ", ".join(n for n, k in self.names.items() if k == SQUARE)
        return self.pick(
            [a, a, b, b, f"{a}, {b}", many, many, many, f"{{'a': {a}}}", f"[{a}]", self.scalar()]
        )


@st.composite
def programs(draw: Draw[object], most: int = 6, functions: bool = True) -> Program:
    """A file with one target."""
    kinds = ["module"] * 6 + (["function"] * 3 + ["decorated"] * 2 if functions else [])
    kind = kinds[draw(st.integers(0, len(kinds) - 1))]  # type: ignore[call-overload]
    writer = _Writer(draw, kind == "module")
    writer.names = {"x": SQUARE, "y": SQUARE}
    typed = not writer.chance(8)
    hint = ": torch.Tensor" if typed else ""
    arguments = f"x{hint}, y{hint}, mask: Optional[torch.Tensor] = None, flag: bool = True"
    returns = " -> torch.Tensor" if writer.chance(10) else ""
    if kind == "module":
        text = HEAD + MODULE.format(arguments=f"self, {arguments}", returns=returns)
        writer.depth = 2
    else:
        mark = "@torch.compile\n" if kind == "decorated" else ""
        text = f"{HEAD}\n\n{mark}def target({arguments}){returns}:\n"
        writer.depth = 1
    if writer.chance(15):
        writer.put('"""Do something."""')
    depth = writer.base = writer.depth
    ended = False
    least = 2
    for index in range(draw(st.integers(least, most))):  # type: ignore[call-overload]
        if index == 1 and writer.branches == 0:
            ended = writer.branch()
        else:
            writer.depth = depth
            ended = writer.statement()
        if ended:
            break
    if not ended and not writer.chance(3):
        writer.returned()
    text += "\n".join(writer.lines) + "\n"
    if writer.chance(20):
        text += "\n\ndef after(c):\n\treturn [c,\n  c]\n"
    chosen = draw(st.lists(st.integers(2, len(INPUTS) - 1), min_size=1, max_size=2, unique=True))
    inputs = (INPUTS[0], INPUTS[1], *(INPUTS[i] for i in chosen))  # type: ignore[union-attr]
    return Program(
        text,
        "M" if kind == "module" else "target",
        inputs,
        "all" if kind == "function" else "auto",
        kind == "decorated",
        writer.chance(25),
    )
