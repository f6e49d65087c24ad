"""The examples that `--help` ends with, by command. Every line of them is a command line."""

from __future__ import annotations

EXAMPLES = {
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
    "explain": (("A diagnosis or a fix", "gbfix explain GBF101"),),
}


def epilog(command: str) -> str:
    """The examples of a command, as click prints them without filling lines."""
    lines = ["Examples:"]
    for what, example in EXAMPLES[command]:
        lines += [f"  {what}:", f"    {example}"]
    return "\b\n" + "\n".join(lines)
