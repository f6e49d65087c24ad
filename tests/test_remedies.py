"""The examples of the page on remedies break before, not after, and give the same outputs.

The programs of the page print what it says.
"""

from __future__ import annotations

import os
import subprocess
import sys
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


@pytest.mark.parametrize("program", remedies.programs(), ids=lambda p: p.name)
def test_the_program_prints_what_the_page_says(program: remedies.Program, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(program.source, encoding="utf-8")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == program.prints
