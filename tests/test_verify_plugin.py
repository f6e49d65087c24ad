"""The pytest plugin, in test files of its own."""

from __future__ import annotations

import textwrap

import pytest

pytest_plugins = ["pytester"]
HEAD = """
import pytest
import torch

def broken(x):
    if x.sum() > 0:
        return x + 1
    return x - 1

def whole(x):
    return torch.where(x.sum() > 0, x + 1, x - 1)
"""


def run(pytester: pytest.Pytester, test: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD + textwrap.dedent(test))
    return pytester.runpytest_subprocess("-p", "no:gbfix", "-p", "gbfix.pytest_plugin")


def test_marker_names_the_site(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        @pytest.mark.no_graph_breaks
        def test_broken():
            torch.compile(broken)(torch.ones(2))

        @pytest.mark.no_graph_breaks(backend="aot_eager")
        def test_whole():
            torch.compile(whole)(torch.ones(2))

        @pytest.mark.no_graph_breaks
        def test_nothing():
            pass

        def test_unmarked():
            torch.compile(broken)(torch.ones(2))
        """,
    )
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        ["*1 graph break sites, 2 graphs*", "*test_marker*.py:5: [[]GB0170[]] Data-dependent*"]
    )
    result.stdout.fnmatch_lines(["*nothing was compiled*"])


def test_fixture_names_the_site_and_returns_the_result(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_broken(no_graph_breaks):
            no_graph_breaks(broken, torch.ones(2))

        def test_whole(no_graph_breaks):
            assert no_graph_breaks(whole, torch.ones(2)).tolist() == [2.0, 2.0]
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*:5: [[]GB0170[]]*"])


def test_failing_test_keeps_its_own_failure(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        @pytest.mark.no_graph_breaks
        def test_fails():
            torch.compile(broken)(torch.ones(2))
            assert 1 == 2
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2*"])
