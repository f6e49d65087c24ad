"""Every fixture: the text of the rewrite, and the checker's verdict on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

import pytest

from gbfix.verify.worker import Workers
from tests import fixture_run
from tests.fixture_case import FIXTURES, FixtureCase, all_cases
from tests.fixture_rewrite import found_by, rewrite

NAMES = [case.name for case in all_cases()]


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest) -> FixtureCase:
    """One fixture folder."""
    return _load(request.param)


@cache
def _load(name: str) -> FixtureCase:
    return FixtureCase.load(FIXTURES / name)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Workers for all fixtures; where pytest is parallel itself, each of its processes has one."""
    with Workers(1 if "PYTEST_XDIST_WORKER" in os.environ else None) as started:
        yield started


def test_text_and_findings(case: FixtureCase) -> None:
    """The tool writes `after.py` exactly, reports what the case says, and is then at rest."""
    if not case.after.exists():
        pytest.fail(f"no after.py yet: python -m tests.regenerate {case.name}")
    result = rewrite(case, case.before)
    assert result.before.encode(result.after) == case.after.read_bytes()
    assert found_by(result) == (case.findings or ())
    assert rewrite(case, case.after).changed is False


def test_verdict(case: FixtureCase, workers: Workers) -> None:
    """What is rewritten is verified and breaks less; what is left breaks as often as the case says."""
    if not case.after.exists():
        pytest.skip("no after.py yet; test_text_and_findings fails for it")
    if case.rewritten:
        assert fixture_run.complaints(case, fixture_run.verdict(case, workers)) == []
    else:
        assert len(fixture_run.captured(case, workers).breaks) == case.breaks_before
