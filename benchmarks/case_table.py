"""What gbfix makes of small programs: breaks before and after, verdicts, and what is in the way.

    python benchmarks/case_table.py                      # the fixtures of this repository
    python benchmarks/case_table.py FOLDER [NAME ...]    # programs of one's own
    python benchmarks/case_table.py FOLDER --unsafe --config

A program is a Python file with `build()`, which returns a function or module and a list of argument
tuples. What only `build_fixed()` needs, a fix by hand, is left out before anything is looked at. A
fixture is a folder as `CONTRIBUTING.md` describes it. Everything is held against the original by
gbfix's own checker; a case is improved if that verifies it (in all arms or some) with fewer breaks.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from gbfix import engine  # noqa: E402
from gbfix.dynamo.records import Capture  # noqa: E402
from gbfix.errors import UserError  # noqa: E402
from gbfix.findings import FileResult, Safety  # noqa: E402
from gbfix.settings import Settings  # noqa: E402
from gbfix.source.text import SourceFile  # noqa: E402
from gbfix.verify.checker import capture_of, verify_sides  # noqa: E402
from gbfix.verify.options import Options  # noqa: E402
from gbfix.verify.recipes import Inputs  # noqa: E402
from gbfix.verify.targets import Side, of_file  # noqa: E402
from gbfix.verify.verdict import Status, Verdict  # noqa: E402
from gbfix.verify.worker import Workers  # noqa: E402
from tests import fixture_run  # noqa: E402
from tests.fixture_case import FIXTURES, FixtureCase  # noqa: E402

_INPUTS = "\n\ndef gbfix_example_inputs():\n    return build()[1]\n"
_GOOD = (Status.VERIFIED, Status.PARTLY_VERIFIED)
_ARMS = 60
"""Characters of a verdict's reason that the table shows."""


@dataclass(frozen=True)
class Row:
    """One case of the table.

    Attributes:
        changed: whether gbfix rewrote anything.
        verdict: the checker's; None where nothing was rewritten.
        reasons: why sites were left, by transform and code.
        failure: why there are no figures.
    """

    name: str
    before: Capture | None = None
    after: Capture | None = None
    changed: bool = False
    verdict: Verdict | None = None
    reasons: tuple[str, ...] = ()
    failure: str = ""

    @property
    def breaking(self) -> bool:
        """Whether the original breaks at all."""
        return self.before is not None and not self.before.whole

    @property
    def improved(self) -> bool:
        """Whether it breaks less and is verified."""
        return self.verdict is not None and self.verdict.status in _GOOD

    @property
    def different(self) -> bool:
        """Whether the rewritten program does something else."""
        return self.verdict is not None and self.verdict.status is Status.DIFFERENT


