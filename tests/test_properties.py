"""Property tests: generated programs, rewritten, must do what they did and change nothing else.

The default run is short and the same every time. `GBFIX_EXAMPLES=2000` makes it long and random.
"""

from __future__ import annotations

import ast
import builtins
import os
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from gbfix import engine
from gbfix.findings import FileResult
from gbfix.settings import Branch, Region, Settings
from gbfix.source.text import SourceFile
from gbfix.verify.checker import verify_sides
from gbfix.verify.messages import RunSpec
from gbfix.verify.options import Options
from gbfix.verify.probing import GRADIENTS, Probe, probe
from gbfix.verify.verdict import REVIEW, Difference, Status
from gbfix.verify.worker import Workers
from tests import fixture_run
from tests.fixture_case import FixtureCase
from tests.generators import Program, programs

_EXAMPLES = int(os.environ.get("GBFIX_EXAMPLES", "0"))
_PATH = Path("generated.py")


def _profile(few: int) -> settings:
    return settings(
        max_examples=_EXAMPLES or few,
        derandomize=not _EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        print_blob=False,
    )


def apply(
    text: str | bytes, region: str = "auto", branch: str = "auto", safety: int | None = None
) -> FileResult:
    """Rewrite one file."""
    raw = text.encode() if isinstance(text, str) else text
    chosen = Settings(region=Region(region), branch=Branch(branch))
    if safety is not None:
        chosen = replace(chosen, safety=type(chosen.safety)(safety))
    result = engine.run([SourceFile.decode(_PATH, raw)], chosen)
    assert not result.errors, result.errors
    (file,) = result.files
    return file


# What the checker says


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Workers for all programs."""
    with Workers(1 if "PYTEST_XDIST_WORKER" in os.environ else None) as started:
        yield started


def eager_complaints(workers: Workers, program: Program, after: str) -> list[str]:
    """What differs in eager mode; a function that is only ever compiled has no such mode."""
    if program.decorated:
        return []
    with tempfile.TemporaryDirectory() as folder:
        case = _case(Path(folder), program, after)
        sides = [fixture_run.side(case, path) for path in (case.before, case.after)]
        inputs = fixture_run.inputs(case)
        mode = f"eager{GRADIENTS if program.gradients else ''}"
        how = Probe(sides[0], sides[1], mode, RunSpec(sides[0], inputs), "eager")
        return list(map(str, probe(workers, how, inputs).differences))


def complaints(workers: Workers, program: Program, result: FileResult) -> list[str]:
    """What is wrong with a rewrite in eager or compiled, as far as the checker sees.

    What the reasons of the fixes say may happen is no complaint, nor is a break that could not be
    helped; but there must not be more of them.
    """
    with tempfile.TemporaryDirectory() as folder:
        case = _case(Path(folder), program, result.after)
        options = Options(
            "eager",
            gradients=program.gradients,
            fullgraph_before=False,
            leeway=REVIEW,
            both_dynamic=False,
            shrink_seconds=0,
        )
        sides = [fixture_run.side(case, path) for path in (case.before, case.after)]
        verdict = verify_sides(workers, *sides, fixture_run.inputs(case), options)
    if verdict.status is Status.DIFFERENT:
        reasons = reasons_of(result)
        return [str(d) for d in verdict.differences if not _foretold(d, reasons)]
    before, after = verdict.evidence.before, verdict.evidence.after
    if verdict.status is not Status.NO_FEWER_BREAKS or before is None or after is None:
        return []
    # A frame that Dynamo skips whole has one break and no operators, so that more breaks with more
    # operators are progress.
    if len(after.breaks) > len(before.breaks) and after.operators <= before.operators:
        return [verdict.reason]
    return []


def _case(folder: Path, program: Program, after: str) -> FixtureCase:
    """A fixture case of a generated program."""
    (folder / "before.py").write_text(program.text, encoding="utf-8")
    (folder / "after.py").write_text(after, encoding="utf-8")
    return FixtureCase(folder, program.target, program.inputs)


def _foretold(difference: Difference, reasons: str) -> bool:
    """Whether a difference is the one that a fix names in its reason."""
    # What is not printed is not computed, and raises nothing.
    if "nothing is printed" in reasons and difference.detail.startswith("raises "):
        return True
    kinds = ("expected same dtype", "sorted order of strides", "same strides", "expected same dim")
    told = difference.detail
    return "dtype and stride" in reasons and any(kind in told for kind in kinds)


def reasons_of(result: FileResult) -> str:
    """The reasons of the fixes that were made."""
    return "; ".join(f.applied.reason for f in result.findings if f.applied is not None)


# What can be seen in the text


def rest_complaints(text: str, region: str = "auto", branch: str = "auto") -> list[str]:
    """Whether the tool is at rest after one run."""
    first = apply(text, region, branch)
    second = apply(first.after, region, branch)
    found = []
    if second.after != first.after:
        found.append(f"a second run changes the text:\n{second.after}")
    if any(f.applied for f in second.findings):
        found.append("a second run applies fixes")
    return found


def byte_complaints(result: FileResult) -> list[str]:
    """What has changed outside of the functions of applied findings."""
    before, after = result.before.text, result.after
    touched = {f.function for f in result.findings if f.applied is not None}
    if not touched:
        return [] if before == after else ["changed without an applied finding"]
    made = {f.applied.transform for f in result.findings if f.applied is not None}
    hoisted = "hoist" in made
    if "outline" in made:
        after = _without_new_functions(before, after)
    mine, theirs = _outside(before, touched), _outside(after, touched)
    left = iter(theirs)
    for line in mine:
        for other in left:
            if other == line:
                break
            if (
                other.strip() != "import torch"
                and not (hoisted and not other.strip())
                and not (hoisted and "= bool(" in other)
            ):
                return [f"{line!r} became {other!r}"]
        else:
            return [f"{line!r} is gone"]
    extra = [line for line in left if line.strip()]
    return [f"new lines: {extra}"] if extra else []


def _without_new_functions(before: str, after: str) -> str:
    """A text without the functions that another has not, and the blank lines behind each."""
    had = {name for name, _ in _functions(ast.parse(before), "")}
    lines = after.splitlines(keepends=True)
    for name, node in _functions(ast.parse(after), ""):
        if name not in had and node.decorator_list:
            assert node.end_lineno is not None
            blank = 1 if node.col_offset else 2
            for at in range(node.decorator_list[0].lineno - 1, node.end_lineno + blank):
                lines[at] = ""
    return "".join(lines)


def _outside(text: str, functions: set[str]) -> list[str]:
    lines = text.splitlines(keepends=True)
    for name, node in _functions(ast.parse(text), ""):
        if name in functions or any(name == f.split(".<locals>")[0] for f in functions):
            assert node.end_lineno is not None
            for at in range(node.body[0].lineno - 1, node.end_lineno):
                lines[at] = ""
    return [line for line in lines if line]


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        else:
            yield from _functions(node, prefix)


def name_complaints(before: str, after: str) -> list[str]:
    """Names that a rewrite introduces and that something already had."""
    old, new = ast.parse(before), ast.parse(after)
    had = _identifiers(old) | set(dir(builtins))
    bound_before = {name: _bound(node) for name, node in _functions(old, "")}
    found = []
    for name, node in _functions(new, ""):
        if name not in bound_before:
            continue
        clash = (_bound(node) - bound_before[name]) & had
        # A function that is nested in an arm may come out in two copies, parameters and all.
        if clash:
            found.append(f"{name} now binds {sorted(clash)}")
    return found


def _bound(node: ast.AST) -> set[str]:
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            found.add(inner.id)
        elif isinstance(inner, ast.arg):
            found.add(inner.arg)
        elif isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and inner is not node:
            found.add(inner.name)
    return found


def _identifiers(tree: ast.AST) -> set[str]:
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | _bound(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names}
    return names


def text_complaints(program: Program, result: FileResult) -> list[str]:
    """Everything that one can complain of without running the program."""
    ast.parse(result.after)
    return [
        *byte_complaints(result),
        *name_complaints(program.text, result.after),
    ]


# Programs that once failed, shrunk

_TORCH = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
_BUFFERED = """class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU(inplace=True)
        self.register_buffer("buf", torch.zeros(3, 3))
        self.cache = torch.zeros(3, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor):
