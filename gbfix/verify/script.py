"""Writes the script that shows a difference: both versions, the arguments of the calls, the way to run.

It is text only; `gbfix.verify.reproduce` is what the script uses to run.
"""

from __future__ import annotations

import os
from dataclasses import fields

from gbfix import __version__
from gbfix.verify.probing import Probe
from gbfix.verify.recipes import CallRecipe, Inputs
from gbfix.verify.targets import Side, Target
from gbfix.verify.verdict import Difference

_HEAD = '''\
"""Shows how a rewritten version of `{name}` differs from the original.

{difference}

Written by gbfix {version}. Needs torch and gbfix. Exits with 1 while the difference shows, else with 0.
"""

import sys
{imports}
from gbfix.verify.reproduce import Target, reproduce

'''


def script(
    how: Probe, difference: Difference, inputs: Inputs, calls: tuple[CallRecipe, ...]
) -> str:
    """The text of the script; `calls` are the arguments if they have literals."""
    head = _HEAD.format(
        name=how.original.target.name,
        difference=_sentence(str(difference)),
        version=__version__,
        imports="\nimport torch\n" if calls else "",
    )
    parts = [head, _calls(inputs, calls), "\n\n"]
    parts += [f"TARGET = {_target(how.original.target)}\n"]
    if how.rewritten.target != how.original.target:
        parts += [f"REWRITTEN = {_target(how.rewritten.target)}\n"]
    parts += ["\n# Both versions, line by line; other files are read from where they are.\n"]
    before, after = _own(how.original, how.rewritten), _own(how.rewritten, how.original)
    parts += [f"BEFORE = {_texts(before)}\nAFTER = {_texts(after)}\n"]
    parts += ['\nif __name__ == "__main__":\n', f"    sys.exit(\n{_run(how, difference)}    )\n"]
    return "".join(parts)


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


def _own(side: Side, other: Side) -> dict[str, str]:
    """The texts that differ between the sides or are the target's own; the rest is on the disk."""
    theirs = dict(other.texts)
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


def _run(how: Probe, difference: Difference) -> str:
    rewritten = "REWRITTEN" if how.rewritten.target != how.original.target else "TARGET"
    options = {
        "mode": how.mode,
        "kind": difference.kind.value,
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
    sides = (
        f"            TARGET,\n            BEFORE,\n            {rewritten},\n            AFTER,\n"
    )
    return f"        reproduce(\n{sides}            CALLS,\n{given}        )\n"


def _quoted(value: object) -> str:
    """A literal, with double quotes where Python would choose single ones."""
    if type(value) is tuple:
        return f"({', '.join(map(_quoted, value))}{',' if len(value) == 1 else ''})"
    text = repr(value)
    single = isinstance(value, str) and text[0] == "'" and '"' not in text
    return f'"{text[1:-1]}"' if single else text
