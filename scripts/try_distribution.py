"""Install a built wheel or sdist into clean environments, and use it there as a user would.

    python -m build
    python scripts/try_distribution.py dist/gbfix-0.1.0-py3-none-any.whl python3.10 python3.13
    python scripts/try_distribution.py --extra verify --extra lsp dist/gbfix-0.1.0.tar.gz python3.12

Each command runs in an empty folder, with nothing of this repository on the path. Without extras the
environment has no torch, and static commands are what is tried; `--extra verify` adds a command that
runs code, `--extra lsp` the language server, `--extra ray` a migration on a local cluster. One line is
printed for each interpreter and command; the exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = """\
import torch
from torch import nn


class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("largest", x.abs().max())
        if x.abs().max() > 1:
            x = x * 0.5
        return x
"""
BRANCH = "8"


@dataclass(frozen=True)
class Ran:
    """What a command ended with."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


def main() -> int:
    """Try every interpreter; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("distribution", type=Path, help="a wheel or an sdist")
    parser.add_argument("pythons", nargs="+", help="interpreters, by name or path")
    parser.add_argument("--extra", action="append", default=[], help="an extra to install as well")
    parser.add_argument("--constraint", help="a file that pins what is installed")
    given = parser.parse_args()
    failed = False
    for python in given.pythons:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            binaries = _installed(python, folder, given.distribution, given.extra, given.constraint)
            if binaries is None:
                failed = True
                continue
            for label, problem in _tried(binaries, folder, given.extra):
                print(f"{python} {label}: {problem or 'ok'}", flush=True)
                failed = failed or problem is not None
    return int(failed)


def _installed(
    python: str, folder: Path, distribution: Path, extras: Sequence[str], constraint: str | None
) -> Path | None:
    """A fresh environment's folder of programs; None if it could not be made."""
    wanted = str(distribution.resolve()) + (f"[{','.join(extras)}]" if extras else "")
    binaries = folder / "environment" / ("Scripts" if os.name == "nt" else "bin")
    constraints = ["-c", constraint] if constraint else []
    steps = [
        [python, "-m", "venv", str(folder / "environment")],
        [str(binaries / "python"), "-m", "pip", "install", "-q", *constraints, wanted],
    ]
    for step in steps:
        done = subprocess.run(step, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"{python} install: exit {done.returncode}: {last}", flush=True)
            return None
    print(f"{python} install: ok", flush=True)
    return binaries


