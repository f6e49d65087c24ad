"""How fast `check` and `quickfix` are, as ratios within one run.

    python benchmarks/speed.py FOLDER [--torchfix PYTHON] [--save FILE]

FOLDER is best the folder of an installed `transformers==4.52.4`. Times are of the processor, not of
the clock, and come from fresh processes, so that other work on the machine counts little; two
processes are compared with one by the clock, on a machine that has nothing else to do.

What is compared with is `ast.parse` as anybody would call it: one plain Python that has read all files
before, in a loop, with the garbage collector on. gbfix is measured as its users run it: start, reading
and printing included. `--torchfix` names a Python that has torchfix.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PARSE = """
import ast, pathlib, sys, time, warnings
warnings.simplefilter("ignore")
texts = [p.read_text(encoding="utf-8") for p in sorted(pathlib.Path(sys.argv[1]).rglob("*.py"))]
start = time.process_time()
for text in texts:
    ast.parse(text)
print(time.process_time() - start)
"""
# Compiled files are kept, as they are where gbfix is installed.
_ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Cost:
    """What one process used: seconds of the processor and of the clock, and MB at its peak."""

    processor: float
    clock: float
    memory: float


def run(*command: str, output: int | None = subprocess.DEVNULL) -> Cost:
    """Run a command to its end and say what it cost, its own processes included."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, env=_ENVIRONMENT)
    _, _, used = os.wait4(child.pid, 0)
    clock = time.perf_counter() - start
    return Cost(used.ru_utime + used.ru_stime, clock, used.ru_maxrss / 1e3)


def gbfix(*arguments: str, output: int | None = subprocess.DEVNULL) -> Cost:
    """Run gbfix with some arguments."""
    return run(sys.executable, "-m", "gbfix", *arguments, output=output)


def parse_cost(folder: Path) -> float:
    """Seconds for `ast.parse` of all files."""
    command = [sys.executable, "-c", _PARSE, str(folder)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torchfix", metavar="PYTHON")
    parser.add_argument("--save", type=Path, metavar="FILE")
    given = parser.parse_args()
    folder = str(given.folder)
    gbfix("check", __file__, "--no-cache")  # so that everything is compiled
    parse = parse_cost(given.folder)
    with tempfile.TemporaryDirectory() as kept, (Path(kept) / "found").open("wb") as found:
        cold = gbfix("check", folder, "-j", "1", "--cache-dir", kept, "--output-format", "json",
                     output=found.fileno())  # fmt: skip
        warm = gbfix("check", folder, "-j", "1", "--cache-dir", kept)
        findings = json.loads((Path(kept) / "found").read_text(encoding="utf-8"))["findings"]
    again = parse_cost(given.folder)  # other work may have come or gone meanwhile
    # By the clock, other work counts: each is run three times, in alternation.
    runs = [[gbfix("check", folder, "-j", j, "--no-cache").clock for j in "12"] for _ in range(3)]
    one, two = (middle(list(clocks)) for clocks in zip(*runs, strict=True))
    quick = list(quickfixes(given.folder, findings))
    parsing = (parse + again) / 2
    figures: dict[str, float] = {
        "files": sum(1 for _ in given.folder.rglob("*.py")),
        "ast.parse, seconds": parsing,
        "check, seconds": cold.processor,
        "check / ast.parse": cold.processor / parsing,
        "check, peak MB": cold.memory,
        "warm / cold": warm.processor / cold.processor,
        "one process / two, by the clock": one / two,
        "quickfix of 2,000 lines, ms of processor, median of places": middle(
            [cost.processor * 1e3 for cost in quick]
        ),
        "quickfix of 2,000 lines, ms of processor, slowest place": max(
            cost.processor * 1e3 for cost in quick
        ),
        "quickfix of 2,000 lines, ms by the clock, median of places": middle(
            [cost.clock * 1e3 for cost in quick]
        ),
    }
    if given.torchfix:
        other = run(given.torchfix, "-m", "torchfix", "--select=ALL", folder)
        figures["torchfix, seconds"] = other.processor
        figures["torchfix / check"] = other.processor / cold.processor
    figures["processors"] = os.cpu_count() or 1
    figures["load when done"] = os.getloadavg()[0]
    text = json.dumps(
        {"python": platform.python_version(), **{k: round(v, 3) for k, v in figures.items()}},
        indent=2,
    )
    print(text)
    if given.save:
        given.save.write_text(text + "\n", encoding="utf-8")


def middle(values: list[float]) -> float:
    """The median."""
    return sorted(values)[len(values) // 2]


def quickfixes(folder: Path, findings: list[dict[str, object]]) -> Iterator[Cost]:
    """The cheapest of three answers for every finding of a file of about 2,000 lines."""
    sizes = {path: path.read_bytes().count(b"\n") for path in folder.rglob("*.py")}
    lines: dict[Path, set[int]] = {}
    for finding in findings:
        lines.setdefault(Path(str(finding["path"])), set()).add(int(str(finding["line"])))
    path = min(lines, key=lambda p: (abs(sizes.get(p, 0) - 2000), p))
    for line in sorted(lines[path])[:8]:
        costs = [gbfix("quickfix", f"{path}:{line}") for _ in range(3)]
        yield min(costs, key=lambda cost: cost.processor)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
