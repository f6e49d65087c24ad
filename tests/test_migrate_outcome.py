"""The document of a migration holds all of an outcome, and is read back as it was."""

import pytest

from gbfix.errors import UserError
from gbfix.migrate.outcome import (
    Arms,
    BreakSeen,
    Captured,
    Change,
    Checked,
    Commit,
    FixMade,
    Fragment,
    MigratedFile,
    Outcome,
    Policy,
    Site,
    State,
    Totals,
    from_json,
    to_json,
)

FRAGMENTS = (
    Fragment("m.py", 3, "forward", ("linear", "gt"), cut_by=0),
    Fragment("m.py", 4, "forward", ("relu",)),
)
BEFORE = Captured(
    2, 3, 0, (BreakSeen("m.py", 4, "GB0170", "GBF101", "a branch", "splits"),), (), FRAGMENTS
)
OUTCOME = Outcome(
    id="1",
    root="/project",
    policy=Policy("verified", True, ("m.py:Net",)),
    totals=Totals(files=3, by_code={"GBF101": Change(1, 0)}, breaks=Change(1, 0)),
    files=(
        MigratedFile(
            "m.py",
            "",
            9,
            State.WRITTEN,
            sites=(
                Site(4, 1, 4, 9, "GBF101", "tensor-branch", "why", "Net.forward", True,
                     FixMade("cond", "review", "both arms are pure")),
            ),
            arms=Arms(1, 2, ("m.py:4: false arm",)),
        ),
    ),
    checked=(Checked("m.py:Net", "m.py", "Net", True, "verified", True, "", before=BEFORE),),
    commits=(Commit("abc", "Fix", ("m.py",)),),
)  # fmt: skip


def test_what_is_read_is_what_was_written() -> None:
    assert from_json(to_json(OUTCOME)) == OUTCOME


def test_fields_of_a_later_version_are_left_out() -> None:
    text = to_json(OUTCOME).replace('"root":', '"new": 1, "root":')
    assert from_json(text) == OUTCOME


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"command": "check", "version": 1}'])
def test_other_documents_are_a_mistake_of_the_user(text: str) -> None:
    with pytest.raises(UserError):
        from_json(text)
