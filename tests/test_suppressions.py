"""`# gbfix: ignore` comments."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbfix.suppressions import Suppression, parse, suppressed, unused_notices


def test_what_is_parsed() -> None:
    text = (
        "a = 1  # gbfix: ignore\n"
        "b = 2  # type: ignore  # gbfix:ignore[GBF101, gbf2] slow path: only once\n"
        "s = '# gbfix: ignore'\n"
        "# gbfix: ignored\n"
        "# gbfix: ignore[GBF101]\n"
    )
    assert parse(text) == (
        Suppression(1, 1, 1, None, ""),
        Suppression(2, 2, 2, ("GBF101", "GBF2"), "slow path: only once"),
        Suppression(5, 5, 5, ("GBF101",), ""),
    )


@pytest.mark.parametrize(
    ("text", "finding", "silent"),
    [
        ("if x:  # gbfix: ignore\n    y\n", (1, 1), True),
        ("if x:  # gbfix: ignore\n    y\n", (2, 2), False),
        ("if x:\n    y  # gbfix: ignore\n", (1, 2), False),
        ("if (\n    x\n):  # gbfix: ignore\n    y\n", (1, 2), True),
        ("if (\n    x\n):  # gbfix: ignore\n    y\n", (2, 2), True),
        ("if (  # gbfix: ignore\n    x\n):\n    y\n", (2, 2), True),
        ("f(\n    x,  # gbfix: ignore\n    y,\n)\n", (2, 2), True),
        ("f(\n    x,  # gbfix: ignore\n    y,\n)\n", (3, 3), False),
        ("# gbfix: ignore\nif x:\n    y\n", (2, 2), False),
        ("if x:  # gbfix: ignore[GBF201]\n    y\n", (1, 1), False),
        ("if x:  # gbfix: ignore[GBF1]\n    y\n", (1, 1), True),
        ("if x:  # gbfix: ignore[]\n    y\n", (1, 1), False),
        ("a = 1\r\nif x:  # gbfix: ignore\r\n    y\r\n", (2, 2), True),
        ("a = 1\rif x:  # gbfix: ignore\r    y\r", (2, 2), True),
        ("if (  # gbfix: ignore\n", (1, 1), False),
    ],
)
def test_what_is_silenced(text: str, finding: tuple[int, int], silent: bool) -> None:
    assert bool(suppressed(*finding, "GBF101", parse(text))) is silent


def test_unused_comments_are_named() -> None:
    comments = parse(
        "a  # gbfix: ignore\n"
        "b  # gbfix: ignore[GBF101,GBF201]\n"
        "c  # gbfix: ignore\n"
        "d  # gbfix: ignore[GBF101]\n"
        "e  # gbfix: ignore[]\n"
    )
    used = [(comments[0], "GBF301"), (comments[1], "GBF101")]
    assert unused_notices(Path("m.py"), comments, used) == (
        "m.py:2: unused suppression `GBF201`.",
        "m.py:3: unused suppression `gbfix: ignore`.",
        "m.py:4: unused suppression `GBF101`.",
        "m.py:5: unused suppression `gbfix: ignore`.",
    )
