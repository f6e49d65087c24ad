"""Which calls print, log or warn: the ones that Dynamo does not trace and nobody needs compiled.

Recognises builtins, `logging`, `warnings`, the standard streams, loguru, absl, and loggers by what
they were bound to. A function of the project that does nothing but log counts as a log call. Knows
names and bindings, nothing of graph breaks.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gbfix.analysis.evaluate import dotted
from gbfix.analysis.project import Module
from gbfix.analysis.trees import walk

if TYPE_CHECKING:
    from gbfix.analysis.facts import Facts
    from gbfix.analysis.flow import Analysis

LEVELS = frozenset(
    "debug info warning warn error critical fatal exception log trace success notice "
    "warning_once info_once debug_once error_once warning_advice warn_once log_every_n "
    "log_first_n log_every_n_seconds vlog".split()
)
_WRITES = frozenset(
    {"sys.stdout.write", "sys.stderr.write", "sys.stdout.flush", "sys.stderr.flush"}
)
_FUNCTIONS = frozenset(
    {"warnings.warn", "warnings.warn_explicit", "pprint.pprint", "pprint.pp", "traceback.print_exc"}
    | {"rich.print", "tqdm.tqdm.write", "tqdm.auto.tqdm.write"}
)
_LOGGER_NAMES = frozenset(
    {"logger", "_logger", "LOGGER", "LOG", "log", "_log", "_LOGGER", "logging"}
)
_RANK_ZERO = ("rank_zero_info", "rank_zero_warn", "rank_zero_debug", "rank_zero_deprecation")


def log_family(node: ast.AST, analysis: Analysis, facts: Facts) -> str | None:
    """`print`, `logging` or `warnings` for a call that only speaks; None for any other node."""
    if not isinstance(node, ast.Call):
        return None
    value = analysis.values.get(node.func)
    module = analysis.info.module
    name = value.reference if value is not None and value.reference else None
    if name is None:
        name = module.qualify(node.func)
    if name in {"builtins.print", "pprint.pprint", "pprint.pp", "rich.print"} or name in _WRITES:
        return None if _prints_to_file(node, analysis) else "print"
    if name in _FUNCTIONS:
        return "warnings" if (name or "").startswith("warnings") else "print"
    if isinstance(node.func, ast.Attribute):
        family = _logger_call(node.func, module, facts, analysis)
        if family is not None:
            return family
    last = (name or "").rsplit(".", 1)[-1]
    if last in _RANK_ZERO:
        return "logging"
    if name is not None and not name.startswith(("torch.", "builtins.")):
        return _helper(name, facts)
    return None


def _prints_to_file(node: ast.Call, analysis: Analysis) -> bool:
    """`print(..., file=file)` below `with open(...) as file`: part of what writes the file."""
    target = next((k.value for k in node.keywords if k.arg == "file"), None)
    if not isinstance(target, ast.Name):
        return False
    return any(
        isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == target.id
        for block in walk(analysis.info.node)
        if isinstance(block, ast.With)
        for item in block.items
    )


def is_log_call(node: ast.AST, analysis: Analysis, facts: Facts) -> bool:
    """Whether a call prints, logs or warns and does nothing else."""
    return log_family(node, analysis, facts) is not None


def _logger_call(
    function: ast.Attribute, module: Module, facts: Facts, analysis: Analysis
) -> str | None:
    if function.attr not in LEVELS:
        return None
    receiver = function.value
    name = dotted(receiver)
    if name is None:
        qualified = module.qualify(receiver.func) if isinstance(receiver, ast.Call) else None
        return "logging" if qualified and _makes_logger(qualified) else None
    qualified = module.qualify(receiver) or ""
    if qualified in {"logging", "absl.logging", "loguru.logger"}:
        return "logging"
    if name.startswith("self."):
        last = name.rsplit(".", 1)[-1]
        return "logging" if last in _LOGGER_NAMES else None
    head = name.split(".")[0]
    if head in analysis.info.module.bindings:
        for bound in module.bindings[head]:
            if isinstance(bound, ast.Call) and _makes_logger(module.qualify(bound.func) or ""):
                return "logging"
            if isinstance(bound, str) and bound.rsplit(".", 1)[-1] in _LOGGER_NAMES:
                return "logging"
    elif _local_logger(head, analysis):
        return "logging"
    return None


def _local_logger(name: str, analysis: Analysis) -> bool:
    for node in walk(analysis.info.node):
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            if isinstance(node.value, ast.Call):
                return _makes_logger(analysis.info.module.qualify(node.value.func) or "")
    parameters = {a.arg for a in walk(analysis.info.node.args) if isinstance(a, ast.arg)}
    return name in parameters and name in _LOGGER_NAMES


def _makes_logger(qualified: str) -> bool:
    last = qualified.rsplit(".", 1)[-1].lower()
    return last in {"getlogger", "get_logger", "logger", "getchild", "init_logger", "setup_logger"}


def _helper(name: str, facts: Facts) -> str | None:
    """A function of the project whose whole body is log calls."""
    info = facts.project.function_info(name)
    if info is None or any("custom_op" in ast.dump(d) for d in info.node.decorator_list):
        return None  # an operator is held by a graph
    known = facts.kept(info.module).helpers
    if info.node in known:
        return known[info.node]
    known[info.node] = None
    body = [
        n
        for n in info.node.body
        if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
        and not isinstance(n, ast.Pass)
    ]
    analysis = facts.analysis(info) if 0 < len(body) <= 3 else None
    if analysis is None:
        return None
    family: str | None = None
    for statement in body:
        if not isinstance(statement, ast.Expr):
            return None
        family = log_family(statement.value, analysis, facts)
        if family is None:
            return None
    known[info.node] = family
    return family
