"""Generate gbfix/analysis/data/torch_table.json: what torch's functions return and do.

    python scripts/generate_torch_table.py            # write the file
    python scripts/generate_torch_table.py --check    # exit 1 if the file is not what this makes

Sources, in this order of trust: torch's `.pyi` stubs and annotated sources for signatures, the
dispatcher's schemas and tags for aliasing and randomness, calls on small tensors for dtypes and
shapes, and for what no source says, the short lists below.
"""

import argparse
import ast
import json
import sys
import types
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional
from torch_table.modules import module_entries
from torch_table.probe import probe
from torch_table.signatures import (
    Param,
    Signature,
    from_functions,
    from_schema,
    returned,
)

TABLE = Path(__file__).parents[1] / "gbfix" / "analysis" / "data" / "torch_table.json"
ROOT = Path(torch.__file__).parent
HERE = Path(__file__).parent / "torch_table"

Signatures = dict[str, list[Signature]]

HELPERS = {"torch.overrides", "torch._jit_internal"}
"""Modules whose functions torch's modules import for themselves."""

READS = {"equal", "allclose", "is_nonzero", "item"}
"""Python numbers whose value depends on data; every other bool, int or str is metadata."""

SYMBOLIC = ("float", "int", "ite", "max", "min", "not", "sqrt", "sum")

RETURNS = {
    "Tensor.data_ptr": "other",
    "torch.split_copy": "tensor_list",
    "torch.split_with_sizes_copy": "tensor_list",
    "torch.unbind_copy": "tensor_list",
    **{f"torch.sym_{name}": "static" for name in SYMBOLIC},
}
"""Where the stubs say nothing of use, or only speak of the out= form."""

ALIAS = {
    "torch": "as_tensor asarray from_numpy from_dlpack frombuffer einsum cartesian_prod "
    "broadcast_tensors meshgrid atleast_1d atleast_2d atleast_3d chain_matmul dequantize",
    "Tensor": "type to cpu cuda xpu ipu hpu data numpy refine_names rename align_to align_as "
    "as_subclass storage untyped_storage storage_type grad split to_dense sum_to_size "
    "to_sparse to_sparse_coo values indices crow_indices col_indices ccol_indices row_indices "
    "coalesce real imag T mT H mH view view_as expand_as resize resize_as module_load "
    "type_as unflatten dequantize",
    "torch.nn.functional": "dropout dropout1d dropout2d dropout3d alpha_dropout "
    "feature_alpha_dropout pad interpolate upsample upsample_nearest upsample_bilinear",
}
RANDOM = {
    "torch": "manual_seed seed initial_seed get_rng_state set_rng_state pca_lowrank svd_lowrank "
    "lobpcg native_dropout alpha_dropout feature_dropout feature_alpha_dropout",
    "torch.nn.functional": "gumbel_softmax multi_head_attention_forward fractional_max_pool2d "
    "fractional_max_pool3d fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices "
    "scaled_dot_product_attention",
    "torch.nn.init": "uniform_ normal_ trunc_normal_ xavier_uniform_ xavier_normal_ "
    "kaiming_uniform_ kaiming_normal_ orthogonal_ sparse_",
}
POINTWISE = {"torch": "where"}
"""Elementwise when they return one tensor."""

MUTATES = {
    "torch": "batch_norm instance_norm native_batch_norm cudnn_batch_norm miopen_batch_norm "
    "batch_norm_update_stats fused_moving_avg_obs_fake_quant",
    "torch.nn.functional": "batch_norm instance_norm",
    "Tensor": "backward retain_grad record_stream register_hook "
    "register_post_accumulate_grad_hook resize resize_as",
}
DATA_DEPENDENT = {
    "torch": "equal allclose is_nonzero",
    "torch.nn.functional": "one_hot",
    "Tensor": "equal allclose is_nonzero item tolist",
}
DYNAMIC_SHAPE = {
    "torch.linalg": "lstsq",
    "torch.nn.functional": "one_hot",
    "torch": "nonzero argwhere unique unique_consecutive masked_select bincount",
    "Tensor": "nonzero argwhere unique unique_consecutive masked_select bincount "
    "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc coalesce",
}
DYNAMIC_CALLS: dict[tuple[str, str], Callable[[Signature], bool]] = {
    ("where", "tensor_list"): lambda signature: True,
    ("repeat_interleave", "tensor"): lambda signature: any(
        p.name == "repeats" and p.mark == "T" for p in signature.params
    ),
}
"""Operations of which only some overloads have a shape that depends on data."""

