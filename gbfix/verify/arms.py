"""Which arms of rewritten branches have been taken: finds the branches, and watches their tests.

A branch is a statement or expression that goes one of two ways: `if`, a ternary, `while`, `assert`.
To watch, the tests in the original's tree are wrapped in a call; line tracing would not tell the arms
of a ternary, nor an `if` without `else` on one line. It is done in eager runs of the original only.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

WATCH = "__gbfix_watch__"
_KINDS: dict[type[ast.AST], tuple[str, str, str]] = {
    ast.If: ("if", "true", "false"),
    ast.IfExp: ("ternary", "true", "false"),
    ast.While: ("while", "body", "end"),
    ast.Assert: ("assert", "pass", "fail"),
}
Definitions = dict[str, list[tuple[str, ast.stmt]]]
_Branching = ast.If | ast.IfExp | ast.While | ast.Assert


@dataclass(frozen=True, order=True)
class Branch:
    """A place at which code goes one of two ways."""

    file: str
    line: int
    column: int
    kind: str
    test: str

    def arm(self, taken: bool) -> str:
        """How reports name one of its arms."""
        names = next(names for names in _KINDS.values() if names[0] == self.kind)
        return f"{self.file}:{self.line}: {names[1 if taken else 2]} arm of `{self.test}`"


@dataclass(frozen=True)
class Seen:
    """An arm that was taken, and whether a tensor decided it."""

    branch: Branch
    taken: bool
    by_tensor: bool


@dataclass(frozen=True)
class Coverage:
    """The arms of the rewritten branches: how many there are, and which were not taken."""

    total: int = 0
    missing: tuple[str, ...] = ()

    @property
    def covered(self) -> int:
        """How many were taken."""
        return self.total - len(self.missing)

    def __str__(self) -> str:
        return f"{self.covered} of {self.total}"


class Watcher:
    """Collects the arms that wrapped tests choose."""

    def __init__(self) -> None:
        self.branches: list[Branch] = []
        self.seen: set[Seen] = set()

    def transform(self, path: str, tree: ast.Module) -> ast.Module:
        """Wrap every test of a file, in the form that `loading.load` takes."""
        for node in _branching(tree):
            number = len(self.branches)
            self.branches.append(branch_of(path, node))
            node.test = ast.copy_location(
                ast.Call(ast.Name(WATCH, ast.Load()), [ast.Constant(number), node.test], []),
                node.test,
            )
        return tree

    def watch(self, number: int, value: Any) -> bool:
        """Stand in for a test: decide as it does, once, and remember."""
        taken = bool(value)
        by_tensor = any(base.__name__ == "Tensor" for base in type(value).__mro__)
        self.seen.add(Seen(self.branches[number], taken, by_tensor))
        return taken


def rewritten_branches(path: str, original: str, rewritten: str) -> frozenset[Branch]:
    """The branches of a file that a rewrite touches.

    These are the ones whose test has a changed line, and the ones right before which lines were
    added. Indentation alone is no change.
    """
    if original == rewritten:
        return frozenset()
    before = [line.strip() for line in original.splitlines()]
    after = [line.strip() for line in rewritten.splitlines()]
    touched: set[int] = set()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, start, end, _, _ in matcher.get_opcodes():
        if tag == "insert":
            touched.add(_next_code_line(before, start))
        elif tag != "equal":
            touched.update(range(start + 1, end + 1))
    found = (
        branch_of(path, node)
        for node in _branching(ast.parse(original))
        if touched.intersection(range(node.lineno, (node.test.end_lineno or node.lineno) + 1))
    )
    return frozenset(found)


def concerned(texts: Iterable[tuple[str, str]], name: str) -> dict[str, list[range]]:
    """The lines, by file, of what a name at the top of a file uses, and what that uses, and so on.

    Names are matched wherever they are defined, so rather too much is found than too little.
    """
    return used_by(name, definitions_in(texts))


def definitions_in(texts: Iterable[tuple[str, str]]) -> Definitions:
    """What is at the top of files, by its names."""
    found: Definitions = {}
    for path, text in texts:
        for statement in ast.parse(text).body:
            for defined in _defined(statement):
                found.setdefault(defined, []).append((path, statement))
    return found


def used_by(name: str, definitions: Definitions) -> dict[str, list[range]]:
    """The lines that `concerned` finds, where the files have been parsed."""
    lines: dict[str, list[range]] = {}
    waiting, done = [name], {name}
    while waiting:
        for path, statement in definitions.get(waiting.pop(), ()):
            last = statement.end_lineno or statement.lineno
            lines.setdefault(path, []).append(range(statement.lineno, last + 1))
            for node in ast.walk(statement):
                used = node.id if isinstance(node, ast.Name) else None
                used = node.attr if isinstance(node, ast.Attribute) else used
                if used is not None and used not in done and used in definitions:
                    done.add(used)
                    waiting.append(used)
    return lines


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [node.id for node in statement.targets if isinstance(node, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return [statement.target.id]
    return []


def coverage(
    touched: Iterable[Branch],
    seen: Iterable[Seen],
    files: Iterable[str],
    decided: Iterable[Branch] = (),
) -> Coverage:
    """The arms of touched branches and of those, in rewritten files, that a tensor decided.

    Of branches that are decided once, before any call, one arm is all there is.
    An assertion on a tensor is no break as it stands, so it counts only where it was touched.
    """
    seen, files = list(seen), set(files)
    branches = set(touched)
    for arm in seen:
        if arm.by_tensor and arm.branch.file in files and arm.branch.kind != "assert":
            branches.add(arm.branch)
    taken = {(arm.branch, arm.taken) for arm in seen}
    once = {
        branch
        for branch in branches.intersection(decided)
        if ((branch, True) in taken) != ((branch, False) in taken)
    }
    missing = [
        branch.arm(arm)
        for branch in sorted(branches - once)
        for arm in (True, False)
        if (branch, arm) not in taken
    ]
    return Coverage(2 * len(branches) - len(once), tuple(missing))


def _branching(tree: ast.AST) -> Iterator[_Branching]:
    """The branches of a tree; one on a constant, as in `while True`, never goes the other way."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            if not isinstance(node.test, ast.Constant):
                yield node


def branch_of(path: str, node: _Branching) -> Branch:
    """A node of a file's tree as a value."""
    text = ast.unparse(node.test)
    kind = _KINDS[type(node)][0]
    return Branch(path, node.lineno, node.col_offset, kind, text)


def _next_code_line(lines: list[str], start: int) -> int:
    """The number, from 1, of the first line from an index on that is not blank or a comment."""
    for index in range(start, len(lines)):
        if lines[index] and not lines[index].startswith("#"):
            return index + 1
    return len(lines) + 1
