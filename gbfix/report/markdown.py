"""The report of a migration as Markdown, for the description of a pull request.

It says what a reviewer must know, short enough for a comment on GitHub: the figures, what was run,
which fixes ask for a look, and what was left and why. Text from outside stands in code spans or is
escaped, so it becomes neither markup nor a mention. Knows the outcome alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from gbfix.migrate.outcome import Change, Checked, MigratedFile, Outcome, Policy, Site, State

_MOST = 20
_LONGEST = 60_000  # GitHub takes 65,536 characters
# A site ends with a fix or with refusals; one with neither has a fix that was not asked for.
_NOT_TAKEN = (
    "What is on offer, an unsafe fix or a setting of Dynamo, was not asked for; "
    "`gbfix check` shows it."
)
_APPLIED = frozenset({State.WRITTEN, State.PLANNED})
_ESCAPED = re.compile(r"[\\`*_{}\[\]<>#|~&!$@]")


def summary(outcome: Outcome) -> str:
    """The whole summary. Where it would be too long for a comment, it ends with a sentence."""
    text = "\n".join(_lines(outcome)) + "\n"
    if len(text) <= _LONGEST:
        return text
    whole = text[:_LONGEST].rpartition("\n\n")[0]
    # A part that is folded away must not swallow the last sentence.
    closing = "\n\n</details>" * (whole.count("<details>") - whole.count("</details>"))
    return f"{whole}{closing}\n\nThe rest is in the HTML report.\n"


def _lines(outcome: Outcome) -> Iterator[str]:
    totals = outcome.totals
    planned = any(file.state is State.PLANNED for file in outcome.files)
    yield f"## gbfix: migration of {_code(PurePath(outcome.root).name or outcome.root)}"
    yield ""
    done = "could be fixed" if planned else "fixed"
    yield (
        f"**{totals.fixed:,} of {_count(totals.sites, 'break site')} {done}**, in "
        f"{_count(totals.written, 'file')} of {totals.files:,}; {totals.left:,} left. "
        f"{_policy(outcome.policy, planned=planned)}"
    )
    yield ""
    yield from _figures(outcome)
    yield from _diagnoses(outcome)
    yield from _failures(outcome)
    yield from _to_review(outcome)
    yield from _withheld(outcome)
    yield from _declined(outcome)
    yield from _errors(outcome)


def _policy(policy: Policy, *, planned: bool) -> str:
    if planned:
        return "This was a dry run: nothing was verified or written."
    wanted = {
        "verified": "Only what was verified by running is written.",
        "safe": "Only safe fixes are written.",
        "review": "Safe fixes are written, and those that ask for a review.",
    }.get(policy.require, "")
    return wanted if policy.verify else f"{wanted} Nothing was run to verify them."


def _figures(outcome: Outcome) -> Iterator[str]:
    totals = outcome.totals
    yield from _row("", "before", "after")
    yield from _row("---", "---:", "---:")
    yield from _row("break sites, found by reading", f"{totals.sites:,}", f"{totals.left:,}")
    yield from _change("graph breaks, in what was run", totals.breaks)
    yield from _change("graph fragments, in what was run", totals.fragments)
    yield ""
    counted = (
        ("Fixes by safety", totals.by_safety),
        ("Run, original against rewritten", totals.by_verdict),
    )
    for title, by in counted:
        said = ", ".join(f"{n:,} {name}" for name, n in by.items() if n)
        if said:
            yield f"{title}: {said}."
            yield ""


def _change(name: str, change: Change | None) -> Iterator[str]:
    if change is not None:
        yield from _row(name, f"{change.before:,}", f"{change.after:,}")


def _diagnoses(outcome: Outcome) -> Iterator[str]:
    by_code = sorted(outcome.totals.by_code.items(), key=lambda item: -item[1].before)
    if not by_code:
        return
    names = {site.code: site.name for file in outcome.files for site in file.sites}
    yield from _row("diagnosis", "before", "after")
    yield from _row("---", "---:", "---:")
    for code, change in by_code:
        name = f"{_code(code)} {_text(names.get(code, ''))}"
        yield from _row(name, f"{change.before:,}", f"{change.after:,}")
    yield ""


def _failures(outcome: Outcome) -> Iterator[str]:
    """What was run and is not verified, differences first."""
    failed = [one for one in outcome.checked if not one.verified]
    if not failed:
        return
    failed.sort(key=lambda one: not one.differences)
    yield f"### Not verified ({len(failed):,})"
    yield ""
    yield from _listed(map(_checked, failed))


def _checked(one: Checked) -> str:
    arms = f", {one.arms.covered} of {one.arms.total} arms run" if one.arms.total else ""
    first = f" First difference: {_text(one.differences[0])}." if one.differences else ""
    reason = _text(one.reason.rstrip("."))
    return f"{_code(one.id)}: **{_text(one.status)}**{arms}: {reason}.{first}"


def _to_review(outcome: Outcome) -> Iterator[str]:
    """The fixes that were made and are not safe by construction."""
    made = [
        (file, site)
        for file in outcome.files
        if file.state in _APPLIED
        for site in file.sites
        if site.fix is not None and site.fix.safety != "safe"
    ]
    if not made:
        return
    yield from _folded(f"Fixes to review ({len(made):,})", (_reviewed(*pair) for pair in made))


def _reviewed(file: MigratedFile, site: Site) -> str:
    assert site.fix is not None
    place = _code(f"{file.path}:{site.line}")
    made = f"{_code(site.fix.transform)} ({site.fix.safety})"
    return f"{place} {site.code} {made}: {_text(site.fix.reason)}"


def _withheld(outcome: Outcome) -> Iterator[str]:
    kept = [f for f in outcome.files if f.state in (State.WITHHELD, State.NOT_WRITTEN)]
    if kept:
        items = (f"{_code(file.path)} ({file.state.value}): {_text(file.reason)}" for file in kept)
        yield from _folded(f"Files with fixes that were not written ({len(kept):,})", items)


def _declined(outcome: Outcome) -> Iterator[str]:
    """The reasons for which sites were left, each with its most common sentence."""
    sentences: dict[str, Counter[str]] = {}
    for file in outcome.files:
        for site in file.sites:
            if site.fix is None:
                last = site.refusals[-1] if site.refusals else None
                code = last.code if last else "fix not taken"
                said = last.sentence if last else _NOT_TAKEN
                sentences.setdefault(code, Counter())[said] += 1
    ordered = sorted(sentences.items(), key=lambda item: -item[1].total())
    if not ordered:
        return
    total = sum(said.total() for _, said in ordered)
    rows = (
        f"{_code(code)}, {said.total():,} times; most often: {_text(said.most_common(1)[0][0])}"
        for code, said in ordered
    )
    yield from _folded(f"Left as they are, and why ({total:,})", rows)


def _errors(outcome: Outcome) -> Iterator[str]:
    if outcome.errors:
        items = (f"{_code(error.path)}: {_text(error.sentence)}" for error in outcome.errors)
        yield from _folded(f"Files that could not be processed ({len(outcome.errors):,})", items)


def _folded(title: str, items: Iterable[str]) -> Iterator[str]:
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from _listed(items)
    yield "</details>"
    yield ""


def _listed(items: Iterable[str]) -> Iterator[str]:
    every: Sequence[str] = list(items)
    yield from (f"- {item}" for item in every[:_MOST])
    if len(every) > _MOST:
        yield f"- and {len(every) - _MOST:,} more, in the HTML report"
    yield ""


def _row(*cells: str) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"


def _one_line(text: str) -> str:
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join("".join(c if c.isprintable() else " " for c in whole).split())


def _code(text: str) -> str:
    """Text as a code span, whatever it holds."""
    plain = _one_line(text)
    fence = "`" * (max(map(len, re.findall("`+", plain)), default=0) + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") or not plain else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def _text(text: str) -> str:
    """A sentence with its `code` kept as code, and all else that could be markup escaped."""
    pieces = _one_line(text).split("`")
    if len(pieces) % 2 == 0:  # a lone backtick is none
        return _escaped("`".join(pieces))
    return "".join(_code(p) if n % 2 else _escaped(p) for n, p in enumerate(pieces))


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"\\{found[0]}", text)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
