"""An expression over several lines as one line, by its tokens alone.

This is what an editor waits for where loading libcst would take longer than all else together. It
says None wherever tokens do not show what libcst would do, and may not know what an expression means.
"""

from __future__ import annotations

import io
import keyword
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

_LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.ENDMARKER)
_OPENING = ("(", "[", "{")
_CLOSING = (")", "]", "}")


@dataclass
class _Bracket:
    """An open bracket: whether it follows what it is applied to, and the commas right inside."""

    text: str
    applied: bool
    commas: int = 0

    @property
    def may_lose_comma(self) -> bool:
        """Whether a comma at the end says nothing: it makes a tuple of one, or a key of several."""
        if self.text == "[":
            return not self.applied
        return self.applied or self.commas > 1


def joined(text: str) -> str | None:
    """An expression without line breaks or comments outside of its strings; None if unsure."""
    # A backslash that joins lines is kept, and f-strings are tokens of their own since Python 3.12.
    if "\\\n" in text or "\f" in text:
        return None
    lines = f"({text})".split("\n")
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline))
    except (tokenize.TokenError, SyntaxError):
        return None
    if any(tokenize.tok_name[token.type].startswith("FSTRING") for token in tokens):
        return None
    return _joined([token for token in tokens if token.type not in _LAYOUT], lines)


def _joined(tokens: Sequence[tokenize.TokenInfo], lines: Sequence[str]) -> str | None:
    pieces: list[str] = []
    stack: list[_Bracket] = []
    before = tokens[0]
    for token in tokens:
        word = token.string if token.type == tokenize.OP else ""
        gap = _gap(before, token, lines)
        if word in _OPENING:
            stack.append(_Bracket(word, _is_applied(before)))
        elif word == ",":
            stack[-1].commas += 1
            pieces.append(f"{gap},")  # both go where the comma is the last
            before = token
            continue
        elif word in _CLOSING:
            bracket = stack.pop()
            if before.string == "," and word != "}":
                if not bracket.may_lose_comma:
                    return None
                pieces.pop()
            if not stack and token is not tokens[-1]:
                return None  # more than one expression
        pieces.append(f"{gap}{token.string}")
        before = token
    return "".join(pieces[1:-1])


def _gap(before: tokenize.TokenInfo, token: tokenize.TokenInfo, lines: Sequence[str]) -> str:
    """What stands between two tokens in the end."""
    if before.type == tokenize.OP and before.string in ("(", "["):
        return ""
    if token.type == tokenize.OP and token.string in (")", "]"):
        return ""
    if before.end[0] != token.start[0]:
        chained = token.string == "." and (
            before.type == tokenize.NAME or before.string in _CLOSING
        )
        return "" if chained else " "
    return lines[token.start[0] - 1][before.end[1] : token.start[1]]


def _is_applied(before: tokenize.TokenInfo) -> bool:
    """Whether a bracket after this token is that of a call or a subscript."""
    if before.type == tokenize.NAME:
        return not keyword.iskeyword(before.string)
    return before.type == tokenize.STRING or before.string in _CLOSING
