"""Logs that other versions of torch have written are read like those of this one.

`tests/data/torch-*` are what torch 2.7.1 and 2.11.0 wrote of `tests/data/kinds.py`, on a machine where
it was `/home/ann/project/kinds.py`: the text of `TORCH_LOGS=graph_breaks,recompiles`, and of the log of
`TORCH_TRACE` the entries that are read, without torch's own frames in tracebacks.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gbfix.engine import run
from gbfix.settings import Settings
from gbfix.source.loading import load
from gbfix.trace.joining import join, observed
from gbfix.trace.localize import localized
from gbfix.trace.model import Effect, Trace
from gbfix.trace.ownership import Owned
from gbfix.trace.reading import read

DATA = Path(__file__).parent / "data"
VERSIONS = ("2.7.1", "2.11.0")
KINDS = [
    ("GBF101", "GB0170", "x.sum() > 0"),
    ("GBF105", "GB0124", "x.max().item()"),
    ("GBF201", "GB0059", 'print("norm")'),
    ("GBF202", "GB0291", 'logger.warning("a warning")'),
    ("GBF110", "GB0036", "x[x > 0]"),
    ("GBF201", "GB0059", "print(row)"),
    ("GBF203", "GB0007", 'warnings.warn("careful")'),
]


def logs(version: str) -> list[Path]:
    folder = DATA / f"torch-{version}"
    return [folder, folder / "graph_breaks.txt"]


def here(tmp_path: Path, path: Path) -> tuple[Trace, Path]:
    """A trace of the other machine in terms of a copy of the program on this one."""
    program = tmp_path / "project" / "kinds.py"
    program.parent.mkdir()
    shutil.copy(DATA / "kinds.py", program)
    return localized(read(path), [program]), program


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("number", [0, 1], ids=["TORCH_TRACE", "TORCH_LOGS"])
def test_every_break_is_placed_and_named(tmp_path: Path, version: str, number: int) -> None:
    trace, program = here(tmp_path, logs(version)[number])
    sources = load([program]).sources
    result = run(sources, Settings(), rewrite=False, observed=observed(trace))
    joined = join(trace, result, Owned([program]))
    assert joined.unplaced == ()
    text = sources[0]
    found = sorted(joined.findings, key=lambda finding: finding.line)
    told = [
        (f.code, f.seen.registry, text.line_text(f.line)[f.column - 1 : f.end_column - 1])
        for f in found
        if f.seen is not None
    ]
    assert told == KINDS
    assert all(f.offers for f in found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("number", [0, 1], ids=["TORCH_TRACE", "TORCH_LOGS"])
def test_recompiles_are_told_with_their_guards(tmp_path: Path, version: str, number: int) -> None:
    trace, program = here(tmp_path, logs(version)[number])
    (recompile,) = trace.recompiles
    assert (recompile.code.file, recompile.code.name) == (str(program), "scaled")
    assert recompile.guards == ("tensor 'x' size mismatch at index 0. expected 2, actual 3",)


@pytest.mark.parametrize("path", logs("2.11.0"), ids=["TORCH_TRACE", "TORCH_LOGS"])
def test_a_skipped_frame_is_told_as_such(path: Path) -> None:
    """Torch up to 2.8 does not say in its logs that the frame of a loop is skipped."""
    skipped = [one for one in read(path).breaks if one.effect is Effect.SKIPS_FRAME]
    assert [one.code.name for one in skipped] == ["loop"]
    assert skipped[0].place.text == "print(row)"


def test_the_version_is_known_where_the_log_has_it() -> None:
    assert [p.torch for p in read(logs("2.11.0")[0]).processes] == ["2.11.0+cu130"]
