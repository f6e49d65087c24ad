"""The reports of `check` and `apply` for people: one line a finding, reasons indented below it.

Nothing is passed over in silence: a site that is not fixed says for each transform why. The module
turns results into lines and knows nothing of terminals or of how the results came about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gbfix.findings import FileResult, Finding, FixOffer, RunResult, Safety
from gbfix.report.spans import Line, Span, line

_SAFETY_STYLE = {Safety.SAFE: "green", Safety.REVIEW: "yellow", Safety.UNSAFE: "red"}


def check_lines(result: RunResult, *, excerpts: bool = False) -> Iterator[Line]:
    """Every finding with the fixes on offer, or the reasons why there is none."""
    findings = 0
    fixable = 0
    for file, finding in _ordered(result):
        findings += 1
        fixable += bool(finding.offers)
        yield line(*_place(finding), finding.message, " ", *_offers(finding), *_cost(finding))
        if excerpts:
            yield from _excerpt(file, finding)
        if not finding.offers:
            yield from _refusals(finding)
    files = sum(bool(file.findings) for file in result.files)
    yield from _rule_off(excerpts and findings)
    if not findings:
        yield from _nothing_found(result)
        return
    yield line(
        Span(f"Found {_count(findings, 'break site')}", "bold"),
        f" in {_count(files, 'file')}; {fixable} fixable, {findings - fixable} not.",
    )


def apply_lines(
    result: RunResult, *, written: bool, safety: Safety, excerpts: bool = False
) -> Iterator[Line]:
    """Every fix with its safety and reason, then every site left as it is with the reasons.

    `written` says whether the fixes are in the files or only in a diff; `safety` is the least
    safety at which fixes were made.
    """
    pairs = _ordered(result)
    fixed = [(finding, finding.applied) for _, finding in pairs if finding.applied]
    left = [(file, finding) for file, finding in pairs if not finding.applied]
    done = "fixed by " if written else "would be fixed by "
    for finding, offer in fixed:
        yield line(*_place(finding), done, *_fix(offer), f": {offer.reason}")
    if left:
        yield from _rule_off(fixed)
        yield line(Span("Not fixed:", "bold"))
    for file, finding in left:
        yield line(*_place(finding), finding.message, *_possible(finding))
        if excerpts:
            yield from _excerpt(file, finding)
        yield from _not_taken(finding, safety)
        yield from _refusals(finding)
    yield from _rule_off(pairs)
    yield from _apply_summary(result, len(fixed), len(left), written)


def _ordered(result: RunResult) -> list[tuple[FileResult, Finding]]:
    """All findings, in the order of the files; those that a trace tells of most costly first."""
    pairs = [(file, finding) for file in result.files for finding in file.findings]
    return sorted(pairs, key=lambda pair: -pair[1].seen.cost if pair[1].seen else 0)


def _cost(finding: Finding) -> Sequence[str]:
    """What the trace tells of a finding."""
    seen = finding.seen
    return (f" ({seen.cost_in_words})",) if seen is not None else ()


def _apply_summary(result: RunResult, fixed: int, left: int, written: bool) -> Iterator[Line]:
    if not fixed and not left:
        yield from _nothing_found(result)
        return
    files = sum(any(f.applied for f in file.findings) for file in result.files)
    verb = "Fixed" if written else "Would fix"
    where = f" in {_count(files, 'file')}" if fixed else ""
    rest = f"; {left} left as {'it is' if left == 1 else 'they are'}" if left else ""
    sites = _count(fixed + left, "break site")
    yield line(Span(f"{verb} {fixed or 'none'} of {sites}", "bold"), f"{where}{rest}.")


def _place(finding: Finding) -> Sequence[Span | str]:
    return (
        Span(f"{finding.path}:{finding.line}:{finding.column}:", "bold"),
        " ",
        Span(finding.code, "bold red"),
        " ",
        Span(finding.name, "cyan"),
        " ",
    )


def _fix(offer: FixOffer) -> Sequence[Span | str]:
    safety = Span(offer.safety.label, _SAFETY_STYLE[offer.safety])
    return (Span(offer.transform, "bold"), " (", safety, ")")


def _offers(finding: Finding) -> Sequence[Span | str]:
    pieces: list[Span | str] = ["[" if finding.certain else "[possible; "]
    if not finding.offers:
        pieces.append("not fixable")
    for index, offer in enumerate(finding.offers):
        pieces.append(", " if index else "fixable: ")
        pieces += _fix(offer)
        if offer.setting is not None:
            pieces.append(" with --config")
    return (*pieces, "]")


def _possible(finding: Finding) -> Sequence[str]:
    return () if finding.certain else (" [possible]",)


def _refusals(finding: Finding) -> Iterator[Line]:
    for refusal in finding.refusals:
        code = Span(refusal.code, "yellow")
        yield line(f"    {refusal.transform}: ", code, f": {refusal.sentence}")


def _not_taken(finding: Finding, safety: Safety) -> Iterator[Line]:
    for offer in finding.offers:
        label = Span(offer.safety.label, _SAFETY_STYLE[offer.safety])
        if offer.setting is not None:
            yield line(
                f"    {offer.transform}: ", label, f": --config makes the setting "
                f"`{offer.setting}`: {offer.reason}"
            )  # fmt: skip
            continue
        if offer.safety >= safety:
            continue
        flag = "--unsafe takes it" if offer.safety is Safety.UNSAFE else "--safe-only leaves it"
        yield line(f"    {offer.transform}: ", label, f": {flag}: {offer.reason}")


def _excerpt(file: FileResult, finding: Finding) -> Iterator[Line]:
    """The first source line of a finding that is left, with the site underlined."""
    now = replace(file.before, text=file.after)
    # A file that could not be written has findings placed in the text that it did not get.
    if finding.line > len(now.line_starts):
        return
    text = _printable(now.line_text(finding.line))
    start = finding.column - 1
    stop = finding.end_column - 1 if finding.end_line == finding.line else len(text)
    stop = max(stop, start + 1)
    gutter = f"{finding.line:>6} | "
    site = Span(text[start:stop], "bold underline")
    yield line(Span(gutter, "dim"), text[:start], site, text[stop:])
    marks = Span(" " * start + "^" * (stop - start), "red")
    yield line(Span(" " * (len(gutter) - 2) + "| ", "dim"), marks)


def _printable(text: str) -> str:
    # One column a character keeps the marks below the site; a terminal must see no escape codes.
    return "".join(char if char.isprintable() else " " for char in text)


def _rule_off(wanted: object) -> Iterator[Line]:
    if wanted:
        yield line()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _nothing_found(result: RunResult) -> Iterator[Line]:
    # Where no file could be used, the errors say all.
    if result.files:
        found = Span("No break sites found", "bold green")
        yield line(found, f" in {_count(len(result.files), 'file')}.")
