"""Write the pages under `docs/` and the examples in README.md from the code.

    python scripts/generate_docs.py            # write what has changed
    python scripts/generate_docs.py --check    # exit 1 if anything would change

Diagnoses come from `gbfix.diagnoses`, fixes from the docstrings of the transforms, and reason codes
from the refusals in the source. In README.md the commands in `console` blocks are run on the example
files of the README, and their output is put in place.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gbfix.diagnoses import DIAGNOSES, Diagnosis
from gbfix.fixes import Transform
from gbfix.registry import transforms

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # run as a script, this folder alone is on the path

from scripts import remedies  # noqa: E402
from scripts.reasons import Reason, reasons  # noqa: E402

README = ROOT / "README.md"
NOTE = "<!-- Written by scripts/generate_docs.py; do not edit. -->"
REGISTRY = "https://meta-pytorch.github.io/compile-graph-break-site/gb/{}.html"

_FILE = re.compile(r"<!-- file: (?P<name>\S+) -->\n```python\n(?P<text>.*?)```\n", re.S)
_AFTER = re.compile(r"(?<=<!-- after: )(\S+)( -->\n```python\n)(?:.*?)(?=```\n)", re.S)
_CONSOLE = re.compile(r"(?<=```console\n)\$ gbfix ([^\n]*)\n(?:.*?)(?=```\n)", re.S)
_BREAKS = re.compile(r"(?<=<!-- breaks -->\n).*?(?=<!-- /breaks -->)", re.S)
_RULES = re.compile(r"(?<=<!-- rules -->\n).*?(?=<!-- /rules -->)", re.S)


# Docstrings


@dataclass(frozen=True)
class Block:
    """A paragraph of a docstring, or an indented block of code in it."""

    text: str
    is_code: bool


def blocks(docstring: str) -> list[Block]:
    """The paragraphs and code blocks of a docstring; blank lines inside code belong to it."""
    found: list[Block] = []
    chunks: list[str] = []
    for chunk in re.split(r"\n{2,}(?=\S)|(?<=:)\n\n(?= )", inspect.cleandoc(docstring)):
        if chunks and chunks[-1].startswith("    ") and chunk.startswith("    "):
            chunks[-1] += f"\n\n{chunk}"  # a blank line below a header inside of the code
        else:
            chunks.append(chunk)
    for chunk in chunks:
        is_code = chunk.startswith("    ")
        text = "\n".join(line[4:] for line in chunk.splitlines()) if is_code else chunk
        found.append(Block(text.strip("\n"), is_code))
    return found


def docstring_of(transform: Transform) -> str:
    """The docstring of the module that defines a transform."""
    return importlib.import_module(transform.propose.__module__).__doc__ or ""


# Pages


def pages() -> dict[Path, str]:
    """All generated files under `docs/`."""
    docs = ROOT / "docs"
    found = {docs / "rules.md": _rules_page(), docs / "reason-codes.md": _reasons_page()}
    found[docs / "remedies.md"] = _page(remedies.page())
    for diagnosis in DIAGNOSES.values():
        found[docs / "diagnoses" / f"{diagnosis.code}.md"] = _diagnosis_page(diagnosis)
    for transform in transforms():
        found[docs / "fixes" / f"{transform.name}.md"] = _fix_page(transform)
    return found


def _page(*parts: str) -> str:
    return "\n\n".join((NOTE, *parts)) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _rules_table(docs: str) -> str:
    rows = [
        [
            f"[{item.code}]({docs}diagnoses/{item.code}.md) `{item.name}`",
            item.summary,
            ", ".join(
                f"[{transform.name}]({docs}fixes/{transform.name}.md)"
                for transform in transforms()
                if item.code in transform.codes
            )
            or "reported only",
        ]
        for item in DIAGNOSES.values()
    ]
    return _table(["diagnosis", "what it is", "fixes"], rows)


def _rules_page() -> str:
    fixes = _table(
        ["fix", "what it does", "for"],
        [
            [f"[{item.name}](fixes/{item.name}.md)", item.summary, ", ".join(item.codes)]
            for item in transforms()
        ],
    )
    return _page(
        "# Diagnoses and fixes",
        "`gbfix rules` prints this table, `gbfix explain GBF101` or `gbfix explain cond` a page.",
        _rules_table(""),
        "Where several fixes are possible, the first of this list is taken that is safe enough.",
        fixes,
    )


def _diagnosis_page(diagnosis: Diagnosis) -> str:
    fixes = [t for t in transforms() if diagnosis.code in t.codes]
    listed = [f"- [{t.name}](../fixes/{t.name}.md): {t.summary}" for t in fixes]
    own = ", ".join(f"[{key}]({REGISTRY.format(key.lower())})" for key in diagnosis.registry)
    return _page(
        f"# {diagnosis.code} {diagnosis.name}",
        f"{_sentence(diagnosis.summary)}",
        "## Why it breaks the graph",
        diagnosis.explanation,
        f"PyTorch's own names for it: {own}.",
        "## Fixes",
        "\n".join(listed) or "None yet.",
        "## Silence it",
        f"On one line: `# gbfix: ignore[{diagnosis.code}] reason`. Everywhere: "
        f'`--ignore {diagnosis.name}`, or `ignore = ["{diagnosis.code}"]` under `[tool.gbfix]`.',
    )


def _fix_page(transform: Transform) -> str:
    codes = [
        f"[{code}](../diagnoses/{code}.md) `{DIAGNOSES[code].name}`" for code in transform.codes
    ]
    parts = [
        f"```python\n{block.text}\n```" if block.is_code else block.text
        for block in blocks(docstring_of(transform))
    ]
    own = Path(inspect.getfile(transform.propose)).resolve()
    given = [reason for reason in reasons() if reason.path.resolve() == own]
    listed = [f"- `{code}`: {'; '.join(said)}" for code, said in _by_code(given).items()]
    shared = "are in [reason codes](../reason-codes.md)."
    if listed:
        listed = ["\n".join(listed), f"More codes, which several fixes share, {shared}"]
    else:
        listed = [f"Its reasons, which other fixes share, {shared}"]
    return _page(
        f"# {transform.name}",
        f"Treats {', '.join(codes)}.",
        *parts,
        "## Where it is refused",
        *listed,
    )


def _reasons_page() -> str:
    names = {Path(inspect.getfile(t.propose)).resolve(): t.name for t in transforms()}
    found = reasons()
    rows = []
    for code, said in _by_code(found).items():
        by = {names.get(reason.path.resolve(), "shared") for reason in found if reason.code == code}
        sentences = "<br>".join(text.replace("|", "\\|") for text in said)
        rows.append([f"`{code}`", "shared" if "shared" in by else ", ".join(sorted(by)), sentences])
    return _page(
        "# Reason codes",
        "A site that is found and not fixed says for each fix why. The codes are stable; the "
        "sentences may change. An ellipsis stands for what the sentence names.",
        _table(["code", "given by", "sentences"], rows),
    )


def _by_code(given: Sequence[Reason]) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for reason in given:
        sentences = said.setdefault(reason.code, [])
        if reason.sentence not in sentences:
            sentences.append(reason.sentence)
    return said


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


# README


def readme(text: str) -> str:
    """README.md with the rewritten examples, the output of its commands and the table renewed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for found in _FILE.finditer(text):
            (folder / found["name"]).write_text(found["text"], encoding="utf-8")
        text = _CONSOLE.sub(lambda m: f"$ gbfix {m[1]}\n{_output(folder, m[1].split())}", text)
        text = _AFTER.sub(lambda m: f"{m[1]}{m[2]}{_rewritten(folder / m[1])}", text)
    text = _BREAKS.sub(lambda _: _breaks_table(), text)
    return _RULES.sub(lambda _: _rules_table("docs/") + "\n", text)


