"""The calls of a function that stand in its own file.

Goes by names and by the classes around calls, so that no function need be analysed. Knows nothing of
what calls give.
"""

from __future__ import annotations

import ast

from gbfix.analysis.project import FunctionInfo, Module, Project


def calls_in_file(
    info: FunctionInfo, project: Project
) -> list[tuple[ast.Call, FunctionInfo | None]]:
    """The calls of a function in its file, with the functions around them.

    None are told of one that is also used without being called, or is called under other names.
    """
    module, name = info.module, info.node.name
    if name == "__init__" and info.owner is not None and info.outer is None:
        made = module.uses(info.owner.node.name).calls
        return [
            (call, _around(call, module))
            for call in made
            if module.qualify(call.func) == info.owner.qualified
        ]
    if name.startswith("__") or info.outer is not None or info.node.name == "forward":
        return []
    uses = module.uses(name)
    if uses.loaded:
        return []
    found = [(call, _around(call, module)) for call in uses.calls]
    return [(c, caller) for c, caller in found if _reaches(c, caller, info, project)]


def _reaches(
    call: ast.Call, caller: FunctionInfo | None, info: FunctionInfo, project: Project
) -> bool:
    """Whether a call of something by a function's name is a call of it."""
    if isinstance(call.func, ast.Name):
        return info.owner is None
    if info.owner is None:
        return False
    qualified = info.module.qualify(call.func)
    if qualified is not None and not qualified.startswith(f"{info.module.name}."):
        return False  # a namesake: `nn.functional.pad`
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not (isinstance(receiver, ast.Name) and receiver.id == "self"):
        return True
    if caller is None or caller.owner is None:
        return True
    own, other = caller.owner, info.owner
    return any(cls.node is other.node for cls in project.mro(own)) or any(
        cls.node is own.node for cls in project.mro(other)
    )


def _around(node: ast.AST, module: Module) -> FunctionInfo | None:
    """The function that a node stands in."""
    current = module.parents.get(node)
    while current is not None:
        if isinstance(current, ast.Lambda):
            return None
        if isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return module.function_of.get(current)
        current = module.parents.get(current)
    return None
