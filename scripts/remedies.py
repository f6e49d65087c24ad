"""The page on the remedies for graph breaks, from the examples in `tests/remedies/`.

An example is a file that breaks; its docstring holds a heading, a text and the command that fixes it.
What the command makes of it is computed, so that the page cannot go stale.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from gbfix import engine
from gbfix.settings import Branch, Settings, SideEffects
from gbfix.source.text import SourceFile

EXAMPLES = Path(__file__).parent.parent / "tests" / "remedies"
_OPTIONS: dict[str, Settings] = {
    "": Settings(),
    "--branch cond": Settings(branch=Branch.COND),
    "--config": Settings(config=True),
    "--fix-with custom-op": Settings(fix_with=("custom-op",)),
    "--side-effects config": Settings(side_effects=SideEffects.CONFIG, config=True),
    "--side-effects keep": Settings(side_effects=SideEffects.KEEP),
}
_OPENING = """\
# Remedies for graph breaks

PyTorch's guide to graph breaks teaches the remedies below. Each stands here with what does it, on an
example that is run: it breaks before, it does not after, and the outputs are the same.

## Without the compiler first: `torch.compiler.set_stance`

A break can hide an error of one's own. Under `torch.compiler.set_stance("force_eager")` nothing is
compiled: what fails there as well has to be repaired first. `gbfix trace` runs a call that failed once
more under that stance and says which of the two it was; `gbfix verify` compares with eager code.
"""
_CLOSING = """\
## Moving side effects out

What can be computed from the result need not be told inside. Where only the caller needs to know, let
the compiled function return the value, and print or log it after the call.

## `fullgraph=True`

`torch.compile(..., fullgraph=True)` turns a break into an error. Under it Dynamo captures scalar
outputs by itself, so count breaks with and without in one configuration. `gbfix verify` says
whether one graph holds the rewritten code.
"""


@dataclass(frozen=True)
class Remedy:
    """One example: what the page says of it, and the file before and after."""

    name: str
    title: str
    text: str
    options: str
    before: str
    after: str


def remedies() -> list[Remedy]:
    """All examples, in the order of the page."""
    return [_read(path) for path in sorted(EXAMPLES.glob("*.py"))]


def _read(path: Path) -> Remedy:
    whole = path.read_text(encoding="utf-8")
    tree = ast.parse(whole)
    title, text, command = (ast.get_docstring(tree) or "").split("\n\n")
    options = command.removeprefix("Command: gbfix apply").strip()
    before = "".join(whole.splitlines(keepends=True)[tree.body[0].end_lineno :]).lstrip("\n")
    source = SourceFile.decode(Path("step.py"), before.encode())
    (file,) = engine.run([source], _OPTIONS[options]).files
    return Remedy(path.stem, title, text, options, before, file.after)


def page() -> str:
    """The page, without the note at its top."""
    parts = [_OPENING]
    for remedy in remedies():
        parts.append(
            f"## {remedy.title}\n\n{remedy.text}\n\n```python\n{remedy.before}```\n\n"
            f"After `{f'gbfix apply {remedy.options}'.strip()}`:\n\n```python\n{remedy.after}```\n"
        )
    return "\n".join([*parts, _CLOSING]).rstrip("\n")
