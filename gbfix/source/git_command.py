"""Runs git in a folder and reads what it prints.

Knows how git is called and how it fails, nothing of what is asked of it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


class GitError(Exception):
    """Git could not be run, or has failed; the message is the first line that it says."""


def run_git(
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> bytes:
    """What a git command prints, with the names of files as they are.

    Args:
        folder: where it is run.
        arguments: what git is told.
        environment: variables to be set for it.
        given: what it reads from standard input.

    Raises:
        GitError: if it is not there, or fails.
    """
    command = ["git", "-C", str(folder), "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            input=given,
            env={**os.environ, **(environment or {})},
        )
    except OSError:
        raise GitError("git could not be run") from None
    if done.returncode:
        said = os.fsdecode(done.stderr).strip().splitlines()
        raise GitError(f"git {arguments[0]}: {said[0].rstrip('.') if said else 'it failed'}")
    return done.stdout
