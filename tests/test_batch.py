"""Many files: the result depends neither on the number of processes nor on what is kept."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gbfix import batch, engine, looking, survey
from gbfix.cache import Cache
from gbfix.cli.main import main
from gbfix.findings import RunResult
from gbfix.settings import Settings
from gbfix.source.loading import load
from gbfix.source.text import SourceFile

BASE = """import torch
from torch import nn

def helper(x):
    print("helper")
    return x

def unreached(x):
    print("unreached")
    return x

class Base(nn.Module):
    def run(self, x):
        return self.step(x)
    def step(self, x):
        print("base")
        return x
"""
CHILD = """import torch
from {package}.base import Base

class Child{n}(Base):
    def step(self, x):
        if x.sum() > {n}:
            x = x + 1
        return x
"""
USER = """import torch
from torch import nn
from {package}.base import Base, helper
from {package}.names import SIZE

class User(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = Base()
    def forward(self, x):
        x = self.base.run(x)
        return helper(x) * SIZE
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules that reach into each other, and overrides that only another module calls."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "pack"
    folder.mkdir()
    files = {"__init__": "", "base": BASE, "user": USER, "names": "SIZE = 2\n"}
    files |= {f"child{n}": CHILD.replace("{n}", str(n)) for n in range(4)}
    files["broken"] = "import torch\ndef ("
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text.replace("{package}", "pack"), encoding="utf-8")
    return folder


def sources(package: Path) -> Sequence[SourceFile]:
    return load(sorted(package.glob("*.py"))).sources


def said(result: RunResult) -> object:
    plain = [(f.path, [replace(x, edits=()) for x in f.findings]) for f in result.files]
    return plain, result.errors, result.notices


def in_one(files: Sequence[SourceFile]) -> RunResult:
    """What is found where all trees are held at once."""
    return engine.run(files, Settings(), rewrite=False)


