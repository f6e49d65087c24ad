"""Counts, in a profile, how often the host waits for the device and launches CUDA graphs.

Works on names and times alone, so that it needs neither torch nor a device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# `.item()` is a copy that is not awaited and a wait for its stream; a plain copy waits by itself.
_WAITS = re.compile(
    r"(cuda|hip|cu)((Stream|Device|Event|Ctx)Synchronize|Memcpy(DtoH)?)(_v\d+|_ptsz)?"
)
_LAUNCHES = re.compile(r"(cuda|hip|cu)GraphLaunch(_v\d+|_ptsz)?")


@dataclass(frozen=True)
class Event:
    """Something that a profile has recorded, from one microsecond to another."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Launches:
    """What happened in a number of calls."""

    calls: int
    syncs: int
    graphs: int

    @property
    def syncs_a_call(self) -> float:
        """How often one call waits for the device."""
        return self.syncs / self.calls if self.calls else 0.0

    @property
    def graphs_a_call(self) -> float:
        """How many CUDA graphs one call launches."""
        return self.graphs / self.calls if self.calls else 0.0


def count(events: Iterable[Event], label: str) -> Launches:
    """Count what starts inside the events called `label`, each of which is one call."""
    found = list(events)
    calls = [event for event in found if event.name == label]
    inside = [event for event in found if _within(event, calls)]
    return Launches(
        len(calls),
        sum(_WAITS.fullmatch(event.name) is not None for event in inside),
        sum(_LAUNCHES.fullmatch(event.name) is not None for event in inside),
    )


def _within(event: Event, calls: Sequence[Event]) -> bool:
    return any(call.start <= event.start < call.end for call in calls)
