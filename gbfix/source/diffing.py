"""Unified diffs as bytes that `git apply` takes as they are.

Only a line feed ends a line here, as in git: carriage returns, form feeds, byte order marks and
any encoding pass through. There is no `diff --git` header on purpose: with one, `git apply` run in
a sub-folder skips the files outside it without a word, and without one it stops with an error.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_CONTEXT = 3
_INSTALLED = ("site-packages", "dist-packages")
_ESCAPES = {
    7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r",
    34: b'\\"', 92: b"\\\\",
}  # fmt: skip


def unified_diff(path: Path, before: bytes, after: bytes, root: Path) -> bytes:
    """The diff between two contents of a file, named relative to `root`; empty if equal."""
    if before == after:
        return b""
    name = os.fsencode(_relative(path, root))
    old, new = _lines(before), _lines(after)
    pieces = [_header(b"--- ", b"a/" + name), _header(b"+++ ", b"b/" + name)]
    for group in _groups(old, new):
        first, last = group[0], group[-1]
        spans = _span(first[1], last[2]), _span(first[3], last[4])
        pieces.append(b"@@ -%s +%s @@\n" % spans)
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                pieces += _marked(b" ", old[i1:i2])
            else:
                pieces += _marked(b"-", old[i1:i2])
                pieces += _marked(b"+", new[j1:j2])
    return b"".join(pieces)


def diff_root(paths: Iterable[Path], cwd: Path) -> Path:
    """The folder that the paths in a diff of these files are relative to.

    It is the root of the git repository around them all; without one, the current folder, or the
    nearest folder above it that has all the files below it. Of installed packages it is the folder that
    they are installed in, from which paths go as in the repository of the package.
    """
    folders = [str(_real(path).parent) for path in paths]
    if folders:
        shared = Path(os.path.commonpath(folders))
        for folder in (shared, *shared.parents):
            if (folder / ".git").exists() or folder.name in _INSTALLED:
                return folder
    return Path(os.path.commonpath([str(_real(cwd)), *folders]))


def apply_command(root: Path) -> str:
    """What applies a patch whose paths are relative to a folder, up to the name of the patch."""
    # `git apply` would look for a repository around installed packages, and find another one.
    return f"patch -p1 -d {root} -i" if root.name in _INSTALLED else f"git -C {root} apply"


def _real(path: Path) -> Path:
    """The path with all links resolved: a diff through a link would be a diff of the link."""
    return Path(os.path.realpath(path))


def _relative(path: Path, root: Path) -> str:
    return os.path.relpath(_real(path), _real(root)).replace(os.sep, "/")


def _lines(content: bytes) -> list[bytes]:
    pieces = content.split(b"\n")
    tail = pieces.pop()
    return [piece + b"\n" for piece in pieces] + ([tail] if tail else [])


def _groups(
    old: Sequence[bytes], new: Sequence[bytes]
) -> Iterator[list[tuple[str, int, int, int, int]]]:
    matcher = difflib.SequenceMatcher(None, old, new)
    return iter(matcher.get_grouped_opcodes(_CONTEXT))


def _span(start: int, stop: int) -> bytes:
    length = stop - start
    if length == 1:
        return b"%d" % (start + 1)
    # An empty range is named by the line before it.
    return b"%d,%d" % (start + 1 if length else start, length)


def _marked(mark: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield mark + line
        if not line.endswith(b"\n"):
            yield b"\n\\ No newline at end of file\n"


def _header(mark: bytes, name: bytes) -> bytes:
    """A file line, with the name quoted as git quotes it, and a tab that ends one with spaces."""
    odd = any(byte < 0x20 or byte >= 0x7F or byte in _ESCAPES for byte in name)
    if odd:
        quoted = (
            _ESCAPES.get(byte)
            or (b"\\%03o" % byte if byte < 0x20 or byte >= 0x7F else bytes((byte,)))
            for byte in name
        )
        name = b'"' + b"".join(quoted) + b'"'
    return mark + name + (b"\t" if b" " in name else b"") + b"\n"
