"""Walks over syntax trees, made fast: most of the time of an analysis would else be spent in them.

The `ast` module's own `walk` asks every node for every field. Here a table says once which fields
of a class can hold nodes; contexts and operators, which nobody visits by themselves, are left out.
The module knows nothing of what the nodes mean.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import ParamSpec, TypeVar, cast

# Fields that hold contexts, operators, identifiers and the like.
_PLAIN = frozenset(
    "ctx op ops id attr arg name module level asname is_async conversion simple kind type_comment "
    "rest kwd_attrs".split()
)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_STATEMENTS = ("body", "handlers", "orelse", "finalbody", "cases")  # in the order of the source
SIMPLE = frozenset(
    {
        ast.Expr,
        ast.Assign,
        ast.AnnAssign,
        ast.AugAssign,
        ast.Return,
        ast.Raise,
        ast.Assert,
        ast.Pass,
    }
    | {ast.Import, ast.ImportFrom, ast.Break, ast.Continue, ast.Delete, ast.Global, ast.Nonlocal}
)
_GAPS = frozenset({"keys", "kw_defaults"})  # lists in which None stands for what is left out
_WHOLE_KEPT = 1024
_WALKED_OFTEN = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.For, ast.While, ast.If})


def _node_fields(kind: type[ast.AST]) -> tuple[str, ...]:
    if kind.__name__ == "TypeAlias":
        return kind._fields
    if issubclass(kind, (ast.Global, ast.Nonlocal, ast.Constant, ast.MatchSingleton)):
        return ()
    return tuple(name for name in kind._fields if name not in _PLAIN)


_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}


def children(node: ast.AST) -> list[ast.AST]:
    """The direct children of a node, in source order; no contexts and operators."""
    kind = type(node)
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = _node_fields(kind)
    found: list[ast.AST] = []
    for name in fields:
        value = getattr(node, name, None)
        if value.__class__ is list:
            found += [v for v in value if v is not None] if name in _GAPS else value
        elif value is not None:
            found.append(value)
    return found


def _walk(root: ast.AST) -> list[ast.AST]:
    fields_of = _FIELDS
    found: list[ast.AST] = [root]
    append, extend = found.append, found.extend
    # The list grows while it is read: breadth first, as `ast.walk` goes.
    for node in found:
        kind = node.__class__
        try:
            fields = fields_of[kind]
        except KeyError:
            fields = fields_of[kind] = _node_fields(kind)
        for name in fields:
            value = getattr(node, name, None)
            if value.__class__ is list:
                extend([v for v in value if v is not None] if name in _GAPS else value)
            elif value is not None:
                append(value)
    return found


Found = TypeVar("Found")
Given = ParamSpec("Given")
Node = TypeVar("Node", bound=ast.AST)
_caches: list[Callable[[], None]] = []


def kept(made: Callable[Given, Found]) -> Callable[Given, Found]:
    """Keep for a while what is made of the tree of a function; `forget` lets go of it."""
    cached = lru_cache(maxsize=_WHOLE_KEPT)(made)
    _caches.append(cached.cache_clear)
    return cast(Callable[Given, Found], cached)


_kept = kept(_walk)


def walk(root: ast.AST) -> Sequence[ast.AST]:
    """A node and everything below it, breadth first; no contexts and operators.

    What is below a function or a block is kept for a while, since it is asked for again and again; a
    tree must not be changed once it was walked.
    """
    if root.__class__ in _WALKED_OFTEN:
        return _kept(root)
    return _walk(root)


@kept
def _by_kind(root: ast.AST) -> dict[type[ast.AST], list[ast.AST]]:
    found: dict[type[ast.AST], list[ast.AST]] = {}
    for node in walk(root):
        kind = node.__class__
        if kind in found:
            found[kind].append(node)
        else:
            found[kind] = [node]
    return found


def of_kind(root: ast.AST, kind: type[Node]) -> Sequence[Node]:
    """The nodes of one class below a function or a block, in the order of `walk`; kept as well."""
    return cast(Sequence[Node], _by_kind(root).get(kind, ()))


def is_generator(function: ast.AST) -> bool:
    """Whether something below a function is handed out by `yield`."""
    return bool(of_kind(function, ast.Yield) or of_kind(function, ast.YieldFrom))


def loops_around(
    node: ast.AST | None, function: ast.AST, parents: Mapping[ast.AST, ast.AST]
) -> Iterator[ast.For | ast.AsyncFor | ast.While]:
    """The loops of a function that a node stands in, or is, the innermost first."""
    while node is not None and node is not function:
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            yield node
        node = parents.get(node)


def forget() -> None:
    """Let go of all trees that are kept, and of what was made of them."""
    for clear in _caches:
        clear()


def statements(root: ast.AST) -> list[ast.AST]:
    """The statements below a node, with handlers and cases, in the order in which `walk` goes."""
    found: list[ast.AST] = [root]
    for node in found:
        if node.__class__ in SIMPLE:
            continue
        for name in _STATEMENTS:
            block = getattr(node, name, None)
            if block.__class__ is list:
                found += block
    return found


def blocks(node: ast.AST) -> Iterator[list[ast.AST]]:
    """The blocks of statements (or handlers, or cases) directly inside a node."""
    if node.__class__ in SIMPLE:
        return
    for name in _BLOCKS:
        block = getattr(node, name, None)
        if block.__class__ is list:
            yield block


def nodes_on(root: ast.AST, lines: Sequence[int]) -> Iterator[ast.AST]:
    """Nodes of a tree that reach over one of some lines (sorted, from 1), breadth first."""
    found = [root]
    for node in found:
        first = getattr(node, "lineno", None)
        if first is not None:
            for decorator in getattr(node, "decorator_list", ()):
                first = min(first, decorator.lineno)
            at = bisect_right(lines, first - 1)
            if at >= len(lines) or lines[at] > (getattr(node, "end_lineno", None) or first):
                continue
        yield node
        if isinstance(node, ast.Module):
            found += _over(node.body, lines)
        elif isinstance(node, ast.ClassDef):
            found += (*node.bases, *node.keywords, *_over(node.body, lines), *node.decorator_list)
            found += getattr(node, "type_params", ())
        else:
            found += children(node)


def _over(body: Sequence[ast.stmt], lines: Sequence[int]) -> list[ast.AST]:
    """The statements of a block that reach over one of some lines."""
    found: set[int] = set()
    for line in lines:
        at = bisect_right(body, line, key=first_line) - 1
        while at >= 0 and (body[at].end_lineno or body[at].lineno) >= line:
            found.add(at)
            at -= 1
    return [body[at] for at in sorted(found)]


class Parents(dict[ast.AST, ast.AST]):
    """The parent of each node of a module, found for one top-level statement or method at a time."""

    def __init__(self, tree: ast.Module) -> None:
        super().__init__()
        self._todo: list[ast.stmt] = list(tree.body)
        self._starts: list[int] | None = None
        self._tree = tree
        for statement in tree.body:
            self[statement] = tree

    def _fill(self, root: ast.AST) -> None:
        found = [root]
        for node in found:
            below = children(node)
            for child in below:
                self[child] = node
            found += below

    def _find(self, body: Sequence[ast.stmt], line: int) -> None:
        """Fill in what stands on a line."""
        at = bisect_right(body, line, key=first_line) - 1
        # Several statements can share a line, each of them after the first beginning on it.
        while at >= 0:
            statement = body[at]
            if isinstance(statement, ast.ClassDef):
                for child in children(statement):
                    self[child] = statement
                for part in (*statement.bases, *statement.keywords, *statement.decorator_list):
                    self._fill(part)
                self._find(statement.body, line)
            else:
                self._fill(statement)
            if first_line(statement) != line:
                return
            at -= 1

    def __missing__(self, node: ast.AST) -> ast.AST:
        if node is self._tree:
            raise KeyError(node)
        line = getattr(node, "lineno", None)
        if line is not None:
            self._find(self._tree.body, line)
        if not dict.__contains__(self, node):
            # A node without a place of its own, such as a comprehension.
            if self._todo:
                self._todo = []
                self._fill(self._tree)
        return self._known(node)

    def _known(self, node: ast.AST) -> ast.AST:
        if not dict.__contains__(self, node):
            raise KeyError(node)
        return dict.__getitem__(self, node)

    def __contains__(self, node: object) -> bool:
        return isinstance(node, ast.AST) and self.get(node) is not None

    def get(self, node: ast.AST, default: ast.AST | None = None) -> ast.AST | None:  # type: ignore[override]
        """The parent, or the default for the module itself and for nodes of other trees."""
        try:
            return self[node]
        except KeyError:
            return default


def first_line(statement: ast.stmt) -> int:
    """The line on which a statement begins, decorators included."""
    decorators = getattr(statement, "decorator_list", None)
    return min(statement.lineno, decorators[0].lineno) if decorators else statement.lineno


def takes_all(case: ast.match_case) -> bool:
    """Whether a case is `case _:`, or binds a name to whatever there is."""
    pattern = case.pattern
    return case.guard is None and isinstance(pattern, ast.MatchAs) and pattern.pattern is None
