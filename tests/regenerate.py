"""Write `after.py` and the measured parts of `case.toml` from what the tool does now.

    python -m tests.regenerate NAME...      (no name: every fixture)
    python -m tests.regenerate --measure    only `breaks_before`, without the tool

The result is for a person to review: the diff is printed, and after it whatever the checks of
`test_fixtures.py` would still complain about.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from pathlib import Path

from gbfix.verify.worker import Workers
from tests import fixture_run
from tests.fixture_case import FIXTURES, FixtureCase
from tests.fixture_rewrite import found_by, rewrite


def main() -> int:
    """Regenerate the named fixtures; the exit code says whether any check complains."""
    parser = argparse.ArgumentParser("python -m tests.regenerate")
    parser.add_argument("names", nargs="*", help="folders of fixtures; all if none is named")
    parser.add_argument("--measure", action="store_true", help="only count the breaks before")
    given = parser.parse_args()
    measure = given.measure
    names = given.names or sorted(path.parent.name for path in FIXTURES.glob("*/case.toml"))
    bad = 0
    with Workers() as workers:
        for name in names:
            _measure(FIXTURES / name, workers)
            if not measure:
                bad += _regenerate(FIXTURES / name, workers)
    return min(bad, 1)


def _regenerate(folder: Path, workers: Workers) -> bool:
    """Write what the tool makes of a fixture, and say whether there is anything to complain about."""
    print(f"=== {folder.name}")
    try:
        _rewrite(folder)
        complaints = _complaints(FixtureCase.load(folder), workers)
    except Exception as error:
        complaints = [f"{type(error).__name__}: {error}"]
    for text in complaints:
        print("  !!", text)
    return bool(complaints)


def _measure(folder: Path, workers: Workers) -> None:
    case = FixtureCase.load(folder)
    breaks = len(fixture_run.captured(case, workers).breaks)
    toml = folder / "case.toml"
    text = re.sub(r"(?m)^breaks_before = .*\n", "", toml.read_text(encoding="utf-8"))
    end = text.index("]\n", text.index("inputs = [")) + 2
    toml.write_text(text[:end] + f"breaks_before = {breaks}\n" + text[end:], encoding="utf-8")


def _rewrite(folder: Path) -> None:
    case = FixtureCase.load(folder)
    result = rewrite(case, case.before)
    case.after.write_bytes(result.before.encode(result.after))
    toml = folder / "case.toml"
    head = re.split(r"(?m)^\[\[finding\]\]", toml.read_text(encoding="utf-8"))[0].rstrip()
    findings = found_by(result)
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


def _complaints(case: FixtureCase, workers: Workers) -> list[str]:
    found = ["a second run changes more"] if rewrite(case, case.after).changed else []
    if case.rewritten:
        verdict = fixture_run.verdict(case, workers)
        found += fixture_run.complaints(case, verdict)
        after = verdict.evidence.after
        if after is not None and after.fullgraph and not case.expects_fullgraph:
            found.append("it compiles as one graph, and `fullgraph = false` denies it")
    return found


if __name__ == "__main__":
    sys.exit(main())
