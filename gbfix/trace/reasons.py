"""Reads what Dynamo says of a break: its registry entry, explanation, hints, effect and stack.

The only place that knows how the wording differs between versions of torch. Read with torch 2.13 and
2.11, whose texts carry the registry entry in a link, and 2.7, whose texts do not: these are looked up
by the name of the kind of break, in the registry of the installed torch or a table of old names.
It imports no torch and does not know whether a text was recorded or read from a log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gbfix.dynamo.registry import identifier_of
from gbfix.trace.model import Effect, Frame, Reason

_ENTRY = re.compile(r"/gb/(gb\d{4})\.html", re.I)
_SECTION = re.compile(r"^ {2}(Explanation|Hint|Developer debug context):[ ]?", re.M)
_MORE = re.compile(r"^\s*For more details about this graph break.*", re.M)
_TRYING = re.compile(
    r"^(?:Encountered graph break when attempting to trace|Failed to handle graph)"
)
_HEADER = re.compile(
    r"Graph break (?:\(user stack suppressed[^)]*\) )?in user code at (?P<file>.+):(?P<line>\d+)\s*$",
    re.M,
)
_REASON = re.compile(r"^(?:Graph Break )?Reason:\s*", re.M)
_STACK = re.compile(r"^User code traceback:\s*$", re.M)
_FRAME = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_SKIPPED = re.compile(
    r"^torch\.compile will skip tracing the frame (?P<name>.+?) \((?P<file>.+?) line (?P<line>\d+)\)",
    re.M,
)
# Of a break in a loop, whose message has the frame as context.
_LEFT = re.compile(r"frame skipped: (?P<name>.+?) \((?P<file>.+?) line (?P<line>\d+)\)")

# The wording of torch up to 2.8, from before reasons named their registry entry.
_OLD = (
    (re.compile(r"^generic_jump "), "GB0170"),
    (re.compile(r"^Data-dependent (?:jump|branching)"), "GB0170"),
    (re.compile(r"^(?:Tensor\.item|Unsupported Tensor\.item\(\) call)"), "GB0124"),
    (re.compile(r"^Logger not supported for non-export cases|logging\.Logger method"), "GB0291"),
    (re.compile(r"^(?:builtin: print|Failed to trace builtin operator)"), "GB0059"),
    (re.compile(r"^(?:dynamic shape operator|Dynamic shape operator)"), "GB0036"),
    (re.compile(r"^(?:data dependent operator|Data dependent operator)"), "GB0033"),
    (re.compile(r"^Attempted to call function marked as skipped|skip function "), "GB0007"),
)


@dataclass(frozen=True)
class Told:
    """One message about a break: what it says of the place, the reason and the stack.

    `skipped` is the frame that is not compiled at all, as name, file and line, where it is named.
    """

    reason: Reason
    effect: Effect
    stack: tuple[Frame, ...] = ()
    place: tuple[str, int] | None = None
    skipped: tuple[str, str, int] | None = None


def reason_of(text: str) -> Reason:
    """Dynamo's reason taken apart into name, registry entry, explanation, hints and context."""
    body = _MORE.sub("", text).strip("\n")
    entry = _ENTRY.search(text)
    pieces = _SECTION.split(body)
    name = _name(pieces[0])
    sections = list(zip(pieces[1::2], pieces[2::2], strict=True))
    explanation = next((t for kind, t in sections if kind == "Explanation"), "")
    context = next((t for kind, t in sections if kind == "Developer debug context"), "")
    return Reason(
        name=name,
        registry=entry.group(1).upper() if entry else _old_entry(name),
        explanation=_tidy(explanation),
        hints=tuple(_tidy(t) for kind, t in sections if kind == "Hint"),
        context=_tidy(context),
    )


def effect_of(text: str) -> Effect:
    """What Dynamo does after the break that a reason or message is about. Wording of torch 2.13."""
    if "Failed to handle graph break gracefully" in text or "results in a skip" in text:
        return Effect.SKIPS_FRAME
    if "cannot resume from" in text:
        return Effect.SKIPS_REST
    return Effect.SPLITS


def told(text: str) -> Told | None:
    """Read a whole message, of a log or of the structured trace; None if it is about something else."""
    header = _HEADER.search(text)
    skipped = _SKIPPED.search(text)
    if header is None and skipped is None and "graph break" not in text[:400].lower():
        return None
    place = (header["file"], int(header["line"])) if header else None
    split = _STACK.split(text, maxsplit=1)
    if skipped is not None:
        split = re.split(r"^The graph break occurred in the following user code:\s*$", text,
                         maxsplit=1, flags=re.M)  # fmt: skip
    above, stack = split[0], split[1] if len(split) > 1 else ""
    reason_text = _REASON.split(above, maxsplit=1)[-1] if _REASON.search(above) else above
    if skipped is not None and not _REASON.search(above):
        # The exception behind it is printed below, with the reason as its message.
        reason_text = _last_exception(stack) or "graph break that cannot be resumed from"
    if header is None and skipped is None and not _SECTION.search(text):
        return None
    left = skipped or _LEFT.search(text)
    frames = frames_of(stack.split("Traceback (most recent call last)")[0])
    return Told(
        reason=reason_of(reason_text),
        effect=effect_of(text),
        stack=frames,
        place=place,
        skipped=(left["name"], left["file"], int(left["line"])) if left else None,
    )


def frames_of(text: str) -> tuple[Frame, ...]:
    """The frames of a formatted stack."""
    frames: list[Frame] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = _FRAME.match(line)
        if found is None:
            continue
        source = lines[number + 1] if number + 1 < len(lines) else ""
        if _FRAME.match(source):
            source = ""
        frame = Frame(found["file"], int(found["line"]), found["function"] or "", source.strip())
        frames.append(frame)
    return tuple(frames)


def _name(text: str) -> str:
    """The line that names the kind of break, below the lines that say what was being traced."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [
        line for line in lines if not _TRYING.match(line) and not line.endswith("encountered:")
    ]
    return (named or lines or ["graph break"])[0][:200]


def _old_entry(name: str) -> str | None:
    known = next((entry for pattern, entry in _OLD if pattern.search(name)), None)
    return known or identifier_of(name)


def _tidy(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines() if line.strip())


def _last_exception(text: str) -> str | None:
    parts = re.split(r"^(?:[\w.]+\.)?Unsupported: ", text, flags=re.M)
    return parts[-1].split("\nfrom user code:")[0] if len(parts) > 1 else None
