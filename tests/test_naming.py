"""Files of the same name in several folders are files of their own, and import what is beside them."""

from pathlib import Path

import pytest

from gbfix import batch
from gbfix.analysis.naming import named
from gbfix.analysis.project import Project
from gbfix.settings import Settings
from gbfix.source.loading import load
from gbfix.source.text import SourceFile

MAIN = """import torch
from helper import scale

@torch.compile
def run(x):
    return scale(x)
"""
PLAIN = "def scale(x):\n    return x * 2\n"
BRANCHING = """import torch

def scale(x):
    if x.sum() > 0:
        x = x * 2
    return x
"""


def _names(root: Path) -> list[str]:
    return [module.name for module in named(load(sorted(root.rglob("*.py"))).sources)]


def test_every_folder_of_scripts_is_looked_at_with_its_own_helper(tmp_path: Path) -> None:
    for folder, helper in (("one", PLAIN), ("two", BRANCHING), ("three", BRANCHING)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "main.py").write_text(MAIN)
        (tmp_path / folder / "helper.py").write_text(helper)
    for jobs in (1, 2):
        result = batch.check(load(sorted(tmp_path.rglob("*.py"))).sources, Settings(), jobs=jobs)
        found = [
            file.path.relative_to(tmp_path).as_posix() for file in result.files if file.findings
        ]
        assert found == ["three/helper.py", "two/helper.py"]


def test_a_helper_beside_the_file_that_is_not_given_counts(tmp_path: Path) -> None:
    for folder, helper in (("one", PLAIN), ("two", "def scale(x):\n    return x.shape[0]\n")):
        (tmp_path / folder).mkdir()
        text = MAIN.replace("return scale(x)", "return x + 1 if scale(x) > 0 else x")
        (tmp_path / folder / "main.py").write_text(text)
        (tmp_path / folder / "helper.py").write_text(helper)
    paths = [tmp_path / "one" / "main.py", tmp_path / "two" / "main.py"]
    assert len(set(_names(tmp_path))) == 4
    one, two = batch.check(load(paths).sources, Settings()).files
    assert [f.name for f in one.findings] == ["tensor-branch"]
    assert not two.findings


def test_names_stay_as_they_are_where_they_are_one_of_a_kind(tmp_path: Path) -> None:
    for name in ("a/pkg/__init__.py", "a/pkg/m.py", "b/tests/__init__.py", "a/tests/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import torch\n")
    (tmp_path / "a" / "pkg.py").write_text("import torch\n")
    names = _names(tmp_path)
    assert len(set(names)) == len(names) == 5
    assert {"pkg", "pkg.m", "tests"} < set(names)


@pytest.mark.parametrize(("folder", "is_read"), [("src", True), ("site-packages", False)])
def test_packages_that_are_installed_beside_a_project_are_none_of_it(
    tmp_path: Path, folder: str, is_read: bool
) -> None:
    for package in ("own", "other"):
        (tmp_path / folder / package).mkdir(parents=True)
        (tmp_path / folder / package / "__init__.py").write_text("")
    path = tmp_path / folder / "own" / "__init__.py"
    project = Project(named([SourceFile.decode(path, path.read_bytes())]))
    assert project.module("own") is not None
    assert (project.module("other") is not None) is is_read
