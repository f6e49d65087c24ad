"""Projects of any shape: parts, processes and what is kept of earlier runs change no result."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gbfix import batch, engine, survey
from gbfix.cache import Cache
from gbfix.findings import RunResult, Safety
from gbfix.settings import Region, Settings
from gbfix.source.loading import load
from gbfix.source.text import SourceFile
from tests.generators_project import FILES, files, projects

SETTINGS = (
    Settings(),
    Settings(safety=Safety.UNSAFE),
    Settings(region=Region.FORWARD, safety=Safety.UNSAFE),
)


def written(folder: str, project: Mapping[str, str]) -> Sequence[SourceFile]:
    for name, text in project.items():
        (Path(folder) / name).write_text(text, encoding="utf-8")
    return load(sorted(Path(folder).glob("*.py"))).sources


def made(result: RunResult) -> object:
    files = {
        file.path.name: (file.after, [replace(f, edits=()) for f in file.findings])
        for file in result.files
    }
    return files, result.errors, result.notices


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(projects())
def test_parts_and_one_piece_agree(project: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sources = written(folder, project)
        for wanted in SETTINGS:
            whole = made(engine.run(sources, wanted))
            with mock.patch.object(batch, "PIECE", 1):
                assert made(batch.rewrite(sources, wanted)) == whole
                with mock.patch.object(survey, "HELD", 0), mock.patch.object(survey, "_BETWEEN", 0):
                    assert made(batch.rewrite(sources, wanted)) == whole


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="the patched size is inherited"
)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(projects())
def test_processes_agree(project: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(batch, "PIECE", 1):
        sources = written(folder, project)
        assert made(batch.rewrite(sources, Settings(), jobs=2)) == made(
            batch.rewrite(sources, Settings())
        )


EDITS = st.one_of(
    *(st.tuples(st.just(f"{name}.py"), st.one_of(files(name), st.none())) for name in FILES),
    st.tuples(st.just("second/__init__.py"), st.just("SIZE = 1\n")),
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    projects(),
    st.sets(st.sampled_from(FILES), min_size=1, max_size=2),
    st.sets(st.sampled_from(FILES), max_size=2),
    st.lists(EDITS, min_size=1, max_size=4),
    st.booleans(),
)
def test_what_is_kept_agrees_with_a_new_run_after_any_edits(
    project: Mapping[str, str],
    chosen: set[str],
    missing: set[str],
    edits: Sequence[tuple[str, str | None]],
    rewrite: bool,
) -> None:
    run = batch.rewrite if rewrite else batch.check
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(batch, "PIECE", 1):
        root = Path(folder)
        written(folder, project)
        for name, text in [*((f"{f}.py", None) for f in sorted(missing)), *edits]:
            (root / name).parent.mkdir(exist_ok=True)
            if text is None:
                (root / name).unlink(missing_ok=True)
            else:
                (root / name).write_text(text, encoding="utf-8")
            # The other files are only looked into.
            given_now = [path for f in sorted(chosen) if (path := root / f"{f}.py").exists()]
            sources = load(given_now).sources
            kept = run(sources, Settings(), cache=Cache(root / "cache"))
            assert made(kept) == made(run(sources, Settings()))
            again = run(sources, Settings(), cache=Cache(root / "cache"))
            assert made(again) == made(kept)