def _tried(binaries: Path, folder: Path, extras: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Each thing that was tried, with what is wrong with it."""
    place = folder / "work"
    place.mkdir()
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
        # Else the shell is looked for among the parents of the process, and there may be none.
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }

    def run(*arguments: str, stdin: str = "") -> Ran:
        (place / "model.py").write_text(SOURCE, encoding="utf-8")
        done = subprocess.run(
            [str(binaries / "gbfix"), *arguments],
            cwd=place,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    tries: list[tuple[str, Callable[[Run, Path], str | None]]] = [*STATIC]
    if not {"verify", "ray"} & set(extras):
        tries.append(("verify without torch", _without_torch))
    for extra in extras:
        tries += EXTRAS.get(extra, [])
    for label, attempt in tries:
        try:
            yield label, attempt(run, place)
        except (OSError, ValueError, LookupError) as error:
            yield label, f"{type(error).__name__}: {error}"


def _expected(ran: Ran, code: int, *parts: str) -> str | None:
    """What differs from an exit code, and from what has to be said; None if nothing does."""
    said = ran.out + ran.err
    if ran.code != code or "Traceback" in said:
        return f"exit {ran.code}, not {code}: {said.strip()[-400:]}"
    missing = [part for part in parts if part not in said]
    return f"`{missing[0]}` is not in: {said.strip()[-400:]}" if missing else None


def _check(run: Run, place: Path) -> str | None:
    return _expected(run("check", "model.py"), 1, "GBF101", "GBF201", "Found 2 break sites")


def _again(run: Run, place: Path) -> str | None:
    """From the cache that the check before has left."""
    return _expected(run("check", "model.py"), 1, "Found 2 break sites")


def _sarif(run: Run, place: Path) -> str | None:
    ran = run("check", "--output-format", "sarif", "model.py")
    results = json.loads(ran.out)["runs"][0]["results"]
    return _expected(ran, 1) or (None if len(results) == 2 else f"{len(results)} results")


def _diff(run: Run, place: Path) -> str | None:
    problem = _expected(run("apply", "--diff", "model.py"), 1, "+++ b/model.py", "Would fix 2 of 2")
    same = (place / "model.py").read_text(encoding="utf-8") == SOURCE
    return problem or (None if same else "a file was written")


def _apply(run: Run, place: Path) -> str | None:
    problem = _expected(run("apply", "model.py"), 0, "Fixed 2 of 2")
    text = (place / "model.py").read_text(encoding="utf-8")
    return problem or (None if "is_compiling" in text else "the file is as it was")


def _quickfix(run: Run, place: Path) -> str | None:
    ran = run("quickfix", f"model.py:{BRANCH}", "--format", "json")
    return _expected(ran, 0) or (None if json.loads(ran.out)["actions"] else "no actions")


def _quickfix_buffer(run: Run, place: Path) -> str | None:
    ran = run("quickfix", f"-:{BRANCH}", "--stdin-filename", "new.py", "--apply", "1", stdin=SOURCE)
    return _expected(ran, 0, "torch.compiler.is_compiling()", "class Block")


def _explain(run: Run, place: Path) -> str | None:
    return _expected(run("explain", "GBF101"), 0, "tensor-branch", "Fix: cond")


def _completion(run: Run, place: Path) -> str | None:
    return _expected(run("--show-completion", "bash"), 0, "_gbfix_completion")


def _doctor(run: Run, place: Path) -> str | None:
    """It exits with 1 where there is no torch."""
    ran = run("doctor", "--output-format", "json")
    return _expected(ran, int(json.loads(ran.out)["torch"]["version"] is None))


def _migrate(run: Run, place: Path) -> str | None:
    folder = place / "package"
    folder.mkdir()
    (folder / "model.py").write_text(SOURCE, encoding="utf-8")
    arguments = ("--no-verify", "--require", "review", "--report", "report.html")
    problem = _expected(run("migrate", "package", *arguments), 0)
    if (folder / "model.py").read_text(encoding="utf-8") == SOURCE:
        return problem or "the file is as it was"
    problem = problem or _expected(run("migrate", "package", "--undo"), 0)
    same = (folder / "model.py").read_text(encoding="utf-8") == SOURCE
    return problem or (None if same else "not every byte was restored")


def _without_torch(run: Run, place: Path) -> str | None:
    return _expected(run("verify", "model.py"), 2, "pip install 'gbfix[verify]'")


def _verify(run: Run, place: Path) -> str | None:
    return _expected(run("verify", "model.py:Block"), 0, "verified")


def _server(run: Run, place: Path) -> str | None:
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {"processId": None, "rootUri": None, "capabilities": {}},
        }
    )
    message = f"Content-Length: {len(body)}\r\n\r\n{body}"
    return _expected(run("server", stdin=message), 0, "codeActionProvider")


def _ray(run: Run, place: Path) -> str | None:
    folder = place / "on_ray"
    folder.mkdir()
    (folder / "model.py").write_text(SOURCE, encoding="utf-8")
    problem = _expected(run("migrate", "on_ray", "--executor", "ray", "--jobs", "1"), 0, "verified")
    same = (folder / "model.py").read_text(encoding="utf-8") == SOURCE
    return problem or ("the file is as it was" if same else None)


STATIC = [
    ("check", _check),
    ("check again", _again),
    ("check as SARIF", _sarif),
    ("apply --diff", _diff),
    ("apply", _apply),
    ("quickfix", _quickfix),
    ("quickfix on standard input", _quickfix_buffer),
    ("explain", _explain),
    ("completion", _completion),
    ("doctor", _doctor),
    ("migrate and --undo", _migrate),
]
EXTRAS = {
    "verify": [("verify", _verify)],
    "lsp": [("server", _server)],
    "ray": [("migrate on Ray", _ray)],
}


if __name__ == "__main__":
    sys.exit(main())
