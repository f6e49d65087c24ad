"""Bytecode is kept in a folder of gbfix's own, and used as long as it is that of the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gbfix.verify.execute import RunSpec
from gbfix.verify.jobs import Limits
from gbfix.verify.probing import job, record_of
from gbfix.verify.recipes import Inputs
from gbfix.verify.targets import Side, of_file
from gbfix.verify.worker import Workers

SCRIPT = """
import sys
from gbfix.verify.bytecode import keep_in
keep_in(sys.argv[1])
sys.dont_write_bytecode = True
import helper
print(helper.VALUE, sys.dont_write_bytecode)
"""


def imported(folder: Path, kept: Path) -> str:
    own = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{own}"}
    command = [sys.executable, "-c", SCRIPT, str(kept)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()


def test_what_is_kept_is_used_until_the_file_changes(tmp_path: Path) -> None:
    project, kept = tmp_path / "project", tmp_path / "kept"
    project.mkdir()
    (project / "helper.py").write_text("VALUE = 'first'\n")
    assert imported(project, kept) == "first True"
    assert sorted(p.name for p in project.iterdir()) == ["helper.py"]
    (bytecode,) = kept.rglob("helper.*.pyc")
    bytecode.write_bytes(bytecode.read_bytes().replace(b"first", b"FIRST"))
    assert imported(project, kept) == "FIRST True"
    (project / "helper.py").write_text("VALUE = 'second'\n")
    assert imported(project, kept) == "second True"
    assert sorted(p.name for p in project.iterdir()) == ["helper.py"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it needs worker processes")
def test_nothing_is_left_beside_the_files_nor_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, project = tmp_path / "tmp", tmp_path / "project"
    temporary.mkdir()
    project.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    (project / "helper.py").write_text("VALUE = 2\n")
    (project / "code.py").write_text("import helper\ndef f(x):\n    return x * helper.VALUE\n")
    path = project / "code.py"
    side = Side(of_file(path, "f"), ((str(path), path.read_text()),))
    spec = RunSpec(side, Inputs(expressions=("((torch.ones(2),), {})",)))
    with Workers(1) as workers:
        run = job("gbfix.verify.execute:run", Limits(), spec)
        for outcome in workers.run([run, run]):
            assert record_of(outcome).failure is None
        assert list(temporary.rglob("helper.*.pyc"))
        assert not list(temporary.rglob("code.*.pyc"))  # its text need not be the file's
    assert not list(temporary.rglob("*.pyc"))
    assert sorted(p.name for p in project.iterdir()) == ["code.py", "helper.py"]
