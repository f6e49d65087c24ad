"""What `torch.compile` would run on here: devices, and the settings that change what breaks.

Runs in a process that has imported torch; the answer is plain data.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

# Settings of Dynamo that decide whether or how a graph breaks; they come and go with releases.
_SETTINGS = (
    "allow_rnn",
    "assume_static_by_default",
    "automatic_dynamic_shapes",
    "capture_dynamic_output_shape_ops",
    "capture_scalar_outputs",
    "disable",
    "ignore_logging_functions",
    "nested_graph_breaks",
    "recompile_limit",
    "reorderable_logging_functions",
    "suppress_errors",
)


def describe() -> dict[str, Any]:
    """Torch's version, its devices, and Dynamo's settings, as plain data."""
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "devices": _devices(),
        "settings": _settings(),
    }


@functools.cache
def has_accelerator() -> bool:
    """Whether there is a device other than the CPU; it is not touched, so that a fork can use it.

    `torch.accelerator.current_accelerator`, the kind that torch was built for: seen on torch 2.13.
    """
    kind = torch.accelerator.current_accelerator()
    return kind is not None and bool(torch.get_device_module(kind).is_available())


def _devices() -> list[str]:
    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [
            f"cuda:{number} ({torch.cuda.get_device_name(number)})"
            for number in range(torch.cuda.device_count())
        ]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return devices


def _settings() -> dict[str, dict[str, Any]]:
    """The settings in force and, where the version can tell, their defaults.

    `torch._dynamo.config` and, for the defaults, its `_config` entries: seen on torch 2.13. Names
    that a version lacks are left out.
    """
    import torch._dynamo.config as config

    entries = getattr(config, "_config", {})
    found: dict[str, dict[str, Any]] = {}
    for name in _SETTINGS:
        try:
            value = getattr(config, name)
        except AttributeError:
            continue
        default = getattr(entries.get(name), "default", value)
        found[name] = {"value": _plain(value), "default": _plain(default)}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, set | frozenset | list | tuple):
        return sorted(getattr(item, "__name__", repr(item)) for item in value)
    return repr(value)
