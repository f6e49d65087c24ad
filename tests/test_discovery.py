"""Which files a command line means."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gbfix.errors import UserError
from gbfix.source.discovery import discover
from gbfix.source.loading import load


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")


def names(
    root: Path, paths: Sequence[str] = (".",), exclude: Sequence[str] = (), gitignore: bool = True
) -> list[str]:
    found = discover(
        [root / path for path in paths],
        exclude=exclude,
        root=root,
        respect_gitignore=gitignore,
    )
    assert not found.errors
    return [path.relative_to(root).as_posix() for path in found.files]


def test_a_folder_gives_its_python_files_sorted(tmp_path: Path) -> None:
    make(tmp_path, "b.py", "a/z.py", "a.py", "a/y.pyi", "notes.txt", "a/b/c.py")
    assert names(tmp_path) == ["a/b/c.py", "a/z.py", "a.py", "b.py"]


def test_default_excludes(tmp_path: Path) -> None:
    make(tmp_path, "m.py", ".venv/m.py", "a/node_modules/m.py", "build/m.py", "__pycache__/m.py")
    assert names(tmp_path) == ["m.py"]


def test_what_is_named_is_taken_even_if_excluded(tmp_path: Path) -> None:
    make(tmp_path, "build/m.py", "build/lib/m.py", "gen/a.py", "gen/b.py")
    (tmp_path / ".gitignore").write_text("gen/\n")
    assert names(tmp_path, ["build/m.py"]) == ["build/m.py"]
    assert names(tmp_path, ["build"]) == ["build/lib/m.py", "build/m.py"]
    assert names(tmp_path, ["gen/a.py"]) == ["gen/a.py"]
    (tmp_path / ".git").mkdir()
    assert names(tmp_path, ["gen"]) == ["gen/a.py", "gen/b.py"]
    assert names(tmp_path, ["gen"], exclude=["gen", "b.py"]) == ["gen/a.py"]


def test_exclude_patterns_are_relative_to_the_root(tmp_path: Path) -> None:
    make(tmp_path, "a/m.py", "b/m.py", "b/a/m.py", "c/skip_me.py", "c/keep.py")
    assert names(tmp_path, exclude=["/a", "skip_*"]) == ["b/a/m.py", "b/m.py", "c/keep.py"]
    assert names(tmp_path, ["b"], exclude=["b/a"]) == ["b/m.py"]


def test_a_pattern_that_cannot_be_used_is_a_user_error(tmp_path: Path) -> None:
    make(tmp_path, "m.py")
    with pytest.raises(UserError, match="!"):
        names(tmp_path, exclude=["!"])


def test_gitignore_at_every_level(tmp_path: Path) -> None:
    make(tmp_path, "top.py", "p/gen_a.py", "p/gen_keep.py", "p/q/x.py", "p/q/y.py", "out/z.py")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("gen_*.py\r\n/out/\n!\n")
    (tmp_path / "p/.gitignore").write_text("!gen_keep.py\n")
    (tmp_path / "p/q/.gitignore").write_text("/y.py\n")
    expected = ["p/gen_keep.py", "p/q/x.py", "top.py"]
    assert names(tmp_path) == expected
    assert names(tmp_path, ["p"]) == expected[:2]
    assert len(names(tmp_path, gitignore=False)) == 6


def test_gitignore_above_the_repository_does_not_count(tmp_path: Path) -> None:
    make(tmp_path, "repo/m.py")
    (tmp_path / "repo/.git").mkdir()
    (tmp_path / ".gitignore").write_text("*.py\n")
    assert names(tmp_path, ["repo"]) == ["repo/m.py"]


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    make(tmp_path, "in/m.py", "outside/n.py")
    (tmp_path / "in/loop").symlink_to(tmp_path / "in")
    (tmp_path / "in/out").symlink_to(tmp_path / "outside")
    assert names(tmp_path, ["in"]) == ["in/m.py"]
    assert names(tmp_path, ["in/out"]) == ["in/out/n.py"]


def test_each_file_once_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "m.py")
    (tmp_path / "a.py").symlink_to("m.py")
    monkeypatch.chdir(tmp_path)
    found = discover([Path("a.py"), Path("./m.py"), tmp_path / "m.py", Path()])
    assert found.files == (Path("m.py"),)


def test_paths_that_give_nothing_are_sentences(tmp_path: Path) -> None:
    make(tmp_path, "ok.py", "n.ipynb", "empty/readme.md")
    (tmp_path / "dangling.py").symlink_to("nowhere.py")
    os.mkfifo(tmp_path / "pipe.py")
    given = ["missing.py", "empty", "dangling.py", "pipe.py", "n.ipynb", "ok.py", "x" * 300]
    found = discover([tmp_path / name for name in given])
    assert found.files == (tmp_path / "ok.py",)
    said = {
        error.path.name: error.sentence.removeprefix(f"{error.path}: ") for error in found.errors
    }
    assert said == {
        "dangling.py": "dangling symbolic link.",
        "empty": "no Python files in this folder.",
        "missing.py": "no such file or folder.",
        "n.ipynb": "notebooks are not supported.",
        "pipe.py": "not a regular file.",
        "x" * 300: "cannot be read: File name too long.",
    }


def test_an_unreadable_file_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a.py", "b.py", "c.py")
    (tmp_path / "b.py").write_bytes(b"\xff")
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path.name == "c.py":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    loaded = load(sorted(tmp_path.iterdir()))
    assert [source.path.name for source in loaded.sources] == ["a.py"]
    assert [error.path.name for error in loaded.errors] == ["b.py", "c.py"]
    assert loaded.errors[1].sentence.endswith("c.py: cannot be read: Permission denied.")
