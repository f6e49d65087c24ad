"""Has the probes of diagnoses run in a worker process, and reads its answer.

This side does not import torch; `gbfix.dynamo.probing` is the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SECONDS = 300


@dataclass(frozen=True)
class Probed:
    """What a worker found, or the one sentence that says why it found nothing."""

    machine: dict[str, Any]
    breaks: dict[str, bool]
    trouble: str | None


def run_probes(probes: Mapping[str, str], python: str = sys.executable) -> Probed:
    """Run probes, by code, on the torch of a Python.

    They run under the defaults of that torch; with no probes at all the machine is described with
    the settings that the environment makes.
    """
    environment = {**os.environ, "PYTHONPATH": _python_path()}
    if probes:  # what breaks by itself, whatever is set for this run
        environment = {k: v for k, v in environment.items() if not is_setting(k)}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        try:
            done = subprocess.run(
                [python, "-m", "gbfix.dynamo.probing", str(answer)],
                input=json.dumps(dict(probes)),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                # Not the user's folder, whose `random.py` would be taken for Python's.
                cwd=folder,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Probed({}, {}, f"the probes ran for more than {_SECONDS} seconds.")
        except OSError as error:
            return Probed({}, {}, f"{python} cannot be run: {error.strerror}.")
        if done.returncode != 0 or not answer.is_file():
            last = ([*done.stderr.strip().splitlines()] or ["it said nothing"])[-1]
            return Probed({}, {}, f"torch does not run here: {last}")
        found = json.loads(answer.read_text(encoding="utf-8"))
    return Probed(found["machine"], found["breaks"], None)


def is_setting(variable: str) -> bool:
    """Whether a variable of the environment changes what `torch.compile` captures."""
    return variable.startswith("TORCHDYNAMO_") or variable == "TORCH_COMPILE_DISABLE"


def _python_path() -> str:
    """The path on which a worker in another folder finds what is found here, and this gbfix."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = Path(__file__).resolve().parent.parent.parent
    return os.pathsep.join(
        [*(str(Path(folder).absolute()) for folder in given if folder), str(own)]
    )