UNPROBED = (
    "miopen", "cudnn", "mkldnn", "quant", "fbgemm", "sparse", "csr", "nested", "batch_norm",
    "set_", "storage", "resize", "data_ptr", "share_memory", "numpy", "dlpack", "backward",
    "hook", "apply_", "map_", "from_file", "load", "save", "assert", "sym_", "spmm", "async",
    "deterministic", "num_threads", "init_", "pin_memory", "requires_grad", "retain_grad", "cuda",
    "xpu", "ipu", "hpu", "mtia", "rnn", "lstm", "gru", "cond", "while_loop", "compile", "vmap",
    "fork", "wait", "seed", "rng_state", "autocast", "record_stream", "new", "is_", "grouped_mm",
    "scaled_mm", "weight_norm", "embedding_bag", "ctc_loss", "segment_reduce", "conj_physical_",
    "rename", "align", "refine", "convert_", "_stats", "to_padded", "_foreach", "_weight_",
    "affine_grid_generator", "ldl", "lobpcg", "cholesky_solve", "ormqr", "reinforce", "symeig",
    "lstsq", "type",
)  # fmt: skip
"""Parts of names of what is unsafe or pointless to call here."""

UNPROBED_NAMES = {"to", "tensor", "as_tensor", "asarray"}
"""Operations that take a dtype where the probe knows only numbers."""


def stub(path: str, classes: Iterable[str] = (), method: bool = False) -> Signatures:
    """The functions that a file of torch declares."""
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    if not classes:
        return from_functions(body)
    found: Signatures = {}
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name in classes:
            found.update(from_functions(node.body, method=method))
    return found


