"""Which diagnoses a run leaves out, since the torch that it is for no longer breaks there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gbfix.dynamo.installed import torch_version
from gbfix.dynamo.known import has_version, known
from gbfix.errors import UserError

ANY = "any"


@dataclass(frozen=True)
class Target:
    """The codes that break no more, and a notice if nothing is known of the version asked for."""

    quiet: frozenset[str]
    notice: str | None = None


def target(asked: str | None, probes: Mapping[str, str]) -> Target:
    """What is known of the version asked for or, with None, of the one that is installed.

    `any` stands for no version in particular, on which everything breaks. Torch is not imported.

    Raises:
        UserError: for what is no version.
    """
    if asked == ANY:
        return Target(frozenset())
    if asked is not None and not re.match(r"\d+\.\d+", asked):
        raise UserError(f"`{asked}` is no version of torch, such as 2.13, nor `{ANY}`.")
    version = asked or torch_version()
    if version is None:
        return Target(frozenset())
    quiet = frozenset(code for code, breaks in known(version, probes).items() if not breaks)
    if asked is not None and not has_version(asked):
        return Target(quiet, f"nothing is known of torch {asked}, so every diagnosis is reported")
    return Target(quiet)
