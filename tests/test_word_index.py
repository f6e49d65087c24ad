"""The files in which a name stands are told from words, whether few names are asked for or many."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gbfix.analysis.module_files import unparsed_module
from gbfix.analysis.word_index import WordIndex, words
from gbfix.source.text import SourceFile

NAMES = ["x", "xx", "_x", "x1", "forward", "forward_", "名", "é"]
FULL_WIDTH = "\uff58"  # an `x` to Python
PIECES = [*NAMES, " ", ".", "(", "\n", "→", "²", FULL_WIDTH, "\\", "'"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(st.lists(TEXTS, max_size=4), st.permutations(NAMES * 2))
def test_a_name_is_found_where_it_is_a_word(texts: list[str], asked: list[str]) -> None:
    modules = [
        unparsed_module(SourceFile.decode(Path(f"m{n}.py"), text.encode()))
        for n, text in enumerate(texts)
    ]
    few, many = WordIndex(modules), WordIndex(modules)
    for number in range(100):
        many.naming(f"other{number}")
    for name in asked:
        expected = [m for m in modules if name in words(m.source.text)]
        assert list(few.naming(name)) == list(many.naming(name)) == expected
