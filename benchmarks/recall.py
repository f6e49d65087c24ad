"""How much of what Dynamo breaks on `check` finds by reading, and how much of what it says is wrong.

Each row of `models.py` is run in a fresh process, once in eager to see which functions and lines are
executed, and once compiled while `gbfix.trace` records. The static analysis then reads the files that
were executed, without the trace, and the two are matched:

- attributed: the share of Dynamo's places that are joined to a site in the source;
- recall: the share of Dynamo's places at which `check` reports a site by itself;
- false alarms: the share of the sites that `check` reports which Dynamo has looked at without breaking.
  A site is one that it has looked at if a call reached it (for a test, all of its operands: of
  `config.flag and x.any()` the second) and its frame was not skipped as a whole at an earlier line. Of
  what no call reached, such as a warning about a setting, and of what is behind a skip, Dynamo cannot
  tell. With the latter, and with all sites in executed functions, the shares are given too.

    python benchmarks/recall.py                 # all rows
    python benchmarks/recall.py --rows t5 bart
    python benchmarks/recall.py --save          # write results/recall.json and recall.md
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
TIMEOUT = 1200
Result = dict[str, Any]
Site = tuple[str, int]
Place = tuple[int | None, int | None, int | None, int | None]


# One row, in a process of its own


@dataclass
class Executed:
    """What an eager run has executed in the files of a package."""

    package: str
    functions: set[tuple[str, int, str]]
    lines: set[Site]
    places: dict[str, set[Place]]
    """By file, the expressions that were evaluated, where lines alone do not tell."""

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        """A trace function for `sys.settrace`."""
        code = frame.f_code
        if not code.co_filename.startswith(self.package):
            return None
        self.functions.add((code.co_filename, code.co_firstlineno, code.co_name))
        self.lines.add((code.co_filename, frame.f_lineno))
        if code.co_filename in self.places:
            frame.f_trace_opcodes = True
            if event == "opcode":
                self.places[code.co_filename].add(_positions(code)[frame.f_lasti // 2])
        return self.trace


@cache
def _positions(code: Any) -> list[Place]:
    """Of each instruction: its line, its last line, its column and its end."""
    return list(code.co_positions())


def measure(row: str) -> Result:
    """Run one row and match what Dynamo reports with what the analysis says."""
    import models
    import torch
    import trees

    import gbfix.trace
    from gbfix.engine import run
    from gbfix.settings import Settings
    from gbfix.source.loading import load
    from gbfix.trace import joining
    from gbfix.trace.ownership import Owned
    from gbfix.trace.places import places

    torch.set_num_threads(1)
    package = trees.stock()
    executed = Executed(str(package), set(), set(), {})
    case = models.build(row)

    def run_eager() -> None:
        sys.settrace(executed.trace)
        try:
            for inputs in case.calls:
                case.model(**inputs)
        finally:
            sys.settrace(None)

    with torch.no_grad():
        run_eager()
        with gbfix.trace.record(triage=False) as recording:
            compiled = torch.compile(case.model, backend="eager", dynamic=False)
            for inputs in case.calls:
                compiled(**inputs)
    trace = recording.trace
    owned = Owned([package])
    names = {file for file, _, _ in executed.functions}
    sources = load(sorted(Path(name) for name in names)).sources
    static = run(sources, Settings(), rewrite=False)
    told = run(sources, Settings(), rewrite=False, observed=joining.observed(trace))
    by_itself = joining.join(trace, static, owned)
    met = [f for f in by_itself.findings if f.seen is None or f.seen.met]
    found = [f for f in met if f.code.startswith("GBF")]
    attributed = joining.join(trace, told, owned)
    where = places(trace, owned)
    ours = {_key(f, package) for f in found}
    reported = [f for file in static.files for f in file.findings]
    inside = [f for f in reported if _is_executed(f, executed)]
    alarms = [f for f in inside if _key(f, package) not in ours]
    executed.places |= {str(f.path): set() for f in alarms if _lines_ran(f, executed)}
    with torch.no_grad():
        run_eager()
    return {
        "row": row,
        "broke": [_place(p, package) for p in where],
        "attributed": len({_key(f, package) for f in attributed.findings if f.seen.met}),
        "unplaced": [_place(p, package) for p in attributed.unplaced],
        "missed": [_finding(f, package) for f in met if not f.code.startswith("GBF")],
        "found": [_finding(f, package) for f in found],
        "reported": len(reported),
        "inside": len(inside),
        "alarms": [
            {
                **_finding(f, package),
                "executed": _lines_ran(f, executed) and _evaluated(f, executed),
                "skipped": _is_skipped(f, trace),
            }
            for f in alarms
        ],
        "notes": list(trace.notes),
        "errors": [error.sentence for error in static.errors],
    }


def _is_executed(finding: Any, executed: Executed) -> bool:
    """Whether the innermost function around a site was executed."""
    return _function(finding) in executed.functions


def _function(finding: Any) -> tuple[str, int, str] | None:
    """File, first line and name of the innermost function around a site."""
    tree = _tree(str(finding.path))
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= finding.line <= (node.end_lineno or node.lineno)
    ]
    if not around:
        return None
    inner = max(around, key=lambda node: node.lineno)
    first = min([inner.lineno, *(d.lineno for d in inner.decorator_list)])
    return str(finding.path), first, inner.name


def _lines_ran(finding: Any, executed: Executed) -> bool:
    lines = range(finding.line, finding.end_line + 1)
    return any((str(finding.path), line) in executed.lines for line in lines)


def _evaluated(finding: Any, executed: Executed) -> bool:
    """Whether all operands of a test were evaluated."""
    places = executed.places[str(finding.path)]
    start, end = (finding.line, finding.column - 1), (finding.end_line, finding.end_column - 1)
    tests = [
        node
        for node in ast.walk(_tree(str(finding.path)))
        if isinstance(node, ast.BoolOp)
        and start <= (node.lineno, node.col_offset)
        and (node.end_lineno, node.end_col_offset) <= end
    ]
    return all(
        any(
            (operand.lineno, operand.col_offset) <= (line, column)
            and (last, stop) <= (operand.end_lineno, operand.end_col_offset)
            for line, last, column, stop in places
            if line is not None and last is not None and column is not None and stop is not None
        )
        for test in tests
        for operand in test.values
    )


def _is_skipped(finding: Any, trace: Any) -> bool:
    """Whether Dynamo skipped the frame, or the rest of it, before it came to a site."""
    function = _function(finding)
    return any(
        (one.code.file, one.code.line, one.code.function) == function
        and one.place.file == str(finding.path)
        and one.place.line <= finding.line
        for one in trace.breaks
        if one.effect.value.startswith("skips")
    )


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def _key(finding: Any, package: Path) -> tuple[str, int, int]:
    return str(Path(finding.path).relative_to(package)), finding.line, finding.column


def _finding(finding: Any, package: Path) -> Result:
    file, line, _ = _key(finding, package)
    return {
        "site": f"{file}:{line}",
        "code": finding.code,
        "message": finding.message,
        "certain": finding.certain,
        "registry": finding.seen.registry if finding.seen else None,
    }


def _place(place: Any, package: Path) -> Result:
    file = place.frame.file.removeprefix(f"{package}/")
    return {
        "site": f"{file}:{place.frame.line}",
        "text": place.frame.text,
        "reason": str(place.reason),
        "fragments": place.fragments,
    }


# All rows


def run_row(row: str) -> Result:
    """Measure a row in a fresh process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TORCH")}
    environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, __file__, "--measure", row]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"row": row, "error": f"no result after {TIMEOUT} seconds"}
    if done.returncode:
        return {"row": row, "error": done.stderr[-1500:]}
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def figures(results: list[Result]) -> Result:
    """The figures over distinct places of all rows."""
    broke = {p["site"] for r in results for p in r["broke"]}
    unplaced = {p["site"] for r in results for p in r["unplaced"]}
    missed = {f["site"] for r in results for f in r["missed"]}
    found = {f["site"] for r in results for f in r["found"]}
    alarms = {f["site"]: f for r in results for f in r["alarms"] if f["site"] not in found}
    ran = {site for site, f in alarms.items() if f["executed"]}
    met = {site for site in ran if not alarms[site]["skipped"]}
    inside = len(found) + len(alarms)
    sure = {f["site"] for r in results for f in r["found"] if f["certain"]}
    wrong = {site for site in met if alarms[site]["certain"]}
    return {
        "places": len(broke),
        "attributed": (len(broke) - len(unplaced)) / max(len(broke), 1),
        "found": len(found),
        "missed": sorted(missed - found),
        "recall": len(found) / max(len(found | missed), 1),
        "reported_in_executed_functions": inside,
        "false_alarms": sorted(met),
        "false_alarm_share": len(met) / max(len(found) + len(met), 1),
        "false_alarms_and_behind_skips": sorted(ran),
        "false_alarm_share_with_behind_skips": len(ran) / max(len(found) + len(ran), 1),
        "reported_and_not_broken_on": sorted(alarms),
        "share_of_all_in_executed_functions": len(alarms) / max(inside, 1),
        "false_alarm_share_of_certain_sites": len(wrong) / max(len(sure) + len(wrong), 1),
        "certain_false_alarms": sorted(wrong),
    }


