"""How a module can say `torch`, and the import that makes it able to, where it cannot.

Knows imports, nothing of fixes.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import Module, Project
from gbfix.analysis.torch_imports import imports_torch, of_torch
from gbfix.analysis.trees import first_line
from gbfix.codegen.view import View
from gbfix.source.text import Edit


def torch_name(
    module: Module, analysis: Analysis, statement: ast.stmt, project: Project
) -> tuple[str, bool]:
    """The name by which a statement can reach torch, and whether an import has to be added.

    Raises:
        Refused: if `torch` is a local variable there, or the file does without torch.
    """
    environment = analysis.before.get(statement, {})
    for name, value in environment.items():
        if value.reference == "torch" and "." not in name:
            return name, False
    for name, bound in module.bindings.items():
        if bound and bound[-1] == "torch" and name not in environment:
            return name, False
    if "torch" in environment or "torch" in module.bindings:
        raise Refused("torch-shadowed", "`torch` is another variable here")
    check_import(module, project)
    return "torch", True


def check_import(module: Module, project: Project) -> None:
    """`import torch` may only be added where importing the file imports torch already.

    Raises:
        Refused: where it may be used without torch.
    """
    if not imports_torch(module, project):
        raise Refused(
            "torch-not-imported",
            "the file can be imported without torch, and could not be any more",
        )


def add_torch_import(view: View) -> Edit:
    """An edit that adds `import torch` above the module's first import from torch, else at the top.

    There it stands above the first function or class, whose decorators may need it, above what is
    imported from the project, and with what is imported from other packages.
    """
    body = view.module.tree.body
    defined = (
        n for n in body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    )
    end = min(map(first_line, defined), default=None)
    imports = [n for n in body if isinstance(n, (ast.Import, ast.ImportFrom))]
    imports = [n for n in imports if end is None or n.lineno < end]
    ours = [n for n in imports if of_torch(n)]
    future = [n for n in imports if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    if ours and ours[0].lineno > max((n.lineno for n in future), default=0):
        at = view.line_start(view.start(ours[0]))
        return Edit(at, at, "import torch\n")
    own = [n for n in imports if _of_project(n, view.module)]
    others = [n for n in imports if n not in own]
    if others and not _is_standard(others[-1]):
        return _in_group(others, view)
    after: ast.stmt | None = others[-1] if others else None
    if own and (after is None or after in future):
        at = view.line_start(view.start(own[0]))
        return Edit(at, at, "import torch\n\n")
    if after is None and body and isinstance(body[0], ast.Expr):
        after = body[0]
    if after is None:
        first = view.line_start(view.start(body[0])) if body else 0
        return Edit(first, first, "import torch\n\n")
    at = view.next_line(view.end(after))
    lead = "" if at and view.source.text[at - 1 : at] in {"\n", "\r"} else "\n"
    apart = "" if isinstance(after, ast.Expr) else "\n"
    return Edit(at, at, f"{lead}{apart}import torch\n")


def _in_group(imports: Sequence[ast.Import | ast.ImportFrom], view: View) -> Edit:
    """An edit that adds the import where sorted imports of other packages have it."""
    group = [imports[-1]]
    for node in reversed(imports[:-1]):
        if (node.end_lineno or node.lineno) + 1 != group[0].lineno or _is_standard(node):
            break
        group.insert(0, node)
    below = next((n for n in group if isinstance(n, ast.ImportFrom) or _name(n) > "torch"), None)
    if below is None:
        at = view.next_line(view.end(group[-1]))
        lead = "" if view.source.text[at - 1 : at] in {"\n", "\r"} else "\n"
        return Edit(at, at, f"{lead}import torch\n")
    at = view.line_start(view.start(below))
    return Edit(at, at, "import torch\n")


def _of_project(node: ast.Import | ast.ImportFrom, module: Module) -> bool:
    top, dot, _ = module.name.partition(".")
    return (isinstance(node, ast.ImportFrom) and bool(node.level)) or (
        bool(dot) and _name(node).partition(".")[0] == top
    )


def _name(node: ast.Import | ast.ImportFrom) -> str:
    return (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name


def _is_standard(node: ast.Import | ast.ImportFrom) -> bool:
    return _name(node).partition(".")[0] in sys.stdlib_module_names
