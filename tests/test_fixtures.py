"""Every fixture: the text of the rewrite, and its behaviour in eager and compiled."""

from __future__ import annotations

from functools import cache

import pytest

from tests import harness
from tests.fixture_case import FIXTURES, FixtureCase, all_cases

NAMES = [case.name for case in all_cases()]


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest) -> FixtureCase:
    """One fixture folder."""
    return _load(request.param)


@cache
def _load(name: str) -> FixtureCase:
    return FixtureCase.load(FIXTURES / name)


def _skip_unless_rewritten(case: FixtureCase) -> None:
    if not case.after.exists():
        pytest.skip("no after.py yet; test_text_and_findings fails for it")
    if not case.rewritten:
        pytest.skip("left as it is")


@cache
def _before(name: str, gradients: bool) -> harness.Run:
    case = _load(name)
    return harness.run_eager(case, case.before, gradients)


def test_text_and_findings(case: FixtureCase) -> None:
    """The tool writes `after.py` exactly, reports what the case says, and is then at rest."""
    if not case.after.exists():
        pytest.fail(f"no after.py yet: python -m tests.regenerate {case.name}")
    result = harness.rewrite(case, case.before)
    assert result.before.encode(result.after) == case.after.read_bytes()
    assert harness.found_by(result) == (case.findings or ())
    assert harness.rewrite(case, case.after).changed is False


def test_breaks_before(case: FixtureCase) -> None:
    """The original breaks as often as the case says."""
    assert harness.run_compiled(case, case.before).breaks == case.breaks_before


@pytest.mark.parametrize("gradients", [False, True], ids=["plain", "gradients"])
def test_eager(case: FixtureCase, gradients: bool) -> None:
    """Without the compiler nothing that can be seen has changed."""
    _skip_unless_rewritten(case)
    after = harness.run_eager(case, case.after, gradients)
    assert harness.eager_differences(_before(case.name, gradients), after, case.new_state) == []


def test_compiled(case: FixtureCase) -> None:
    """Compiled, the rewritten file breaks less and does what the original does in eager."""
    _skip_unless_rewritten(case)
    after = harness.run_compiled(case, case.after)
    assert harness.compiled_differences(case, _before(case.name, False), after) == []
    assert case.breaks_before is not None
    assert after.breaks < case.breaks_before
    assert after.graphs > 0
    if case.expects_fullgraph:
        assert after.breaks == 0
        whole = harness.run_compiled(case, case.after, fullgraph=True)
        assert harness.compiled_differences(case, _before(case.name, False), whole) == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_gradients(case: FixtureCase, backend: str) -> None:
    """Compiled with gradients on, values and gradients are the original's."""
    _skip_unless_rewritten(case)
    after = harness.run_compiled(case, case.after, gradients=True, backend=backend)
    assert harness.compiled_differences(case, _before(case.name, True), after) == []
