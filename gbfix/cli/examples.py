"""What `--help` shows besides options, by command: usage, one line, and examples."""

from __future__ import annotations

# What stands behind the name of a command and its options.
USAGE = {
    "check": "[PATHS]...",
    "apply": "[PATHS]...",
    "quickfix": "FILE:LINE[:COL]",
    "verify": "TARGET...",
    "migrate": "[DIR]",
    "run": "[--] SCRIPT [ARGS]... | -m MODULE [ARGS]...",
    "trace": "[--] PROGRAM [ARGS]... | -m MODULE [ARGS]... | --pytest [ARGS]...",
    "explain": "CODE",
}
# Short enough for the list of commands, which would cut off more.
SUMMARIES = {
    "check": "List the places where the graph would break.",
    "apply": "Fix them, or show the fixes as a diff.",
    "quickfix": "List or make the fixes of one place, for an editor.",
    "server": "Serve an editor (Language Server Protocol).",
    "verify": "Run original and rewritten code and compare them.",
    "migrate": "Rewrite a whole codebase, with a report and an undo.",
    "run": "Run a program with the fixes applied in memory.",
    "trace": "Run a program and record where its graphs break.",
    "rules": "List all diagnoses and fixes.",
    "explain": "Explain a diagnosis, a fix or an entry of PyTorch's registry.",
    "doctor": "Say which torch is here, and what breaks on it.",
}
EXAMPLES = {
    "": (
        ("List the places where the graph would break", "gbfix check src/"),
        ("Show how they would be fixed", "gbfix apply --diff src/"),
        ("Fix them", "gbfix apply src/"),
        ("Fix what is proven by running it", "gbfix apply --verify model.py"),
        ("Say what a code means", "gbfix explain GBF101"),
    ),
    "check": (
        ("List the break sites of a folder", "gbfix check src/"),
        ("Only on lines that a branch changed", "gbfix check --diff-base origin/main"),
        ("For a code scanning service", "gbfix check --output-format sarif src/"),
        ("Let an old code base start green", "gbfix check --baseline base.json --write-baseline"),
    ),
    "apply": (
        ("Show the fixes as a patch", "gbfix apply --diff model.py"),
        ("Make them", "gbfix apply model.py"),
        (
            "Only those that are safe, and only branches",
            "gbfix apply --safe-only --select GBF101 src/",
        ),
        ("Only at one place", "gbfix apply model.py --at 12"),
        ("Only what was verified by running", "gbfix apply --verify model.py"),
    ),
    "quickfix": (
        ("The actions for a line", "gbfix quickfix model.py:12"),
        ("As JSON, for an editor", "gbfix quickfix model.py:12:9 --format json"),
        ("For a buffer", "gbfix quickfix -:12 --stdin-filename model.py --format json"),
        ("Make the first", "gbfix quickfix model.py:12 --apply 1"),
    ),
    "server": (("In an editor's configuration", "gbfix server"),),
    "verify": (
        ("What gbfix would write, against what stands there", "gbfix verify model.py"),
        ("One class", "gbfix verify model.py:Block"),
    ),
    "migrate": (
        ("Everything that can be verified by running", "gbfix migrate src/"),
        ("With the entries and inputs of a trace", "gbfix migrate src/ --trace trace.json"),
        ("Without running anything, only what is safe", "gbfix migrate src/ --no-verify"),
        ("With reports", "gbfix migrate src/ --report report.html --summary summary.md"),
        ("As a branch", "gbfix migrate src/ --branch fullgraph --commit-by package"),
        ("Take it back", "gbfix migrate src/ --undo"),
    ),
    "run": (
        ("A script, with its arguments", "gbfix run train.py --lr 0.1"),
        ("Only one installed package", "gbfix run --only transformers.models.bart train.py"),
        ("Keep the fixes as a patch", "gbfix run --write-patch fixes.patch train.py"),
    ),
    "trace": (
        ("A script, with its arguments", "gbfix trace -- train.py --lr 0.1"),
        ("A module", "gbfix trace -m package.train"),
        ("The calls of the tests", "gbfix trace --pytest tests/"),
        ("What was recorded", "gbfix trace --read .gbfix/trace.json"),
        ("Then only list what really broke", "gbfix check --trace .gbfix/trace.json src/"),
    ),
    "rules": (("All diagnoses with their fixes", "gbfix rules"),),
    "explain": (
        ("A diagnosis", "gbfix explain GBF101"),
        ("A fix", "gbfix explain cond"),
        ("An entry of PyTorch's registry, as Dynamo's messages name it", "gbfix explain GB0170"),
    ),
    "doctor": (
        ("What breaks on the torch that is installed", "gbfix doctor"),
        ("For a program", "gbfix doctor --output-format json"),
    ),
}


def epilog(command: str) -> str:
    """The examples of a command, as click prints them without filling lines."""
    lines = ["Examples:"]
    for what, example in EXAMPLES.get(command, ()):
        lines += [f"  {what}:", f"    {example}"]
    return "\b\n" + "\n".join(lines)
