"""What is sent between a client and its server: jobs, limits, outcomes, and frames of bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import IO

_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class Limits:
    """What one job may take: seconds, and bytes of memory beyond what an idle worker has."""

    seconds: float = 120.0
    memory: int | None = 8 << 30


@dataclass(frozen=True)
class Job:
    """A function as `module:name`, its pickled arguments, and its limits.

    `prepare`, another function, is called in the server before, once and for all jobs that name it;
    what it leaves in memory is there in every job. With `within` the job itself is done in the
    server, since it runs no code but gbfix's.
    """

    function: str
    arguments: bytes
    limits: Limits = field(default_factory=Limits)
    prepare: str | None = None
    within: bool = False


@dataclass(frozen=True)
class Outcome:
    """The pickled result of a job, or why there is none; `exhausted` if time or memory ran out.

    `loaded` are the files of the code that ran and those that it read; None if that is not known.
    """

    result: bytes | None = None
    failure: str | None = None
    exhausted: bool = False
    detail: str = ""
    loaded: frozenset[str] | None = None


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame, or None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None


def write_frame(stream: IO[bytes], body: bytes) -> None:
    """Send a frame."""
    stream.write(_LENGTH.pack(len(body)))
    stream.write(body)
    stream.flush()
