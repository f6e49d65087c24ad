"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gbfix.source.writing import WriteError, write_atomically

BEFORE, AFTER = b"x = 1\r\n", b"x = 2\r\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.py"
    path.write_bytes(BEFORE)
    return path


def refused(path: Path, match: str) -> None:
    content = path.read_bytes()
    with pytest.raises(WriteError, match=match):
        write_atomically(path, BEFORE, AFTER)
    assert path.read_bytes() == content
    assert not list(path.parent.glob(".gbfix-*"))


def test_content_changes_and_mode_stays(file: Path) -> None:
    file.chmod(0o750)
    write_atomically(file, BEFORE, AFTER)
    assert file.read_bytes() == AFTER
    assert stat.S_IMODE(file.stat().st_mode) == 0o750
    assert [path.name for path in file.parent.iterdir()] == ["m.py"]


def test_owner_stays(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(file, 1234, 1235)
    file.chmod(0o4755)
    write_atomically(file, BEFORE, AFTER)
    status = file.stat()
    assert (status.st_uid, status.st_gid) == (1234, 1235)
    assert stat.S_IMODE(status.st_mode) == 0o4755


def test_a_link_keeps_pointing_at_the_file(file: Path) -> None:
    folder = file.parent / "links"
    folder.mkdir()
    link = folder / "link.py"
    link.symlink_to("../m.py")
    write_atomically(link, BEFORE, AFTER)
    assert link.is_symlink()
    assert file.read_bytes() == AFTER
    assert [path.name for path in folder.iterdir()] == ["link.py"]


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").symlink_to("b.py")
    (tmp_path / "b.py").symlink_to("a.py")
    with pytest.raises(WriteError, match=r"a\.py: cannot be written"):
        write_atomically(tmp_path / "a.py", BEFORE, AFTER)


def test_hard_links_are_refused(file: Path) -> None:
    (file.parent / "other.py").hardlink_to(file)
    refused(file, "2 hard links")


def test_a_read_only_file_is_refused(file: Path) -> None:
    file.chmod(0o444)
    refused(file, "read-only")


def test_a_file_changed_meanwhile_is_refused(file: Path) -> None:
    file.write_bytes(b"mine\n")
    refused(file, "changed while gbfix was running")


def test_a_file_that_is_gone_is_refused(file: Path) -> None:
    file.unlink()
    with pytest.raises(WriteError, match="No such file"):
        write_atomically(file, BEFORE, AFTER)
    assert not list(file.parent.iterdir())


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_half_way_leaves_the_old_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fsync(descriptor: int) -> None:
        raise failure

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises((WriteError, KeyboardInterrupt)):
        write_atomically(file, BEFORE, AFTER)
    assert file.read_bytes() == BEFORE
    assert [path.name for path in file.parent.iterdir()] == ["m.py"]
