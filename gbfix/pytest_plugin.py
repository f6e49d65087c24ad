"""The pytest plugin: tests that fail where `torch.compile` breaks the graph, and say at which lines.

    @pytest.mark.no_graph_breaks
    def test_model():
        model = torch.compile(Model())
        model(torch.ones(2, 3))

    def test_model(no_graph_breaks):
        no_graph_breaks(Model(), torch.ones(2, 3))

With the marker, everything that the test itself compiles counts; the fixture compiles what it is given
and checks this one call. torch is imported only by tests that use either. The plugin knows nothing of
rewriting.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gbfix.dynamo.records import Capture

MARKER = "no_graph_breaks"


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(backend='eager', dynamic=None): "
        "fail if torch.compile breaks the graph or skips a frame in this test.",
    )


@pytest.fixture
def no_graph_breaks() -> Callable[..., Any]:
    """A function that calls `function(*args, **kwargs)` compiled and fails if the graph breaks.

    It returns what the call returns. `backend` and `dynamic` are for `torch.compile`.
    """
    __tracebackhide__ = True

    def check(
        function: Callable[..., Any],
        *args: Any,
        backend: str = "eager",
        dynamic: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        __tracebackhide__ = True
        import torch

        from gbfix.dynamo.capture import recording

        with _without_trace_records(), recording(backend, dynamic=dynamic) as recorder:
            result = torch.compile(function)(*args, **kwargs)
            found = recorder.capture()
        if not found.whole or not found.graphs:
            pytest.fail(message(found), pytrace=False)
        return result

    return check


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Watch a marked test, and fail it if it passes with breaks."""
    marker = pyfuncitem.get_closest_marker(MARKER)
    if marker is None:
        return (yield)
    from gbfix.dynamo.capture import recording

    with _without_trace_records(), recording(*marker.args, **marker.kwargs) as recorder:
        outcome = yield
        found = recorder.capture()
    if not found.whole or not found.graphs:
        pytest.fail(message(found), pytrace=False)
    return outcome


@contextlib.contextmanager
def _without_trace_records() -> Iterator[None]:
    """Keep torch's structured trace, hundreds of empty records, out of pytest's report."""
    logger = logging.getLogger("torch.__trace")
    before = logger.propagate
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = before


def message(found: Capture) -> str:
    """What a failing test says."""
    if found.whole:
        return "nothing was compiled: no graph was captured"
    lines = [f"{len(found.sites)} graph break sites, {found.graphs} graphs:"]
    lines += [f"  {broken}" for broken in {b.site: b for b in found.breaks}.values()]
    lines += [f"  {skip}" for skip in dict.fromkeys(found.skips)]
    return "\n".join(lines)
