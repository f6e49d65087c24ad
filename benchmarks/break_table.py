"""Graph breaks in real models: stock, Dynamo's own setting, the peer, and gbfix.

Builds a rewritten copy of the installed transformers, measures each row of `models.py` on both
trees in fresh processes, and prints two Markdown tables: how many breaks are left, and whether
outputs, state over three calls, and gradients are equal.

    python benchmarks/break_table.py                       # copy, rewrite everything, measure
    python benchmarks/break_table.py --quick --rows t5 bart
    python benchmarks/break_table.py --rewritten DIR --save
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import models
import torch
import trees
from compare import MISSING, Verdict, compare, worst

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "break_table.json"
CACHE = HERE.parent / ".cache" / "break_table"
SETTINGS = {
    "metric": "FX graphs minus one, first forward call of a fresh process",
    "mode": "model.eval(), torch.no_grad(), random weights, CPU, one thread",
    "backend": "a counting backend that runs graphs eagerly",
    "dynamic": False,
    "seed": models.SEED,
}
_ALWAYS = "--region forward --no-respect-gitignore"
APPLY = (_ALWAYS, f"{_ALWAYS} --fix-with custom-op")
SIDES = ("stock", "ignore", "ours")
TIMEOUT = 600
SHOWN = 3
"""Unequal leaves that are listed for each cell; the JSON has all."""

Result = dict[str, Any]


def run(row: str, side: str, package: Path, folder: Path) -> Result:
    """Measure one row on one tree in a fresh process."""
    saved = folder / f"{row}.{side}.pt"
    command = [sys.executable, str(HERE / "measure.py"), row, "--save", str(saved)]
    if side == "ignore":
        command += ["--ignore-logging", "--forward"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TORCH")}
    environment |= {
        "PYTHONPATH": str(package.parent),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no result after {TIMEOUT} seconds"}
    if done.returncode:
        return {"error": done.stderr[-1000:]}
    result: Result = json.loads(done.stdout.splitlines()[-1])
    measured = result.pop("transformers")
    if Path(measured).parent != package:
        return {"error": f"measured {measured} instead of {package}"}
    return result


def measure(rows: list[str], ours: Path, jobs: int) -> dict[str, Result]:
    """All rows on all sides, with the comparison of what they computed."""
    packages = {"stock": trees.stock(), "ignore": trees.stock(), "ours": ours}
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(jobs) as pool:
        folder = Path(name)
        pending = {
            (row, side): pool.submit(run, row, side, packages[side], folder)
            for row in rows
            for side in SIDES
        }
        for row in rows:
            sides = {side: pending[row, side].result() for side in SIDES}
            results[row] = {**sides, "equal": equality(row, folder)}
            print(f"{row}: measured", file=sys.stderr)
    return results


def equality(row: str, folder: Path) -> Result:
    """The rewrite against stock eager, for each kind of thing that was saved."""
    stock, ours = (_load(folder / f"{row}.{side}.pt") for side in ("stock", "ours"))

    def against(probe: str, mode: str) -> Verdict:
        """Compare all saved results of a probe, over its variants and calls."""
        eager = [k for k in stock if k.split(".")[0] == probe and ".eager" in k]
        verdicts = []
        for key in eager:
            found = compare(stock[key], ours.get(key.replace(".eager", f".{mode}")))
            place = key.replace(".eager", "").removeprefix(probe).strip(".")
            found.details = [f"{place} {d}".strip() for d in found.details]
            verdicts.append(found)
        return worst(verdicts) if verdicts else Verdict(MISSING)

    return {
        f"{probe}.{mode}": {**asdict(verdict), "text": str(verdict)}
        for probe in ("forward", "state", "gradients")
        for mode in ("eager", "compiled")
        for verdict in [against(probe, mode)]
    }


def _load(path: Path) -> dict[str, Any]:
    return torch.load(path, weights_only=True) if path.is_file() else {}


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose columns line up in a terminal as well."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * w for w in widths], *rows]
    return "\n".join(
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def figure(result: Result, key: str, probe: str = "forward") -> str:
    """One number of one probe, or a mark that it failed."""
    return str(result.get(probe, result).get(key, "error"))


def both(result: Result, key: str, probe: str = "forward") -> str:
    stock, ours = (figure(result[side], key, probe) for side in ("stock", "ours"))
    return f"{stock} → {ours}"


def site_count(result: Result) -> str:
    return str(len(result["forward"]["sites"])) if "sites" in result.get("forward", {}) else "error"


def break_rows(results: dict[str, Result]) -> list[list[str]]:
    rows = []
    for name, result in results.items():
        counts = [figure(result[side], "fragments") for side in ("stock", "ignore")]
        rows.append(
            [
                name,
                *counts,
                models.ROWS[name].published,
                figure(result["ours"], "fragments"),
                f"{site_count(result['stock'])} → {site_count(result['ours'])}",
                both(result, "breaks"),
                both(result, "skipped_frames"),
                both(result, "operators"),
            ]
        )
    return [*rows, _total(rows)]


def _total(rows: list[list[str]]) -> list[str]:
    """Sums over the columns that are plain figures; the peer's may carry a remark."""
    sums = [
        str(sum(int(row[i].split(",")[0]) for row in rows if row[i][0].isdigit()))
        for i in range(1, 5)
    ]
    return ["**total**", *sums, "", "", "", ""]


