"""User code that misbehaves ends in a verdict for its target, and not in the end of the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gbfix.verify.api import verify
from gbfix.verify.jobs import Limits
from gbfix.verify.options import Options
from gbfix.verify.verdict import Status, Verdict
from gbfix.verify.worker import Workers

HEAD = "import ctypes\nimport os\nimport sys\nimport threading\nimport time\nimport torch\n\n\n"
GOOD_BEFORE = "    if x.sum() > 0:\n        return x + 1\n    return x - 1\n"
GOOD_AFTER = "    return torch.where(x.sum() > 0, x + 1, x - 1)\n"
OPTIONS = Options(backend="eager", gradients=False, limits=Limits(8, 1 << 30), search_seconds=6)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as found:
        yield found


def check(folder: Path, workers: Workers, line: str, *, top: str = "") -> Verdict:
    """Verify a good rewrite of a function that first does something bad."""
    for name, body in (("before", GOOD_BEFORE), ("after", GOOD_AFTER)):
        text = f"{HEAD}{top}\n\ndef target(x):\n    {line}\n{body}"
        (folder / f"{name}.py").write_text(text)
    return verify(
        f"{folder}/before.py:target",
        f"{folder}/after.py:target",
        [("x",)] if line == "pass" and not top else None,
        options=OPTIONS,
        workers=workers,
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("os.abort()", "SIGABRT"),
        ("ctypes.string_at(0)", "SIGSEGV"),
        ("os._exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("sys.exit(1)", "SystemExit"),
        ("time.sleep(60)", "seconds"),
        ("while True: pass", "does not end"),
        ("while True: print('again and again')", "printed more than"),
        ("hog = bytearray(4 << 30)", "MemoryError"),
        ("hog = torch.zeros(1 << 30)", "alloc"),
        ("raise KeyError('mine')", "mine"),
    ],
)
def test_bad_call_is_not_run(line: str, told: str, tmp_path: Path, workers: Workers) -> None:
    verdict = check(tmp_path, workers, line)
    assert verdict.status is Status.NOT_RUN, verdict
    assert told in verdict.reason


@pytest.mark.parametrize(
    ("top", "told"),
    [
        ("sys.exit(1)", "SystemExit"),
        ("import not_there_at_all", "not_there_at_all"),
        ("os.abort()", "SIGABRT"),
        ("while True: pass", "seconds"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_bad_import_is_not_run(top: str, told: str, tmp_path: Path, workers: Workers) -> None:
    verdict = check(tmp_path, workers, "pass", top=top)
    assert verdict.status is Status.NOT_RUN, verdict
    assert told in verdict.reason


@pytest.mark.parametrize(
    ("line", "top"),
    [
        ("pass", "os.chdir('/')"),
        ("pass", "if os.path.exists(__file__):\n    os.remove(__file__)"),
        ("pass", "threading.Thread(target=time.sleep, args=(600,)).start()"),
        ("pass", "torch.set_default_dtype(torch.float64)"),
        ("pass", "sys.path.clear()"),
        ("pass", "os.close(0); os.close(1)"),
        ("sys.stdout.close(); sys.stderr.close()", ""),
        ("os.chdir('/'); os.path.exists(__file__) and os.remove(__file__)", ""),
        ("threading.Thread(target=time.sleep, args=(600,)).start()", ""),
    ],
)
def test_what_code_does_to_its_process_stays_there(
    line: str, top: str, tmp_path: Path, workers: Workers
) -> None:
    folder = Path.cwd()
    verdict = check(tmp_path, workers, line, top=top)
    assert verdict.status is Status.VERIFIED, verdict
    assert Path.cwd() == folder


def test_code_that_forks_ends_in_a_verdict(tmp_path: Path, workers: Workers) -> None:
    # Its child does not go on with the calls, nor answer in its parent's place.
    verdict = check(tmp_path, workers, "os.fork()")
    assert verdict.status in (Status.VERIFIED, Status.PARTLY_VERIFIED, Status.NOT_RUN), verdict


def test_workers_live_on_after_a_crash(tmp_path: Path, workers: Workers) -> None:
    check(tmp_path, workers, "os.kill(os.getppid(), 9)")
    verdict = check(tmp_path, workers, "pass", top="# nothing bad")
    assert verdict.status is Status.VERIFIED, verdict


def test_original_that_fails_with_given_inputs(tmp_path: Path, workers: Workers) -> None:
    verdict = check(tmp_path, workers, "pass")
    assert verdict.status is Status.FAILS_EAGER
    assert "AttributeError" in verdict.reason
