"""Hypothesis strategies for projects of a few files that reach into each other.

Functions call those of other files, catch what these raise, and classes override methods of classes in
other files, hold their instances and set attributes around calls. Files import each other in circles;
nothing calls itself. The strategies know nothing of the tool; the programs are read and never run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[T]], T]

FILES = ("first", "second", "third", "fourth")
FUNCTIONS = tuple((file, f"{name}_{file}") for name in ("check", "scale") for file in FILES)
"""Each calls only those after it, and a class only derives from those after it and holds those."""
CLASSES = tuple((file, f"Block{file.title()}") for file in ("third", "first", "fourth", "second"))
PLAIN = (
    ["print('seen', x.shape)"],
    ["if x.sum() > 1:", "    x = x * 0.5"],
    ["if x.sum() > 1:", "    x = torch.relu(x) @ x"],
    ["if torch.isnan(x).any():", "    raise ValueError('x has NaN')"],
    ["n = x.sum().item()", "x = x * n"],
    ["x = torch.relu(x)"],
    ["print('seen', x.shape)", "if torch.isnan(x).any():", "    raise ValueError('x has NaN')"],
    ["seen = []", "for row in x:", "    seen.append(row * 2)", "x = torch.stack(seen)"],
)
CALLING = (
    ["x = {call}"],
    ["if {call} > 1:", "    x = x * 2"],
    ["try:", "    x = {call}", "except ValueError:", "    x = x * 0"],
    ["try:", "    x = {call}", "except ValueError:", "    x = x * 0"],
    ["if x.mean() > 0:", "    x = {call}"],
    ["if x.mean() > 0:", "    x = {call}", "else:", "    x = x - 1"],
    ["self.first = x", "x = {call}", "self.second = x"],
)
CONSTANTS = tuple((file, f"LIMIT_{file.upper()}") for file in FILES)
RETURNED = ("x", "x", "x", "x.shape[0]", "x.sum()", "None")
IN_METHODS = (
    ["self.last = x"],
    ["x = self.inner(x)"],
    ["self.count = x.sum().item()"],
    ["if x.amax() > 0:", "    self.last = x"],
    ["x = x + self.inner.last"],
)


KINDS = ("plain", "calling", "calling", "constant", "method")


@dataclass(frozen=True)
class _Definition:
    """A function or class of a file, and what it needs from others."""

    text: str
    needs: frozenset[tuple[str, str]]


@st.composite
def _block(draw: Draw, own: str, method: str = "") -> tuple[list[str], set[tuple[str, str]]]:  # type: ignore[type-arg]
    lines: list[str] = []
    needs: set[tuple[str, str]] = set()
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(
            st.sampled_from(["plain", "calling", "method"] if method else ["plain", "calling"])
        )
        if kind == "plain":
            lines += draw(st.sampled_from(PLAIN))
        elif kind == "constant":
            target = draw(st.sampled_from(CONSTANTS))
            needs.add(target)
            lines += [f"if {target[1]} > 0:", "    x = x * 2"]
        elif kind == "method":
            called = {"forward": [["x = self.step(x)"], ["x = self.helper(x)"]]}.get(method, [])
            lines += draw(st.sampled_from([*IN_METHODS, *called]))
        else:
            names = [f for _, f in FUNCTIONS]
            after = FUNCTIONS[names.index(own) + 1 :] if own in names else FUNCTIONS
            if not after:
                continue
            target = draw(st.sampled_from(after))
            needs.add(target)
            call = f"{target[1]}(x)"
            calling = CALLING if method else CALLING[:-1]
            lines += [line.format(call=call) for line in draw(st.sampled_from(calling))]
    returned = "x" if method else draw(st.sampled_from(RETURNED))
    return [*lines, f"return {returned}"], needs


def _indented(lines: list[str], by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in lines)


@st.composite
def _function(draw: Draw, name: str) -> _Definition:  # type: ignore[type-arg]
    lines, needs = draw(_block(name))
    compiled = draw(st.sampled_from(["", "", "", "", "", "@torch.compile\n"]))
    return _Definition(f"{compiled}def {name}(x):\n{_indented(lines, 4)}", frozenset(needs))


@st.composite
def _class(draw: Draw, name: str) -> _Definition:  # type: ignore[type-arg]
    after = CLASSES[[c for _, c in CLASSES].index(name) + 1 :]
    base = draw(st.sampled_from([None, *after]))
    inner = draw(st.sampled_from([None, *after]))
    needs = {needed for needed in (base, inner) if needed is not None}
    above = base[1] if base is not None else "nn.Module"
    held = inner[1] if inner is not None else "nn.ReLU"
    text = (
        f"class {name}({above}):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.inner = {held}()\n        self.last = None\n        self.count = 0\n"
    )
    for method in ("forward", "step", "helper"):
        if draw(st.booleans()):
            lines, more = draw(_block(name, method))
            needs |= more
            text += f"\n    def {method}(self, x):\n{_indented(lines, 8)}"
    return _Definition(text, frozenset(needs))


@st.composite
def files(draw: Draw, name: str) -> str:  # type: ignore[type-arg]
    """The text of one file of a project."""
    defined = [draw(_function(f)) for file, f in FUNCTIONS if file == name and draw(st.booleans())]
    defined += [draw(_class(c)) for file, c in CLASSES if file == name and draw(st.booleans())]
    needs = sorted({n for d in defined for n in d.needs if n[0] != name})
    imports = "".join(f"from {file} import {other}\n" for file, other in needs)
    setting = draw(
        st.sampled_from([""] * 6 + ["torch._dynamo.config.capture_scalar_outputs = True\n"])
    )
    limit = draw(st.sampled_from(["1", "torch.ones(1)", "None"]))
    body = "\n\n".join([f"LIMIT_{name.upper()} = {limit}\n", *(d.text for d in defined)])
    return f"import torch\nfrom torch import nn\n{imports}{setting}\n\n{body}"


@st.composite
def projects(draw: Draw) -> dict[str, str]:  # type: ignore[type-arg]
    """The texts of a project's files by their names."""
    return {f"{name}.py": draw(files(name)) for name in FILES}