def without_hand_made_fix(text: str) -> str:
    """The program without the definitions that only `build_fixed` needs."""
    tree = ast.parse(text)
    names = {
        statement: {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
        for statement in tree.body
    }
    by_name: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            by_name.setdefault(statement.name, []).append(statement)
    wanted: set[ast.stmt] = set()
    pending = [s for s in tree.body if not isinstance(s, (ast.FunctionDef, ast.ClassDef))]
    pending += by_name.get("build", [])
    while pending:
        statement = pending.pop()
        if statement not in wanted:
            wanted.add(statement)
            pending += [d for name in names[statement] for d in by_name.get(name, [])]
    lines = text.splitlines(keepends=True)
    for statement in tree.body:
        if statement not in wanted:
            decorators = getattr(statement, "decorator_list", [])
            first = min([statement.lineno, *(d.lineno for d in decorators)])
            for number in range(first - 1, statement.end_lineno or first):
                lines[number] = ""
    return "".join(lines)


def of_program(path: Path, settings: Settings, workers: Workers, options: Options) -> Row:
    """The row of a file with `build()`."""
    read = SourceFile.decode(path, path.read_bytes())
    source = replace(read, text=without_hand_made_fix(read.text))
    result = engine.run([source], settings)
    if result.errors:
        return Row(path.stem, failure=result.errors[0].sentence)
    (file,) = result.files
    target = replace(of_file(path, "build"), expression="build()[0]")
    own = os.path.realpath(path)
    before, after = (Side(target, ((own, t + _INPUTS),)) for t in (source.text, file.after))
    inputs = Inputs(factory=f"{target.module}:gbfix_example_inputs")
    if not file.changed:
        return _unchanged(path.stem, file, workers, before, inputs, options)
    verdict = verify_sides(workers, before, after, inputs, options)
    evidence = verdict.evidence
    return Row(path.stem, evidence.before, evidence.after, True, verdict, _reasons(file))


def of_fixture(folder: Path, workers: Workers) -> Row:
    """The row of a fixture of this repository, with the settings and leeway that it states."""
    case = FixtureCase.load(folder)
    source = SourceFile.decode(case.before, case.before.read_bytes())
    others = [
        SourceFile.decode(path, path.read_bytes())
        for path in sorted(folder.glob("*.py"))
        if path.name not in ("before.py", "after.py")
    ]
    result = engine.run([source, *others], Settings(**case.settings))
    file = next(file for file in result.files if file.path == case.before)
    if not file.changed:
        side = fixture_run.side(case, case.before)
        return _unchanged(
            folder.name, file, workers, side, fixture_run.inputs(case), Options("eager")
        )
    verdict = fixture_run.verdict(case, workers)
    evidence = verdict.evidence
    return Row(folder.name, evidence.before, evidence.after, True, verdict, _reasons(file))


def _unchanged(
    name: str, file: FileResult, workers: Workers, side: Side, inputs: Inputs, options: Options
) -> Row:
    try:
        capture = capture_of(workers, side, inputs, options)
    except UserError as error:
        return Row(name, reasons=_reasons(file), failure=str(error))
    return Row(name, capture, capture, reasons=_reasons(file))


def _reasons(file: FileResult) -> tuple[str, ...]:
    found = [
        f"{finding.code}: {refusal.transform} {refusal.code}"
        for finding in file.findings
        if finding.applied is None
        for refusal in finding.refusals
    ]
    return tuple(dict.fromkeys(found))


def cells(row: Row) -> list[str]:
    """The cells of a row; reasons stand only where breaks are left."""
    left = row.after is not None and not row.after.whole
    status = row.verdict.status.value if row.verdict is not None else "not rewritten"
    if row.failure:
        status = row.failure.splitlines()[0][:_ARMS]
    elif row.verdict is not None and row.verdict.status not in _GOOD:
        status = f"{status}: {row.verdict.reason.splitlines()[0][:_ARMS]}"
    reasons = "; ".join(row.reasons) if left or row.failure or not row.changed else ""
    if left and not reasons:
        reasons = _where(row.after)
    return [row.name, f"{told(row.before)} → {told(row.after)}", status, reasons]


def told(capture: Capture | None) -> str:
    """Breaks, and frames that were skipped, in short."""
    if capture is None:
        return "?"
    skipped = f" + {len(capture.skips)} skipped" if capture.skips else ""
    return f"{len(capture.breaks)}{skipped}"


def _where(capture: Capture | None) -> str:
    """Where it still breaks, for sites that gbfix does not know of."""
    if capture is None:
        return ""
    places = [f"line {b.line}: {b.reason.partition(':')[0]}" for b in capture.breaks]
    return "; ".join(dict.fromkeys(places))


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """All rows, one after another."""
    settings = Settings(
        safety=Safety.UNSAFE if options.unsafe else Safety.REVIEW,
        config=options.config,
        fix_with=tuple(options.fix_with),
    )
    how = Options("aot_eager", both_dynamic=False, fullgraph_before=False, shrink_seconds=0)
    with Workers() as workers:
        for path in cases(options.folder, options.names):
            if path.is_dir():
                yield of_fixture(path, workers)
            else:
                yield of_program(path, settings, workers, how)


def cases(folder: Path, names: Sequence[str]) -> list[Path]:
    """The programs or fixtures in a folder, those whose names start as one of the given."""
    found = [p for p in folder.iterdir() if (p / "case.toml").is_file()]
    found += [p for p in folder.glob("*.py") if "\ndef build(" in p.read_text(encoding="utf-8")]
    return sorted(p for p in found if not names or p.name.startswith(tuple(names)))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=FIXTURES)
    parser.add_argument("names", nargs="*", help="only cases whose names start so")
    parser.add_argument("--unsafe", action="store_true", help="as for `gbfix apply`")
    parser.add_argument("--config", action="store_true", help="as for `gbfix apply`")
    parser.add_argument("--fix-with", action="append", default=[], help="as for `gbfix apply`")
    return parser.parse_args()


def main() -> int:
    """Print the table as it comes, and the summary. Exits with 1 if anything is different."""
    print("| case | breaks | verdict | in the way |\n| --- | --- | --- | --- |")
    found: list[Row] = []
    for row in rows(parse()):
        found.append(row)
        print("| " + " | ".join(cells(row)) + " |", flush=True)
    breaking = [row for row in found if row.breaking]
    improved = sum(row.improved for row in breaking)
    share = f" ({100 * improved / len(breaking):.0f}%)" if breaking else ""
    different = sum(row.different for row in found)
    print(f"\n{improved} of {len(breaking)} breaking cases improved{share}, {different} different.")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
