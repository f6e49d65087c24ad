"""What a shell offers as values of options, besides what their types say."""

from __future__ import annotations

from collections.abc import Iterator


def selectors(incomplete: str) -> list[tuple[str, str]]:
    """Codes and names for `--select` and `--ignore`; behind a comma, one more."""
    before, comma, last = incomplete.rpartition(",")
    return [(f"{before}{comma}{name}", text) for name, text in _all() if _begins(name, last)]


def fixes(incomplete: str) -> list[tuple[str, str]]:
    """Names for `--fix-with`; behind a comma, one more."""
    before, comma, last = incomplete.rpartition(",")
    return [(f"{before}{comma}{name}", text) for name, text in _fixes() if _begins(name, last)]


def explained(incomplete: str) -> list[tuple[str, str]]:
    """Codes and names for `explain`."""
    return [(name, text) for name, text in _all() if _begins(name, incomplete)]


def _begins(name: str, with_what: str) -> bool:
    return name.lower().startswith(with_what.strip().lower())


def _all() -> Iterator[tuple[str, str]]:
    from gbfix.diagnoses import DIAGNOSES

    for code, diagnosis in DIAGNOSES.items():
        yield code, diagnosis.summary
    for diagnosis in DIAGNOSES.values():
        yield diagnosis.name, diagnosis.summary
    yield from _fixes()


def _fixes() -> Iterator[tuple[str, str]]:
    from gbfix.registry import transforms

    for transform in transforms():
        yield transform.name, transform.summary
