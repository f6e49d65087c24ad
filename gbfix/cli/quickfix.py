"""`gbfix quickfix`: the code actions for one place, for editors and scripts.

This is how its options are spelled and explained; `quickfixing` does what they ask for.
"""

from __future__ import annotations

from typing import Annotated

import typer

from gbfix.cli import options
from gbfix.cli.quickfixing import Asked, QuickfixFormat, answer

Where = Annotated[
    str,
    typer.Argument(
        metavar="FILE:LINE[:COL]",
        help="The place, counted from 1; -:LINE for a buffer on standard input.",
    ),
]
Apply = Annotated[
    int | None,
    typer.Option(
        "--apply",
        min=1,
        metavar="N",
        help="Make action N: write the file, or print the buffer from standard input.",
    ),
]
Format = Annotated[QuickfixFormat, typer.Option("--format", help="How to print the actions.")]


def quickfix(
    place: Where,
    output_format: Format = QuickfixFormat.TEXT,
    apply: Apply = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    region: options.RegionOption = None,
    branch: options.BranchOption = None,
    check_style: options.CheckOption = None,
    stdin_filename: options.StdinFilename = None,
) -> None:
    """List the code actions for one place, with the text edits that make them.

    Lines and columns of edits are those of the Language Server Protocol: from 0, columns in UTF-16
    code units. Exits with 0 if there are actions, 1 if there are none, 2 on errors.
    """
    asked = Asked(
        place,
        output_format,
        apply,
        tuple(select or ()),
        tuple(ignore or ()),
        region,
        branch,
        check_style,
        stdin_filename,
    )
    raise typer.Exit(answer(asked))
