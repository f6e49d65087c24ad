"""How code is run to be verified: the options that `verify` and `apply --verify` share.

It turns them into the checker's own; what is verified is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from gbfix.settings import CheckStyle, Settings

if TYPE_CHECKING:
    from gbfix.verify.options import Options

_SECONDS = 120.0
_GIBIBYTES = 8.0


class Backend(str, Enum):
    """Backends of torch.compile."""

    EAGER = "eager"
    AOT_EAGER = "aot_eager"
    INDUCTOR = "inductor"


class Device(str, Enum):
    """Where it runs."""

    CPU = "cpu"
    CUDA = "cuda"


class Dtype(str, Enum):
    """The floating-point type of inputs and parameters."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


Init = Annotated[
    str | None,
    typer.Option(metavar="MODULE:FUNCTION", help="Builds the object that is called."),
]
InputsFrom = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="MODULE:FUNCTION",
        help="Returns a list of argument tuples or of (args, kwargs); generated if not given.",
    ),
]
BackendOption = Annotated[
    Backend | None,
    typer.Option("--backend", help="Default: inductor if a C++ compiler is found, else aot_eager."),
]
DeviceOption = Annotated[
    Device | None, typer.Option("--device", help="Where to run. Default: cpu.")
]
DtypeOption = Annotated[
    Dtype | None, typer.Option("--dtype", help="Convert inputs and parameters to this.")
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        min=1,
        metavar="SECONDS",
        help=f"For each single run. Default: {_SECONDS:g}.",
    ),
]
MemoryLimit = Annotated[
    float | None,
    typer.Option(
        "--memory-limit",
        min=0.1,
        metavar="GIB",
        help=f"For each single run. Default: {_GIBIBYTES:g}.",
    ),
]


@dataclass(frozen=True)
class Running:
    """What was asked for; None where nothing was."""

    backend: Backend | None = None
    device: Device | None = None
    dtype: Dtype | None = None
    time_limit: float | None = None
    memory_limit: float | None = None
    init: str | None = None
    inputs: str | None = None


def verify_options(settings: Settings, running: Running | None = None) -> Options:
    """The checker's options."""
    from gbfix.verify.jobs import Limits
    from gbfix.verify.options import Options
    from gbfix.verify.verdict import REVIEW, Kind

    asked = running or Running()
    device = asked.device or Device.CPU
    # Who asks for checks to be skipped when compiled gets no exceptions from them.
    skips = settings.check is CheckStyle.SKIP
    # A CUDA context maps more address space than there is memory, so a limit would not let it start.
    memory = int((asked.memory_limit or _GIBIBYTES) * (1 << 30)) if device is Device.CPU else None
    return Options(
        backend=asked.backend.value if asked.backend else None,
        device=device.value,
        dtype=asked.dtype.value if asked.dtype else None,
        leeway=REVIEW | {Kind.EXCEPTION_SKIPPED} if skips else REVIEW,
        limits=Limits(asked.time_limit or _SECONDS, memory),
    )
