"""Settings from pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbfix.config import load_config
from gbfix.errors import UserError
from gbfix.findings import Safety
from gbfix.settings import Branch, CheckStyle, Region, Settings, SideEffects


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_no_file_gives_the_defaults(tmp_path: Path) -> None:
    assert load_config(tmp_path / "missing.py").settings == Settings()


def test_every_key(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        [tool.gbfix]
        select = ["GBF1", "cond"]
        ignore = ["GBF201"]
        exclude = ["gen/"]
        region = "forward"
        branch = "where"
        check = "skip"
        unsafe = true
        line-length = 100
        respect-gitignore = false
        """,
    )
    config = load_config(tmp_path / "a" / "b" / "m.py")
    assert config.root == tmp_path
    assert config.settings == Settings(
        select=("GBF1", "cond"),
        ignore=("GBF201",),
        exclude=("gen/",),
        region=Region.FORWARD,
        branch=Branch.WHERE,
        check=CheckStyle.SKIP,
        safety=Safety.UNSAFE,
        line_length=100,
        respect_gitignore=False,
    )


def test_safe_only(tmp_path: Path) -> None:
    write(tmp_path, "[tool.gbfix]\nsafe-only = true\n")
    assert load_config(tmp_path).settings.safety is Safety.SAFE


def test_the_nearest_file_with_a_table_governs(tmp_path: Path) -> None:
    write(tmp_path, "[tool.gbfix]\nregion = 'all'\n[tool.ruff]\nline-length = 120\n")
    inner = write(tmp_path / "inner", "[tool.black]\nline-length = 79\n")
    assert load_config(inner / "m.py").settings == Settings(region=Region.ALL, line_length=120)
    innermost = write(inner / "most", "[tool.gbfix]\n")
    assert load_config(innermost).settings == Settings()


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("", 88),
        ("[tool.ruff]\nline-length = 100\n[tool.black]\nline-length = 90\n", 100),
        ("[tool.black]\nline-length = 90\n", 90),
        ("[tool.ruff]\nline-length = 'long'\n", 88),
        ("[tool.gbfix]\nline-length = 70\n[tool.ruff]\nline-length = 100\n", 70),
        ("[tool.gbfix]\n[tool.ruff]\nline-length = 100\n", 100),
    ],
)
def test_line_length(tmp_path: Path, text: str, length: int) -> None:
    write(tmp_path, text)
    assert load_config(tmp_path).settings.line_length == length


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tool.gbfix\n", "is not valid TOML"),
        ("tool = 3\n", "`tool` must be a table"),
        ("[tool]\ngbfix = 3\n", r"\[tool.gbfix\] must be a table"),
        ("[tool.gbfix]\nline_length = 3\n", "unknown key `line_length`"),
        ("[tool.gbfix]\nselect = 'GBF101'\n", "`select` in .* must be a list of strings"),
        ("[tool.gbfix]\nexclude = [1]\n", "`exclude` in .* must be a list of strings"),
        ("[tool.gbfix]\nregion = 'none'\n", '`region` .* must be one of "auto", "compile"'),
        ("[tool.gbfix]\nunsafe = 1\n", "`unsafe` in .* must be true or false"),
        ("[tool.gbfix]\nunsafe = true\nsafe-only = true\n", "cannot be true together"),
        ("[tool.gbfix]\nline-length = true\n", "whole number"),
        ("[tool.gbfix]\nline-length = 0\n", "whole number"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    write(tmp_path, text)
    with pytest.raises(UserError, match=sentence) as caught:
        load_config(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "pyproject.toml"))


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        load_config(tmp_path)


def test_side_effects_by_family(tmp_path: Path) -> None:
    write(tmp_path, '[tool.gbfix]\nside-effects = { print = "keep", logging = "config" }\n')
    settings = load_config(tmp_path / "model.py").settings
    policies = [settings.effects_of(family) for family in ("print", "logging", "warnings")]
    assert policies == [SideEffects.KEEP, SideEffects.CONFIG, SideEffects.DROP]


def test_an_unknown_family_of_side_effects(tmp_path: Path) -> None:
    write(tmp_path, '[tool.gbfix]\nside-effects = { prints = "keep" }\n')
    with pytest.raises(UserError, match="print, logging, warnings"):
        load_config(tmp_path / "model.py")
