"""`gbfix doctor`: what torch is here, what really breaks on it, and which settings hold.

It collects plain values and lays them out; torch runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbfix import __version__
from gbfix.cli import options
from gbfix.cli.options import OutputFormat
from gbfix.report.spans import Line, Span, line, print_lines

if TYPE_CHECKING:
    from gbfix.config import Config

Fresh = Annotated[
    bool, typer.Option("--fresh", help="Run the probes again, whatever the cache holds.")
]

# What in the environment changes what torch.compile does.
_VARIABLES = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_DISABLE", "CXX", "CUDA_VISIBLE_DEVICES")
_PREFIXES = ("TORCHDYNAMO_", "TORCHINDUCTOR_", "PYTORCH_")


@dataclass(frozen=True)
class Health:
    """What was found. `breaks` says by code whether it breaks here, where that could be told."""

    torch: str | None
    folder: str | None
    machine: dict[str, Any]
    breaks: dict[str, bool]
    measured: bool
    trouble: str | None
    backend: str
    compiler: str | None
    environment: dict[str, str]
    config: dict[str, dict[str, str]]


def doctor(fresh: Fresh = False, output_format: options.Format = OutputFormat.TEXT) -> None:
    """Say which torch is here, which diagnoses really break on it, and what settings hold.

    Exits with 0, with 1 if torch is missing or does not run, with 2 on errors.
    """
    health = examine(fresh=fresh)
    if output_format is OutputFormat.JSON:
        sys.stdout.write(json.dumps(_document(health), indent=2) + "\n")
    else:
        print_lines(_lines(health), sys.stdout)
    raise typer.Exit(int(health.torch is None or health.trouble is not None))


def examine(*, fresh: bool = False) -> Health:
    """Look at torch, run the probes that the cache has no result for, and read the settings.

    Raises:
        UserError: if a pyproject.toml is wrong.
    """
    from gbfix.config import load_config
    from gbfix.diagnoses import DIAGNOSES
    from gbfix.dynamo.backends import default_backend
    from gbfix.dynamo.installed import torch_folder, torch_version
    from gbfix.dynamo.known import measured, remember
    from gbfix.dynamo.probes import Probed, is_setting, run_probes

    probes = {code: diagnosis.probe for code, diagnosis in DIAGNOSES.items() if diagnosis.probe}
    version, folder = torch_version(), torch_folder()
    breaks = measured(version, probes) if version is not None and not fresh else {}
    missing = {code: text for code, text in probes.items() if code not in breaks}
    probed = Probed({}, {}, None)
    if version is not None:
        probed = run_probes(missing)
        breaks.update(probed.breaks)
        if missing and any(map(is_setting, os.environ)):
            probed = replace(run_probes({}), breaks=probed.breaks)
        if probed.breaks:
            remember(version, probes, breaks)
    return Health(
        torch=version,
        folder=str(folder) if folder is not None else None,
        machine=probed.machine,
        breaks=dict(sorted(breaks.items())),
        measured=bool(probed.breaks),
        trouble=probed.trouble,
        backend=default_backend(),
        compiler=_compiler(),
        environment={
            name: value
            for name, value in sorted(os.environ.items())
            if name in _VARIABLES or name.startswith(_PREFIXES)
        },
        config=_config(load_config(Path())),
    )


def _compiler() -> str | None:
    """The C++ compiler that Inductor would find, with the first line that it says of itself."""
    found = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
    if found is None:
        return None
    try:
        said = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=20, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return found
    return " ".join([found, *said.splitlines()[:1]])


def _config(config: Config) -> dict[str, dict[str, str]]:
    """Every setting with its value and where it comes from."""
    rows: dict[str, dict[str, str]] = {}
    for item in fields(config.settings):
        if item.name in {"choices", "fix_with", "quiet", "verifying"}:  # no file sets them
            continue
        value = getattr(config.settings, item.name)
        key = item.name.replace("_", "-")
        rows[key] = {"value": _shown(value), "from": str(config.sources.get(key, "default"))}
    return rows


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    label = getattr(value, "label", None)
    if label is not None:
        return str(label)
    return str(value.value) if isinstance(value, Enum) else "none" if value is None else str(value)


def _document(health: Health) -> dict[str, Any]:
    from gbfix.diagnoses import DIAGNOSES

    return {
        "version": 1,
        "gbfix": __version__,
        "python": platform.python_version(),
        "torch": {"version": health.torch, "folder": health.folder, "trouble": health.trouble},
        "machine": {
            "devices": health.machine.get("devices", []),
            "cuda": health.machine.get("cuda"),
            "backend": health.backend,
            "compiler": health.compiler,
        },
        "diagnoses": [
            {"code": code, "name": diagnosis.name, "breaks": health.breaks.get(code)}
            for code, diagnosis in DIAGNOSES.items()
        ],
        "dynamo": health.machine.get("settings", {}),
        "environment": health.environment,
        "settings": health.config,
    }


def _lines(health: Health) -> Iterator[Line]:
    yield line(Span("gbfix", "bold"), f" {__version__}, Python {platform.python_version()}")
    if health.torch is None:
        yield line(Span("torch", "bold"), ": not installed here; check and apply do without it")
    else:
        yield line(Span("torch", "bold"), f" {health.torch} in {health.folder}")
    if health.trouble is not None:
        yield line(Span("trouble", "bold red"), f": {health.trouble}")
    devices = ", ".join(health.machine.get("devices", [])) or "not known"
    yield line(f"device: {devices}")
    yield line(f"C++ compiler: {health.compiler or 'none found'}")
    yield line(f"backend that verify uses: {health.backend}")
    yield line()
    yield from _probe_lines(health)
    yield line()
    yield from _setting_lines(health)


def _probe_lines(health: Health) -> Iterator[Line]:
    from gbfix.diagnoses import DIAGNOSES

    how = "measured now" if health.measured else "measured before, --fresh measures again"
    yield line(Span("What breaks on this torch", "bold"), f" ({how})" if health.breaks else "")
    width = max(len(diagnosis.name) for diagnosis in DIAGNOSES.values())
    words = {
        True: Span("breaks", "red"),
        False: Span("does not break; check says nothing about it", "green"),
        None: Span("not measured", "yellow"),
    }
    for code, diagnosis in DIAGNOSES.items():
        yield line(f"  {code}  {diagnosis.name.ljust(width)}  ", words[health.breaks.get(code)])


def _setting_lines(health: Health) -> Iterator[Line]:
    yield line(Span("Settings of Dynamo", "bold"))
    rows = health.machine.get("settings", {})
    for name, row in rows.items():
        changed = "" if row["value"] == row["default"] else f"  (default {row['default']})"
        yield line(f"  {name} = {row['value']}{changed}")
    for name, value in health.environment.items():
        yield line(f"  {name}={value}  (environment)")
    if not rows and not health.environment:
        yield line("  not known")
    yield line()
    yield line(Span("Settings of gbfix", "bold"))
    for name, row in health.config.items():
        yield line(f"  {name} = {row['value']}  ({row['from']})")
