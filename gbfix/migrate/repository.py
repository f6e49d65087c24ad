"""What a migration asks of git: which files have uncommitted changes, and a branch with commits.

Commits are made beside the working tree and its index, and the branch appears with all of them at once,
so that being interrupted leaves nothing behind, and making them again makes the same. Hooks do not run.
The module knows git and bytes, nothing of the journal.
"""

from __future__ import annotations

import ast
import difflib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gbfix.errors import UserError
from gbfix.migrate import git
from gbfix.migrate.outcome import Commit, MigratedFile

State = dict[str, Any]


@dataclass(frozen=True)
class Committed:
    """The branch and its commits; or no branch, and why."""

    branch: str | None = None
    commits: tuple[Commit, ...] = ()
    notices: tuple[str, ...] = ()


def refuse_uncommitted(root: Path, paths: Sequence[Path]) -> None:
    """See that the files to be written have no changes that git does not know.

    Raises:
        UserError: if some have, naming them, or git cannot say. Outside of a repository there is
            nothing to see.
    """
    if not paths:
        return
    try:
        base = git.top(root)
        if base is None:
            return
        listed = git.run(
            root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", "."
        )
    except UserError as error:
        raise UserError(
            f"whether files have uncommitted changes is not known, since {error} Nothing was "
            "written (--force writes all the same)."
        ) from None
    dirty = {os.path.realpath(base / os.fsdecode(e[3:])) for e in listed.split(b"\0") if e}
    found = [os.path.relpath(path, root) for path in paths if os.path.realpath(path) in dirty]
    if found:
        shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        has = "has" if len(found) == 1 else "have"
        raise UserError(
            f"{shown} {has} uncommitted changes; nothing was written (--force writes all the same)."
        )


def check_new_branch(root: Path, name: str) -> None:
    """See that a branch can be made.

    Raises:
        UserError: if there is no repository or no commit, or it has the branch, or the name is none.
    """
    if git.top(root) is None:
        raise UserError(f"`--branch` needs a git repository, and {root} is in none.")
    if not git.works(root, "check-ref-format", "--branch", name) or name.startswith("-"):
        raise UserError(f"`{name}` is no name of a branch.")
    if not git.works(root, "rev-parse", "--verify", "--quiet", "HEAD"):
        raise UserError("`--branch` needs a repository with a commit.")
    if git.works(root, "rev-parse", "--verify", "--quiet", f"refs/heads/{name}"):
        raise UserError(f"there is a branch `{name}` already.")
    # Commits are made last, and could fail for want of it.
    git.run(root, "var", "GIT_COMMITTER_IDENT")


def state(root: Path, branch: str, commit_by: str | None) -> State:
    """What the branch will start from, to be kept with the plan."""
    head = git.run(root, "rev-parse", "HEAD").decode().strip()
    date = git.run(root, "show", "-s", "--format=%ct", "HEAD").decode().strip()
    return {"branch": branch, "by": commit_by, "head": head, "on": _on(root), "date": date}


def commit(
    root: Path,
    place: State,
    files: Sequence[MigratedFile],
    contents: Mapping[str, tuple[bytes, ...]],
) -> Committed:
    """Make the branch with its commits and switch to it; doing it twice is as doing it once.

    Args:
        root: the folder that paths are relative to.
        place: what `state` gave.
        files: those that were written.
        contents: of each file, what it was and what it is.
    """
    branch = str(place["branch"])
    reference = f"refs/heads/{branch}"
    now = git.run(root, "rev-parse", "HEAD").decode().strip()
    tip = str(place["head"])
    made: list[Commit] = []
    for subject, texts in _groups(files, contents, place["by"]):
        tip = _commit(root, tip, subject, texts, str(place["date"]))
        made.append(Commit(tip, subject, tuple(texts)))
    if not made:
        return Committed()
    if now not in (place["head"], tip):
        sentence = f"the repository has moved on, so branch `{branch}` was not made."
        return Committed(notices=(sentence,))
    git.update(root, reference, "update-ref", reference, tip)
    git.update(root, "HEAD", "symbolic-ref", "HEAD", reference)
    git.reset(root, [file.path for file in files])
    return Committed(branch, tuple(made))


