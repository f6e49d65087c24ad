"""Where a tensor comes from that is kept in a dict, an object or an argument, and read somewhere else.

Goes back from a read to the calls of torch that make the tensor. Knows where values come from, nothing
of what else is done with them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.calls_in_file import calls_in_file
from gbfix.analysis.conditions import NotApplicable
from gbfix.analysis.facts import Facts
from gbfix.analysis.parameters import argument_for
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.trees import walk
from gbfix.lowering.handed_on import (
    Path,
    bound,
    callee_of,
    is_parameter,
    key_of,
    plain_class,
    stored_under,
)

_MAKING = frozenset({"torch.tensor", "torch.as_tensor", "torch.LongTensor", "torch.IntTensor"})
_MOST_STEPS = 60


@dataclass(frozen=True)
class Made:
    """Where a tensor is made, and in which function."""

    node: ast.Call
    info: FunctionInfo


def made_for(node: ast.expr, info: FunctionInfo, facts: Facts) -> list[Made]:
    """The places that make the tensor which an expression holds.

    Raises:
        NotApplicable: where not all of them are found, or nothing lies between.
    """
    origins = _Origins(facts)
    origins.of(node, info, ())
    if not origins.kept or not origins.made:
        raise NotApplicable(
            "not-kept", "the tensor was not kept in a dict, an object or an argument"
        )
    return list({made.node: made for made in origins.made}.values())


def _unknown() -> NotApplicable:
    return NotApplicable("not-kept", "it is not known what the tensor was made of")


class _Origins:
    """Goes from a read back to what made the tensor."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.made: list[Made] = []
        self.kept = False
        self.steps = 0

    def of(self, node: ast.expr, info: FunctionInfo, path: Path) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise _unknown()
        if isinstance(node, ast.Name):
            self._name(node.id, info, path)
        elif isinstance(node, ast.Subscript) and (key := key_of(node.slice)) is not None:
            self.kept = True
            self.of(node.value, info, (key, *path))
        elif isinstance(node, ast.Subscript) and not path:
            self.of(node.value, info, path)
        elif isinstance(node, ast.Attribute):
            self._attribute(node, info, path)
        elif isinstance(node, ast.Dict) and path:
            values = [
                v for k, v in zip(node.keys, node.values, strict=True) if key_of(k) == path[0]
            ]
            if len(values) != 1 or None in node.keys:
                raise _unknown()
            self.of(values[0], info, path[1:])
        elif isinstance(node, ast.Call):
            self._call(node, info, path)
        else:
            raise _unknown()

    def _name(self, name: str, info: FunctionInfo, path: Path) -> None:
        stored = stored_under(name, path[0], info) if path else []
        if len(stored) == 1:
            self.of(stored[0].value, info, path[1:])
            return
        value = bound(name, info)
        if value is not None and not stored:
            self.of(value, info, path)
            return
        if not is_parameter(name, info):
            raise _unknown()
        calls = calls_in_file(info, self.facts.project)
        if not calls:
            raise _unknown()
        self.kept = True
        for call, caller in calls:
            given = argument_for(call, name, info)
            if given is None or caller is None:
                raise _unknown()
            self.of(given, caller, path)

    def _attribute(self, node: ast.Attribute, info: FunctionInfo, path: Path) -> None:
        cls = plain_class(node.value, info, self.facts)
        writes = self.facts.writes(cls).get(node.attr, ()) if cls is not None else ()
        if not writes:
            raise _unknown()
        self.kept = True
        for write in writes:
            if write.value is None or write.method is None:
                raise _unknown()
            self.of(write.value, write.method, path)

    def _call(self, node: ast.Call, info: FunctionInfo, path: Path) -> None:
        if not path and info.module.qualify(node.func) in _MAKING:
            self.made.append(Made(node, info))
            return
        callee = callee_of(node, info, self.facts)
        returned = [n for n in walk(callee.node) if isinstance(n, ast.Return)] if callee else []
        if callee is None or not returned:
            raise _unknown()
        for statement in returned:
            if statement.value is None:
                raise _unknown()
            self.of(statement.value, callee, path)
