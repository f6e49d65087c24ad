"""What earlier runs found, kept in a folder and used again where nothing has changed.

An entry is about a whole run, and found by the content of the files in which something can be found,
the settings and the version of gbfix. It also lists every other file that was looked into, and is good
only while those are as they were. What is said of one file can depend on any other that mentions torch
(who calls its functions, what overrides its methods), so that such a change asks for a new run; a
change in a file that nobody looked into does not.

Entries are JSON with a checksum, written in one step: a damaged or half-written one is no entry, and
several runs can share a folder. Nothing that is wrong with the folder ends a run.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import gbfix.transforms
from gbfix.findings import FileError, FileResult, Finding, FixOffer, Refusal, RunResult, Safety
from gbfix.looking import NOT_PYTHON
from gbfix.settings import Settings
from gbfix.source.text import SourceFile

FOLDER = ".gbfix_cache"


class Cache:
    """A folder of entries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._digests: dict[int, str] = {}
        self._on_disk: dict[Path, str | None] = {}

    def whole(
        self, files: Sequence[SourceFile], settings: Settings, *, rewritten: bool = False
    ) -> RunResult | None:
        """What is known of a whole run that looked at files, or rewrote them; None if nothing is."""
        found = self._read(self._key(files, settings, rewritten))
        return None if found is None else _loaded(found, files)

    def keep_whole(
        self,
        files: Sequence[SourceFile],
        settings: Settings,
        result: RunResult,
        *,
        rewritten: bool = False,
    ) -> None:
        """Keep the result of a whole run, unless something other than a file's syntax was wrong."""
        if all(NOT_PYTHON in error.sentence for error in result.errors):
            known = {file.path for file in files if _counts(file)}
            self._write(
                self._key(files, settings, rewritten),
                _dumped(result, files),
                self._state(result.consulted - known),
                result.absent,
            )

    def _key(self, files: Iterable[SourceFile], settings: Settings, rewritten: bool) -> str:
        content = hashlib.sha256()
        for piece in (
            which_gbfix(),
            settings_text(settings),
            *(["rewritten"] if rewritten else []),
        ):
            content.update(piece.encode() + b"\0")
        for file in filter(_counts, files):
            name = os.fsencode(str(file.path)) + b"\0" + os.fsencode(str(file.path.absolute()))
            content.update(name + b"\0" + self._digest(file).encode())
        return content.hexdigest()

    def _digest(self, file: SourceFile) -> str:
        if id(file) not in self._digests:
            head = f"{file.encoding}\0{file.bom}\0".encode()
            body = file.text.encode("utf-8", "surrogatepass")
            self._digests[id(file)] = hashlib.sha256(head + body).hexdigest()
        return self._digests[id(file)]

    def _disk_digest(self, path: Path) -> str | None:
        if path not in self._on_disk:
            try:
                self._on_disk[path] = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError:
                self._on_disk[path] = None
        return self._on_disk[path]

    def _state(self, paths: Iterable[Path]) -> dict[str, str | None]:
        return {str(path.absolute()): self._disk_digest(path.absolute()) for path in paths}

    def _read(self, key: str) -> Any:
        try:
            raw = self._place(key).read_bytes()
            checksum, _, body = raw.partition(b"\n")
            if hashlib.sha256(body).hexdigest().encode() != checksum:
                return None
            entry = json.loads(body)
            for path, digest in entry["consulted"].items():
                if digest is None or self._disk_digest(Path(path)) != digest:
                    return None
            if any(os.path.lexists(path) for path in entry["absent"]):
                return None
            return entry["content"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _write(
        self, key: str, content: Any, consulted: Mapping[str, str | None], absent: Iterable[Path]
    ) -> None:
        entry = {
            "consulted": consulted,
            "absent": sorted(str(path.absolute()) for path in absent),
            "content": content,
        }
        # A folder that cannot be written costs the next run time and nothing else.
        with contextlib.suppress(OSError, UnicodeError):
            body = json.dumps(entry).encode()
            place = self._place(key)
            self._prepare()
            place.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=".", suffix=".tmp")
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
                Path(name).replace(place)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        ignore = self.folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("# Made by gbfix.\n*\n", encoding="utf-8")

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"


@cache
def which_gbfix() -> str:
    """What makes this gbfix differ from another: its version, its files and its Python."""
    places = [Path(gbfix.__file__).parent, *map(Path, gbfix.transforms.__path__)]
    pieces = [gbfix.__version__, sys.version]
    for folder in places:
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.json")]):
            status = path.stat()
            pieces.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(pieces)


def _counts(file: SourceFile) -> bool:
    """Whether a run says something of a file: of its sites, or of comments that silence none."""
    return "torch" in file.text or "gbfix:" in file.text


def settings_text(settings: Any) -> str:
    """All fields of a dataclass, the same for equal ones in every process."""

    def plain(value: Any) -> Any:
        if isinstance(value, (set, frozenset)):
            return sorted(map(str, value))
        return value.value if isinstance(value, Enum) else value

    return repr([(f.name, plain(getattr(settings, f.name))) for f in fields(settings)])


def _dumped(result: RunResult, files: Sequence[SourceFile]) -> Any:
    findings = {
        file.path: [_finding(finding) for finding in file.findings] for file in result.files
    }
    errors = {error.path: error.sentence for error in result.errors}
    counting = [file.path for file in files if _counts(file)]
    return {
        "findings": [findings.get(path, []) for path in counting],
        "errors": [errors.get(path) for path in counting],
        "after": {str(file.path): _packed(file.after) for file in result.files if file.changed},
        "notices": list(result.notices),
    }


def _packed(text: str) -> str:
    """A whole file, of which a project has many, in little room."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 1)).decode("ascii")


def _unpacked(packed: str) -> str:
    return zlib.decompress(base64.b64decode(packed)).decode("utf-8", "surrogatepass")


def _finding(finding: Finding) -> dict[str, Any]:
    entry = asdict(finding)
    del entry["path"], entry["edits"]
    if finding.applied is None:
        del entry["applied"]
    return entry


def _loaded(content: Any, files: Sequence[SourceFile]) -> RunResult:
    findings: dict[Path, tuple[Finding, ...]] = {}
    errors: list[FileError] = []
    counting = [file for file in files if _counts(file)]
    for file, entries, error in zip(counting, content["findings"], content["errors"], strict=True):
        findings[file.path] = tuple(_restored(file, entry) for entry in entries)
        if error is not None:
            errors.append(FileError(file.path, error))
    failed = {error.path for error in errors}
    after = content["after"]
    results = (
        FileResult(
            file.path,
            file,
            _unpacked(after[str(file.path)]) if str(file.path) in after else file.text,
            findings.get(file.path, ()),
        )
        for file in files
        if file.path not in failed
    )
    return RunResult(tuple(results), tuple(errors), tuple(content["notices"]))


def _restored(file: SourceFile, entry: dict[str, Any]) -> Finding:
    offers = tuple(map(_offer, entry.pop("offers")))
    refusals = tuple(Refusal(**refusal) for refusal in entry.pop("refusals"))
    applied = entry.pop("applied", None)
    made = _offer(applied) if applied is not None else None
    return Finding(path=file.path, offers=offers, refusals=refusals, applied=made, **entry)


def _offer(entry: dict[str, Any]) -> FixOffer:
    return FixOffer(**{**entry, "safety": Safety(entry["safety"])})


__all__ = ["FOLDER", "Cache", "settings_text", "which_gbfix"]
