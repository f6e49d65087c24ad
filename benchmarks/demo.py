"""Shows gbfix at work on one file: the breaks it finds, the diff it makes, and what that changes.

    make demo

Rewrites a copy of `demo_model.py` with the command line, then runs the original and the rewritten
model in eager mode and under `torch.compile(backend="eager")`. Exits with 1 if the rewritten model
does not compile in one graph, or if any output differs.
"""

from __future__ import annotations

import importlib.util
import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from capture import Recorder, recording

SOURCE = Path(__file__).with_name("demo_model.py")
BATCH, LENGTH, SIZE = 2, 8, 32
INPUTS = 6


@dataclass(frozen=True)
class Scenario:
    """A way of calling the model: its precision, with or without a mask, and what is special."""

    name: str
    dtype: torch.dtype = torch.float32
    masked: bool = True
    overflow: bool = False

    def model(self, module: ModuleType) -> torch.nn.Module:
        """A fresh model with the same random weights each time."""
        torch.manual_seed(0)
        model: torch.nn.Module = module.Encoder(SIZE)
        if self.overflow:
            # Some values of the last layer leave the range of float16, as in a trained T5.
            with torch.no_grad():
                model.get_parameter("layers.1.final_norm.weight").fill_(40_000)
        return model.to(self.dtype).eval()

    def inputs(self) -> list[tuple[Any, ...]]:
        """Arguments for several calls, the same each time."""
        generator = torch.Generator().manual_seed(1)
        mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
        mask[:, LENGTH // 2 :] = 0
        embeddings = torch.randn(INPUTS, BATCH, LENGTH, SIZE, generator=generator)
        rest = (mask,) if self.masked else ()
        return [(sample.to(self.dtype), *rest) for sample in embeddings]


SCENARIOS = (
    Scenario("float32, with a mask"),
    Scenario("float32, no mask", masked=False),
    Scenario("float16, overflowing", dtype=torch.float16, overflow=True),
)


def gbfix(folder: Path, *arguments: str, only_summary: bool = False) -> None:
    """Run the command line in a folder and show what it prints, or only the last line of it."""
    print(f"\n$ gbfix {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "gbfix", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    shown = [text.rstrip() for text in (done.stdout, done.stderr) if text.strip()]
    text = "\n\n".join(shown)
    print(text.splitlines()[-1] if only_summary and text else text)
    if done.returncode not in (0, 1):
        raise SystemExit(f"gbfix {arguments[0]} failed with exit code {done.returncode}")


def load(path: Path, name: str) -> ModuleType:
    """Import a file under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def outputs(function: Callable[..., Any], scenario: Scenario) -> list[torch.Tensor]:
    """What a model gives for all inputs of a scenario."""
    with torch.no_grad():
        return [function(*arguments) for arguments in scenario.inputs()]


def compiled_outputs(module: ModuleType, scenario: Scenario) -> list[torch.Tensor]:
    """The same under `torch.compile`; none where a graph break remains."""
    model = torch.compile(scenario.model(module), backend="eager", fullgraph=True)
    try:
        return outputs(model, scenario)
    except RuntimeError as error:
        print(f"{scenario.name}: {str(error).splitlines()[0]}", file=sys.stderr)
        return []


def capture_first(module: ModuleType, scenario: Scenario) -> Recorder:
    """What Dynamo makes of the first call."""
    model = scenario.model(module)
    with recording() as recorder, torch.no_grad():
        torch.compile(model, backend=recorder, dynamic=False)(*scenario.inputs()[0])
    return recorder


def same_bits(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    """Whether all tensors are equal to the last bit."""
    return all(
        a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
        for a, b in zip(mine, theirs, strict=True)
    )


def close(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    """Whether all tensors are equal up to the rounding of their type."""
    try:
        torch.testing.assert_close(mine, theirs, equal_nan=True)
    except AssertionError:
        return False
    return True


def heads_used(module: ModuleType, scenario: Scenario) -> set[str]:
    """The heads that the inputs reach: both sides of the branch between them have to run."""
    model = scenario.model(module)
    used: set[str] = set()
    for name in ("small_head", "large_head"):
        head = model.get_submodule(name)
        head.register_forward_hook(lambda *_, name=name: used.add(name))
    outputs(model, scenario)
    return used


def compare(before: ModuleType, after: ModuleType) -> list[str]:
    """Run all scenarios on both models, print a table, and return what is wrong."""
    wrong: list[str] = []
    heads: set[str] = set()
    print('Under torch.compile(backend="eager"), first call:\n')
    print(f"{'':24}{'graphs':>16}{'graph breaks':>20}")
    print(f"{'':24}{'before   after':>16}{'before   after':>20}")
    for scenario in SCENARIOS:
        old, new = capture_first(before, scenario), capture_first(after, scenario)
        counts = f"{old.graphs:8}{new.graphs:8}{len(old.breaks):12}{len(new.breaks):8}"
        print(f"{scenario.name:24}{counts}")
        if not old.breaks:
            wrong.append(f"{scenario.name}: the original has no graph break to remove")
        if new.graphs != 1 or new.breaks:
            wrong.append(f"{scenario.name}: the rewritten model is not one graph")

    print(f"\nOutputs of {INPUTS} calls, against the original in eager mode:\n")
    for scenario in SCENARIOS:
        torch.compiler.reset()
        reference = outputs(scenario.model(before), scenario)
        eager = same_bits(reference, outputs(scenario.model(after), scenario))
        equal = close(reference, compiled_outputs(after, scenario))
        heads |= heads_used(before, scenario)
        print(
            f"{scenario.name:24}eager {'bit for bit equal' if eager else 'DIFFERENT'}, "
            f"compiled with fullgraph=True {'equal' if equal else 'DIFFERENT'}"
        )
        if not all(bool(torch.isfinite(output).all()) for output in reference):
            wrong.append(f"{scenario.name}: the outputs are not finite, so they show nothing")
        if not (eager and equal):
            wrong.append(f"{scenario.name}: outputs differ")
    print(f"\nHeads that these calls went through: {', '.join(sorted(heads))}.")
    if len(heads) != 2:
        wrong.append("only one side of the branch between the heads has run")
    return wrong


def main() -> int:
    """Check, diff, apply, measure; 0 if the rewrite did what it should."""
    logging.disable()  # the model's own warnings
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rewritten = folder / "demo_model.py"
        shutil.copy(SOURCE, rewritten)
        gbfix(folder, "check", "demo_model.py")
        gbfix(folder, "apply", "--diff", "demo_model.py")
        gbfix(folder, "apply", "demo_model.py", only_summary=True)
        print()
        wrong = compare(load(SOURCE, "demo_before"), load(rewritten, "demo_after"))
    for sentence in wrong:
        print(f"demo: {sentence}", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
