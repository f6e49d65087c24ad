"""Run torch.nn's modules and note what their forward returns, changes and shares."""

import re
from typing import Any

import torch
from torch import Tensor, nn

from torch_table.probe import storages

Recipe = tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]
"""Constructor arguments, constructor keywords, inputs of forward."""

BREAKING = {"RNN", "LSTM", "GRU"}


def _image(dimensions: int, channels: int = 4, size: int = 4) -> Tensor:
    return torch.rand(2, channels, *[size] * dimensions)


def recipes(name: str) -> list[Recipe]:
    """Ways to build and call a module; none for containers and abstract classes."""
    x = torch.rand(2, 4)
    signed = torch.randn(2, 4)
    labels = torch.tensor([1, 3])
    signs = torch.tensor([1.0, -1.0])
    match = re.search(r"(\d)d$", name)
    dims = int(match[1]) if match else 2
    image = _image(dims)
    if name.startswith("Lazy") or name == "Sequential":
        return []
    if re.match(r"Conv", name):
        return [((4, 4, 1), {}, (image,))]
    if re.match(r"(BatchNorm|InstanceNorm)", name):
        return [
            ((4,), {"affine": True, "track_running_stats": True}, (image,)),
            ((4,), {}, (image,)),
        ]
    if re.match(r"(Max|Avg)Pool", name):
        return [((2,), {}, (image,)), ((1,), {}, (image,))]
    if name.startswith("Adaptive") and "Pool" in name:
        return [((2,), {}, (image,)), ((4,), {}, (image,)), ((1,), {}, (image,))]
    if name.startswith("LPPool"):
        return [((2, 2), {}, (image,)), ((1, 1), {}, (image,))]
    if name.startswith("FractionalMaxPool"):
        return [((2,), {"output_size": 2}, (image,))]
    if name.startswith("MaxUnpool"):
        small = _image(dims, size=2)
        return [((2,), {}, (small, torch.zeros_like(small, dtype=torch.int64)))]
    if "Pad" in name and match:
        value = (0.0,) if name.startswith("Constant") else ()
        return [((1, *value), {}, (image,)), ((0, *value), {}, (image,))]
    if re.match(r"Dropout\dd", name):
        return [((), {}, (image,)), ((0.0,), {}, (image,))]
    simple: dict[str, list[Recipe]] = {
        "AdaptiveLogSoftmaxWithLoss": [((4, 8, [2]), {}, (x, labels))],
        "BCELoss": [((), {}, (x, x))],
        "Bilinear": [((4, 4, 3), {}, (x, x))],
        "ChannelShuffle": [((2,), {}, (image,)), ((1,), {}, (image,))],
        "CosineEmbeddingLoss": [((), {}, (x, x, signs))],
        "CosineSimilarity": [((), {}, (x, x))],
        "CrossEntropyLoss": [((), {}, (x, labels))],
        "CrossMapLRN2d": [((2,), {}, (image,))],
        "CTCLoss": [((), {}, (torch.rand(5, 2, 4).log_softmax(-1), torch.ones(2, 2).long(),
                             (5, 5), (2, 2)))],
        "Embedding": [((4, 3), {}, (labels,))],
        "EmbeddingBag": [((4, 3), {}, (labels[None],))],
        "Flatten": [((), {}, (image,))],
        "Fold": [(((2, 2), 1), {}, (torch.rand(2, 4, 4),))],
        "GaussianNLLLoss": [((), {}, (x, x, x))],
        "GroupNorm": [((2, 4), {}, (image,))],
        "GRU": [((4, 3, 2), {"dropout": d}, (torch.rand(2, 5, 4),)) for d in (0.0, 0.5)],
        "GRUCell": [((4, 3), {}, (x,))],
        "Identity": [((), {}, (x,))],
        "LayerNorm": [((4,), {}, (x,)), ((4,), {"elementwise_affine": False}, (x,))],
        "Linear": [((4, 3), {}, (x,)), ((4, 4), {"bias": False}, (x,))],
        "LinearCrossEntropyLoss": [((4, 5), {}, (x, labels))],
        "LocalResponseNorm": [((2,), {}, (image,))],
        "LSTM": [((4, 3, 2), {"dropout": d}, (torch.rand(2, 5, 4),)) for d in (0.0, 0.5)],
        "LSTMCell": [((4, 3), {}, (x,))],
        "MarginRankingLoss": [((), {}, (x[:, 0], x[:, 1], signs))],
        "MultiheadAttention": [((4, 2), {"dropout": d}, (image[0],) * 3) for d in (0.0, 0.5)],
        "MultiLabelMarginLoss": [((), {}, (x, torch.zeros(2, 4).long()))],
        "MultiMarginLoss": [((), {}, (x, labels))],
        "NLLLoss": [((), {}, (x, labels))],
        "NLLLoss2d": [((), {}, (image, torch.ones(2, 4, 4).long()))],
        "PixelShuffle": [((2,), {}, (image,)), ((1,), {}, (image,))],
        "PixelUnshuffle": [((2,), {}, (image,)), ((1,), {}, (image,))],
        "RMSNorm": [((4,), {}, (x,)), ((4,), {"elementwise_affine": False}, (x,))],
        "RNN": [((4, 3, 2), {"dropout": d}, (torch.rand(2, 5, 4),)) for d in (0.0, 0.5)],
        "RNNCell": [((4, 3), {}, (x,))],
        "Softmax2d": [((), {}, (image,))],
        "Threshold": [((0.5, 0.0), {}, (x,))],
        "Transformer": [((4, 2, 1, 1, 8), {}, (image[0], image[0]))],
        "TransformerDecoder": [((nn.TransformerDecoderLayer(4, 2, 8), 1), {},
                                (image[0], image[0]))],
        "TransformerEncoder": [((nn.TransformerEncoderLayer(4, 2, 8), 1), {}, (image[0],))],
        "TransformerDecoderLayer": [((4, 2, 8), {}, (image[0], image[0]))],
        "TransformerEncoderLayer": [((4, 2, 8), {}, (image[0],))],
        "TripletMarginLoss": [((), {}, (x, x, x))],
        "TripletMarginWithDistanceLoss": [((), {}, (x, x, x))],
        "Unflatten": [((1, (2, 2)), {}, (x,))],
        "Unfold": [((2,), {}, (image,)), ((1,), {}, (image[:1].clone(),))],
        "Upsample": [((), {"scale_factor": f}, (image,)) for f in (2, 1)],
        "UpsamplingBilinear2d": [((), {"scale_factor": f}, (image,)) for f in (2, 1)],
        "UpsamplingNearest2d": [((), {"scale_factor": f}, (image,)) for f in (2, 1)],
    }  # fmt: skip
    if name in simple:
        return simple[name]
    if name in ("Softmax", "LogSoftmax", "Softmin", "GLU"):
        return [((-1,), {}, (x,))]
    if name.endswith("Loss"):
        return [((), {}, (x, x)), ((), {"reduction": "none"}, (x, x))]
    if name == "PairwiseDistance":
        return [((), {}, (x, x))]
    return [((), {}, (signed,)), ((), {}, (image - 0.5,))]


