"""The fixes as a codemod of libcst, for those who run everything through its runner.

    python -m libcst.tool codemod -x --no-format gbfix.codemod.FixGraphBreaks src/

Without `--no-format` the runner has black format every changed file, and fails where there is none.
It is `fix_source` behind libcst's interface, and may know nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import libcst as cst
from libcst.codemod import CodemodCommand, CodemodContext, SkipFile

from gbfix.api import fix_source
from gbfix.errors import UserError
from gbfix.findings import Safety
from gbfix.settings import Settings

__all__ = ["FixGraphBreaks"]


class FixGraphBreaks(CodemodCommand):
    """Rewrite the places where `torch.compile` would break the graph."""

    DESCRIPTION: str = "Rewrite the places where torch.compile would break the graph."

    def __init__(
        self,
        context: CodemodContext,
        safe_only: bool = False,
        unsafe: bool = False,
        select: Sequence[str] = (),
    ) -> None:
        super().__init__(context)
        safety = Safety.SAFE if safe_only else Safety.UNSAFE if unsafe else Safety.REVIEW
        self.settings = Settings(safety=safety, select=tuple(select))

    @staticmethod
    def add_args(arg_parser: argparse.ArgumentParser) -> None:
        """Declare the options, which mean what they mean to `gbfix apply`."""
        trust = arg_parser.add_mutually_exclusive_group()
        trust.add_argument("--safe-only", action="store_true", help="only take fixes that are safe")
        trust.add_argument("--unsafe", action="store_true", help="take fixes that are unsafe, too")
        arg_parser.add_argument("--select", action="append", default=[], help="codes or names")

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        """The module after all fixes; the same tree where there are none.

        Raises:
            SkipFile: if gbfix cannot read the module.
        """
        try:
            fixed = fix_source(
                tree.code, self.context.filename or "<string>", settings=self.settings
            )
        except UserError as error:
            raise SkipFile(str(error)) from error
        if not fixed.changed:
            return tree
        config = cst.PartialParserConfig(encoding=tree.encoding)
        return cst.parse_module(fixed.source, config)
