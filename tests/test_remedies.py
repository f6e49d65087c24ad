"""The examples of the page on remedies break before, not after, and give the same outputs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scripts import remedies
from tests.test_docs import check_runs


@pytest.mark.parametrize("remedy", remedies.remedies(), ids=lambda r: r.name)
def test_the_example_runs(remedy: remedies.Remedy, tmp_path: Path) -> None:
    torch._dynamo.reset()
    assert remedy.after != remedy.before
    check_runs(remedy.before, remedy.after, tmp_path)
