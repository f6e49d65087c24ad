"""What becomes of reads where Dynamo captures numbers as symbols, as seen on torch 2.13.

Knows the setting and the kinds of reads, nothing of who makes it.
"""

from __future__ import annotations

import ast

from gbfix.analysis.dynamo_settings import DynamoSetting
from gbfix.analysis.flow import Analysis
from gbfix.analysis.integer_places import call_of
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.reads import Read, ReadKind
from gbfix.analysis.word_index import words

CAPTURE = DynamoSetting("capture_scalar_outputs")
_FAILING = frozenset("roll pad select tril triu unflatten".split())
_UNCAPTURED = _FAILING | frozenset("range split chunk one_hot kthvalue unfold".split())


def is_captured(read: Read, analysis: Analysis) -> bool:
    """Whether `capture_scalar_outputs` keeps a read in the graph (seen on torch 2.13)."""
    if read.opaque:
        return read.kind is ReadKind.ARRAY
    if read.kind is ReadKind.LIST:
        value = analysis.values.get(read.tensor)
        return value is not None and not value.floating
    if read.kind is not ReadKind.POSITION:
        given = read.kind is ReadKind.NUMBER and read.node is read.tensor  # to a function of `math`
        return read.kind is not ReadKind.INDEX and not given
    call = call_of(read.node, analysis)
    return call is None or ast.unparse(call.func).rpartition(".")[2] not in _UNCAPTURED


def fails_captured(read: Read, analysis: Analysis) -> bool:
    """Whether compiling fails under `capture_scalar_outputs` at a read (seen on torch 2.13)."""
    call = call_of(read.node, analysis) if read.kind is ReadKind.POSITION else None
    return call is not None and ast.unparse(call.func).rpartition(".")[2] in _FAILING


def may_fail_captured(info: FunctionInfo) -> bool:
    """Whether a function may hold a read that fails under it, by the names in its text."""
    return not _FAILING.isdisjoint(words(info.text))