"""
_FOUND = {
    "alias-before": "x = y\nif x.any():\n    y = y * 2\nx += y\nreturn y",
    "dead-result": "a = x\nif x.sum():\n    a = y\nreturn y",
    "ternary-then-in-place": "z = x if x.max() > 0 else y\nz *= 2\nreturn x",
    "in-place-function-later": (
        "z = x\nif y.max() > 0:\n    z = y * 2\nF.relu(x, inplace=True)\nreturn z"
    ),
    "in-place-layer-later": "z = x\nif y.max() > 0:\n    z = y * 2\nself.act(x)\nreturn z",
    "in-place-layer-in-arm": (
        "if y.max() > 0:\n    h = self.act(x)\nelse:\n    h = x + 1\nreturn h"
    ),
    "return-and-store": (
        "if y.max() > 0:\n    self.cache = x\n    return x * 2\nself.cache = y\nreturn y + 1"
    ),
    "print-with-effect": (
        'if x.any():\n    print("grown", x.add_(1).sum())\n    x = x * 2\nreturn x'
    ),
    "nested-ternary": "return (x if x.any() else x * 2) if (x > 0).any() else y",
    "equal-under-guard": (
        "z = x\nif self.training and torch.equal(x, y):\n    z = y + 1\nreturn z"
    ),
    "elif-with-static-part": (
        "if x.min() > 0:\n    y = y * 2\nelif self.training and y.any():\n    y = x\nreturn y"
    ),
    "unpacked-tensor": "y = F.gelu(y)\nif y.mean():\n    y, *z = y\nreturn y.sum()",
    "view-of-fresh": "y = F.gelu(y)\nif x.mean() > 0:\n    z = y.view(3, 3)\n    y = z\nreturn y",
    "two-names-of-one-tensor": (
        "if x.mean() > 0:\n    a = b = x + 1\nelse:\n    a = x * 2\n    b = a\nreturn a, b"
    ),
    "two-names-then-in-place": (
        "if x.mean() > 0:\n    a = b = x + 1\nelse:\n    a = x * 2\n    b = a\n"
        "a.add_(1)\nreturn a, b"
    ),
    "stored-buffer-changes-next-call": (
        "self.buf.add_(x)\nif x.mean() > 0:\n    self.cache = self.buf\nreturn self.cache + y"
    ),
    "buffer-first-met-in-arm": "if x.sum() > 0:\n    self.buf = x * 2\nreturn y",
    "bound-method-later": (
        "z = x\nif y.max() > 0:\n    z = y * 2\nchange = x.add_\nchange(1)\nreturn z"
    ),
}
_FOUND_INPUTS = (
    "(torch.rand(3, 3), torch.rand(3, 3) + 0.1)",
    "(-torch.rand(3, 3), -torch.rand(3, 3) - 0.1)",
    "(lambda t: (t, t))(-torch.rand(3, 3))",
)


@pytest.mark.parametrize("name", list(_FOUND))
def test_found_programs(name: str, workers: Workers) -> None:
    """What generated programs have found stays found out."""
    body = textwrap.indent(_FOUND[name], " " * 8)
    program = Program(f"{_TORCH}{_BUFFERED}{body}\n", "M", _FOUND_INPUTS)
    result = apply(program.text)
    assert text_complaints(program, result) == []
    assert rest_complaints(program.text) == []
    if result.changed:
        assert complaints(workers, program, result) == []


# The properties


@_profile(70)
@given(program=programs())
def test_eager_is_bit_identical(program: Program, workers: Workers) -> None:
    """Without the compiler nothing that can be seen has changed."""
    result = apply(program.text, program.region)
    if not result.changed:
        return
    note(result.after)
    assert eager_complaints(workers, program, result.after) == []


@_profile(32)
@given(program=programs())
def test_compiled_does_what_eager_did(program: Program, workers: Workers) -> None:
    """Compiled, the rewrite gives the original's results and breaks no more than it."""
    result = apply(program.text, program.region)
    if not result.changed:
        return
    note(result.after)
    assert complaints(workers, program, result) == []


