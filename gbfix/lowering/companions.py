"""Functions that a fix writes beside the code, at the top level of the module, and calls from it.

One text has one name in a module: where it was written before, it is used again. Knows where such a
function goes and when its name is free, nothing of what it is for.
"""

from __future__ import annotations

import ast

from gbfix.analysis.bindings import binds
from gbfix.analysis.conditions import Refused
from gbfix.analysis.project import Module
from gbfix.analysis.trees import walk
from gbfix.codegen.names import used_names
from gbfix.fixes import Context
from gbfix.lowering.toplevel import top_statement
from gbfix.source.text import Edit

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def companion(text: str, torch: str, context: Context) -> tuple[Edit, ...]:
    """The edit that writes a function before the first definition; none where it is there already.

    Args:
        text: the definition, which calls torch `torch` and is indented by four spaces.
        torch: the name by which the module reaches torch.
        context: the function that will call it.

    Raises:
        Refused: if there is no place for it, or its name is taken.
    """
    info, view = context.info, context.view
    made = ast.parse(text).body[0]
    assert isinstance(made, ast.FunctionDef)
    top_statement(info.node, context)
    anchor = next(s for s in info.module.tree.body if isinstance(s, _DEFINITIONS))
    if not view.starts_line(anchor):
        raise Refused("no-place-outside", "the first definition of the module shares its line")
    if made.name in info.module.bindings:
        if not _is_ours(made, info.module):
            raise Refused("name-taken", f"`{made.name}` is something else in this module")
        return ()
    if made.name in used_names(info.node):
        raise Refused("name-taken", f"`{made.name}` is another variable here")
    written = text.replace("torch.", f"{torch}.").replace("    ", context.unit)
    decorators = getattr(anchor, "decorator_list", [])
    at = view.line_start(min([view.start(anchor), *(view.start(d) for d in decorators)]))
    return (Edit(at, at, f"{written}\n\n"),)


def _is_ours(made: ast.FunctionDef, module: Module) -> bool:
    """Whether a name means, in all of a module, the function that is written here."""
    bound = [n for n in walk(module.tree) if binds(n, made.name)]
    return (
        len(bound) == 1
        and isinstance(bound[0], ast.FunctionDef)
        and ast.get_docstring(bound[0]) == ast.get_docstring(made)
    )
