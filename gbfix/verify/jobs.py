"""What is sent between a client and its server: jobs, limits, outcomes, and frames of bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import BinaryIO

_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class Limits:
    """What one job may take: seconds, and bytes of memory beyond what an idle worker has."""

    seconds: float = 120.0
    memory: int | None = 8 << 30


@dataclass(frozen=True)
class Job:
    """A function as `module:name`, its pickled arguments, and its limits."""

    function: str
    arguments: bytes
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Outcome:
    """The pickled result of a job, or why there is none."""

    result: bytes | None = None
    failure: str | None = None
    detail: str = ""


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame, or None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None


def write_frame(stream: BinaryIO, body: bytes) -> None:
    """Send a frame."""
    stream.write(_LENGTH.pack(len(body)))
    stream.write(body)
    stream.flush()
