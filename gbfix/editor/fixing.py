"""Every fix of a document at once, as text edits that leave alone what does not change.

Knows the engine's outcome as two texts, and nothing of how it came about.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import pairwise

from gbfix.analysis.read_files import ReadFiles
from gbfix.engine import run
from gbfix.errors import UserError
from gbfix.settings import Settings
from gbfix.source.text import Edit, SourceFile
from gbfix.targeting import aimed


def fix_all(
    source: SourceFile, settings: Settings, read: ReadFiles | None = None
) -> tuple[Edit, ...]:
    """The edits that make every fix which the settings allow, by whole lines of the document.

    `read` holds other files of earlier calls, which need not be parsed again.

    Raises:
        UserError: if the file cannot be analysed, or selectors name nothing.
    """
    settings, _ = aimed(settings)
    result = run([source], settings, read=read)
    if result.errors:
        raise UserError(result.errors[0].sentence)
    return line_edits(source, result.files[0].after)


def line_edits(source: SourceFile, after: str) -> tuple[Edit, ...]:
    """Edits that turn the text of a file into another, by whole lines."""
    changed = SourceFile(source.path, after)
    old, new = _lines(source), _lines(changed)
    edits: list[Edit] = []
    starts = (*source.line_starts[: len(old)], len(source.text))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag != "equal":
            edits.append(Edit(starts[first], starts[last], "".join(new[new_first:new_last])))
    return tuple(edits)


def _lines(source: SourceFile) -> Sequence[str]:
    bounds = (*source.line_starts, len(source.text))
    pieces = [source.text[a:b] for a, b in pairwise(bounds)]
    return pieces if pieces[-1] else pieces[:-1]
