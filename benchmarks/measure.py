"""Run one row of the break table in this process and print one JSON line.

Which transformers is measured is decided by PYTHONPATH, so each run is a fresh process. Tensors go
to `--save`, since only the driver sees both sides.

    python benchmarks/measure.py t5 --save /tmp/t5.pt
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import capture
import models
import torch

Leaves = dict[str, Any]
Saved = dict[str, Leaves]


def leaves(value: Any, name: str = "out") -> Leaves:
    """Every tensor and plain value in an output, by its path; caches are looked into as well."""
    if isinstance(value, torch.Tensor):
        return {name: value.detach().clone()}
    if value is None or isinstance(value, bool | int | float | str):
        return {name: value}
    if isinstance(value, Mapping):
        children = [(f"{name}.{k}", v) for k, v in value.items()]
    elif isinstance(value, list | tuple):
        children = [(f"{name}[{i}]", v) for i, v in enumerate(value)]
    else:
        children = [(f"{name}.{k}", v) for k, v in sorted(getattr(value, "__dict__", {}).items())]
    found: Leaves = {f"{name}!type": type(value).__name__}
    for child, item in children:
        found |= leaves(item, child)
    return found


def state(model: torch.nn.Module) -> Leaves:
    """Parameters, buffers (persistent or not), and tensors kept in plain attributes."""
    found: Leaves = {}
    for prefix, module in model.named_modules():
        own = {**module._parameters, **module._buffers}
        found |= {f"{prefix}.{k}": v.detach().clone() for k, v in own.items() if v is not None}
        plain = {k: v for k, v in vars(module).items() if isinstance(v, torch.Tensor)}
        found |= {f"{prefix}.{k}!attribute": v.detach().clone() for k, v in plain.items()}
    return found | {"shared!alias": shared(model)}


def shared(model: torch.nn.Module) -> str:
    """Which names are the same memory: an in-place store to one would change the others."""
    groups: dict[int, list[str]] = defaultdict(list)
    for prefix, module in model.named_modules():
        for name, value in {**vars(module), **module._parameters, **module._buffers}.items():
            if isinstance(value, torch.Tensor) and value.numel():
                groups[value.data_ptr()].append(f"{prefix}.{name}")
    return "; ".join(sorted(" = ".join(sorted(set(g))) for g in groups.values() if len(g) > 1))


def compiled(model: torch.nn.Module, recorder: capture.Recorder) -> Callable[..., Any]:
    return torch.compile(model, backend=recorder, dynamic=False)


def call(function: Callable[..., Any], inputs: models.Inputs) -> Any:
    torch.manual_seed(models.SEED)
    return function(**inputs)


def forward(row: str, saved: Saved) -> dict[str, Any]:
    """One call without gradients: the figures of the table."""
    case = models.build(row)
    with capture.recording() as recorder, torch.no_grad():
        out = call(compiled(case.model, recorder), case.calls[0])
    saved["forward.compiled"] = leaves(out)
    case = models.build(row)
    with torch.no_grad():
        saved["forward.eager"] = leaves(call(case.model, case.calls[0]))
    return recorder.summary()


def sequence(row: str, variant: str, saved: Saved) -> dict[str, Any]:
    """All calls of the row in order: outputs and state after each, graphs compiled for each."""
    graphs = []
    key = f"state.{variant}" if variant else "state"
    case = models.build(row, variant)
    with capture.recording() as recorder, torch.no_grad():
        function = compiled(case.model, recorder)
        for number, inputs in enumerate(case.calls, 1):
            before = recorder.graphs
            out = call(function, inputs)
            graphs.append(recorder.graphs - before)
            saved[f"{key}.compiled.{number}"] = leaves(out) | state(case.model)
    case = models.build(row, variant)
    with torch.no_grad():
        for number, inputs in enumerate(case.calls, 1):
            out = call(case.model, inputs)
            saved[f"{key}.eager.{number}"] = leaves(out) | state(case.model)
    return {"graphs_by_call": graphs}


def differentiable(value: Any) -> list[torch.Tensor]:
    """The tensors of an output that gradients flow from, in a fixed order."""
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [t for item in value for t in differentiable(item)]
    return []


def loss_of(out: Any) -> torch.Tensor:
    """A randomly weighted sum: after a layer norm a plain sum has no gradient to speak of."""
    generator = torch.Generator().manual_seed(models.SEED)
    total = torch.zeros((), dtype=torch.float64)
    for tensor in differentiable(out):
        weights = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        total = total + (tensor.double() * weights).mean()
    return total


def backward(function: Callable[..., Any], case: models.Case) -> Leaves:
    loss = loss_of(call(function, case.calls[0]))
    loss.backward()
    grads = {f"grad {n}": p.grad for n, p in case.model.named_parameters()}
    return {"loss": loss.detach(), **grads}


def gradients(row: str, variant: str, saved: Saved) -> dict[str, Any]:
    """One call and its backward pass, dropout off."""
    key = f"gradients.{variant}" if variant else "gradients"
    case = models.build(row, variant)
    with capture.recording() as recorder:
        saved[f"{key}.compiled"] = backward(compiled(case.model, recorder), case)
    case = models.build(row, variant)
    saved[f"{key}.eager"] = backward(case.model, case)
    return recorder.summary()


def attempt(probe: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """A probe that fails is a result: the rest of the row is still measured."""
    try:
        return probe(*args)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).strip()[:500]}"}


def measure(row: str, only_forward: bool) -> tuple[dict[str, Any], Saved]:
    """All probes of one row; `forward` first, while nothing has run in this process."""
    saved: Saved = {}
    result = {"forward": attempt(forward, row, saved)}
    for variant in () if only_forward else ("", *models.ROWS[row].variants):
        suffix = f".{variant}" if variant else ""
        result[f"state{suffix}"] = attempt(sequence, row, variant, saved)
        result[f"gradients{suffix}"] = attempt(gradients, row, variant, saved)
    return result, saved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("row", choices=models.ROWS)
    parser.add_argument("--save", type=Path, help="file for the outputs, state and gradients")
    parser.add_argument("--forward", action="store_true", help="only the counts of one call")
    parser.add_argument("--ignore-logging", action="store_true", help="Dynamo's own setting")
    options = parser.parse_args()

    torch.set_num_threads(1)
    import transformers

    if options.ignore_logging:
        capture.ignore_logging()
    result, saved = measure(options.row, options.forward)
    if options.save:
        torch.save(saved, options.save)
    print(json.dumps({"transformers": transformers.__file__, **result}))


if __name__ == "__main__":
    main()
