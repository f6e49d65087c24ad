"""Where a setting of Dynamo goes: around the place that compiles, else at the top of the module.

`torch._dynamo.config.patch` around the compiled function is the narrowest place that works: the
setting is read when Dynamo starts on a frame, so inside of the traced code it comes too late. Knows
places and text, not which setting helps.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamo_settings import CompilePlace, DynamoSetting, place_of
from gbfix.analysis.project import FunctionInfo
from gbfix.codegen import layout
from gbfix.codegen.view import View
from gbfix.source.text import Edit


@dataclass(frozen=True)
class Placed:
    """The edits that make a setting, and where it then holds, in words."""

    edits: tuple[Edit, ...]
    where: str


def place(
    setting: DynamoSetting,
    info: FunctionInfo,
    places: tuple[CompilePlace, ...],
    view: View,
    torch: str,
    width: int,
) -> Placed:
    """Make a setting for a function, in the narrowest place that this module has.

    Args:
        setting: the setting, which is not made yet.
        info: the function whose compilation needs it.
        places: every place of the project that compiles.
        view: the module to be edited.
        torch: its name for torch.
        width: columns of a line.

    Raises:
        Refused: if the module gives no place for it.
    """
    reaching = [p for p in places if place_of(info) in p.reaches]
    here = all(p.module is view.module for p in reaching)
    if reaching and here and all(_can_wrap(p, view) for p in reaching):
        edits = [e for p in reaching for e in _wrapped(setting, p, view, torch, width)]
        return Placed(tuple(dict.fromkeys(edits)), "around the compiled function")
    return Placed((_line(setting, view, torch),), "for the whole process")


def _can_wrap(place: CompilePlace, view: View) -> bool:
    if isinstance(place.node, ast.Call):
        return place.calls_only
    return place.decorator is not None and view.starts_line(place.node)


def _wrapped(
    setting: DynamoSetting, place: CompilePlace, view: View, torch: str, width: int
) -> list[Edit]:
    for patch in place.patches():
        if not patch.args and all(k.arg is not None for k in patch.keywords):
            return [_merged(setting, patch, view, width)]
    patch_text = f"{torch}._dynamo.config.patch"
    node = place.node
    if isinstance(node, ast.Call):
        start, end = view.start(node), view.end(node)
        text = f"{patch_text}({setting.keyword})"
        line = view.source.text[view.line_start(start) : view.line_end(end)]
        if "\n" in line or layout.fits(f"{line}{text}()", width):
            return [Edit(start, start, f"{text}("), Edit(end, end, ")")]
        indent = view.indent(node)
        return [
            Edit(start, start, f"{text}(\n{indent}    "),
            Edit(end, end, f"\n{indent})"),
        ]
    assert place.decorator is not None
    at = view.source.text.rindex("@", 0, view.start(place.decorator))
    indent = view.indent(place.decorator)
    text = layout.call(f"@{patch_text}", [setting.keyword], width=width - len(indent))
    return [Edit(at, at, layout.indent(f"{text}\n", indent).removeprefix(indent) + indent)]


def _merged(setting: DynamoSetting, patch: ast.Call, view: View, width: int) -> Edit:
    """Add a setting to a patch that is there."""
    for keyword in patch.keywords:
        if keyword.arg == setting.name and setting.member and isinstance(keyword.value, ast.Set):
            at = view.end(keyword.value.elts[-1])
            return Edit(at, at, f", {setting.value}")
        if keyword.arg == setting.name:
            raise Refused("setting-contradicts", f"the source sets `{setting.name}` otherwise")
    start, end = view.start(patch), view.end(patch)
    if patch.lineno == patch.end_lineno:
        column = start - view.line_start(start)
        head, indent = view.text(patch.func), view.indent(patch)
        keywords = [f"{k.arg}={view.text(k.value)}" for k in patch.keywords]
        text = layout.call(head, [*keywords, setting.keyword], width=width - column)
        return Edit(start, end, layout.indent(text, indent).removeprefix(indent))
    at = view.end(patch.keywords[-1].value)
    return Edit(at, at, f", {setting.keyword}")


def _line(setting: DynamoSetting, view: View, torch: str) -> Edit:
    """The line for the whole process, below the imports at the head of the module."""
    if f"{setting.name} =" in view.source.text:
        raise Refused("setting-contradicts", f"the source sets `{setting.name}` otherwise")
    head: ast.stmt | None = None
    for node in view.module.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        if _is_setting(node, view) or isinstance(node, (ast.Import, ast.ImportFrom)):
            head = node
    if head is None or not view.ends_line(head):
        raise Refused("no-place-outside", "there is no import at the head of the module")
    at = view.next_line(view.end(head))
    line = setting.line(torch)
    if _is_setting(head, view):
        return Edit(at, at, f"{line}\n")
    follows = view.source.text[at:].lstrip("\r\n\f")
    # One blank line parts the setting from the imports; those that follow it are there already.
    after = "" if not follows or view.source.text[at : at + 1] in {"\r", "\n"} else "\n"
    return Edit(at, at, f"\n{line}\n{after}")


def _is_setting(node: ast.stmt, view: View) -> bool:
    target: ast.expr | None = None
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        target = node.value.func
    name = view.module.qualify(target) if target is not None else None
    return name is not None and name.startswith("torch._dynamo.config.")
