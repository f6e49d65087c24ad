"""Looks values up in a tensor instead of in a dict or list, one by one.

`torch.tensor([slots[v] for v in x.tolist()])` reads a tensor to find numbers for its values and makes
a tensor of them again. Dynamo knows the table, so the compiled path compares the values with its
keys and selects.

Before:

    RADII = {-1: 0.5, 0: 1.0, 1: 1.5}


    def radii(x: torch.Tensor):
        kinds = x.flatten().sign().long()
        found = torch.tensor([RADII[k] for k in kinds.tolist()], dtype=x.dtype)
        return found * 2

After:

    RADII = {-1: 0.5, 0: 1.0, 1: 1.5}


    def radii(x: torch.Tensor):
        kinds = x.flatten().sign().long()
        if torch.compiler.is_compiling():
            keys = torch.tensor(list(RADII), device=kinds.device)
            matches = kinds[:, None] == keys
            torch._assert_async(matches.any(1).all(), "a key is not in `RADII`")
            found = torch.tensor(list(RADII.values()), dtype=x.dtype)
            found = found[matches.int().argmax(1).to(found.device)]
        else:
            found = torch.tensor([RADII[k] for k in kinds.tolist()], dtype=x.dtype)
        return found * 2

Keys are integers, or integers as text where the value is looked up as `str(v)`. A table that is
changed after it was made, or made of anything but numbers, is left alone. A value without an entry
raises `RuntimeError` when compiled, where eager code raises `KeyError`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.reads import ReadKind
from gbfix.analysis.stability import check_stable_attribute
from gbfix.codegen.expressions import flat, operand
from gbfix.diagnoses import TENSOR_TO_LIST
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.constant_tables import Table, table
from gbfix.lowering.doubling import in_compiled_path
from gbfix.lowering.placement import beside_all

_MADE = frozenset({"torch.tensor", "torch.as_tensor"})
_REASON = "the same entries are selected; a missing one raises `RuntimeError` instead of `{}`"


@dataclass(frozen=True)
class _Lookup:
    """`torch.tensor([table[v] for v in t.tolist()], ...)`, with the statement that names it.

    Attributes:
        statement: the assignment or `return`.
        call: the call that makes the tensor.
        entry: `table[v]` or `table[str(v)]`.
        text: whether the key is looked up as `str(v)`.
    """

    statement: ast.stmt
    call: ast.Call
    entry: ast.Subscript
    text: bool


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to select from a tensor of the table.

    Raises:
        Refused: where the table is not known, or the result would have another dtype.
    """
    read = site.read
    if read is None or read.kind is not ReadKind.LIST:
        raise NotApplicable("no-list", "no list is read here")
    lookup = _lookup(read.node, read.statement, context)
    entries = table(lookup.entry.value, context.info, context.facts)
    _check(lookup, entries, read.tensor, context)
    body = _body(lookup, entries, read.tensor, context)
    edits = beside_all([lookup.statement], body, context.torch(lookup.statement), (), context)
    raised = "KeyError" if entries.keyed else "IndexError"
    return Fix("lookup", Safety.REVIEW, _REASON.format(raised), edits, context.needs_torch)


def _lookup(node: ast.expr, statement: ast.stmt, context: Context) -> _Lookup:
    parents = context.info.module.parents
    loop = parents.get(node)
    made = parents.get(loop) if isinstance(loop, ast.comprehension) else None
    if not isinstance(loop, ast.comprehension) or not isinstance(made, ast.ListComp):
        raise NotApplicable("no-lookup", "the values are not looked up one by one")
    call, entry = parents.get(made), made.elt
    if not isinstance(entry, ast.Subscript) or not isinstance(call, ast.Call):
        raise NotApplicable("no-lookup", "the values are not looked up one by one")
    if context.info.module.qualify(call.func) not in _MADE or call.args != [made]:
        raise NotApplicable("no-lookup", "the values are not looked up one by one")
    if len(made.generators) != 1 or loop.ifs or not isinstance(loop.target, ast.Name):
        raise Refused("complex-expression", "the comprehension does more than look values up")
    key = entry.slice
    text = (
        isinstance(key, ast.Call)
        and context.info.module.qualify(key.func) == "builtins.str"
        and len(key.args) == 1
        and not key.keywords
    )
    if text:
        assert isinstance(key, ast.Call)
        key = key.args[0]
    if not isinstance(key, ast.Name) or key.id != loop.target.id:
        raise Refused("complex-expression", f"`{ast.unparse(entry)}` computes its key")
    return _Lookup(statement, call, entry, text)


