"""Write `after.py` and the measured parts of `case.toml` from what the tool does now.

    python -m tests.regenerate NAME...      (no name: every fixture)
    python -m tests.regenerate --measure    only `breaks_before`, without the tool

The result is for a person to review: the diff is printed, and after it whatever the checks of
`test_fixtures.py` would still complain about.
"""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path

from tests import harness
from tests.fixture_case import FIXTURES, FixtureCase


def main(arguments: list[str]) -> int:
    """Regenerate the named fixtures; the exit code says whether any check complains."""
    measure = "--measure" in arguments
    names = [a for a in arguments if not a.startswith("-")]
    names = names or sorted(path.parent.name for path in FIXTURES.glob("*/case.toml"))
    bad = 0
    for name in names:
        folder = FIXTURES / name
        _measure(folder)
        if measure:
            continue
        print(f"=== {name}")
        try:
            _rewrite(folder)
            complaints = _complaints(FixtureCase.load(folder))
        except Exception as error:
            complaints = [f"{type(error).__name__}: {error}"]
        for text in complaints:
            print("  !!", text)
        bad += bool(complaints)
    return min(bad, 1)


def _measure(folder: Path) -> None:
    case = FixtureCase.load(folder)
    breaks = harness.run_compiled(case, case.before).breaks
    toml = folder / "case.toml"
    text = re.sub(r"(?m)^breaks_before = .*\n", "", toml.read_text(encoding="utf-8"))
    end = text.index("]\n", text.index("inputs = [")) + 2
    toml.write_text(text[:end] + f"breaks_before = {breaks}\n" + text[end:], encoding="utf-8")


def _rewrite(folder: Path) -> None:
    case = FixtureCase.load(folder)
    result = harness.rewrite(case, case.before)
    case.after.write_bytes(result.before.encode(result.after))
    toml = folder / "case.toml"
    head = re.split(r"(?m)^\[\[finding\]\]", toml.read_text(encoding="utf-8"))[0].rstrip()
    findings = harness.found_by(result)
    toml.write_text(head + "\n" + "".join("\n" + f.toml() for f in findings), encoding="utf-8")
    lines = difflib.unified_diff(
        result.before.text.splitlines(),
        result.after.splitlines(),
        "before.py",
        "after.py",
        lineterm="",
    )
    print("\n".join(lines))
    for finding in result.findings:
        print(" ", finding.line, finding.code, finding.applied or finding.refusals)


def _complaints(case: FixtureCase) -> list[str]:
    found: list[str] = []
    if harness.rewrite(case, case.after).changed:
        found.append("a second run changes more")
    if not case.rewritten:
        return found
    for gradients in (False, True):
        before = harness.run_eager(case, case.before, gradients)
        after = harness.run_eager(case, case.after, gradients)
        found += [
            "eager " + text for text in harness.eager_differences(before, after, case.new_state)
        ]
        compiled = harness.run_compiled(case, case.after, gradients)
        found += harness.compiled_differences(case, before, compiled)
        if gradients:
            traced = harness.run_compiled(case, case.after, gradients, backend="aot_eager")
            texts = harness.compiled_differences(case, before, traced)
            found += ["aot_eager " + text for text in texts]
        else:
            if compiled.breaks >= (case.breaks_before or 0):
                found.append(f"breaks {case.breaks_before} before, {compiled.breaks} after")
            whole = harness.run_compiled(case, case.after, fullgraph=True)
            failing = [*harness.compiled_differences(case, before, whole)]
            if bool(failing) is case.expects_fullgraph:
                found += ["fullgraph " + text for text in failing or ["passes"]]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