def leave_branch(root: Path, place: State, paths: Sequence[str]) -> None:
    """Go back to where the branch was made from, if the repository is still on it.

    Raises:
        UserError: if git does not let it.
    """
    if _on(root) == f"refs/heads/{place['branch']}":
        if place["on"]:
            git.update(root, "HEAD", "symbolic-ref", "HEAD", str(place["on"]))
        else:
            git.update(root, "HEAD", "update-ref", "--no-deref", "HEAD", str(place["head"]))
    if _on(root) == str(place["on"]):
        git.reset(root, paths)


def _on(root: Path) -> str:
    """The reference that HEAD stands for; nothing if it is detached."""
    try:
        return git.run(root, "symbolic-ref", "--quiet", "HEAD").decode().strip()
    except UserError:
        return ""


def _groups(
    files: Sequence[MigratedFile], contents: Mapping[str, tuple[bytes, ...]], by: str | None
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Subjects of commits, and what files have after each."""
    if by == "diagnosis":
        yield from _by_diagnosis(files, contents)
    elif by == "package":
        for package in sorted({file.package for file in files}):
            own = {f.path: contents[f.path][1] for f in files if f.package == package}
            yield f"Remove graph breaks in {package or 'the project'}", own
    elif files:
        yield "Remove graph breaks", {file.path: contents[file.path][1] for file in files}


def _by_diagnosis(
    files: Sequence[MigratedFile], contents: Mapping[str, tuple[bytes, ...]]
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """One commit for each diagnosis; a change that serves several goes with the first of them."""
    names = {s.code: s.name for f in files for s in f.sites if s.fix is not None}
    steps = {file.path: _steps(file, *contents[file.path]) for file in files}
    for code in sorted(names):
        own = {path: by_code[code] for path, by_code in steps.items() if code in by_code}
        if own:
            yield f"{code}: remove graph breaks by {names[code]}", own


def _steps(file: MigratedFile, before: bytes, after: bytes) -> dict[str, bytes]:
    """What a file has after the fixes of each diagnosis; only the last if they cannot be told apart."""
    fixed = sorted((site.line, site.code) for site in file.sites if site.fix is not None)
    codes = sorted({code for _, code in fixed})
    if not codes:
        return {}
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    hunks = [
        op
        for op in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if op[0] != "equal"
    ]
    owner = [
        codes[0]
        if hunk[2] < fixed[0][0] - 1  # imports and helpers at the top serve all
        else min(fixed, key=lambda f: (max(hunk[1] + 1 - f[0], f[0] - hunk[2], 0), f))[1]
        for hunk in hunks
    ]
    steps: dict[str, bytes] = {}
    for number, code in enumerate(codes):
        pieces, at = [], 0
        for hunk, own in zip(hunks, owner, strict=True):
            _, i1, i2, j1, j2 = hunk
            if own in codes[: number + 1]:
                pieces += [*old[at:i1], *new[j1:j2]]
                at = i2
        content = b"".join([*pieces, *old[at:]])
        try:
            ast.parse(content)
        except (SyntaxError, ValueError):
            return {codes[0]: after}
        steps[code] = content
    return steps


def _commit(root: Path, parent: str, subject: str, texts: Mapping[str, bytes], date: str) -> str:
    base = git.top(root)
    assert base is not None
    folder = Path(os.path.realpath(root))
    with tempfile.TemporaryDirectory(prefix="gbfix-index-") as scratch:
        environment = {"GIT_INDEX_FILE": str(Path(scratch, "index"))}
        # The same commit has to come out if it is made again.
        environment |= {"GIT_AUTHOR_DATE": f"{date} +0000", "GIT_COMMITTER_DATE": f"{date} +0000"}
        git.run(root, "read-tree", parent, environment=environment)
        lines = []
        for path, content in texts.items():
            name = os.path.relpath(os.path.realpath(folder / path), os.path.realpath(base))
            name = name.replace(os.sep, "/")
            blob = git.run(base, "hash-object", "-w", "--stdin", "--path", name, given=content)
            mode = git.run(
                base, "ls-files", "-s", "--", f":(literal){name}", environment=environment
            )
            mode = mode.split(b" ", 1)[0] if mode else b"100644"
            lines.append(b"%s %s\t%s\0" % (mode, blob.strip(), os.fsencode(name)))
        git.run(
            base,
            "update-index",
            "-z",
            "--add",
            "--index-info",
            environment=environment,
            given=b"".join(lines),
        )
        tree = git.run(root, "write-tree", environment=environment).decode().strip()
        done = git.run(
            root, "commit-tree", tree, "-p", parent, "-m", subject, environment=environment
        )
        return done.decode().strip()