def unannotated(name: str) -> Signatures:
    """Our own signatures for what torch leaves unannotated."""
    tree = ast.parse((HERE / "unannotated.pyi").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return from_functions(node.body, method=name == "Tensor")
    raise KeyError(name)


def properties() -> Signatures:
    """The properties of a tensor, as signatures without parameters."""
    found: Signatures = {}
    for node in ast.parse((ROOT / "_C/__init__.pyi").read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef) or node.name not in ("TensorBase", "_TensorBase"):
            continue
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                returns = returned(ast.unparse(item.annotation))
                found[item.target.id] = [Signature(returns, ())]
    for name in ("is_sparse_csr", "names", "volatile", "name"):
        found.setdefault(name, [Signature("static" if name != "volatile" else "other", ())])
    return found


def public(module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    """The functions that a user may call as attributes of a module."""
    found: dict[str, Callable[..., Any]] = {}
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or isinstance(value, type) or not callable(value):
            continue
        home = getattr(value, "__module__", None) or "torch"
        if home.partition(".")[0] == "torch" and home not in HELPERS and "torch_fun" not in name:
            found[name] = value
    return found


OPERATORS = {"torch.nn.functional.unfold": "im2col"}
"""Functions that share their name with an operator that does something else."""


class Operators:
    """The dispatcher's operators, by name."""

    def __init__(self) -> None:
        self.schemas: dict[str, list[Any]] = {}
        for schema in torch._C._jit_get_all_schemas():
            space, _, name = schema.name.partition("::")
            if space == "aten":
                self.schemas.setdefault(name, []).append(schema)
        for schemas in self.schemas.values():
            schemas.sort(key=str)

    def signatures(self, name: str) -> list[Signature]:
        takes_tensors = [
            s for s in self.schemas.get(name, ()) if not any(a.is_out for a in s.arguments)
        ]
        writes = any(a.is_out for s in self.schemas.get(name, ()) for a in s.arguments)
        extra = (Param("out", "TL", "", True, True),) if writes else ()
        found = [from_schema(schema) for schema in takes_tensors]
        return [Signature(s.returns, s.params + extra) for s in found]

    def flags(self, name: str) -> set[str]:
        """What the schemas and tags of an operator's overloads say."""
        found: set[str] = set()
        for schema in self.schemas.get(name, ()):
            arguments = schema.arguments
            # TorchScript's methods of lists live here too: `sort` of a list is in place.
            if any(a.is_out for a in arguments) or not any(
                str(a.type) in ("Tensor", "Optional[Tensor]") for a in arguments
            ):
                continue
            if any(a.alias_info is not None and a.alias_info.is_write for a in arguments):
                found |= {"mutates", "alias"}
            elif any(r.alias_info is not None for r in schema.returns):
                found.add("alias")
            packet = getattr(torch.ops.aten, name)
            tags = getattr(packet, schema.overload_name or "default").tags
            if torch.Tag.nondeterministic_seeded in tags:
                found.add("random")
            if torch.Tag.pointwise in tags:
                found.add("pointwise")
            if torch.Tag.inplace_view in tags:
                found |= {"mutates", "alias"}
        return found


def listed(table: dict[str, str], space: str, name: str) -> bool:
    return name in table.get(space, "").split()


def flags_of(
    space: str, name: str, value: Any, signatures: list[Signature], operators: Operators
) -> set[str]:
    prefix = {"torch.linalg": "linalg_", "torch.special": "special_", "torch.fft": "fft_"}
    operator = OPERATORS.get(f"{space}.{name}", prefix.get(space, "") + name)
    declared = operators.flags(operator)
    flags = declared - {"pointwise"}
    returns = {signature.returns for signature in signatures}
    if name.endswith("_"):
        flags |= {"mutates"} | ({"alias"} if returns <= {"tensor"} else set())
    for flag, table in (
        ("alias", ALIAS),
        ("random", RANDOM),
        ("mutates", MUTATES),
        ("data_dependent", DATA_DEPENDENT),
        ("dynamic_shape", DYNAMIC_SHAPE),
    ):
        if listed(table, space, name):
            flags.add(flag)
    if any(p.name == "generator" for s in signatures for p in s.params) and "tensor" in returns:
        flags.add("random")
    unprobed = name in UNPROBED_NAMES or any(part in name for part in UNPROBED)
    if "mutates" not in flags and not unprobed:
        flags |= probe(value, signatures, declared & {"pointwise"})
    elif "mutates" in flags and "pointwise" in declared | operators.flags(name.rstrip("_")):
        flags.add("pointwise")
    if "random" in flags:
        flags.discard("pointwise")
    if not any(word.startswith("tensor") for word in returns):
        flags -= {"alias"} if returns <= {"none", "static", "number"} else set()
    if not returns & {"tensor"} or "tensor_list" in returns:
        flags -= {"keeps", "keeps_int", "bool", "float", "reduces", "pointwise"}
    if listed(POINTWISE, space, name):
        flags.add("pointwise")
    if "bool" in flags:
        flags -= {"keeps", "keeps_int"}
    return flags


def entry(name: str, signatures: list[Signature], flags: set[str]) -> dict[str, Any]:
    calls: list[list[str]] = []
    for signature in signatures:
        call = [signature.returns, signature.encode()]
        dynamic = DYNAMIC_CALLS.get((name, signature.returns))
        if dynamic is not None and dynamic(signature):
            call.append("dynamic_shape")
        if call not in calls:
            calls.append(call)
    return {"calls": calls, "flags": sorted(flags)} if flags else {"calls": calls}


def with_reads(space: str, name: str, signatures: list[Signature]) -> list[Signature]:
    forced = "number" if name in READS else RETURNS.get(f"{space}.{name}")
    return [Signature(forced or s.returns, s.params) for s in signatures]


def table() -> dict[str, Any]:
    """The whole table, from the torch that is installed."""
    operators = Operators()
    variable = stub("_C/_VariableFunctions.pyi")
    functional = {
        **variable,
        **stub("_C/_nn.pyi"),
        **stub("nn/functional.py"),
        **stub("nn/functional.pyi"),
        **unannotated("functional"),
    }
    main = {**stub("__init__.py"), **stub("random.py"), **stub("_C/__init__.pyi"),
            **stub("functional.py"), **variable, **unannotated("torch")}  # fmt: skip
    methods = {
        **stub("_tensor.py", ("Tensor",), method=True),
        **stub("_C/__init__.pyi", ("TensorBase", "_TensorBase"), method=True),
        **unannotated("Tensor"),
    }
    entries: dict[str, Any] = {}

    def add(space: str, name: str, value: Any, signatures: list[Signature]) -> None:
        signatures = with_reads(space, name, signatures)
        if space == "Tensor":
            led = [Signature(s.returns, (Param("self", "T"), *s.params)) for s in signatures]
        else:
            led = signatures
        flags = flags_of(space, name, value, led, operators)
        entries[f"{space}.{name}"] = entry(name, signatures, flags)

    for space, module, source in (
        ("torch", torch, main),
        ("torch.nn.functional", torch.nn.functional, functional),
        ("torch.nn.init", torch.nn.init, stub("nn/init.py")),
        ("torch.linalg", torch.linalg, {}),
        ("torch.special", torch.special, {}),
        ("torch.fft", torch.fft, {}),
    ):
        for name, value in public(module).items():
            if space == "torch.nn.init" and not name.endswith("_") and name != "calculate_gain":
                continue  # deprecated spellings
            schema_name = f"{space.rpartition('.')[2]}_{name}"
            signatures = source.get(name) or operators.signatures(schema_name)
            add(space, name, value, signatures or [Signature("other", ())])
    for name, signatures in methods.items():
        if hasattr(torch.Tensor, name):
            add("Tensor", name, getattr(torch.Tensor, name), signatures)
    for name, signatures in properties().items():
        if hasattr(torch.Tensor, name) and not name.startswith("_"):
            made = entry(name, signatures, {"alias"} if listed(ALIAS, "Tensor", name) else set())
            entries[f"Tensor.{name}"] = {**made, "property": True}
    return {"torch": torch.__version__.partition("+")[0], "operations": entries,
            "modules": module_entries()}  # fmt: skip


def render(made: dict[str, Any]) -> str:
    """One entry a line, sorted, so that a new torch shows as a readable diff."""
    lines = [f'{{\n"torch": {json.dumps(made["torch"])}']
    for section in ("modules", "operations"):
        rows = [
            f"{json.dumps(name)}: {json.dumps(row, sort_keys=True, separators=(',', ':'))}"
            for name, row in sorted(made[section].items())
        ]
        lines.append(f'"{section}": {{\n' + ",\n".join(rows) + "\n}")
    return ",\n".join(lines) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    check = parser.parse_args().check
    warnings.simplefilter("ignore")
    torch.random.manual_seed(0)
    torch.set_num_threads(1)
    text = render(table())
    if not check:
        TABLE.write_text(text, encoding="utf-8")
        return 0
    if TABLE.exists() and TABLE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TABLE} is not what this script makes under torch {torch.__version__}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