@_profile(12)
@given(program=programs(), branch=st.sampled_from(["cond", "where"]))
def test_compiled_with_a_preferred_form(program: Program, branch: str, workers: Workers) -> None:
    """The same, with one form of branch asked for."""
    result = apply(program.text, program.region, branch)
    if not result.changed:
        return
    note(result.after)
    assert complaints(workers, program, result) == []


@_profile(60)
@given(programs(most=8), st.sampled_from(["auto", "cond", "where"]))
def test_a_second_run_changes_nothing(program: Program, branch: str) -> None:
    """Applying twice is applying once."""
    assert rest_complaints(program.text, program.region, branch) == []


@_profile(90)
@given(programs(most=8))
def test_text(program: Program) -> None:
    """The output parses, other functions keep their bytes, and no name is taken twice."""
    result = apply(program.text, program.region)
    note(result.after)
    assert text_complaints(program, result) == []


@_profile(36)
@given(programs(), st.sampled_from(["crlf", "bom", "tabs", "latin-1", "no-newline", "cr"]))
def test_line_endings_and_encodings(program: Program, style: str) -> None:
    """However the file is written, the rewrite is the same program in the same style."""
    assert style_complaints(program, style) == []


def style_complaints(program: Program, style: str) -> list[str]:
    """How the rewrite of a file in another style differs from that of the plain file."""
    marked = "# -*- coding: utf-8 -*-\n# caf\u00e9\n" + program.text.replace("\r", "")
    if style == "tabs":
        marked = "\n".join(_tabbed(line) for line in marked.split("\n"))
    plain = apply(marked, program.region).after
    if style == "tabs":
        base = apply("\n".join(_spaced(ln) for ln in marked.split("\n")), program.region).after
        spaced = "\n".join(_spaced(line) for line in plain.split("\n"))
        return [] if spaced == base else [f"tabs:\n{plain}\nagainst\n{base}"]
    encoding, text, wanted = "utf-8", marked, plain
    if style in ("crlf", "cr"):
        newline = "\r\n" if style == "crlf" else "\r"
        text, wanted = (t.replace("\n", newline) for t in (text, wanted))
    elif style == "bom":
        encoding = "utf-8-sig"
    elif style == "latin-1":
        encoding = "latin-1"
        text, wanted = (t.replace("utf-8", "latin-1", 1) for t in (text, wanted))
    elif style == "no-newline":
        text, wanted = text.rstrip("\n"), wanted.rstrip("\n")
    result = apply(text.encode(encoding), program.region)
    got = result.before.encode(result.after)
    if got == wanted.encode(encoding):
        return []
    return [f"{style}:\n{got.decode(encoding)!r}\nagainst\n{wanted!r}"]


def _tabbed(line: str) -> str:
    bare = line.lstrip(" ")
    steps, odd = divmod(len(line) - len(bare), 4)
    return "\t" * steps + " " * odd + bare


def _spaced(line: str) -> str:
    bare = line.lstrip("\t")
    return "    " * (len(line) - len(bare)) + bare
