"""What was found for one definition of a file holds while only others are rewritten otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gbfix.dynamo.records import Break, Capture, Fragment
from gbfix.verify.targets import Side, Target
from gbfix.verify.unaffected import carried_over
from gbfix.verify.verdict import Evidence, Status, Verdict

TEXT = """import torch

LAYERS = {"plain": None}

class First:
    def forward(self, x):
        return x + 1

def helper(x):
    return x

class Second:
    def forward(self, x):
        return helper(x)

class Third(Second):
    pass
"""
LONGER = TEXT.replace("return x + 1", "y = x + 1\n        return y")
CAPTURE = Capture(
    1, 1, (Break("/m.py", 14, None, ""),), (), 0, fragments=(Fragment("/m.py", 13, "f", ()),)
)
FOUND = Verdict("m.py:Second", Status.VERIFIED, "fine", evidence=Evidence(after=CAPTURE))


def side(name: str, text: str) -> Side:
    return Side(Target("m", name, "/m.py"), (("/m.py", text), ("/other.py", "x = 1\n")))


def test_it_holds_and_its_lines_move() -> None:
    found = carried_over(FOUND, side("Second", TEXT), side("Second", LONGER))
    assert found is not None and found.status is Status.VERIFIED
    after = found.evidence.after
    assert after is not None
    assert after.breaks[0].line == 15 and after.fragments[0].line == 14
    back = carried_over(found, side("Second", LONGER), side("Second", TEXT))
    assert back == FOUND


@pytest.mark.parametrize(
    "name, old, new",
    [
        ("First", "return x + 1", "return x + 2"),
        ("Second", "    return x\n\nclass", "    return -x\n\nclass"),  # what it calls
        ("Third", "return helper(x)", "return x"),  # what it inherits
        ("Second", '{"plain": None}', '{"plain": First}'),
        ("Second", "import torch", "import math"),
        ("Second", "class First:", "class Fourth:\n    pass\n\nclass First:"),
    ],
)
def test_it_does_not_where_something_that_is_used_differs(name: str, old: str, new: str) -> None:
    assert old in TEXT
    changed = TEXT.replace(old, new)
    assert carried_over(FOUND, side(name, TEXT), side(name, changed)) is None
    assert carried_over(FOUND, side(name, changed), side(name, TEXT)) is None


@pytest.mark.parametrize("by", ["globals()['First']", "eval('First')", "vars()['First']"])
def test_it_does_not_where_names_are_looked_up_by_their_text(by: str) -> None:
    texts = [text.replace("return helper(x)", f"return {by}") for text in (TEXT, LONGER)]
    assert carried_over(FOUND, side("Second", texts[0]), side("Second", texts[1])) is None


@pytest.mark.parametrize("status", [Status.DIFFERENT, Status.NO_FEWER_BREAKS])
def test_what_did_not_pass_is_run_as_it_is(status: Status) -> None:
    found = replace(FOUND, status=status)
    assert carried_over(found, side("Second", TEXT), side("Second", LONGER)) is None


def test_what_the_original_alone_does_not_run_for_is_told_once() -> None:
    changed = TEXT.replace("return helper(x)", "return x")
    found = replace(FOUND, status=Status.NOT_RUN, evidence=Evidence())
    assert carried_over(found, side("Second", TEXT), side("Second", changed)) == found
    begun = replace(found, evidence=Evidence(inputs=("(float32[2] normal)",)))
    assert carried_over(begun, side("Second", TEXT), side("Second", changed)) is None


def test_it_does_not_for_another_callable_or_other_files() -> None:
    first, second = side("Second", TEXT), side("First", TEXT)
    assert carried_over(FOUND, first, second) is None
    assert carried_over(FOUND, first, replace(first, texts=first.texts[:1])) is None
