"""Makes an object of a class whose constructor has to be told something, from small guesses.

A configuration is made from its own class, with small sizes for what it calls sizes; a number gets a
value that its name suggests. The tries and their order follow from the code alone, so every worker
makes the same object. What is made of it, and whether it can be called, is not known here.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import traceback
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch

# What a name says of a size; the first that matches counts. Everything divides by the number of heads.
_SIZES: tuple[tuple[str, int], ...] = (
    (r"vocab|num_embeddings|num_tokens|codebook_size", 64),
    (r"max_.*(position|length|seq)|n_positions|max_len|block_size|context_length|seq_len", 32),
    (r"(layer|block)_?(id|idx|index|number)$", 0),
    (r"layers?$|depth$|n_layer|num_blocks", 2),
    (r"groups?$|key_value_heads|kv_heads", 2),
    (r"heads?$|n_head", 2),
    (r"head_dim|head_size|d_kv|dim_head|qk_.*dim|v_head_dim", 8),
    (r"experts_per_tok|top_?k$", 2),
    (r"experts?$|num_labels|num_classes|n_classes|out_classes", 4),
    (r"window", 4),
    (r"kernel", 3),
    (r"patch_size|stride|dilation", 2),
    (r"image_size|img_size|resolution", 16),
    (r"audio_channels$", 1),
    (r"num_channels|in_chans?$", 3),
    (r"intermediate|ffn|d_ff|inner|mlp_dim|feedforward", 32),
    (r"hidden|d_model|embed|n_embd|channels|width|features|dims?$|size$|planes", 16),
)
_OTHERS = (16, 8, 4, 1)
_MOST_LAYERS = 32
_FRACTION = re.compile(
    r"(^|_)(eps|epsilon|dropout|prob|rate|scale|temperature|alpha|beta|gamma|momentum)($|_)"
)
_CONFIG = re.compile(r"(^|_)(config|cfg|args|params|hparams)$")
_made: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def construct(cls: type, module: types.ModuleType) -> Any:
    """An object of a class that cannot be constructed without arguments.

    Raises:
        TypeError: if none of the guesses is taken.
    """
    needed = _required(cls)
    error: Exception | None = None
    for guesses in _guesses(cls, needed, module):
        try:
            made = _made_of(cls, dict(guesses))
        except Exception as failed:
            error = error or failed
            continue
        with contextlib.suppress(TypeError):
            _made[made] = ", ".join(f"{name}={_told(value)}" for name, value in guesses)
        return made
    names = ", ".join(parameter.name for parameter in needed)
    raise TypeError(
        f"nothing that was tried for {names} is taken ({type(error).__name__}: {error})"
    )


def _made_of(cls: type, arguments: dict[str, Any]) -> Any:
    """An object; where a layer wants a list, of which a whole model makes the number, it gets one."""
    torch.manual_seed(0)
    try:
        return cls(**arguments)
    except TypeError as error:
        line = traceback.extract_tb(error.__traceback__)[-1].line
        found = re.search(r"\b(\w+)\.(\w+)\[", line or "")
        config = arguments.get(found.group(1)) if found else None
        if found is None or not isinstance(size := getattr(config, found.group(2), None), int):
            raise
    setattr(config, found.group(2), [size] * _MOST_LAYERS)
    torch.manual_seed(0)
    return cls(**arguments)


def made_with(made: Any) -> str | None:
    """The arguments that were guessed for an object, if any were."""
    try:
        return _made.get(made)
    except TypeError:
        return None


def _required(cls: type) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(cls).parameters.values())
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in parameters if p.default is p.empty and p.kind not in variadic]


_Guesses = list[tuple[str, Any]]


def _guesses(
    cls: type, needed: list[inspect.Parameter], module: types.ModuleType
) -> Iterator[_Guesses]:
    """All arguments, the likeliest first: sizes by their names, then all sizes alike."""
    if any(p.kind is p.POSITIONAL_ONLY for p in needed):
        return
    tried = []
    for small in (True, False):
        for other in _OTHERS:
            found = [(p.name, _guess(p, cls, module, small, other)) for p in needed]
            # What is no size is made anew each time, and alike.
            alike = [v if isinstance(v, int | float) else (type(v), small) for _, v in found]
            if alike in tried:
                continue
            tried.append(alike)
            yield found
            if all(isinstance(value, int) for _, value in found):
                yield [(name, other) for name, _ in found]


def _guess(
    parameter: inspect.Parameter, cls: type, module: types.ModuleType, small: bool, other: int
) -> Any:
    name, kind = parameter.name, _class_of(parameter.annotation, module)
    if _CONFIG.search(name) or (kind is not None and kind.__name__.endswith(("Config", "Args"))):
        config = kind or getattr(cls, "config_class", None) or _config_class(cls, module)
        if config is not None:
            return _config(config, small)
    if kind is bool:
        return False
    if kind is float or _FRACTION.search(name):
        return 0.5 if "eps" not in name else 1e-5
    if kind is str or re.search(r"^act|activation|_fn$", name):
        return "gelu" if kind is str else torch.nn.functional.relu
    if kind is not None and issubclass(kind, torch.nn.Module):
        return torch.nn.Identity()
    if re.search(r"norm_layer|act_layer", name):
        return torch.nn.LayerNorm if "norm" in name else torch.nn.GELU
    size = size_of(name)
    return other if size is None else size


def size_of(name: str) -> int | None:
    """A small size for something of this name, if it is the name of a size."""
    return next((size for pattern, size in _SIZES if re.search(pattern, name)), None)


def _class_of(annotation: Any, module: types.ModuleType) -> type | None:
    if isinstance(annotation, str):
        with contextlib.suppress(Exception):
            annotation = eval(annotation, vars(module))
    known = isinstance(annotation, type) and annotation is not inspect.Parameter.empty
    return annotation if known else None


def _config_class(cls: type, module: types.ModuleType) -> type | None:
    """The configuration of the module whose name has most in common with the class's."""
    found = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type) and name.endswith(("Config", "Configuration", "Args"))
    ]

    def common(config: type) -> int:
        pairs = zip(config.__name__, cls.__name__, strict=False)
        return next((n for n, (a, b) in enumerate(pairs) if a != b), 0)

    return max(found, key=common, default=None)


def _config(kind: type, small: bool) -> Any:
    """A configuration by its class, made small where its own names say what is a size."""
    names = [
        p.name
        for p in inspect.signature(kind).parameters.values()
        if isinstance(p.default, int) and not isinstance(p.default, bool)
    ]
    sizes = {name: size for name in names if (size := size_of(name)) is not None}
    try:
        config = kind(**sizes) if small else kind()
    except Exception:
        config = kind()
    # Transformers chooses its attention when a whole model is loaded; a layer alone has none yet.
    if getattr(config, "_attn_implementation", "") is None:
        config._attn_implementation = "eager"
    return config


def _told(value: Any) -> str:
    text = repr(value) if isinstance(value, bool | int | float | str) else ""
    return text or (
        value.__name__ if hasattr(value, "__name__") else f"{type(value).__name__}(...)"
    )
