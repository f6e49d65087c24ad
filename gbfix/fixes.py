"""What a transform is and what it makes: fixes as edits, with safety and reasons.

A transform is a module in `transforms/` that names itself and offers `propose`. This module is the
contract between the engine, which knows nothing of torch, and the transforms, which know nothing of
files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.decorators import compiled_directly
from gbfix.analysis.dynamo_settings import DynamoSetting
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.liveness import Liveness
from gbfix.analysis.parameter_values import presumed, presumed_arrays
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.sites import find_sites
from gbfix.analysis.trees import walk
from gbfix.codegen import settings
from gbfix.codegen.imports import check_import, torch_name
from gbfix.codegen.names import Names
from gbfix.codegen.view import View
from gbfix.diagnoses import TENSOR_BRANCH
from gbfix.findings import FixOffer, Safety
from gbfix.settings import Settings
from gbfix.source.text import Edit

__all__ = ["Context", "Fix", "NotApplicable", "Refused", "Transform", "setting_fix"]

_TENSOR_DATA = "GBF1"
"""With this begin the codes of breaks at what tensors hold."""


@dataclass
class Context:
    """Everything that a transform may ask about the function that a site stands in."""

    facts: Facts
    view: View
    analysis: Analysis
    settings: Settings
    names: Names
    original: str = ""
    needs_torch: bool = field(default=False, init=False)

    @classmethod
    def of(
        cls, analysis: Analysis, facts: Facts, settings: Settings, view: View, original: str
    ) -> Context:
        """The context of one function; `original` is the file's text before the run."""
        info = analysis.info
        return cls(facts, view, analysis, settings, Names(info), original)

    @property
    def info(self) -> FunctionInfo:
        """The function."""
        return self.analysis.info

    @cached_property
    def liveness(self) -> Liveness:
        """Which names are read later."""
        return Liveness(self.info.node)

    @cached_property
    def sites(self) -> list[BreakSite]:
        """The break sites of the function, in source order."""
        return find_sites(self.analysis, self.facts)

    @property
    def only_compiled(self) -> bool:
        """Whether the function carries `@torch.compile` itself and has no eager path to keep."""
        return compiled_directly(self.info)

    def presumed(self, site: BreakSite) -> tuple[list[str], list[str]]:
        """Parameters read from a site on that are only taken to be tensors.

        They could be numbers, where a branch decides between them, or arrays of numpy.
        """
        first = site.statement.lineno
        read = {
            node.id
            for node in walk(self.info.node)
            if isinstance(node, ast.Name) and node.lineno >= first
        }
        arrays: frozenset[str] = frozenset()
        if site.diagnosis.code.startswith(_TENSOR_DATA):
            arrays = presumed_arrays(self.info, self.facts)
        decides = site.diagnosis is TENSOR_BRANCH
        numbers = presumed(self.info, self.facts) - arrays if decides else frozenset()
        return sorted(read & numbers), sorted(read & arrays)

    def torch(self, statement: ast.stmt) -> str:
        """The name by which a statement reaches torch; an import is added if there is none.

        Raises:
            Refused: if the name is taken, or the file does without torch.
        """
        project = self.facts.project
        name, missing = torch_name(self.info.module, self.analysis, statement, project)
        self.needs_torch = self.needs_torch or missing
        return name

    @property
    def unit(self) -> str:
        """One step of indentation in this function."""
        return self.view.unit(self.info.node)


@dataclass(frozen=True)
class Fix:
    """One way of treating a site.

    Attributes:
        edits: what to change; they do not overlap.
        imports_torch: whether `import torch` has to be added.
        setting: the setting of Dynamo that the edits make, as users write it. Such a fix is only
            shown unless settings are asked for.
        by_running: an unsafe fix whose assumption holds if running the code both ways shows no
            difference, so that it is taken where every fix is verified.
        asking: the compiled path asks itself for what was not proven, and is right where no tensor
            decides.
        whole: whether it treats the sites that its edits enclose as well.
        last: it waits until nothing else of its function is to be fixed.
        sometimes: it only helps in calls that record no gradients.
        marks: it leaves the function to Python, where other fixes of it would be in vain.
        prepares: tests for whose sake alone it is made; it is taken back if none of them is treated.
    """

    transform: str
    safety: Safety
    reason: str
    edits: tuple[Edit, ...]
    imports_torch: bool = False
    setting: str | None = None
    by_running: bool = False
    asking: bool = False
    whole: bool = False
    last: bool = False
    sometimes: bool = False
    marks: bool = False
    prepares: tuple[ast.expr, ...] = ()

    @property
    def offer(self) -> FixOffer:
        """The fix as it is told of."""
        return FixOffer(self.transform, self.safety, self.reason, self.setting)


def setting_fix(
    transform: str, setting: DynamoSetting, safety: Safety, reason: str, context: Context
) -> Fix:
    """A fix that makes a setting of Dynamo, in the narrowest place that works.

    Args:
        transform: the name of the transform.
        setting: the setting to make.
        safety: how much it asks to trust.
        reason: why it helps, in one line; where it will hold is added.
        context: the function with the site.

    Raises:
        Refused: if there is no place for it.
        NotApplicable: if it is made already.
    """
    facts, info = context.facts, context.info
    if facts.is_made(setting, info):
        raise NotApplicable("setting-made", f"`{setting.keyword}` is set already")
    module = context.info.module
    name = next((n for n, bound in module.bindings.items() if bound and bound[-1] == "torch"), None)
    missing = name is None
    if name is None and "torch" in module.bindings:
        raise Refused("torch-shadowed", "`torch` is another variable here")
    if name is None:
        check_import(module, facts.project)
    torch = name or "torch"
    width = context.settings.line_length
    placed = settings.place(setting, info, facts.places, context.view, torch, width)
    return Fix(
        transform,
        safety,
        f"{reason} ({placed.where})",
        placed.edits,
        missing,
        setting.line("torch"),
    )


@dataclass(frozen=True)
class Transform:
    """A treatment: its name, the diagnoses it treats, and the function that proposes a fix.

    `propose` returns a fix or raises `Refused`; it never writes anything. One that is `on_request` is
    only asked where the user names it. One that `lessens` leaves a break behind, but fewer than before.
    """

    name: str
    codes: tuple[str, ...]
    summary: str
    doc: str
    propose: Callable[[BreakSite, Context], Fix]
    rank: int = 50
    on_request: bool = False
    lessens: bool = False
