"""The examples of the page on remedies break before, not after, and give the same outputs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gbfix.verify.worker import Workers
from scripts import remedies
from tests.test_docs import check_runs


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Workers for all examples."""
    with Workers(1 if "PYTEST_XDIST_WORKER" in os.environ else None) as started:
        yield started


@pytest.mark.parametrize("remedy", remedies.remedies(), ids=lambda r: r.name)
def test_the_example_runs(remedy: remedies.Remedy, tmp_path: Path, workers: Workers) -> None:
    assert remedy.after != remedy.before
    check_runs(remedy.before, remedy.after, tmp_path, workers)