def _check(lookup: _Lookup, entries: Table, tensor: ast.expr, context: Context) -> None:
    """The entries have to be found by number, and give a tensor of the same dtype."""
    node = lookup.entry.value
    if isinstance(node, ast.Attribute) and context.info.owner is not None:
        check_stable_attribute(node.attr, context.info.owner, context.facts)
    if in_compiled_path(lookup.statement, context):
        raise NotApplicable("only-compiled", "there is no eager path to stand beside")
    if any(k.arg not in {"dtype", "device"} for k in lookup.call.keywords):
        raise Refused("complex-expression", "the tensor is made with further options")
    if entries.textual != lookup.text:
        raise Refused("key-unproven", f"the keys of `{ast.unparse(node)}` are of another type")
    if not any(k.arg == "dtype" for k in lookup.call.keywords) and not entries.floats:
        raise Refused("dtype-unproven", "an empty tensor would have another dtype")
    if not isinstance(tensor, (ast.Name, ast.Attribute)):
        raise Refused("complex-expression", f"`{ast.unparse(tensor)}` would be computed twice")
    value = context.analysis.values.get(tensor)
    if lookup.text and value is not None and (value.floating or value.boolean):
        raise Refused("key-unproven", "the text of a float or boolean is not that of an integer")
    if not entries.keyed and value is not None and (value.floating or value.boolean):
        raise Refused("key-unproven", "the tensor does not hold positions")


def _body(lookup: _Lookup, entries: Table, tensor: ast.expr, context: Context) -> str:
    view, names = context.view, context.names
    torch, source = context.torch(lookup.statement), flat(view, tensor)
    held = flat(view, lookup.entry.value)
    single = isinstance(lookup.statement, ast.Assign) and lookup.statement.value is lookup.call
    target = lookup.statement.targets[0] if isinstance(lookup.statement, ast.Assign) else None
    if single and isinstance(target, ast.Name) and target.id != source:
        result = target.id
    else:
        result = names.take("entries")
    options = [f"{k.arg}={flat(view, k.value)}" for k in lookup.call.keywords if k.arg]
    listed = f"list({held}.values())" if entries.keyed else held
    made = f"{flat(view, lookup.call.func)}({', '.join([listed, *options])})"
    if not entries.keyed:
        lines = [f"{result} = {made}"]
        value = context.analysis.values.get(tensor)
        cast = "" if value is not None and value.integer else ".long()"
        selected = f"{result}[{operand(view, tensor)}{cast}.to({result}.device)]"
    else:
        keys, matches = names.take("keys"), names.take("matches")
        numbers = f"[int(key) for key in {held}]" if lookup.text else f"list({held})"
        lines = [
            f"{keys} = {torch}.tensor({numbers}, device={source}.device)",
            f"{matches} = {source}[:, None] == {keys}",
            f'{torch}._assert_async({matches}.any(1).all(), "a key is not in `{held}`")',
            f"{result} = {made}",
        ]
        selected = f"{result}[{matches}.int().argmax(1).to({result}.device)]"
    if single and isinstance(target, ast.Name):
        return "\n".join([*lines, f"{target.id} = {selected}"])
    start = view.start(lookup.statement)
    text = view.source.text[start : view.end(lookup.statement)]
    if "\n" in text:
        raise Refused("unusual-place", "the lookup stands inside of a long statement")
    at, end = view.start(lookup.call) - start, view.end(lookup.call) - start
    return "\n".join([*lines, text[:at] + selected + text[end:]])


TRANSFORM = Transform(
    name="lookup",
    codes=(TENSOR_TO_LIST.code,),
    summary="look values up in a tensor instead of one by one in a dict or list",
    doc=__doc__ or "",
    propose=propose,
    rank=24,
)