def _breaks_table() -> str:
    """The sums of the table of breaks that was measured last, by what removes them."""
    measured = (ROOT / "benchmarks" / "results" / "break_table.md").read_text(encoding="utf-8")
    lines = [line for line in measured.splitlines() if line.startswith("|")]
    total = next(line for line in lines if "**total**" in line)
    names, sums = ([cell.strip() for cell in line.split("|")[2:6]] for line in (lines[0], total))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (names, ["---"] * 4, sums))


def _output(folder: Path, arguments: Sequence[str]) -> str:
    command = [sys.executable, "-m", "gbfix", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "\n".join(filter(None, (done.stdout, done.stderr)))


def _rewritten(path: Path) -> str:
    before = path.read_text(encoding="utf-8")
    _output(path.parent, ["apply", path.name])
    after = path.read_text(encoding="utf-8")
    path.write_text(before, encoding="utf-8")
    return after


def main() -> int:
    """Write the pages, or compare them; 1 if `--check` finds a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    wanted = pages() | {README: readme(README.read_text(encoding="utf-8"))}
    generated = [
        *(ROOT / "docs" / "diagnoses").glob("*.md"),
        *(ROOT / "docs" / "fixes").glob("*.md"),
    ]
    stale = [path for path in generated if path not in wanted]
    changed = [
        path
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in [*changed, *stale]:
        done = "is out of date" if check else "written" if path in wanted else "removed"
        print(f"{path.relative_to(ROOT)} {done}", file=sys.stderr)
    if check:
        return int(bool(changed or stale))
    for path in stale:
        path.unlink()
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