def _flags(kind: type[nn.Module], recipe: Recipe, training: bool) -> tuple[set[str], str]:
    args, kwargs, inputs = recipe
    module = kind(*args, **kwargs).train(training)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    own = storages(list(module.state_dict().values()))
    random_state = torch.get_rng_state()
    result = module(*inputs)
    flags = set()
    if not storages(list(inputs)) & storages(result) and not own & storages(result):
        flags.add("fresh")
    if any(not torch.equal(value, before[name]) for name, value in module.state_dict().items()):
        flags.add("stateful")
    if not torch.equal(random_state, torch.get_rng_state()):
        flags.add("random")
    return flags, "tensor" if isinstance(result, Tensor) else "tuple"


def module_entry(name: str, kind: type[nn.Module]) -> dict[str, Any]:
    """What the table says of one class."""
    lazy = name.startswith("Lazy")
    like = name.removeprefix("Lazy")
    runs = []
    for recipe in recipes(like):
        for training in (False, True):
            try:
                runs.append(_flags(getattr(nn, like), recipe, training))
            except (TypeError, ValueError, RuntimeError, NotImplementedError, AttributeError):
                continue
    flags: set[str] = set()
    if runs and all("fresh" in found for found, _ in runs) and not lazy:
        flags.add("fresh")
    flags |= set().union(*(found - {"fresh"} for found, _ in runs)) if runs else set()
    if lazy or name == "SyncBatchNorm":
        flags.add("stateful")
    if like in BREAKING:
        flags.add("breaks")
    returns = {returned for _, returned in runs} or (
        {"tensor"} if name == "SyncBatchNorm" else set()
    )
    row: dict[str, Any] = {"returns": returns.pop() if len(returns) == 1 else "other"}
    return {**row, "flags": sorted(flags)} if flags else row


def module_entries() -> dict[str, Any]:
    """Every module class of torch.nn by its qualified name."""
    return {
        f"torch.nn.{name}": module_entry(name, kind)
        for name, kind in sorted(vars(nn).items())
        if isinstance(kind, type) and issubclass(kind, nn.Module)
    }
