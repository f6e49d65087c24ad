"""Lines of styled text, printed plain to a pipe and through rich to a terminal.

Reports make lines; this module alone knows whether anybody sees colours. rich is imported only when
there is a terminal to use it on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True)
class Span:
    """A piece of a line and the rich style that a terminal shows it in."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def line(*pieces: str | Span) -> Line:
    """A line of spans; plain strings have no style."""
    return tuple(Span(piece) if isinstance(piece, str) else piece for piece in pieces)


def plain(lines: Iterable[Line]) -> str:
    """The lines without styles, each ended by a line feed."""
    return "".join("".join(span.text for span in spans) + "\n" for spans in lines)


def print_lines(lines: Iterable[Line], stream: TextIO) -> None:
    """Print lines as they come, coloured if the stream is a terminal."""
    if not stream.isatty():
        for spans in lines:
            stream.write(plain((spans,)))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for spans in lines:
        console.print(Text.assemble(*((span.text, span.style) for span in spans)))
