"""`gbfix run`: programs behave as if started by Python, on rewritten source that is written nowhere.

Most programs here are run with a small stand-in for torch, which takes no time to import.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gbfix.findings import RunResult
from gbfix.overlay.running import Left, Told
from gbfix.overlay.summary import Before
from gbfix.overlay.summary import summary as sum_up

ROOT = Path(__file__).parents[1]
STAND_IN = """
class Tensor: ...
def compile(function): return function
class compiler:
    is_compiling = staticmethod(lambda: False)
"""
STEP = """
import torch


@torch.compile
def step(x: torch.Tensor):
    print("step")
    return x
"""
NOTHING_LEFT = "gbfix: nothing was compiled in this run, so there was nothing that could break.\n"


class Programs:
    """Runs programs in a folder of their own, with Python or with gbfix."""

    def __init__(self, folder: Path, stand_in: Path | None) -> None:
        self.folder = folder
        paths = [str(ROOT), *([str(stand_in)] if stand_in else [])]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def write(self, package: str = "", /, **files: str) -> None:
        for name, text in files.items():
            path = self.folder / package / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip())

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run([sys.executable, *words])

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run([sys.executable, "-m", "gbfix", "run", *words])

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "gbfix", "run", *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    stand_in = tmp_path / "installed"
    stand_in.mkdir()
    (stand_in / "torch.py").write_text(STAND_IN)
    folder = tmp_path / "project"
    folder.mkdir()
    return Programs(folder, stand_in)


def summary(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("gbfix: ")]


def program_only(text: str) -> str:
    return "".join(line for line in text.splitlines(True) if not line.startswith("gbfix: "))


def test_a_script_sees_what_it_would_see_under_python(programs: Programs) -> None:
    programs.write(
        "sub",
        main="""
            import sys, os
            sys.path.append(os.getcwd())
            import step
            names = sorted(n for n in globals() if n != "names")
            print(sys.argv, __file__, os.getcwd(), sys.path[0], __name__, __spec__, names)
            print([p for p in sys.path if "gbfix-" in p], sys.stdin.read())
            print("to stderr", file=sys.stderr)
            step.step(None)
            sys.exit(7)
            """,
    )
    programs.write(step=STEP)
    plain = programs.python("sub/main.py", "a", "--b", "-m")
    found = programs.run("sub/main.py", "a", "--b", "-m")
    assert found.stdout == plain.stdout
    assert found.returncode == plain.returncode == 7
    assert program_only(found.stderr) == plain.stderr == "to stderr\n"


def test_a_module_sees_what_it_would_see_under_python(programs: Programs) -> None:
    main = "import sys\nfrom . import step\nprint(sys.argv, __package__, __spec__.name)\nstep.step(1)\n"
    programs.write("package", __init__="", step=STEP, __main__=main)
    plain = programs.python("-m", "package", "-x", "1")
    found = programs.run("-m", "package", "-x", "1")
    assert found.stdout == plain.stdout
    assert "step" in found.stdout
    assert summary(found.stderr)[0] == (
        "gbfix: rewrote 1 break site in 1 file, in memory only; no file was written."
    )


def test_source_and_tracebacks_are_those_that_run(programs: Programs) -> None:
    programs.write(
        step=STEP.replace("return x", "return x / 0"),
        main="""
            import inspect, linecache, traceback, torch
            import step

            @torch.compile
            def own(x: torch.Tensor):
                print("own")
                return x

            print("is_compiling" in inspect.getsource(step), "is_compiling" in inspect.getsource(own))
            linecache.clearcache()
            linecache.checkcache()
            try:
                step.step(1)
            except ZeroDivisionError:
                print(traceback.format_exc())
            step.step(1)
            """,
    )
    found = programs.run("main.py")
    assert found.returncode == 1
    assert found.stdout.startswith("True True\n")
    shown = f'File "{programs.folder}/step.py", line 8, in step\n    return x / 0\n'
    assert shown in found.stdout
    assert shown in found.stderr
    assert "launch.py" not in found.stderr
    assert not list(programs.folder.rglob("*.pyc"))


def test_an_exception_ends_as_under_python(programs: Programs) -> None:
    programs.write(main="import sys\ndef f():\n    raise KeyError(1)\nf()\n")
    plain, found = programs.python("main.py"), programs.run("main.py")
    assert found.returncode == plain.returncode == 1
    assert program_only(found.stderr) == plain.stderr


def test_bytecode_of_the_original_is_not_used_and_stays(programs: Programs) -> None:
    programs.write(step=STEP, main="import step, inspect\nprint(inspect.getsource(step.step))\n")
    programs.python("-c", "import step")
    (cached,) = programs.folder.rglob("step*.pyc")
    before = cached.read_bytes()
    assert "is_compiling" in programs.run("main.py").stdout
    assert cached.read_bytes() == before
    assert "is_compiling" not in programs.python("main.py").stdout


def test_worker_processes_take_part(programs: Programs) -> None:
    programs.write(
        step=STEP,
        main="""
            import inspect, multiprocessing, pickle, subprocess, sys, torch
            import step

            @torch.compile
            def own(x: torch.Tensor):
                print("own")
                return x

            def look(_):
                return ["is_compiling" in inspect.getsource(f) for f in (own, step)], sys.argv[1:]

            if __name__ == "__main__":
                assert pickle.loads(pickle.dumps(own)) is own
                for how in ("fork", "spawn", "forkserver"):
                    with multiprocessing.get_context(how).Pool(1) as pool:
                        print(how, pool.map(look, [0]))
                code = "import step, inspect; print('is_compiling' in inspect.getsource(step))"
                subprocess.run([sys.executable, "-c", code], check=True)
            """,
    )
    found = programs.run("main.py", "a")
    line = "[([True, True], ['a'])]"
    assert found.stdout == f"fork {line}\nspawn {line}\nforkserver {line}\nTrue\n", found.stderr


def test_a_sitecustomize_of_the_user_still_runs(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "installed" / "sitecustomize.py").write_text("import sys\nsys.custom = 1\n")
    programs.write(main="import sys, sitecustomize\nprint(sys.custom, sitecustomize.__file__)\n")
    assert programs.run("main.py").stdout == programs.python("main.py").stdout


def test_only_limits_it_and_reaches_installed_packages(programs: Programs, tmp_path: Path) -> None:
    installed = tmp_path / "installed" / "library"
    (installed / "deep").mkdir(parents=True)
    (installed / "__init__.py").write_text("raise_if_imported_by_gbfix = 1\n")
    (installed / "deep" / "__init__.py").touch()
    (installed / "deep" / "block.py").write_text(STEP)
    look = "import inspect, step, library.deep.block as b\n"
    look += "print(['is_compiling' in inspect.getsource(m) for m in (step, b)])\n"
    programs.write(step=STEP, main=look)
    assert programs.run("main.py").stdout == "[True, False]\n"
    assert programs.run("--only", "step.py", "main.py").stdout == "[True, False]\n"
    for name in ("library", "library.deep", "library.deep.block"):
        assert programs.run("--only", name, "main.py").stdout == "[False, True]\n"
    both = programs.run("--only", "library.deep", "--only", "step.py", "--", "main.py")
    assert both.stdout == "[True, True]\n"


def test_the_patch_goes_into_git_apply(programs: Programs) -> None:
    programs.write(step=STEP, main="import step\nstep.step(1)\n")
    original = (programs.folder / "step.py").read_text()
    found = programs.run("--write-patch", "fixes.patch", "main.py")
    assert found.stdout == "step\n"
    assert (programs.folder / "step.py").read_text() == original
    subprocess.run(["git", "apply", "fixes.patch"], cwd=programs.folder, check=True)
    assert "is_compiling" in (programs.folder / "step.py").read_text()


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
def test_the_patch_of_an_installed_package_goes_to_its_folder(
    programs: Programs, tmp_path: Path
) -> None:
    installed = tmp_path / "lib" / "site-packages" / "library"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text(STEP)
    programs.write(main="import library\nlibrary.step(1)\n")
    packages = str(installed.parent)
    programs.environment["PYTHONPATH"] += os.pathsep + packages
    found = programs.run("--only", "library", "--write-patch", "p.patch", "main.py")
    assert found.stdout == "step\n"
    assert (programs.folder / "p.patch").read_text().startswith("--- a/library/__init__.py\n")
    command = found.stderr.partition("`")[2].partition("`")[0]
    assert command.startswith(f"patch -p1 -d {packages} -i ")
    subprocess.run(command.split(), check=True)
    assert "is_compiling" in (installed / "__init__.py").read_text()


def test_a_file_that_changed_since_is_run_as_it_is(programs: Programs) -> None:
    programs.write(
        step=STEP,
        main="""
            import pathlib
            pathlib.Path("step.py").write_text("import torch\\nfound = 'changed'\\n")
            import step
            print(step.found)
            """,
    )
    assert programs.run("main.py").stdout == "changed\n"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "nothing to run"),
        (("missing.py",), "missing.py: no such file"),
        (("-m",), "needs the name of a module"),
        (("--onyl", "x", "main.py"), "No such option: --onyl"),
        (("--trace", "none.json", "main.py"), "none.json"),
        (("--only", "no.such.module", "main.py"), "no such file, folder or module"),
    ],
)
def test_mistakes_are_one_sentence(programs: Programs, words: tuple[str, ...], part: str) -> None:
    programs.write(main="print('ran')\n")
    found = programs.run(*words)
    assert found.returncode == 2
    assert part in found.stderr
    assert found.stderr.count("\n") == 1
    assert found.stdout == ""


@pytest.fixture
def waiting(programs: Programs) -> Iterator[subprocess.Popen[str]]:
    programs.write(main="import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    process = programs.start("main.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def test_a_signal_ends_it_as_it_ends_the_program(waiting: subprocess.Popen[str]) -> None:
    started = time.monotonic()
    waiting.send_signal(signal.SIGTERM)
    _, errors = waiting.communicate(timeout=30)
    assert time.monotonic() - started < 30
    assert waiting.returncode == -signal.SIGTERM
    assert "no file was written" in errors


def test_breaks_that_are_left_are_counted(tmp_path: Path) -> None:
    """With the real torch, through pytest, and the lines are those on disk."""
    pytest.importorskip("torch")
    programs = Programs(tmp_path, None)
    programs.write(
        model="""
            import torch
            from torch import nn


            class Model(nn.Module):
                def forward(self, x: torch.Tensor) -> torch.Tensor:
                    print("norm")
                    if x.sum() > 0:  # gbfix: ignore
                        x = x * 2
                    return x + 1
            """,
        test_model="""
            import torch
            from model import Model


            def test_model(capsys):
                torch.compile(Model(), backend="eager")(torch.ones(3))
                assert capsys.readouterr().out == ""


            def test_that_fails():
                assert Model is None
            """,
    )
    found = programs.run("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 failed, 1 passed" in found.stdout, found.stdout + found.stderr
    assert found.returncode == 1
    said = "\n".join(summary(found.stderr))
    assert "rewrote 1 break site in 1 file" in said
    assert "1 graph break left in this run, at 1 place:" in said
    assert "  model.py:8: [GB0170]" in said


def test_figures_before_come_from_a_trace_alone() -> None:
    left = Left("GB0170", "Data-dependent branching", (("/elsewhere/model.py", 3),))
    told = Told(breaks=Counter({left: 2}), graphs=3)
    said = list(sum_up(RunResult(()), told, Before(5, 2)))
    assert said[1] == "the trace has 5 graph breaks before, at 2 places."
    assert said[2] == "2 graph breaks left in this run, at 1 place:"
    assert said[3] == "  /elsewhere/model.py:3: [GB0170] Data-dependent branching (2 times)"
    assert not any("before" in line for line in sum_up(RunResult(()), told))


def test_nothing_is_left_behind(programs: Programs, tmp_path: Path) -> None:
    programs.write(step=STEP, main="import step\n")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    programs.environment["TMPDIR"] = str(scratch)
    found = programs.run("main.py")
    assert found.stderr.endswith(NOTHING_LEFT)
    assert list(scratch.iterdir()) == []
    shutil.rmtree(scratch)
