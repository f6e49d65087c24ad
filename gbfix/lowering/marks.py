"""Takes the mark off a function that Dynamo is told to leave to Python. Knows decorators and text."""

from __future__ import annotations

from gbfix.analysis.conditions import Refused
from gbfix.analysis.decorators import MARKS, decorator_name, wrapped_by
from gbfix.analysis.project import FunctionInfo
from gbfix.fixes import Context
from gbfix.source.text import Edit


def without_mark(info: FunctionInfo, context: Context) -> Edit:
    """An edit that deletes the line of the decorator.

    Raises:
        Refused: where there are several, or a comment says why it is there.
    """
    view = context.view
    if wrapped_by(info) is not None:
        raise Refused("other-mark", f"`{info.node.name}` is disabled by an assignment elsewhere")
    marks = [d for d in info.node.decorator_list if decorator_name(d, info.module) in MARKS]
    if len(marks) != 1:
        raise Refused(
            "other-mark", f"`{info.node.name}` is disabled together with what is around it"
        )
    start = view.line_start(view.start(marks[0]))
    end = view.next_line(view.end(marks[0]))
    if view.has_comment(start, end):
        raise Refused("reason-given", "a comment beside the mark says why it is there")
    return Edit(start, end, "")
