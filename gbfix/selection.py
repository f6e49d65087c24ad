"""Turns `--select` and `--ignore` into the findings to report and the transforms to use.

A selector is a code (`GBF101`), a prefix of codes (`GBF1`), the name of a diagnosis
(`tensor-branch`) or the name of a transform (`cond`). Selecting a transform selects the diagnoses
that it treats and leaves the other transforms out; ignoring one keeps the findings and does not use
it. Names have hyphens; with underscores they mean the same. The module knows the catalogue only as
names and codes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gbfix.errors import UserError


@dataclass(frozen=True)
class Catalogue:
    """What there is to select: diagnosis names by code, and codes by transform name."""

    diagnoses: Mapping[str, str]
    transforms: Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Selection:
    """The codes to report, and which transform may treat which of them; None if all may."""

    codes: frozenset[str]
    treatments: frozenset[tuple[str, str]] | None

    def reports(self, code: str) -> bool:
        """Whether findings with this code are reported."""
        return code in self.codes

    def allows(self, code: str, transform: str) -> bool:
        """Whether a transform may be used on findings with this code."""
        return self.treatments is None or (code, transform) in self.treatments


def canonical(name: str) -> str:
    """A name as it is listed, however the user has spelled it."""
    return name.strip().lower().replace("_", "-")


def nearest(word: str, names: Collection[str]) -> str:
    """The end of a sentence that says a word is unknown: what it may have been meant to be."""
    import difflib  # only a mistake needs it

    lower = {name.lower(): name for name in names}
    # One code is as near as another.
    is_code = word.upper().startswith("GBF")
    found = [] if is_code else difflib.get_close_matches(canonical(word), lower, n=1, cutoff=0.7)
    meant = f"; did you mean `{lower[found[0]]}`?" if found else ";"
    return f"{meant} `gbfix rules` lists all there are"


def resolve(select: Collection[str], ignore: Collection[str], catalogue: Catalogue) -> Selection:
    """Resolve selectors against a catalogue; an empty `select` selects everything.

    Raises:
        UserError: for a selector that names nothing, or where nothing is left.
    """
    everything = {(code, name) for name, codes in catalogue.transforms.items() for code in codes}
    codes: set[str] = set() if select else set(catalogue.diagnoses)
    treatments: set[tuple[str, str]] = set() if select else set(everything)
    for selector in select:
        if canonical(selector) in catalogue.transforms:
            chosen = {pair for pair in everything if pair[1] == canonical(selector)}
            codes |= {code for code, _ in chosen}
        else:
            named = _codes(selector, catalogue)
            chosen = {pair for pair in everything if pair[0] in named}
            codes |= named
        treatments |= chosen
    for selector in ignore:
        if canonical(selector) in catalogue.transforms:
            treatments = {pair for pair in treatments if pair[1] != canonical(selector)}
        else:
            codes -= _codes(selector, catalogue)
    if not codes:
        raise UserError("`--select` and `--ignore` together leave no diagnosis to look for.")
    return Selection(frozenset(codes), frozenset(pair for pair in treatments if pair[0] in codes))


def _codes(selector: str, catalogue: Catalogue) -> set[str]:
    upper = selector.upper()
    found = {
        code
        for code, name in catalogue.diagnoses.items()
        if name == canonical(selector) or (upper and code.startswith(upper))
    }
    if not found:
        names = [*catalogue.diagnoses, *catalogue.diagnoses.values(), *catalogue.transforms]
        raise UserError(f"unknown selector `{selector}`{nearest(selector, names)}.")
    return found
