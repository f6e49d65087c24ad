"""Writes the script that shows a difference: both versions, the arguments of the calls, the way to run.

It is text only; `gbfix.verify.reproduce` is what the script uses to run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields

from gbfix import __version__
from gbfix.verify.probing import Probe
from gbfix.verify.recipes import CallRecipe, Inputs
from gbfix.verify.targets import Side, Target
from gbfix.verify.verdict import Difference

_HEAD = '''\
"""Shows {what}.

{difference}

Written by gbfix {version}. Needs torch and gbfix. Exits with 1 while it shows, else with 0.
"""

import sys
{imports}
from gbfix.verify.reproduce import Target, {function}

'''


def script(
    how: Probe, difference: Difference, inputs: Inputs, calls: tuple[CallRecipe, ...]
) -> str:
    """The text of the script; `calls` are the arguments if they have literals."""
    alone = how.rewritten is None or how.rewritten.target == how.original.target
    head = _HEAD.format(
        what=_what(how),
        difference=_sentence(str(difference)),
        version=__version__,
        imports="\nimport torch\n" if calls else "",
        function="reproduce_failure" if how.rewritten is None else "reproduce",
    )
    parts = [head, _calls(inputs, calls), "\n\n"]
    parts += [f"TARGET = {_target(how.original.target)}\n"]
    if how.rewritten is not None and not alone:
        parts += [f"REWRITTEN = {_target(how.rewritten.target)}\n"]
    parts += ["\n# The files, line by line; others are read from where they are.\n"]
    parts += [f"BEFORE = {_texts(_own(how.original, how.rewritten))}\n"]
    if how.rewritten is not None:
        parts += [f"AFTER = {_texts(_own(how.rewritten, how.original))}\n"]
    names = ["TARGET", "BEFORE"]
    if how.rewritten is not None:
        names += ["TARGET" if alone else "REWRITTEN", "AFTER"]
    call = _run(how, difference, [*names, "CALLS"])
    parts += ['\nif __name__ == "__main__":\n', f"    sys.exit(\n{call}    )\n"]
    return "".join(parts)


def _what(how: Probe) -> str:
    name = how.original.target.name
    if how.rewritten is not None:
        return f"how a rewritten version of `{name}` differs from the original"
    return (
        f"that `{name}` fails compiled and not in eager" if how.compiled else f"that `{name}` fails"
    )


def _sentence(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''")


def _calls(inputs: Inputs, calls: tuple[CallRecipe, ...]) -> str:
    if not calls:
        if inputs.factory is not None:
            return f"# Returns the arguments of all calls.\nCALLS = {inputs.factory!r}\n"
        return f"# The pickled arguments of all calls.\nCALLS = {inputs.pickled!r}\n"
    lines = [f"        {call.code},\n" for call in calls]
    return (
        "\ndef CALLS():\n"
        '    """The arguments of each call in turn, as (args, kwargs)."""\n'
        f"    return [\n{''.join(lines)}    ]\n"
    )


def _target(target: Target) -> str:
    given = [
        f"    {field.name}={_quoted(getattr(target, field.name))},\n"
        for field in fields(target)
        if getattr(target, field.name) != field.default
    ]
    return f"Target(\n{''.join(given)})"


def _own(side: Side, other: Side | None) -> dict[str, str]:
    """The texts that differ between the sides or are the target's own; the rest is on the disk."""
    theirs = dict(other.texts) if other is not None else {}
    own = os.path.realpath(side.target.file) if side.target.file else None
    return {
        path: text for path, text in side.texts if path == own or theirs.get(path, text) != text
    }


def _texts(texts: dict[str, str]) -> str:
    """Files as literals, a line of source to a line."""
    parts = []
    for path, text in texts.items():
        lines = "".join(f"        {_quoted(line)}\n" for line in text.splitlines(keepends=True))
        parts.append(f"    {_quoted(path)}: (\n{lines or repr('')}    ),\n")
    return f"{{\n{''.join(parts)}}}"


def _run(how: Probe, difference: Difference, names: Sequence[str]) -> str:
    options = {
        "mode": how.mode,
        "kind": difference.kind.value if how.rewritten is not None else None,
        "backend": how.backend if how.compiled else None,
        "dynamic": how.spec.dynamic,
        "device": how.spec.device if how.spec.device != "cpu" else None,
        "dtype": how.spec.dtype,
    }
    given = "".join(
        f"            {name}={_quoted(value)},\n"
        for name, value in options.items()
        if value is not None
    )
    function = "reproduce" if how.rewritten is not None else "reproduce_failure"
    places = "".join(f"            {name},\n" for name in names)
    return f"        {function}(\n{places}{given}        )\n"


def _quoted(value: object) -> str:
    """A literal, with double quotes where Python would choose single ones."""
    if type(value) is tuple:
        return f"({', '.join(map(_quoted, value))}{',' if len(value) == 1 else ''})"
    text = repr(value)
    single = isinstance(value, str) and text[0] == "'" and '"' not in text
    return f'"{text[1:-1]}"' if single else text
