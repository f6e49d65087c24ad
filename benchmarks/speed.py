"""How fast `check` and `quickfix` are, as ratios within one run.

    python benchmarks/speed.py FOLDER [--torchfix PYTHON]

FOLDER is best the folder of an installed `transformers==4.52.4`. Times are of the processor, not of
the clock, and come from fresh processes, so that other work on the machine counts little; two
processes are compared by the clock. `--torchfix` names a Python that has torchfix.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

_PARSE = """
import ast, gc, pathlib, sys, time
texts = [p.read_text(encoding="utf-8") for p in sorted(pathlib.Path(sys.argv[1]).rglob("*.py"))]
gc.disable()
start = time.process_time()
for text in texts:
    ast.parse(text)
print(time.process_time() - start)
"""


@dataclass(frozen=True)
class Cost:
    """What one process used: seconds of the processor and of the clock, and MB at its peak."""

    processor: float
    clock: float
    memory: float


def run(*command: str) -> Cost:
    """Run a command to its end and say what it cost."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, used = os.wait4(child.pid, 0)
    clock = time.perf_counter() - start
    return Cost(used.ru_utime + used.ru_stime, clock, used.ru_maxrss / 1e3)


def gbfix(*arguments: str) -> Cost:
    """Run gbfix with some arguments."""
    return run(sys.executable, "-m", "gbfix", *arguments)


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torchfix", metavar="PYTHON")
    given = parser.parse_args()
    folder = str(given.folder)
    parsed = subprocess.run(
        [sys.executable, "-c", _PARSE, folder], capture_output=True, text=True, check=True
    )
    parse = float(parsed.stdout)
    with tempfile.TemporaryDirectory() as kept:
        cold = gbfix("check", folder, "-j", "1", "--cache-dir", kept)
        warm = gbfix("check", folder, "-j", "1", "--cache-dir", kept)
    two = gbfix("check", folder, "-j", "2", "--no-cache")
    figures: dict[str, float] = {
        "parse, seconds": parse,
        "check, seconds": cold.processor,
        "check / parse": cold.processor / parse,
        "check, peak MB": cold.memory,
        "warm / cold": warm.processor / cold.processor,
        "one process / two, by the clock": cold.clock / two.clock,
        "quickfix, ms of processor": quickfix(given.folder) * 1e3,
    }
    if given.torchfix:
        other = run(given.torchfix, "-m", "torchfix", "--select=ALL", folder)
        figures["torchfix / check"] = other.processor / cold.processor
    figures["processors"] = os.cpu_count() or 1
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}, indent=2))


def quickfix(folder: Path) -> float:
    """Seconds for the actions of one place in the file that is nearest to 2,000 lines."""
    files = folder.rglob("modeling_*.py")
    sizes = {path: path.read_bytes().count(b"\n") for path in files}
    path = min(sizes, key=lambda p: (abs(sizes[p] - 2000), p))
    lines = path.read_text(encoding="utf-8").splitlines()
    at = next(n for n, line in enumerate(lines, 1) if "def forward(" in line)
    costs = [gbfix("quickfix", f"{path}:{at + 1}").processor for _ in range(5)]
    return min(costs)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
