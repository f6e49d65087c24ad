"""Comments that silence findings: `# gbfix: ignore` and `# gbfix: ignore[GBF101,GBF2] reason`.

A comment speaks for the line it stands on and, on the first or last line of a statement's header,
for the whole header, so that the closing line of a test over several lines is as good as the first.
The module knows nothing of trees: it reads tokens.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_COMMENT = re.compile(r"#\s*gbfix:\s*ignore(?![\w-])(?:\[(?P<codes>[^\]]*)\])?(?P<reason>[^#]*)")


@dataclass(frozen=True)
class Suppression:
    """One comment. `codes` is None where it silences everything.

    `first_line` and `last_line` bound the logical line around the comment; where the comment has a
    line of its own they are that line.
    """

    line: int
    first_line: int
    last_line: int
    codes: tuple[str, ...] | None
    reason: str

    def matches(self, code: str) -> bool:
        """Whether the comment names this code, by itself or by a prefix such as `GBF1`."""
        return self.codes is None or any(code.startswith(prefix) for prefix in self.codes)


def parse(text: str) -> tuple[Suppression, ...]:
    """All suppressions of a source text, in order; none where it cannot be tokenised."""
    # Most files have none, and tokenising costs more than the rest of the analysis.
    if "gbfix:" not in text:
        return ()
    found: list[Suppression] = []
    pending: list[tuple[int, re.Match[str]]] = []
    first = 0
    try:
        # `newline=None` counts lines as the `ast` module does, lone carriage returns included.
        for token in tokenize.generate_tokens(io.StringIO(text, newline=None).readline):
            line = token.start[0]
            if token.type == tokenize.COMMENT:
                match = _COMMENT.search(token.string)
                if match:
                    pending.append((line, match))
            elif token.type == tokenize.NL and not first:
                found += [_suppression(at, at, at, match) for at, match in pending]
                pending.clear()
            elif token.type == tokenize.NEWLINE:
                found += [_suppression(at, first or at, line, match) for at, match in pending]
                pending.clear()
                first = 0
            elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT) and not first:
                first = line
    except (tokenize.TokenError, SyntaxError):
        return ()
    return tuple(found)


def suppressed(
    finding_line: int, finding_end_line: int, code: str, suppressions: Sequence[Suppression]
) -> Suppression | None:
    """The comment that silences a finding, or None."""
    for comment in suppressions:
        if not comment.first_line <= finding_line <= comment.last_line:
            continue
        on_edge = comment.line in (comment.first_line, comment.last_line)
        on_finding = finding_line <= comment.line <= finding_end_line
        if (on_edge or on_finding) and comment.matches(code):
            return comment
    return None


def unused_notices(
    path: Path, suppressions: Sequence[Suppression], used: Iterable[tuple[Suppression, str]]
) -> tuple[str, ...]:
    """A sentence for each comment, or code in a comment, that silenced none of the findings.

    `used` pairs each comment that silenced something with the code that it silenced.
    """
    hits: dict[Suppression, set[str]] = {}
    for comment, code in used:
        hits.setdefault(comment, set()).add(code)
    notices: list[str] = []
    for comment in suppressions:
        codes = hits.get(comment, set())
        if comment.codes:
            idle = [c for c in comment.codes if not any(hit.startswith(c) for hit in codes)]
        else:
            idle = [] if codes else ["gbfix: ignore"]
        notices += [f"{path}:{comment.line}: unused suppression `{name}`." for name in idle]
    return tuple(notices)


def _suppression(line: int, first: int, last: int, match: re.Match[str]) -> Suppression:
    listed = match["codes"]
    codes = None
    if listed is not None:
        codes = tuple(code.strip().upper() for code in listed.split(",") if code.strip())
    return Suppression(line, first, last, codes, match["reason"].strip(" \t:-"))
