"""What people read: plain lines, and colours with the site underlined on a terminal."""

from __future__ import annotations

import io
from pathlib import Path

from gbfix.findings import FileResult, Finding, FixOffer, Refusal, RunResult, Safety
from gbfix.report.spans import plain, print_lines
from gbfix.report.text import apply_lines, check_lines
from gbfix.source.text import SourceFile

SOURCE = SourceFile(Path("m.py"), "if x.sum() > 0:\n\tif y\x1b:\n        pass\n")
COND = FixOffer("cond", Safety.REVIEW, "both arms run in the graph")
HOIST = FixOffer("hoist", Safety.UNSAFE, "the buffer may change later")


def finding(line: int, **changes: object) -> Finding:
    fields: dict[str, object] = {
        "path": SOURCE.path,
        "line": line,
        "column": 4,
        "end_line": 1,
        "end_column": 15,
        "code": "GBF101",
        "name": "tensor-branch",
        "message": "branch on `x.sum() > 0`.",
        "function": "f",
        "certain": True,
    }
    return Finding(**{**fields, **changes})  # type: ignore[arg-type]


def result(*findings: Finding) -> RunResult:
    return RunResult((FileResult(SOURCE.path, SOURCE, SOURCE.text, findings),))


REFUSED = finding(2, certain=False, refusals=(Refusal("cond", "impure-arm", "An arm prints."),))


def test_check() -> None:
    report = plain(check_lines(result(finding(1, offers=(COND, HOIST)), REFUSED)))
    assert report == (
        "m.py:1:4: GBF101 tensor-branch branch on `x.sum() > 0`. "
        "[fixable: cond (review), hoist (unsafe)]\n"
        "m.py:2:4: GBF101 tensor-branch branch on `x.sum() > 0`. [possible; not fixable]\n"
        "    cond: impure-arm: An arm prints.\n"
        "Found 2 break sites in 1 file; 1 fixable, 1 not.\n"
    )


def test_apply_names_everything_that_it_leaves() -> None:
    findings = (
        finding(1, offers=(COND,), applied=COND),
        finding(2, offers=(HOIST,), refusals=(Refusal("where", "two-shapes", "Shapes differ."),)),
        REFUSED,
    )
    report = plain(apply_lines(result(*findings), written=True, safety=Safety.REVIEW))
    assert report == (
        "m.py:1:4: GBF101 tensor-branch fixed by cond (review): both arms run in the graph\n"
        "\n"
        "Not fixed:\n"
        "m.py:2:4: GBF101 tensor-branch branch on `x.sum() > 0`.\n"
        "    hoist: unsafe: --unsafe takes it: the buffer may change later\n"
        "    where: two-shapes: Shapes differ.\n"
        "m.py:2:4: GBF101 tensor-branch branch on `x.sum() > 0`. [possible]\n"
        "    cond: impure-arm: An arm prints.\n"
        "\n"
        "Fixed 1 of 3 break sites in 1 file; 2 left as they are.\n"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_the_site_underlined_and_no_escape_codes_of_the_source() -> None:
    terminal = Terminal()
    print_lines(check_lines(result(finding(1), REFUSED), excerpts=True), terminal)
    shown = terminal.getvalue()
    assert "     1 | if x.sum() > 0:" in plain(check_lines(result(finding(1)), excerpts=True))
    assert "       |    ^^^^^^^^^^^" in plain(check_lines(result(finding(1)), excerpts=True))
    assert "y\x1b" not in shown
