"""`gbfix doctor`, and what a run leaves out for the torch version that it is for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gbfix.api import check_source, fix_source
from gbfix.cli.main import main
from gbfix.diagnoses import DIAGNOSES
from gbfix.dynamo import known as known_module
from gbfix.dynamo.installed import torch_version
from gbfix.dynamo.known import known, remember
from gbfix.dynamo.target import target
from gbfix.editor.fixing import fix_all
from gbfix.settings import Settings
from gbfix.source.text import SourceFile

PROBES = {code: diagnosis.probe for code, diagnosis in DIAGNOSES.items()}
PRINTS = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("norm", x.norm())
        if x.sum() > 0:
            x = x * 2
        return x
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(
        known_module, "_cache_file", lambda version: tmp_path / "cache" / f"{version}.json"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(PRINTS)
    return tmp_path / "cache"


def codes(capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    main(["check", "m.py", "--output-format", "json", *options])
    found = json.loads(capsys.readouterr().out)
    return [finding["code"] for finding in found["findings"]]


def test_check_says_nothing_of_what_breaks_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert codes(capsys) == ["GBF201", "GBF101"]
    version = torch_version()
    assert version is not None
    remember(version, PROBES, {"GBF201": False, "GBF101": True})
    assert codes(capsys) == ["GBF101"]
    assert codes(capsys, "--target-torch", "any") == ["GBF201", "GBF101"]


def test_the_version_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    remember("9.1", PROBES, {"GBF101": False})
    assert codes(capsys, "--target-torch", "9.1") == ["GBF201"]
    Path("pyproject.toml").write_text('[tool.gbfix]\ntarget-torch = "9.1"\n')
    assert codes(capsys) == ["GBF201"]
    assert codes(capsys, "--select", "GBF101") == []


def test_editors_and_the_library_share_it(capsys: pytest.CaptureFixture[str]) -> None:
    version = torch_version()
    assert version is not None
    remember(version, PROBES, {"GBF201": False})
    source = SourceFile(Path("m.py"), PRINTS)
    assert [finding.code for finding in check_source(PRINTS)] == ["GBF101"]
    for fixed in (fix_source(PRINTS).source, source.apply(fix_all(source, Settings()))):
        assert fixed != PRINTS
        assert '        print("norm", x.norm())\n' in fixed
    assert main(["quickfix", "m.py:7"]) == 1
    assert "No break site here" in capsys.readouterr().out
    assert len(check_source(PRINTS, settings=Settings(target_torch="any"))) == 2


def test_an_unknown_version_reports_everything_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["check", "m.py", "--target-torch", "0.4"])
    said = capsys.readouterr()
    assert "GBF201" in said.out
    assert "nothing is known of torch 0.4" in said.err
    assert main(["check", "m.py", "--target-torch", "new"]) == 2
    assert "`new` is no version" in capsys.readouterr().err


def test_what_was_measured_with_another_probe_is_not_used() -> None:
    remember("9.2", {"GBF101": "def probe(x): ..."}, {"GBF101": False})
    assert target("9.2", PROBES).quiet == frozenset()


def test_a_broken_cache_is_as_good_as_none(cache: Path) -> None:
    cache.mkdir()
    (cache / "9.3.json").write_text("{")
    assert known("9.3", PROBES) == {}


def test_the_shipped_table_knows_the_release() -> None:
    """`scripts/measure_probes.py` makes it; a patch release stands in its minor's row."""
    assert known("2.13.0+cpu", PROBES)["GBF101"]
    assert known("2.130", PROBES) == {}


def test_doctor_measures_once(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    pytest.importorskip("torch")
    Path("pyproject.toml").write_text('[tool.gbfix]\nregion = "all"\n')
    assert main(["doctor", "--output-format", "json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["torch"]["version"] == torch_version()
    assert {row["code"]: row["breaks"] for row in first["diagnoses"]} == dict.fromkeys(PROBES, True)
    assert first["settings"]["region"]["value"] == "all"
    assert first["settings"]["region"]["from"].endswith("pyproject.toml")
    assert first["settings"]["branch"] == {"value": "auto", "from": "default"}
    assert first["dynamo"]["capture_scalar_outputs"] == {"value": False, "default": False}
    (kept,) = cache.iterdir()
    text = kept.read_text().replace("true", "false", 1)
    kept.write_text(text)
    assert main(["doctor"]) == 0
    assert "does not break; check says nothing about it" in capsys.readouterr().out


def test_doctor_probes_without_the_settings_of_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    monkeypatch.setenv("TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS", "1")
    assert main(["doctor", "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(row["breaks"] for row in found["diagnoses"])
    assert found["dynamo"]["capture_scalar_outputs"]["value"] is True
    assert found["environment"]["TORCH_COMPILE_DISABLE"] == "1"
