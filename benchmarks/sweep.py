"""Runs the engine over a whole code base and checks the promises that hold everywhere.

    python benchmarks/sweep.py PATH [--region forward]

For every file: no internal error, the output is valid Python, a second run changes nothing, and
every changed line lies in a function with an applied fix, in one that calls it, or in a constructor
(or is an added import). Prints the time,
what was found and fixed, and why the rest was left. Exits with 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import re
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from gbfix import engine
from gbfix.findings import FileResult
from gbfix.settings import Region, Settings
from gbfix.source.loading import load


def strays(file: FileResult) -> list[int]:
    """Changed lines (of the original) in no function that an applied fix may edit.

    A fix may edit the function it stands in, what calls that by name, and constructors.
    """
    before, after = file.before.text.splitlines(), file.after.splitlines()
    functions = [
        (node.name, node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(ast.parse(file.before.text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    fixed = [
        (name, first, end)
        for name, first, end in functions
        if any(f.applied and first <= f.line < end for f in file.findings)
    ]
    called = re.compile("|".join(rf"\b{name}\s*\(" for name, *_ in fixed) or r"\Z\A")
    spans = [
        (first, end)
        for name, first, end in functions
        if (name, first, end) in fixed
        or name == "__init__"
        or called.search("\n".join(before[first : end - 1]))
    ]
    found = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal" or after[new_start:new_end] == ["import torch"]:
            continue
        if not any(a <= start + 1 and end <= b for a, b in spans):
            found.append(start + 1)
    return found


def main() -> int:
    """Run the sweep and print its report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--region", default="forward", choices=[r.value for r in Region])
    parser.add_argument("--line-length", type=int, default=119)
    arguments = parser.parse_args()
    paths = sorted(arguments.path.rglob("*.py"))
    sources = load(paths).sources
    lines = sum(s.text.count("\n") for s in sources)
    settings = Settings(region=Region(arguments.region), line_length=arguments.line_length)
    start = time.perf_counter()
    result = engine.run(sources, settings)
    took = time.perf_counter() - start
    changed = [f for f in result.files if f.changed]
    print(f"{len(sources)} files, {lines} lines, {took:.0f} s, {len(changed)} files changed")
    broken = [f"{e.path}: {e.sentence}" for e in result.errors]
    broken += list(result.notices)
    for file in changed:
        try:
            ast.parse(file.after)
        except SyntaxError as error:
            broken.append(f"{file.path}: invalid Python: {error}")
        broken += [f"{file.path}:{line}: changed outside of a fix" for line in strays(file)]
    again = {f.path: f.after for f in result.files}
    second = engine.run([replace(s, text=again.get(s.path, s.text)) for s in sources], settings)
    broken += [f"{f.path}: a second run changes more" for f in second.files if f.changed]
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for file in result.files:
        for finding in file.findings:
            how = finding.applied.transform if finding.applied else "left"
            counts[f"{finding.code} {how}{'' if finding.certain else ' (possible)'}"] += 1
            if not finding.applied and finding.certain:
                reasons.update(f"{r.transform}: {r.code}" for r in finding.refusals)
    for title, table in (("sites", counts), ("reasons of certain sites left", reasons)):
        print(f"\n{title}")
        for name, number in table.most_common():
            print(f"  {number:5d}  {name}")
    print(f"\n{len(broken)} broken promises")
    for text in broken[:40]:
        print(f"  {text}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
