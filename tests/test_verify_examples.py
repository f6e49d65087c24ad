"""Small programs as people write them: rewritten and verified with inputs that nobody gave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gbfix import engine
from gbfix.settings import Settings
from gbfix.source.text import SourceFile
from gbfix.verify.checker import verify_sides
from gbfix.verify.options import Options
from gbfix.verify.project import pairs
from gbfix.verify.verdict import Status
from gbfix.verify.worker import Workers

EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(1 if "PYTEST_XDIST_WORKER" in os.environ else None) as started:
        yield started


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, workers: Workers) -> None:
    """Every fix of the file is verified, in all arms, and no break is left."""
    result = engine.run([SourceFile.decode(path, path.read_bytes())], Settings())
    (file,) = result.files
    assert file.after == (path.parent / "after" / path.name).read_text(encoding="utf-8")
    found = pairs(result, file)
    assert found, file.findings
    options = Options("aot_eager", both_dynamic=False, search_seconds=60)
    for pair in found:
        verdict = verify_sides(workers, pair.original, pair.rewritten, None, options)
        assert verdict.status is Status.VERIFIED, verdict
        after = verdict.evidence.after
        assert after is not None and after.whole
        assert after.graphs > 0
