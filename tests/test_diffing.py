"""Diffs go into `git apply` as they are and change exactly what was changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbfix.source.diffing import diff_root, unified_diff


def git(cwd: Path, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *args], cwd=cwd, input=stdin, capture_output=True, check=False)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    assert git(root, "init", "-q").returncode == 0
    return root


def check(repo: Path, name: str, before: bytes, after: bytes, cwd: Path | None = None) -> bytes:
    path = repo / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(before)
    patch = unified_diff(path, before, after, diff_root([path], cwd or repo))
    done = git(cwd or repo, "apply", stdin=patch)
    assert done.returncode == 0, done.stderr + patch
    assert path.read_bytes() == after
    return patch


LINES = [b"line %d\n" % i for i in range(30)]
BEFORE = b"".join(LINES)
AFTER = b"".join([*LINES[:4], b"new\n", *LINES[5:20], *LINES[22:], b"end\n"])


def test_the_form(repo: Path) -> None:
    patch = check(repo, "sub/m.py", BEFORE, AFTER)
    assert patch.startswith(b"--- a/sub/m.py\n+++ b/sub/m.py\n@@ -2,7 +2,7 @@\n line 1\n")
    assert patch.count(b"@@ -") == 3


def test_equal_contents_have_no_diff(repo: Path) -> None:
    assert unified_diff(repo / "m.py", BEFORE, BEFORE, repo) == b""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BEFORE.replace(b"\n", b"\r\n"), AFTER.replace(b"\n", b"\r\n")),
        (b"a\r\nb\nc\r\n", b"a\r\nx\r\nb\nc\r\n"),
        (b"a\nb", b"a\nc"),
        (b"a\nb", b"a\nb\n"),
        (b"a\nb\n", b"a\nb"),
        (b"x\na\nb", b"y\na\nb"),
        (b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfc\nb\n"),
        (b"# coding: latin-1\ns = '\xe9'\n", b"# coding: latin-1\ns = '\xe8'\n"),
        (b"a\rb\x0c c\n\x0cd\ne\x85\n", b"a\rb\x0c C\n\x0cd\ne\x85\n"),
        (b"\ta\n \tb\n", b"\ta\n\tc\n \tb\n"),
    ],
    ids=[
        "crlf", "mixed", "no-final-newline", "newline-added", "newline-removed", "context-without",
        "bom", "latin-1", "cr-and-ff", "tabs",
    ],
)  # fmt: skip
def test_git_apply_takes_any_bytes(repo: Path, before: bytes, after: bytes) -> None:
    check(repo, "pkg/m.py", before, after)


@pytest.mark.parametrize(
    "name",
    [
        "with space.py",
        "a b/c d.py",
        "é→.py",
        'quo"te.py',
        "tab\there.py",
        "back\\slash.py",
        "a b\té.py",
    ],
)
def test_names_are_quoted_as_git_quotes_them(repo: Path, name: str) -> None:
    patch = check(repo, name, BEFORE, AFTER)
    (repo / name).write_bytes(BEFORE)
    git(repo, "add", ".")
    (repo / name).write_bytes(AFTER)
    theirs = git(repo, "diff").stdout.split(b"\n")
    ours = patch.split(b"\n")
    assert ours[:2] == [line for line in theirs if line.startswith((b"--- ", b"+++ "))]


def test_below_and_from_a_sub_folder(repo: Path) -> None:
    (repo / "sub/deep").mkdir(parents=True)
    check(repo, "sub/m.py", BEFORE, AFTER, cwd=repo / "sub")
    check(repo, "sub/deep/m.py", BEFORE, AFTER, cwd=repo / "sub")


def test_above_the_current_folder(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / "sub").mkdir()
    (repo / "other").mkdir()
    monkeypatch.chdir(repo / "sub")
    files = [Path("../top.py"), Path("../other/m.py"), Path("m.py")]
    patch = b""
    for path in files:
        path.write_bytes(BEFORE)
        patch += unified_diff(path, BEFORE, AFTER, diff_root(files, Path.cwd()))
    assert b"--- a/top.py\n" in patch
    # From here git cannot reach the other files: it has to say so and change nothing.
    assert git(repo / "sub", "apply", stdin=patch).returncode != 0
    assert all(path.read_bytes() == BEFORE for path in files)
    assert git(repo, "apply", stdin=patch).returncode == 0
    assert all(path.read_bytes() == AFTER for path in files)


def test_without_a_repository(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    assert diff_root([here / "m.py"], here) == here
    assert diff_root([here / "pkg/m.py"], here) == here
    assert diff_root([tmp_path / "there/m.py", here / "m.py"], here) == tmp_path
    path = here / "pkg" / "m.py"
    path.parent.mkdir()
    path.write_bytes(BEFORE)
    patch = unified_diff(path, BEFORE, AFTER, diff_root([path], here))
    assert git(here, "apply", stdin=patch).returncode == 0
    assert path.read_bytes() == AFTER


def test_a_link_is_diffed_as_the_file_it_points_to(repo: Path) -> None:
    (repo / "real").mkdir()
    (repo / "real/m.py").write_bytes(BEFORE)
    (repo / "link.py").symlink_to("real/m.py")
    (repo / "folder").symlink_to("real")
    for name in ("link.py", "folder/m.py"):
        patch = unified_diff(repo / name, BEFORE, AFTER, diff_root([repo / name], repo))
        assert patch.startswith(b"--- a/real/m.py\n")


PIECE = st.sampled_from(
    [b"a", b"b", b"c\r", b"\r", b"", b"\x0c", b"\xe9", b"-x", b"+y", b"@@ -1 +1 @@"]
)
CONTENT = st.lists(PIECE, min_size=1, max_size=12).map(b"\n".join).filter(bool)


@settings(max_examples=60, deadline=None)
@given(CONTENT, CONTENT)
def test_any_two_contents(tmp_path_factory: pytest.TempPathFactory, old: bytes, new: bytes) -> None:
    folder = tmp_path_factory.mktemp("r")
    path = folder / "m.py"
    path.write_bytes(old)
    patch = unified_diff(path, old, new, folder)
    if patch:
        done = git(folder, "apply", "--whitespace=nowarn", stdin=patch)
        assert done.returncode == 0, done.stderr
    assert path.read_bytes() == new
