"""The record of what a piece of code does, and the lists of calls that are known to do nothing else.

Data only: `effects` fills the record.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from gbfix.analysis.flow import Condition

PURE_BUILTINS = frozenset(
    "abs all any bool complex dict divmod enumerate filter float frozenset getattr hasattr "
    "hash id int isinstance issubclass iter len list map max min next pow range repr reversed "
    "round set slice sorted str sum super tuple type zip".split()
)
CONTAINER_CHANGES = frozenset(
    "append extend insert remove pop popitem clear update add discard setdefault sort reverse "
    "appendleft popleft write writelines".split()
)
PURE_PREFIXES = ("math.", "torch.finfo", "torch.iinfo", "torch.Size", "torch.device", "operator.")
PURE_TORCH = frozenset(
    {"torch.cond", "torch.no_grad", "torch.autocast", "torch.is_tensor", "torch.is_grad_enabled"}
    | {"torch.compiler.is_compiling", "torch.is_autocast_enabled", "torch.set_grad_enabled"}
    | {
        "torch.amp.autocast",
        "torch.enable_grad",
        "torch.get_default_dtype",
        "torch.broadcast_shapes",
    }
    | {
        "os.environ.get",
        "os.getenv",
        "torch.distributed.get_rank",
        "torch.distributed.get_world_size",
    }
    | {"torch.distributed.is_initialized", "torch.distributed.is_available"}
)
# Raise on some data, so they may not run where the original would not have run them.
PARTIAL = frozenset(
    "gather index_select take take_along_dim embedding scatter scatter_add index_add "
    "index_copy one_hot multinomial bernoulli cholesky inverse inv solve lstsq eigh svd "
    "cross_entropy nll_loss bincount repeat_interleave binary_cross_entropy poisson normal "
    "index_put".split()
)


@dataclass(eq=False)
class Effects:
    """Collected effects.

    Attributes:
        loads, stores: local names read and bound, in order of first occurrence.
        attributes: dotted attributes that are assigned, with the assigning nodes.
        mutated: expressions changed in place, with the changing node.
        unknown: by what is called, calls whose effects are unknown: that, behind the functions that
            lead to it.
        output: prints, logs and warnings.
        random, dynamic, scalar, partial, stateful: draws random numbers; has a data-dependent
            shape; reads a Python scalar from data; may raise on some data; calls a layer that
            changes its own state.
        placed: takes an element at a place that a tensor without dimensions holds.
        control: `return`, `raise`, `break`, `continue`, `yield`, `await`, `global`, `del` nodes.
        conditions: tests that decide control flow, in order of first occurrence.
        zero_super: uses `super()` without arguments, which a nested function cannot.
    """

    loads: dict[str, None] = field(default_factory=dict)
    stores: dict[str, None] = field(default_factory=dict)
    attributes: dict[str, list[ast.AST]] = field(default_factory=dict)
    mutated: list[tuple[ast.expr, ast.AST]] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    output: list[ast.AST] = field(default_factory=list)
    random: list[ast.AST] = field(default_factory=list)
    dynamic: list[ast.AST] = field(default_factory=list)
    scalar: list[ast.AST] = field(default_factory=list)
    partial: list[ast.AST] = field(default_factory=list)
    stateful: list[ast.AST] = field(default_factory=list)
    placed: list[ast.AST] = field(default_factory=list)
    control: list[ast.AST] = field(default_factory=list)
    conditions: dict[Condition, None] = field(default_factory=dict)
    zero_super: bool = False

    @property
    def first_unknown(self) -> str | None:
        """The first call whose effects are unknown, behind the functions that lead to it."""
        return next(iter(self.unknown.values()), None)

    @property
    def pure(self) -> bool:
        """Nothing but computing (random draws and scalar reads aside)."""
        return not (
            self.attributes
            or self.mutated
            or self.unknown
            or self.output
            or self.stateful
            or self.control
        )