@pytest.mark.parametrize("held", [survey.HELD, 0])
def test_a_look_at_one_file_after_the_other_finds_what_one_at_all_finds(
    package: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    files = sources(package)
    whole = in_one(files)
    assert {f.function for file in whole.files for f in file.findings} == {
        "helper", "Base.step", "Child0.step", "Child1.step", "Child2.step", "Child3.step",
    }  # fmt: skip
    monkeypatch.setattr(survey, "HELD", held)
    assert said(batch.check(files, Settings())) == said(whole)


@pytest.mark.parametrize("held", [survey.HELD, 0])
def test_of_a_file_that_is_not_python_nothing_is_used(
    package: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    long = "    x = x + 1\n" * 30
    wrong = f"import torch\n\ndef helper(x):\n    print(x)\n{long}    return return\n"
    (package / "torn.py").write_text(wrong, encoding="utf-8")
    for name in ("a_user", "z_user"):  # one is looked at before the file, one after it
        text = (
            USER.replace("{package}", "pack") + "    def more(self, x):\n        return helper(x)\n"
        )
        text = text.replace(
            "base import Base, helper", "base import Base\nfrom pack.torn import helper"
        )
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    files = sources(package)
    whole = in_one(files)
    assert [error.path.name for error in whole.errors] == ["broken.py", "torn.py"]
    monkeypatch.setattr(survey, "HELD", held)
    assert said(batch.check(files, Settings())) == said(whole)


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="the patched size is inherited"
)
def test_processes_change_nothing(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PIECE", 50)
    files = sources(package)
    seen: list[Path] = []
    one = batch.check(files, Settings())
    two = batch.check(files, Settings(), jobs=2, on_file=seen.append)
    assert said(two) == said(one)
    assert len(seen) == len(set(seen)) > 4


@pytest.mark.parametrize(
    ("extra", "found"),
    [
        ("import torch\n@torch.compile\ndef f(x):\n    print(x)\n", {"f"}),
        ("import torch\ndef f(x):\n    print(x)\nf2 = torch.compile(f)\n", {"f"}),
    ],
)
def test_what_is_compiled_anywhere_narrows_the_region(
    package: Path, extra: str, found: set[str]
) -> None:
    (package / "extra.py").write_text(extra, encoding="utf-8")
    files = sources(package)
    whole = in_one(files)
    parts = batch.check(files, Settings())
    assert {f.function for file in parts.files for f in file.findings} == found
    assert said(parts) == said(whole) and "--region forward" in parts.notices[0]


# The cache


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def never(*_: object, **__: object) -> RunResult:
    raise AssertionError("analysed again")


def entries(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.json"))


def test_a_second_run_analyses_nothing(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "broken.py").unlink()
    first = batch.check(sources(package), Settings(), cache=Cache(cache))
    assert (cache / ".gitignore").read_text().endswith("*\n")
    monkeypatch.setattr(survey.Survey, "look", never)
    again = batch.check(sources(package), Settings(), cache=Cache(cache))
    assert said(again) == said(first)
    with pytest.raises(AssertionError, match="analysed again"):
        batch.check(sources(package), Settings(line_length=70), cache=Cache(cache))


@pytest.mark.parametrize("change", ["edit", "disk", "new", "gone"])
def test_what_a_result_depends_on_makes_it_invalid(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    (package / "broken.py").unlink()
    chosen = [package / "user.py"]
    batch.check(load(chosen).sources, Settings(), cache=Cache(cache))
    monkeypatch.setattr(survey.Survey, "look", never)
    batch.check(load(chosen).sources, Settings(), cache=Cache(cache))
    if change == "edit":
        chosen[0].write_text(chosen[0].read_text() + "\n")
    elif change == "disk":  # another module, which was only looked into
        (package / "base.py").write_text(BASE + "\n")
    elif change == "new":  # would now be found first
        (package / "base").mkdir()
        (package / "base.py").rename(package / "base" / "__init__.py")
    else:
        (package / "names.py").unlink()
    with pytest.raises(AssertionError, match="analysed again"):
        batch.check(load(chosen).sources, Settings(), cache=Cache(cache))


LOOKED_AT_TWICE = """import torch
from pack.base import Base
from pack.names import SIZE

class Twice(Base):
    def forward(self, x):
        return x * SIZE
    def step(self, x):
        return x
"""


def test_what_only_the_first_look_at_a_file_has_looked_into_counts(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [package / "twice.py", package / "base.py", package / "user.py"]
    chosen[0].write_text(LOOKED_AT_TWICE)
    user = USER.replace("{package}", "pack").replace(" * SIZE", "")
    chosen[2].write_text(user.replace("from pack.names import SIZE\n", ""))
    batch.check(load(chosen).sources, Settings(), cache=Cache(cache))
    monkeypatch.setattr(survey.Survey, "look", never)
    batch.check(load(chosen).sources, Settings(), cache=Cache(cache))
    (package / "names.py").write_text("SIZE = 4\n")
    with pytest.raises(AssertionError, match="analysed again"):
        batch.check(load(chosen).sources, Settings(), cache=Cache(cache))


def test_what_was_looked_into_before_any_file_counts(tmp_path: Path, cache: Path) -> None:
    base, user = tmp_path / "second.py", tmp_path / "user.py"
    base.write_text("import torch\n")
    lines = ["import torch", "from torch import nn", "from second import Base", "class User(Base):"]
    lines += [f"    def {name}(self, x):\n        print(x)" for name in ("forward", "step")]
    user.write_text("\n".join([*lines, ""]))
    both = batch.check(load([user]).sources, Settings(), cache=Cache(cache))
    assert len(both.files[0].findings) == 2
    base.write_text("import torch\nclass Base(torch.nn.Module):\n    pass\n")
    one = batch.check(load([user]).sources, Settings(), cache=Cache(cache))
    assert len(one.files[0].findings) == 1


@pytest.mark.parametrize("damage", [b"", b"{}", b"0\n{}", b"\xff" * 40, None])
def test_a_damaged_entry_is_none(package: Path, cache: Path, damage: bytes | None) -> None:
    (package / "broken.py").unlink()
    first = batch.check(sources(package), Settings(), cache=Cache(cache))
    (entry,) = entries(cache)
    entry.write_bytes(damage if damage is not None else entry.read_bytes()[:-1])
    assert said(batch.check(sources(package), Settings(), cache=Cache(cache))) == said(first)


def test_a_folder_that_cannot_be_used_is_no_error(package: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    result = batch.check(sources(package), Settings(), cache=Cache(file / "below"))
    assert result.files


def test_errors_of_syntax_are_kept_and_others_are_not(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = batch.check(sources(package), Settings(), cache=Cache(cache))
    assert [error.path.name for error in first.errors] == ["broken.py"]
    monkeypatch.setattr(survey.Survey, "look", never)
    assert said(batch.check(sources(package), Settings(), cache=Cache(cache))) == said(first)
    monkeypatch.undo()
    monkeypatch.setattr(looking, "find_sites", never)
    settings = Settings(line_length=70)
    assert len(batch.check(sources(package), settings, cache=Cache(cache)).errors) > 1
    assert len(entries(cache)) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_cached_run_equals_a_cold_one_after_any_edits(
    package: Path, cache: Path, seed: int
) -> None:
    chance = random.Random(seed)
    original = {path: path.read_text() for path in package.rglob("*.py")}
    pieces = (
        "\n",
        "# gbfix: ignore[GBF201] not used\n",
        "\ndef more(x):\n    print(x)\n    return x\n",
        "\nclass Late(Base):\n    def forward(self, x):\n        return self.run(more(x))\n",
        "SIZE = 3\n",
        "def broken(:\n",
    )
    for _ in range(12):
        path = chance.choice([*sorted(original), package / "plain.py", package / "new.py"])
        kind = chance.randrange(4)
        if kind == 0:
            path.unlink(missing_ok=True)
        elif kind == 1:
            path.write_text(original.get(path, ""))
        else:
            before = path.read_text() if path.exists() else ""
            path.write_text(before + chance.choice(pieces))
        kept = batch.check(sources(package), Settings(), cache=Cache(cache))
        assert said(kept) == said(batch.check(sources(package), Settings()))


def test_a_change_where_nobody_looked_costs_nothing(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "plain.py").write_text("VALUE = 1\n")
    batch.check(sources(package), Settings(), cache=Cache(cache))
    monkeypatch.setattr(survey.Survey, "look", never)
    (package / "plain.py").write_text("VALUE = 2\n")
    (package / "another.py").write_text("VALUE = 3\n")
    again = batch.check(sources(package), Settings(), cache=Cache(cache))
    assert {"plain.py", "another.py"} <= {file.path.name for file in again.files}
    (package / "names.py").write_text("SIZE = 4\n")  # was looked into
    with pytest.raises(AssertionError, match="analysed again"):
        batch.check(sources(package), Settings(), cache=Cache(cache))


def test_options_of_the_command_line(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / "broken.py").unlink()
    assert main(["check", "--no-cache", "pack", "-j", "1"]) == 1
    cold = capsys.readouterr()
    assert not (tmp_path / ".gbfix_cache").exists()
    assert main(["check", "--cache-dir", "kept", "pack"]) == 1
    assert capsys.readouterr() == cold and entries(tmp_path / "kept")
    assert main(["check", "pack"]) == main(["check", "pack"]) == 1
    assert entries(tmp_path / ".gbfix_cache")
    # The cache is not looked into for Python files, nor does git see it.
    assert (tmp_path / ".gbfix_cache" / ".gitignore").exists()


def test_fixing_again_costs_nothing_and_gives_the_same(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(result: RunResult) -> object:
        return said(result), {file.path: file.after for file in result.files}

    cold = batch.rewrite(sources(package), Settings(), cache=Cache(cache))
    assert any(file.changed for file in cold.files)
    assert any(finding.applied for file in cold.files for finding in file.findings)
    # A check of the same files is another question.
    assert not any(
        f.changed for f in batch.check(sources(package), Settings(), cache=Cache(cache)).files
    )
    monkeypatch.setattr(engine, "run", lambda *a, **k: pytest.fail("fixed again"))
    warm = batch.rewrite(sources(package), Settings(), cache=Cache(cache))
    assert made(warm) == made(cold)
    for settings, text in ((Settings(config=True), ""), (Settings(), "\nx = 1\n")):
        path = package / "base.py"
        path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")
        with pytest.raises(pytest.fail.Exception, match="fixed again"):
            batch.rewrite(sources(package), settings, cache=Cache(cache))


@pytest.mark.parametrize("jobs", [1, 2])
def test_fixing_in_pieces_gives_what_one_run_over_all_gives(
    package: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    files = sources(package)
    whole = engine.run(files, Settings())
    assert sum(file.changed for file in whole.files) > 2
    monkeypatch.setattr(batch, "PIECE", 200)
    monkeypatch.setattr(engine, "run", never)
    parts = batch.rewrite(files, Settings(), jobs=jobs)
    assert said(parts) == said(whole)
    assert {f.path: f.after for f in parts.files} == {f.path: f.after for f in whole.files}


STORED_AROUND = {
    "inner": """import torch
from torch import nn

class Inner(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = torch.relu(x) @ x
        return x
""",
    "outer": """import torch
from torch import nn
from inner import Inner

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, x):
        self.first = x
        x = self.inner(x)
        self.second = x
        return x
""",
}


def test_stores_around_a_call_in_another_file_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in STORED_AROUND.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    files = load(sorted(tmp_path.glob("*.py"))).sources
    monkeypatch.setattr(survey, "HELD", 0)
    checked = batch.check(files, Settings())
    assert said(checked) == said(in_one(files))
    codes = {r.code for file in checked.files for f in file.findings for r in f.refusals}
    assert "lost-store" in codes


READ_ELSEWHERE = {
    "logger": """import torch
from torch import nn

class Logged(nn.Module):
    last = 0.0
    def forward(self, x):
        self.last = x.sum().item()
        return x * 2
""",
    "reader": """import torch
from torch import nn

class Reader(nn.Module):
    def forward(self, x, logged):
        return x + logged.last
""",
}


def test_a_value_that_compiled_code_of_another_file_reads_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in READ_ELSEWHERE.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    files = load(sorted(tmp_path.glob("*.py"))).sources
    whole = engine.run(files, Settings())
    assert said(batch.check(files, Settings())) == said(in_one(files))
    monkeypatch.setattr(batch, "PIECE", 1)
    parts = batch.rewrite(files, Settings())
    assert {f.path: f.after for f in parts.files} == {f.path: f.after for f in whole.files}


CAUGHT_ELSEWHERE = {
    "checks": """import torch

def check(x):
    print("checking")
    if torch.isnan(x).any():
        raise ValueError("x has NaN")
    return x
""",
    "catcher": """import torch
from torch import nn
from checks import check

class Catcher(nn.Module):
    def forward(self, x):
        try:
            return check(x)
        except ValueError:
            return x * 0
""",
}
PRINTED = {
    "inner": STORED_AROUND["inner"].replace("        if", "        print(x.shape)\n        if")
}


@pytest.mark.parametrize("piece", [batch.PIECE, 1])
@pytest.mark.parametrize(
    ("project", "refused"),
    [(CAUGHT_ELSEWHERE, "caught-exception"), (STORED_AROUND | PRINTED, "lost-store")],
)
def test_a_caller_in_a_file_without_fixes_counts_after_the_first_pass(
    project: dict[str, str],
    refused: str,
    piece: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in project.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(batch, "PIECE", piece)
    result = batch.rewrite(load(sorted(tmp_path.glob("*.py"))).sources, Settings())
    (left,) = (f for file in result.files for f in file.findings if f.applied is None)
    assert refused in {refusal.code for refusal in left.refusals}
    assert sum(f.applied is not None for file in result.files for f in file.findings) == 1
