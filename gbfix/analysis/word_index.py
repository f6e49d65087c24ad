"""In which texts a name stands, without parsing them.

Knows words as Python takes them for names, nothing of what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from unicodedata import normalize

from gbfix.analysis.modules import Module

_FEW = 8
"""To index all words costs as much as to look for several times so many."""
_WORD = re.compile(r"\w+")
_BETWEEN_WORDS = str.maketrans(
    {c: " " for c in map(chr, range(128)) if not (c == "_" or c.isalnum())}
)


def words(text: str) -> set[str]:
    """The words of a text, as Python takes them for names."""
    if _is_foreign(text):
        found = set(_WORD.findall(text))
        return found | {normalize("NFKC", word) for word in found if not word.isascii()}
    if not text.isascii():
        text = text.encode("ascii", "replace").decode("ascii")
    return set(text.translate(_BETWEEN_WORDS).split())  # faster than a regular expression


class WordIndex:
    """The modules in whose text a word stands; few words are looked for, for many all are indexed."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self._modules = modules
        self._found: dict[str, Sequence[Module]] = {}

    def naming(self, word: str) -> Sequence[Module]:
        """The modules in whose text a word stands, in their order."""
        if word not in self._found:
            if len(self._found) < _FEW:
                self._found[word] = [m for m in self._modules if self._stands_in(word, m)]
            else:
                self._found[word] = self._all.get(word, ())
        return self._found[word]

    def _stands_in(self, word: str, module: Module) -> bool:
        if module in self._foreign:
            return word in self._foreign[module]
        text = module.source.text
        at = text.find(word)
        while at >= 0:
            end = at + len(word)
            if not (_continues(text[at - 1 : at]) or _continues(text[end : end + 1])):
                return True
            at = text.find(word, end)
        return False

    @cached_property
    def _foreign(self) -> dict[Module, set[str]]:
        """The words of the texts in which a name can be written with other letters than its own."""
        texts = ((module, module.source.text) for module in self._modules)
        return {module: words(text) for module, text in texts if _is_foreign(text)}

    @cached_property
    def _all(self) -> dict[str, list[Module]]:
        found: dict[str, list[Module]] = {}
        for module in self._modules:
            for word in words(module.source.text):
                found.setdefault(word, []).append(module)
        return found


def _continues(character: str) -> bool:
    """Whether a word goes on with a character, in a text whose letters are all ASCII."""
    return character == "_" or (character.isascii() and character.isalnum())


def _is_foreign(text: str) -> bool:
    """Whether a text has letters or digits that are not ASCII."""
    if text.isascii():
        return False
    others = normalize("NFKC", "".join(c for c in set(text) if not c.isascii()))
    return any(c.isalnum() for c in others)


__all__ = ["WordIndex", "words"]