def equality_rows(results: dict[str, Result]) -> list[list[str]]:
    return [
        [
            name,
            *(result["equal"][key]["text"] for key in result["equal"]),
            both(result, "fragments", "gradients"),
            f"{_later(result['stock'])} → {_later(result['ours'])}",
        ]
        for name, result in results.items()
    ]


def _later(result: Result) -> str:
    """Graphs compiled again for the second and the third call."""
    graphs = result.get("state", {}).get("graphs_by_call")
    return ",".join(map(str, graphs[1:])) if graphs else "error"


def remarks(results: dict[str, Result]) -> list[str]:
    """What the tables cannot hold: errors, stock figures that differ, unequal leaves."""
    lines = []
    for name, result in results.items():
        expected, found = models.ROWS[name].stock, figure(result["stock"], "fragments")
        if found != str(expected):
            lines.append(f"{name}: stock has {found} breaks, {expected} were expected")
        for side in SIDES:
            for probe, value in {"run": result[side], **result[side]}.items():
                if isinstance(value, dict) and "error" in value:
                    lines.append(f"{name}, {side}, {probe}: {value['error']}")
        for key, verdict in result["equal"].items():
            details = sorted(verdict["details"], key=lambda d: "note: " in d)
            lines += [f"{name}, {key}: {detail}" for detail in details[:SHOWN]]
            if len(details) > SHOWN:
                lines.append(f"{name}, {key}: and {len(details) - SHOWN} more")
    return lines


def left(results: dict[str, Result]) -> list[str]:
    """What stands in the way of the breaks that are left."""
    return [
        f"{name}: {models.ROWS[name].left or 'not looked into'}"
        for name, result in results.items()
        if figure(result["ours"], "fragments") != "0"
    ]


def sites(results: dict[str, Result]) -> list[str]:
    """Where each side breaks."""
    return [
        f"{name}, {side}: {count} x {site}"
        for name, result in results.items()
        for side in SIDES
        for site, count in result[side].get("forward", {}).get("sites", {}).items()
    ]


def report(results: dict[str, Result], with_sites: bool) -> str:
    breaks = table(
        [
            "row",
            "stock",
            "ignore_logging_functions",
            "peer, as published",
            "gbfix",
            "sites",
            "breaks logged",
            "skipped frames",
            "operators captured",
        ],
        break_rows(results),
    )
    equal = table(
        [
            "row",
            "output, eager",
            "output, compiled",
            "3 calls, eager",
            "3 calls, compiled",
            "gradients, eager",
            "gradients, compiled",
            "breaks with gradients",
            "graphs, calls 2 and 3",
        ],
        equality_rows(results),
    )
    parts = [breaks, equal]
    for lines in (left(results), remarks(results), sites(results) if with_sites else []):
        if lines:
            parts.append("\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts)


def versions() -> dict[str, str]:
    packages = {
        name: importlib.metadata.version(name) for name in ("torch", "transformers", "gbfix")
    }
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    return {"python": platform.python_version(), **packages, "commit": commit.stdout.strip()}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=models.ROWS, default=list(models.ROWS))
    parser.add_argument("--rewritten", type=Path, help="a tree that is rewritten already")
    parser.add_argument("--quick", action="store_true", help="rewrite only the files the rows use")
    parser.add_argument(
        "--apply-arguments",
        action="append",
        help="options for `gbfix apply`, as one string; given again for a further run on the result "
        "(default: one run as it is, and one with `--fix-with custom-op` for what is left)",
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the copy is made")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sites", action="store_true", help="list the place of each break")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    return parser.parse_args()


def main() -> int:
    options = parse()
    start = time.monotonic()
    try:
        if options.rewritten:
            ours = trees.given(options.rewritten)
        else:
            runs = [shlex.split(text) for text in options.apply_arguments or APPLY]
            ours = trees.rewrite(options.cache, options.rows, options.quick, runs)
    except trees.TreeError as error:
        print(error, file=sys.stderr)
        return 2
    rewritten = time.monotonic() - start
    results = measure(options.rows, ours, options.jobs)
    print(report(results, options.sites))
    if options.save:
        data = {
            "versions": versions(),
            "settings": SETTINGS,
            "files_changed": len(trees.changed(ours)),
            "seconds": {"rewrite": rewritten, "total": time.monotonic() - start},
            "rows": {
                k: {"published": models.ROWS[k].published, "left": models.ROWS[k].left, **v}
                for k, v in results.items()
            },
        }
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(data, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
