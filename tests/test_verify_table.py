"""The checker against rewrites that are wrong and rewrites that only look wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gbfix.verify.api import verify
from gbfix.verify.options import Options
from gbfix.verify.verdict import Status, Verdict
from gbfix.verify.worker import Workers
from tests.verify_table import PARTLY, RIGHT, WRONG, Rewrite

OPTIONS = Options(backend="aot_eager", shrink_seconds=0, both_dynamic=False)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as found:
        yield found


def check(rewrite: Rewrite, folder: Path, workers: Workers) -> Verdict:
    before, after = folder / "before.py", folder / "after.py"
    before.write_text(rewrite.before)
    after.write_text(rewrite.after)
    return verify(f"{before}:target", f"{after}:target", options=OPTIONS, workers=workers)


@pytest.mark.parametrize("rewrite", WRONG, ids=lambda rewrite: rewrite.name)
def test_wrong_rewrite_is_caught(rewrite: Rewrite, tmp_path: Path, workers: Workers) -> None:
    verdict = check(rewrite, tmp_path, workers)
    assert verdict.status is Status.DIFFERENT, verdict
    assert rewrite.says in "\n".join(map(str, verdict.differences)), verdict.differences


@pytest.mark.parametrize("rewrite", RIGHT, ids=lambda rewrite: rewrite.name)
def test_right_rewrite_passes(rewrite: Rewrite, tmp_path: Path, workers: Workers) -> None:
    verdict = check(rewrite, tmp_path, workers)
    assert verdict.status is Status.VERIFIED, verdict


@pytest.mark.parametrize("rewrite", PARTLY, ids=lambda rewrite: rewrite.name)
def test_what_is_missing_is_said(rewrite: Rewrite, tmp_path: Path, workers: Workers) -> None:
    verdict = check(rewrite, tmp_path, workers)
    assert verdict.status is Status.PARTLY_VERIFIED, verdict
    assert rewrite.says in verdict.reason
