"""Whatever bytes a Python file has, decoding and encoding gives them back."""

from __future__ import annotations

import ast
import codecs
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbfix.source.text import Edit, SourceError, SourceFile

PATH = Path("m.py")
NEWLINES = st.sampled_from(["\n", "\r\n", "\r"])
LINE = st.text(
    st.characters(max_codepoint=0xFF, exclude_characters="\r\n", exclude_categories=["Cs"]),
    max_size=12,
)
BODY = st.lists(st.tuples(LINE, NEWLINES)).map(lambda lines: "".join(a + b for a, b in lines))


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file in UTF-8 with or without a byte order mark, or in an encoding that it declares."""
    body = draw(BODY) + draw(LINE)
    kind = draw(st.sampled_from(["plain", "bom", "latin-1", "cp1252"]))
    if kind == "plain":
        return b"#\n#\n" + body.encode()
    if kind == "bom":
        return codecs.BOM_UTF8 + b"#\n#\n" + body.encode()
    head = f"# -*- coding: {kind} -*-{draw(NEWLINES)}"
    return (head + body).encode(kind, "ignore")


@given(files())
def test_unedited_bytes_come_back(raw: bytes) -> None:
    source = SourceFile.decode(PATH, raw)
    assert source.encode(source.text) == raw
    assert source.encode(source.apply([])) == raw


@given(files(), st.data())
def test_an_edit_leaves_the_bytes_around_it_alone(raw: bytes, data: st.DataObject) -> None:
    source = SourceFile.decode(PATH, raw)
    start = data.draw(st.integers(0, len(source.text)))
    end = data.draw(st.integers(start, len(source.text)))
    after = source.apply([Edit(start, end, "x\ny")])
    assert after == source.text[:start] + f"x{source.newline}y" + source.text[end:]
    kept = source.encode(source.text[:start])
    assert source.encode(after).startswith(kept)


@given(BODY)
def test_position_and_offset_agree(body: str) -> None:
    source = SourceFile(PATH, body)
    for offset in range(len(body)):
        line, column = source.position(offset)
        within = source.line_text(line)[: column - 1]
        if column - 1 <= len(source.line_text(line)):
            assert source.offset(line, len(within.encode())) == offset


@pytest.mark.parametrize(
    "text",
    [
        "a = 1\r\nif x:\r\n\tb = 2\r\n",
        "a = 1\rif x:\r    b = 2\r",
        "a = 1\nif x:\r\n    b = 2",
        "\x0c\na = 'é'; b = x\n\x0cif x:\n    c = '\x0c' + y\n",
        "s = '''\r\n\x0b \x85 \u2028'''; t = x\n",
    ],
)
def test_ast_positions_are_offsets(text: str) -> None:
    source = SourceFile(PATH, text)
    names = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)]
    assert names
    for name in names:
        start = source.offset(name.lineno, name.col_offset)
        assert text[start : start + len(name.id)] == name.id


def test_new_newlines_follow_the_file_and_are_not_doubled() -> None:
    source = SourceFile(PATH, "a\r\nb\r\n")
    assert source.apply([Edit(0, 1, "x\ny\r\nz")]) == "x\r\ny\r\nz\r\nb\r\n"


def test_overlapping_edits_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        SourceFile(PATH, "abcd").apply([Edit(0, 2, ""), Edit(1, 3, "")])


@pytest.mark.parametrize(
    "raw",
    [
        b"x = '\xff'\n",
        b"# coding: no-such-codec\n",
        b"# coding: rot13\nx = 1\n",
        b"# coding: utf-7\nx = '+AGE-'\n",
        b"# coding: undefined\nx = 1\n",
        b"\x80\x03\x00\xff",
    ],
)
def test_undecodable_bytes_are_a_sentence(raw: bytes) -> None:
    with pytest.raises(SourceError, match=r"^m\.py: cannot be decoded"):
        SourceFile.decode(PATH, raw)


def test_a_character_without_bytes_is_a_sentence() -> None:
    source = SourceFile.decode(PATH, b"# coding: latin-1\nx = 1\n")
    with pytest.raises(SourceError, match="cannot be encoded"):
        source.encode("x = '→'")
