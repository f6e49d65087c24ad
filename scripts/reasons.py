"""The reasons for which sites are left alone, read from the source: codes, and what they can say.

A refusal is made by `Refused("code", "sentence")`, `Refusal("fix", "code", "sentence")` or
`withheld(file, "code", "sentence")`. A sentence that is made elsewhere is looked up: a variable where
the function assigns it, a call in what the called function returns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"

_CODE = {"Refused": 0, "Refusal": 1, "withheld": 1}
"""Where each of these has its code; the sentence follows."""
_HANDED_ON = {"slower": "slower_than_original", "not-written": "WriteError"}
"""The functions and exceptions whose sentences reach the refusal in a value."""


@dataclass(frozen=True)
class Reason:
    """A refusal in the source: its code, its sentence, and the file that gives it."""

    code: str
    sentence: str
    path: Path

    @property
    def is_bare(self) -> bool:
        """Whether nothing of the sentence is known, as it is made of what else was said."""
        return not self.sentence.strip(f"{ELLIPSIS}: ")


@cache
def reasons() -> tuple[Reason, ...]:
    """Every refusal that the source can give, in the order of codes and files."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for folder in ("gbfix", "transforms")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    found: list[Reason] = []
    for path, tree in trees.items():
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        for call in ast.walk(tree):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id in _CODE
            ):
                around = [f for f in functions if f.lineno <= call.lineno <= (f.end_lineno or 0)]
                sentences = _Sentences(trees, tree, around[-1] if around else None)
                found += sentences.of_refusal(call, _CODE[call.func.id], path)
    told = {reason.code for reason in found if not reason.is_bare}
    found = [reason for reason in found if not reason.is_bare or reason.code not in told]
    return tuple(sorted(set(found), key=lambda r: (r.code, r.path.parts[-2:], r.sentence)))


@dataclass(frozen=True)
class _Sentences:
    """What expressions of one function can say; an ellipsis stands for a part that is filled in."""

    trees: dict[Path, ast.Module]
    tree: ast.Module
    function: ast.FunctionDef | None

    def of_refusal(self, call: ast.Call, at: int, path: Path) -> Iterator[Reason]:
        if len(call.args) != at + 2:
            return
        code, sentence = call.args[at:]
        if not (isinstance(code, ast.Constant) and isinstance(code.value, str)):
            if not at:
                raise SystemExit(
                    f"{path}:{call.lineno}: a refusal's code has to be a plain string."
                )
            return  # what a transform or a verdict has said is handed on
        maker = _HANDED_ON.get(code.value)
        said = self._returned(maker) if maker is not None else self.of(sentence)
        for text in filter(None, said):
            yield Reason(code.value, text, path)

    def of(self, node: ast.expr) -> Iterator[str]:
        if isinstance(node, ast.Constant):
            yield str(node.value)
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else ELLIPSIS
                for part in node.values
            )
        elif isinstance(node, ast.IfExp):
            yield from self.of(node.body)
            yield from self.of(node.orelse)
        elif isinstance(node, ast.Name) and self.function is not None:
            assigned = [
                n.value
                for n in ast.walk(self.function)
                if isinstance(n, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == node.id for t in n.targets)
            ]
            for value in assigned:
                yield from self.of(value)
            if not assigned:
                yield ELLIPSIS
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from list(self._returned(node.func.id)) or [ELLIPSIS]
        else:
            yield ELLIPSIS

    def _returned(self, name: str) -> Iterator[str]:
        """What the function of a name can return, or the exception of that name say."""
        for tree in (self.tree, *self.trees.values()):
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    inside = _Sentences(self.trees, tree, node)
                    for statement in ast.walk(node):
                        if isinstance(statement, ast.Return) and statement.value is not None:
                            yield from inside.of(statement.value)
                    return
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                    if isinstance(node.exc.func, ast.Name) and node.exc.func.id == name:
                        yield from self.of(node.exc.args[0])
