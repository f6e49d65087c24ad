"""`gbfix trace` runs programs as they are, and keeps what it has recorded whatever becomes of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gbfix.trace.launch import STANCES, check_stance
from gbfix.trace.model import Effect, Trace, Verdict
from gbfix.trace.reading import read

TRAINING = """
    import sys
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            y = self.layer(x)
            if y.sum() > 0:
                y = y * 2
            return y

    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        if step == 1:
            model.compile(backend="eager")
        loss = model(torch.randn(2, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"{step} {loss.item():.6f}")
    print(__name__, sys.argv, sys.path[0], file=sys.stderr)
"""


def run(
    folder: Path, *arguments: str, gbfix: tuple[str, ...] = (), timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *gbfix, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout)


def traced(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(folder, *arguments, gbfix=("-m", "gbfix", "trace"))


def program(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def trace_in(folder: Path) -> Trace:
    return read(folder / ".gbfix" / "trace.json")


def test_training_loop_runs_as_it_does_alone(tmp_path: Path) -> None:
    program(tmp_path, TRAINING)
    alone = run(tmp_path, "program.py", "--lr", "1")
    done = traced(tmp_path, "--", "program.py", "--lr", "1")
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
    assert alone.stderr.strip() in done.stderr
    trace = trace_in(tmp_path)
    (entry,) = trace.entries
    assert (entry.name, entry.module, entry.calls) == ("Model", "__main__", 3)
    (found,) = trace.breaks
    assert (found.place.text, found.reason.registry) == ("if y.sum() > 0:", "GB0170")
    assert (found.place.column, found.place.end_column) == (12, 23)
    assert (found.effect, found.code.name, found.entry) == (Effect.SPLITS, "forward", entry.id)
    assert found.reason.hints
    assert found.stack[0].text.startswith("loss = model(")
    sample, again = trace.samples
    assert sample.arguments == again.arguments == ("float32[2, 4]",)
    import torch

    args, kwargs = torch.load(tmp_path / ".gbfix" / "trace.tensors" / str(sample.file))
    assert args[0].shape == (2, 4)
    other, _ = torch.load(tmp_path / ".gbfix" / "trace.tensors" / str(again.file))
    assert not torch.equal(args[0], other[0])
    assert kwargs == {}
    assert "program.py:12:12: GBF101 GB0170 tensor-branch" in done.stderr


def test_a_second_run_replaces_or_adds(tmp_path: Path) -> None:
    program(
        tmp_path,
        """
        import torch

        @torch.compile(backend="eager")
        def double(x):
            print("here")
            return x * 2

        double(torch.ones(2))
        """,
    )
    for flags in ((), ("--no-inputs",), ("--append", "-q")):
        assert traced(tmp_path, *flags, "program.py").returncode == 0
    trace = trace_in(tmp_path)
    assert len(trace.processes) == 2
    assert trace.entries[0].calls == 2
    assert [one.times for one in trace.breaks] == [2]
    assert all(sample.file for sample in trace.samples) is False
    other = tmp_path / "other.json"
    merged = traced(
        tmp_path, "-o", "other.json", "--read", ".gbfix/trace.json", "--read", ".gbfix/trace.json"
    )
    assert merged.returncode == 0, merged.stderr
    assert read(other).entries[0].calls == 4


def test_module_and_pytest(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    program(package, "", "__init__.py")
    program(
        package,
        """
        import sys
        import torch

        def reading(x):
            return x * x.sum().item()

        if __name__ == "__main__":
            torch.compile(reading, backend="eager")(torch.ones(2))
            print(sys.argv[1:])
        """,
        "tool.py",
    )
    program(
        tmp_path,
        """
        import sys
        import torch
        sys.path.insert(0, ".")
        from pkg.tool import reading

        def test_it():
            torch.compile(reading, backend="eager")(torch.ones(2))

        def test_that_fails():
            assert False
        """,
        "test_it.py",
    )
    done = traced(tmp_path, "-m", "pkg.tool", "--level", "3")
    assert (done.returncode, done.stdout.strip()) == (0, "['--level', '3']")
    assert trace_in(tmp_path).breaks[0].place.text == "return x * x.sum().item()"
    tested = traced(tmp_path, "--append", "--pytest", "-q", "test_it.py")
    assert tested.returncode == 1
    assert "1 failed, 1 passed" in tested.stdout
    assert sum(one.times for one in trace_in(tmp_path).breaks) == 2


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(7)", 7),
        ("os._exit(3)", 3),
        ("raise KeyError('x')", 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_any_end_keeps_the_trace_and_the_exit_code(tmp_path: Path, end: str, code: int) -> None:
    program(
        tmp_path,
        f"""
        import os, signal, sys
        import torch

        @torch.compile(backend="eager")
        def noisy(x):
            print("noise")
            return x + 1

        for _ in range(3):
            noisy(torch.ones(2))
        {end}
        """,
    )
    done = traced(tmp_path, "program.py")
    assert done.returncode == code
    trace = trace_in(tmp_path)
    assert [one.reason.registry for one in trace.breaks] == ["GB0059"]
    assert trace.entries[0].calls in (2, 3)
    assert not (tmp_path / ".gbfix" / "trace.json.journal").exists()


def test_journal_alone_can_be_read_while_the_program_runs(tmp_path: Path) -> None:
    program(
        tmp_path,
        """
        import time
        import torch

        @torch.compile(backend="eager")
        def noisy(x):
            print("noise", flush=True)
            return x + 1

        noisy(torch.ones(2))
        print("ready", flush=True)
        time.sleep(60)
        """,
    )
    command = [sys.executable, "-m", "gbfix", "trace", "program.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        while "ready" not in running.stdout.readline():
            assert running.poll() is None
        child = int(next((tmp_path / ".gbfix" / "trace.json.journal").iterdir()).name.split("-")[0])
        # gbfix itself dies first, so that nobody folds the journal into a file.
        running.kill()
        running.wait()
        os.kill(child, signal.SIGKILL)
    assert not (tmp_path / ".gbfix" / "trace.json").exists()
    assert len(trace_in(tmp_path).breaks) == 1


def test_forked_workers_and_subprocesses(tmp_path: Path) -> None:
    program(
        tmp_path,
        """
        import subprocess, sys
        import torch
        from torch.utils.data import DataLoader, Dataset

        @torch.compile(backend="eager")
        def scaled(x):
            print("scale", file=sys.stderr)
            return x * 2

        class Numbers(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                return scaled(torch.full((2,), float(index)))

        if __name__ == "__main__":
            scaled(torch.ones(2))
            if len(sys.argv) == 1:
                for batch in DataLoader(Numbers(), batch_size=2, num_workers=2):
                    print(batch.sum().item())
                subprocess.run([sys.executable, __file__, "again"], check=True)
        """,
    )
    done = traced(tmp_path, "program.py")
    assert (done.returncode, done.stdout.split()) == (0, ["4.0", "20.0"])
    trace = trace_in(tmp_path)
    assert trace.notes == ()
    # Two programs and two workers; every one of the workers has called it twice.
    assert len(trace.processes) == 4
    assert [entry.calls for entry in trace.entries] == [6]
    assert {one.place.text for one in trace.breaks} == {'print("scale", file=sys.stderr)'}


def test_whose_failure_it_is(tmp_path: Path) -> None:
    program(
        tmp_path,
        """
        import torch

        @torch.compile(backend="eager", fullgraph=True)
        def branching(x):
            return x + 1 if x.sum() > 0 else x

        @torch.compile(backend="eager")
        def wrong(x):
            return x @ torch.ones(3, 3)

        def broken(graph, inputs):
            raise RuntimeError("no such kernel")

        @torch.compile(backend=broken)
        def unlucky(x):
            return x + 1

        for function in (branching, wrong, unlucky):
            before = torch.get_rng_state()
            try:
                function(torch.ones(2))
            except Exception as error:
                print(type(error).__name__, torch.equal(before, torch.get_rng_state()))
        """,
    )
    done = traced(tmp_path, "program.py")
    assert done.stdout.split() == (
        ["Unsupported", "True", "TorchRuntimeError", "True", "BackendCompilerFailed", "True"]
    )
    verdicts = {f.entry.rpartition(":")[2]: f.verdict for f in trace_in(tmp_path).failures}
    assert verdicts == {
        "branching": Verdict.GRAPH_BREAK,
        "wrong": Verdict.USER_ERROR,
        "unlucky": Verdict.COMPILER_FAILURE,
    }
    assert "wrong raised" in done.stderr


def test_compile_and_stance(tmp_path: Path) -> None:
    program(
        tmp_path,
        """
        import torch

        class Model(torch.nn.Module):
            def forward(self, x):
                print("forward")
                return x + 1

        def shown(x):
            print("shown")
            return x

        print(Model()(shown(torch.ones(2))).sum().item())
        """,
    )
    eager = traced(tmp_path, "program.py")
    assert "Nothing compiled" in eager.stderr
    both = ("--compile", "__main__:Model", "--compile", "__main__:shown")
    done = traced(tmp_path, *both, "program.py")
    assert done.stdout == eager.stdout
    texts = sorted(one.place.text for one in trace_in(tmp_path).breaks)
    assert texts == ['print("forward")', 'print("shown")']
    forced = traced(
        tmp_path, "--stance", "force_eager", "--compile", "__main__:Model", "program.py"
    )
    assert forced.stdout == eager.stdout
    assert not trace_in(tmp_path).breaks
    assert trace_in(tmp_path).entries[0].calls == 1


def test_all_stances_can_be_set_here() -> None:
    from gbfix.dynamo.hooks import set_stance

    try:
        for name in STANCES:
            check_stance(name)
            set_stance(name)
    finally:
        set_stance("default")


def test_a_stance_that_forbids_recompilation(tmp_path: Path) -> None:
    program(
        tmp_path,
        """
        import torch

        @torch.compile(backend="eager")
        def noisy(x):
            return x + 1

        noisy(torch.ones(2))
        """,
    )
    done = traced(tmp_path, "--stance", "fail_on_recompile", "program.py")
    assert done.returncode == 1
    assert [f.verdict for f in trace_in(tmp_path).failures] == [Verdict.RECOMPILE]
    assert "a recompilation where the stance allows none" in done.stderr


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    program(tmp_path, "print(1)")
    for arguments, sentence in (
        (("nothing.py",), "neither a file nor a program"),
        ((), "what is to be run?"),
        (("--stance", "lazy", "program.py"), "none of default"),
        (("--compile", "Model", "program.py"), "is not MODULE:CLASS"),
        (("--read", "nothing.json"), "no such file"),
        (("-o", "trace.txt", "program.py"), "ends with `.json`"),
    ):
        done = traced(tmp_path, *arguments)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_check_and_apply_with_a_trace(tmp_path: Path) -> None:
    path = program(
        tmp_path,
        """
        import torch

        def helper(x, flag):
            if flag:
                return x * 2
            return x - 1

        def quiet(x):
            if x.sum() > 3:
                return x + 1
            return x

        @torch.compile(backend="eager")
        def run(x):
            return helper(x, x.sum() > 0)

        for _ in range(5):
            run(torch.ones(2))
        """,
    )
    assert traced(tmp_path, "-q", "program.py").returncode == 0
    checked = run(tmp_path, "check", "--trace", ".gbfix/trace.json", ".", gbfix=("-m", "gbfix"))
    assert checked.returncode == 1
    # What has not run is not told, and what only the run can tell is a tensor needs no proof.
    assert "quiet" not in checked.stdout
    assert "program.py:5:8: GBF101" in checked.stdout
    assert "5 calls" in checked.stdout
    applied = run(
        tmp_path, "apply", "--trace", ".gbfix/trace.json", "--output-format", "json", ".",
        gbfix=("-m", "gbfix"),
    )  # fmt: skip
    (fix,) = json.loads(applied.stdout)["fixes"]
    assert fix["line"] == 5
    assert "is_compiling" in path.read_text()
    assert path.read_text().count("x.sum() > 3") == 1
    again = traced(tmp_path, "program.py")
    assert "No graph breaks in 5 compiled calls." in again.stderr
