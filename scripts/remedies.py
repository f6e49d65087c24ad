"""The page on the remedies for graph breaks, from the examples in `tests/remedies/`.

An example is a file that breaks; its docstring holds a heading, a text and the command that fixes it.
What the command makes of it is computed, so that the page cannot go stale. What is no change of the
source is shown by a program, whose docstring says what it prints.
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


@dataclass(frozen=True)
class Program:
    """A program that shows a remedy: what the page says of it, its text, and what it prints."""

    name: str
    title: str
    text: str
    source: str
    prints: str


def programs() -> list[Program]:
    """The programs of the page."""
    return [_read_program(path) for path in sorted((EXAMPLES / "programs").glob("*.py"))]


def _read_program(path: Path) -> Program:
    title, text, prints, source = _taken_apart(path)
    return Program(path.stem, title, text, source, prints.removeprefix("Prints: "))


def remedies() -> list[Remedy]:
    """All examples, in the order of the page."""
    return [_read(path) for path in sorted(EXAMPLES.glob("*.py"))]


def _read(path: Path) -> Remedy:
    title, text, command, before = _taken_apart(path)
    options = command.removeprefix("Command: gbfix apply").strip()
    source = SourceFile.decode(Path("step.py"), before.encode())
    (file,) = engine.run([source], _OPTIONS[options]).files
    return Remedy(path.stem, title, text, options, before, file.after)


def _taken_apart(path: Path) -> tuple[str, str, str, str]:
    """The three paragraphs of a file's docstring, and what follows it."""
    whole = path.read_text(encoding="utf-8")
    tree = ast.parse(whole)
    title, text, last = (ast.get_docstring(tree) or "").split("\n\n")
    rest = "".join(whole.splitlines(keepends=True)[tree.body[0].end_lineno :]).lstrip("\n")
    return title, text, last, rest


def page() -> str:
    """The page, without the note at its top."""
    shown = {p.name: _shown(p) for p in programs()}
    parts = [_OPENING, shown["set_stance"]]
    for remedy in remedies():
        parts.append(
            f"## {remedy.title}\n\n{remedy.text}\n\n```python\n{remedy.before}```\n\n"
            f"After `{f'gbfix apply {remedy.options}'.strip()}`:\n\n```python\n{remedy.after}```\n"
        )
    return "\n".join([*parts, shown["fullgraph"]]).rstrip("\n")


def _shown(program: Program) -> str:
    return (
        f"## {program.title}\n\n{program.text}\n\n```python\n{program.source}```\n\n"
        f"It prints `{program.prints}`.\n"
    )
