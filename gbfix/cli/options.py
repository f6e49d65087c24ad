"""The options that `check` and `apply` share.

It knows how options are spelled, and nothing of what a run does.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from gbfix.cli import completing
from gbfix.cli.requests import STDIN, Request, parse_at, request
from gbfix.errors import UserError
from gbfix.settings import Branch, CheckStyle, Region, SideEffects

__all__ = ["STDIN", "Request", "parse_at", "request"]


class OutputFormat(str, Enum):
    """What a command prints."""

    TEXT = "text"
    JSON = "json"


Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATHS", help="Files and folders, or - for standard input.", show_default="."
    ),
]
Select = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SELECTORS",
        autocompletion=completing.selectors,
        help="Codes, prefixes of codes, or names of diagnoses or transforms, with commas between.",
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SELECTORS",
        autocompletion=completing.selectors,
        help="What to leave out, named as in --select.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERNS", help="Patterns, as in .gitignore, of files and folders to leave out."
    ),
]
SafeOnly = Annotated[bool, typer.Option("--safe-only", help="Only take fixes that are safe.")]
Unsafe = Annotated[bool, typer.Option("--unsafe", help="Take fixes that are unsafe, too.")]
ConfigOption = Annotated[
    bool | None,
    typer.Option(
        "--config/--no-config",
        help="Also make settings of Dynamo (capture_scalar_outputs, capture_dynamic_output_shape_ops) "
        "where nothing else helps.",
    ),
]
RegionOption = Annotated[
    Region | None,
    typer.Option(
        "--region",
        help="Which functions run under torch.compile, with all that they call: what is decorated with "
        "it or passed to it (compile), every forward of a module (forward), every function (all), or "
        "what the project says of itself (auto, the default).",
    ),
]
BranchOption = Annotated[
    Branch | None,
    typer.Option(
        "--branch",
        help="What a branch on a tensor becomes: torch.cond, torch.where, or where for arms that are "
        "cheap (auto, the default).",
    ),
]
CheckOption = Annotated[
    CheckStyle | None,
    typer.Option(
        "--check-style",
        help="What a validation becomes in the compiled path: a check in the graph (assert, the "
        "default) or nothing (skip).",
    ),
]
SideEffectsOption = Annotated[
    SideEffects | None,
    typer.Option(
        "--side-effects",
        help="What becomes of prints, logs and warnings in the compiled path: they are dropped (the "
        "default), kept by leaving the graph, or left to Dynamo's own settings (config).",
    ),
]
FixWith = Annotated[
    list[str] | None,
    typer.Option(
        "--fix-with",
        metavar="FIXES",
        autocompletion=completing.fixes,
        help="Prefer these fixes to others; some, such as custom-op, are only made on request.",
    ),
]
Format = Annotated[OutputFormat, typer.Option("--output-format", help="How to print results.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, metavar="N", help="Processes to use; all if not given."),
]


def processes(jobs: int | None) -> int:
    """How many processes may work."""
    return jobs or os.cpu_count() or 1


CACHE = ".gbfix_cache"
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Neither use nor keep what earlier runs found.")
]
CacheDir = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where to keep what was found.", show_default=CACHE),
]
TraceFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Only sites that broke in this trace (of `gbfix trace`, TORCH_TRACE or TORCH_LOGS), "
        "those that cost most first; may be given several times.",
    ),
]
StdinFilename = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The name of the file that comes from standard input."),
]
Gitignore = Annotated[
    bool | None,
    typer.Option("--respect-gitignore/--no-respect-gitignore", help="Whether .gitignore counts."),
]
TargetTorch = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION",
        help="The torch version that the code is for, such as 2.13, or `any`; what no longer breaks "
        "there is not reported. Default: the installed one.",
    ),
]


def cache_folder(request: Request, no_cache: bool, cache_dir: Path | None) -> Path | None:
    """Where what is found is kept; None if it is not.

    Raises:
        UserError: if the folder that was named is a file.
    """
    if no_cache:
        return None
    if cache_dir is not None and cache_dir.exists() and not cache_dir.is_dir():
        raise UserError(f"`--cache-dir {cache_dir}` is not a folder.")
    return cache_dir or request.exclude_root / CACHE