def markdown(results: list[Result], total: Result) -> str:
    """The table and the lists."""
    import platform

    import torch

    lines = [
        "# What `check` finds of what Dynamo breaks on",
        "",
        f"torch {torch.__version__}, transformers 4.52.4, Python {platform.python_version()}, CPU; "
        'random weights, all calls of each row, `backend="eager"`. '
        "Made by `python benchmarks/recall.py --save`.",
        "",
        "| row | places | attributed | found by `check` | sites in executed functions | "
        "reached without a break (behind a skip) | not reached |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in results:
        if "error" in r:
            lines.append(f"| {r['row']} | error | | | | | |")
            continue
        ran = sum(f["executed"] for f in r["alarms"])
        behind = sum(f["executed"] and f["skipped"] for f in r["alarms"])
        lines.append(
            f"| {r['row']} | {len(r['broke'])} | {len(r['broke']) - len(r['unplaced'])} | "
            f"{len(r['found'])} | {r['inside']} | {ran} ({behind}) | {len(r['alarms']) - ran} |"
        )
    lines += [
        "",
        f"Distinct places: {total['places']}; attributed {total['attributed']:.2f}; "
        f"recall {total['recall']:.2f}. False alarms among the sites that Dynamo has looked at: "
        f"{total['false_alarm_share']:.2f} (among certain ones "
        f"{total['false_alarm_share_of_certain_sites']:.2f}); with those in frames that it had skipped "
        f"at an earlier line {total['false_alarm_share_with_behind_skips']:.2f}. Of all sites in "
        f"executed functions, a share of {total['share_of_all_in_executed_functions']:.2f} was not "
        "broken on in these calls, most of it on lines that none of them reached: warnings about "
        "settings, dropout of layers in training, attention of other kinds.",
        "",
        "A site counts as looked at if all operands of its test were evaluated in some row and "
        "Dynamo came to it; a row that breaks at it makes it a place.",
    ]
    found = {f["site"] for r in results for f in r.get("found", ())}
    missed = {f["site"]: f for r in results for f in r.get("missed", ())}
    alarms = {f["site"]: f for r in results for f in r.get("alarms", ()) if f["site"] not in found}
    groups = (
        ("Not found", [f for site, f in missed.items() if site not in found]),
        ("False alarms", [f for f in alarms.values() if f["executed"] and not f["skipped"]]),
        ("Behind a skip", [f for f in alarms.values() if f["executed"] and f["skipped"]]),
        ("Not reached", [f for f in alarms.values() if not f["executed"]]),
    )
    for title, group in groups:
        if group:
            lines += ["", f"## {title}", ""]
            group.sort(key=lambda f: str(f["site"]))
            lines += [f"- `{f['site']}` {f['code']}: {f['message']}" for f in group]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--measure", metavar="ROW", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure)))
        return 0
    import models

    results: list[Result] = []
    for row in given.rows or list(models.ROWS):
        started = time.monotonic()
        results.append(run_row(row))
        state = results[-1].get("error", "done")
        print(f"{row}: {state} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)
    good = [r for r in results if "error" not in r]
    total = figures(good)
    text = markdown(results, total)
    print(text)
    if given.save:
        RESULTS.joinpath("recall.md").write_text(text, encoding="utf-8")
        content = {"figures": total, "rows": results}
        RESULTS.joinpath("recall.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    counts = Counter(f["code"] for r in good for f in r["alarms"])
    print(dict(counts), file=sys.stderr)
    return int(len(good) < len(results))


if __name__ == "__main__":
    sys.exit(main())
