"""Reads what `TORCH_TRACE=folder` writes, the structured log that `tlparse` shows.

A line is a prefix and a JSON object; a payload follows on lines that begin with a tab. File names are
interned. Read with logs of torch 2.7, 2.11 and 2.13.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gbfix.trace.model import Break, Code, Frame, Process, Recompile, Skip, Trace, merge
from gbfix.trace.reasons import Told, told

_LINE = re.compile(
    r"^(?:\[rank\d+\]:)?[VDIWEC]\d{4} [\d:.]+ (?P<pid>\d+) \S+?:\d+\] (?P<json>\{.*\})\s*$"
)
_Frame = tuple[Any, Any]


@dataclass(frozen=True)
class _Item:
    """One entry of the log: its data, and its payload without the tabs."""

    data: dict[str, Any]
    payload: str
    pid: int

    @property
    def frame(self) -> _Frame:
        """Which frame is being compiled."""
        return self.data.get("compiled_autograd_id"), self.data.get("frame_id")


@dataclass
class _Log:
    """What has been read of one file."""

    names: dict[int, str] = field(default_factory=dict)
    codes: dict[_Frame, Code] = field(default_factory=dict)
    breaks: list[tuple[_Frame, Told]] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    recompiles: list[tuple[_Frame, tuple[str, ...]]] = field(default_factory=list)
    versions: dict[int, str] = field(default_factory=dict)


def files_of(folder: Path) -> list[Path]:
    """The logs in a folder, one of each process."""
    return [path for path in sorted(folder.glob("*.log")) if is_structured(_head(path))]


def is_structured(start: str) -> bool:
    """Whether a text begins like a structured log."""
    return any(_LINE.match(line) for line in start.splitlines()[:5])


def load(paths: Sequence[Path]) -> Trace:
    """The breaks, skipped frames and recompiles of logs."""
    return merge(_load(path) for path in paths)


def _load(path: Path) -> Trace:
    log = _Log()
    for item in _items(path):
        _take(item, log)
    unknown = Code("unknown", 0, "unknown")
    breaks = [
        Break(one.stack, one.reason, one.effect, _code(one, log.codes.get(frame, unknown)))
        for frame, one in log.breaks
    ]
    recompiles = [
        Recompile(log.codes.get(frame, unknown), guards) for frame, guards in log.recompiles
    ]
    processes = [Process(pid, (), "", "", version, 0.0) for pid, version in log.versions.items()]
    return merge(
        [
            Trace(
                source="TORCH_TRACE",
                processes=tuple(processes),
                breaks=tuple(breaks),
                skips=tuple(log.skips),
                recompiles=tuple(recompiles),
            )
        ]
    )


def _items(path: Path) -> Iterator[_Item]:
    data: dict[str, Any] | None = None
    pid = 0
    payload: list[str] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("\t"):
                payload.append(line[1:].rstrip("\n"))
                continue
            if data is not None:
                yield _Item(data, "\n".join(payload), pid)
            data, payload = None, []
            found = _LINE.match(line)
            if found is None:
                continue
            try:
                parsed = json.loads(found["json"])
            except ValueError:  # cut off, where the process was killed
                continue
            if isinstance(parsed, dict):
                data, pid = parsed, int(found["pid"])
    if data is not None:
        yield _Item(data, "\n".join(payload), pid)


def _take(item: _Item, log: _Log) -> None:
    data = item.data
    if isinstance(interned := data.get("str"), list) and len(interned) == 2:
        log.names[int(interned[1])] = str(interned[0])
    elif isinstance(start := data.get("dynamo_start"), dict):
        frames = start.get("stack") or []
        if frames:
            log.codes[item.frame] = _compiled(frames[-1], log.names)
    elif isinstance(artifact := data.get("artifact"), dict):
        _take_artifact(str(artifact.get("name")), item, log)
    elif isinstance(metrics := data.get("compilation_metrics"), dict):
        version = metrics.get("pytorch_version")
        if isinstance(version, str):
            log.versions[item.pid] = version
        _take_metrics(metrics, item, log)


def _take_artifact(name: str, item: _Item, log: _Log) -> None:
    if name == "dynamo_graph_break_reason":
        message = told(item.payload)
        if message is not None:
            log.breaks.append((item.frame, _placed(message)))
    elif name == "recompile_reasons":
        log.recompiles.append((item.frame, _guards(item.payload)))
    elif name == "torch_version":
        try:
            log.versions[item.pid] = str(json.loads(item.payload)["pytorch_version"])
        except (ValueError, KeyError, TypeError):
            return


def _take_metrics(metrics: dict[str, Any], item: _Item, log: _Log) -> None:
    """`co_name`, `co_filename`, `co_firstlineno` name the frame; `fail_reason` says that it failed."""
    file = metrics.get("co_filename")
    if isinstance(file, str):
        line = int(metrics.get("co_firstlineno") or 0)
        log.codes[item.frame] = Code(file, line, str(metrics.get("co_name")))
    reason = metrics.get("fail_reason")
    if reason and item.frame in log.codes:
        first = next(iter(str(reason).strip().splitlines()), "")
        log.skips.append(Skip(log.codes[item.frame], first))


def _guards(payload: str) -> tuple[str, ...]:
    try:
        parsed = json.loads(payload)
    except ValueError:
        parsed = payload
    # A list in torch 2.7, lines in 2.11.
    reasons = parsed if isinstance(parsed, list) else str(parsed).splitlines()
    return tuple(
        str(reason).split(": ", 1)[-1].splitlines()[0] for reason in reasons if str(reason)
    )


def _compiled(frame: dict[str, Any], names: dict[int, str]) -> Code:
    name = frame.get("filename")
    file = names.get(name, str(name)) if isinstance(name, int) else str(name)
    return Code(file, int(frame.get("line") or 0), str(frame.get("name")))


def _code(message: Told, otherwise: Code) -> Code:
    if message.skipped is None:
        return otherwise
    name, file, line = message.skipped
    return Code(file, line, name)


def _placed(message: Told) -> Told:
    """A message whose stack is missing, with its place as the whole stack."""
    if message.stack or message.place is None:
        return message
    file, line = message.place
    return Told(
        message.reason, message.effect, (Frame(file, line, ""),), message.place, message.skipped
    )


def _head(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(1 << 14)
