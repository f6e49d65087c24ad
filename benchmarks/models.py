"""The rows of the break table: one small random model each, with the calls that are made to it.

Only what a row needs for its break to exist is set; everything else is as
small as the class allows. Transformers is imported inside the builders, so that the driver can
list the rows without paying for it (and without importing the tree that is not under test).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Inputs = dict[str, Any]

SEED = 0
VOCABULARY = 128
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
}
ENCODER_DECODER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 2,
    "pad_token_id": 1,
}


@dataclass
class Case:
    """A model in eval mode and the inputs it is called with, one after another."""

    model: torch.nn.Module
    calls: list[Inputs]


@dataclass(frozen=True)
class Row:
    """One row of the table: how to build it, and what the peer published for it."""

    build: Callable[[], Case]
    stock: int
    """Graphs minus one on stock transformers, as the peer publishes it."""
    published: str
    """The peer's figure after its rewrite, from its paper."""
    folders: tuple[str, ...]
    """The model folders whose code runs, under `transformers/models`."""
    left: str = ""
    """What stands in the way where breaks are left."""
    variants: tuple[str, ...] = field(default=())
    """Names in `VARIANTS`: other states of the model in which equality is checked as well."""


def ids(length: int = 8) -> torch.Tensor:
    """Token ids that avoid the special tokens 0 to 2."""
    return torch.randint(3, VOCABULARY, (1, length))


def thrice(model: torch.nn.Module, **inputs: Any) -> Case:
    """A case that makes the same call three times."""
    return Case(model.eval(), [inputs] * 3)


def t5() -> Case:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=64,
        d_kv=32,
        d_ff=128,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config)
    return thrice(model, input_ids=ids(), decoder_input_ids=ids())


def _fp16(model: torch.nn.Module) -> Case:
    """The call whose fp16 overflow guard breaks: one decoder token and a mask of ones."""
    tokens = ids()
    mask = torch.ones_like(tokens)
    return thrice(
        model.half(), input_ids=tokens, attention_mask=mask, decoder_input_ids=ids(length=1)
    )


def _bart() -> torch.nn.Module:
    from transformers import BartConfig, BartForConditionalGeneration

    return BartForConditionalGeneration(BartConfig(**ENCODER_DECODER))


def bart() -> Case:
    return thrice(_bart(), input_ids=ids(), decoder_input_ids=ids())


def bart_fp16() -> Case:
    return _fp16(_bart())


def _marian() -> torch.nn.Module:
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(MarianConfig(**ENCODER_DECODER))


def marian() -> Case:
    return thrice(_marian(), input_ids=ids(), decoder_input_ids=ids())


def marian_fp16() -> Case:
    return _fp16(_marian())


def blenderbot() -> Case:
    from transformers import BlenderbotConfig, BlenderbotForConditionalGeneration

    model = BlenderbotForConditionalGeneration(BlenderbotConfig(**ENCODER_DECODER))
    return thrice(model, input_ids=ids(), decoder_input_ids=ids())


def whisper() -> Case:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    settings = {k: v for k, v in ENCODER_DECODER.items() if k != "max_position_embeddings"}
    settings |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = WhisperConfig(
        **settings, num_mel_bins=80, max_source_positions=64, max_target_positions=64
    )
    model = WhisperForConditionalGeneration(config)
    return thrice(model, input_features=torch.randn(1, 80, 128), decoder_input_ids=ids())


def biogpt() -> Case:
    from transformers import BioGptConfig, BioGptForCausalLM

    return thrice(BioGptForCausalLM(BioGptConfig(**SMALL)), input_ids=ids())


def pegasus() -> Case:
    from transformers import PegasusConfig, PegasusForCausalLM

    settings = ENCODER_DECODER | {"is_decoder": True, "is_encoder_decoder": False}
    return thrice(PegasusForCausalLM(PegasusConfig(**settings)), input_ids=ids())


def layoutlmv3() -> Case:
    from transformers import LayoutLMv3Config, LayoutLMv3Model

    config = LayoutLMv3Config(
        **SMALL,
        coordinate_size=8,
        shape_size=16,
        input_size=32,
        patch_size=16,
        visual_embed=False,
        max_2d_position_embeddings=1024,
    )
    boxes = torch.zeros(1, 8, 4, dtype=torch.long)
    return thrice(LayoutLMv3Model(config), input_ids=ids(), bbox=boxes)


def _phi3(lengths: tuple[int, ...]) -> Case:
    from transformers import Phi3Config, Phi3ForCausalLM

    factors = {"short_factor": [1.0] * 16, "long_factor": [2.0] * 16}
    config = Phi3Config(
        **SMALL,
        num_key_value_heads=2,
        original_max_position_embeddings=16,
        pad_token_id=0,
        rope_scaling={"type": "longrope", **factors},
    )
    model = Phi3ForCausalLM(config).eval()
    return Case(model, [{"input_ids": ids(n), "use_cache": False} for n in lengths])


def phi3() -> Case:
    """Short, long, short: the third call is the one that an in-place store gets wrong."""
    return _phi3((8, 24, 8))


def phi3_long() -> Case:
    return _phi3((24, 8, 24))


def longformer() -> Case:
    from transformers import LongformerConfig, LongformerModel

    settings = SMALL | {"max_position_embeddings": 512}
    model = LongformerModel(LongformerConfig(**settings, attention_window=8))
    # 20 tokens are not a multiple of the window, so the model pads and says so.
    return thrice(model, input_ids=ids(length=20))


def grounding_dino() -> Case:
    from transformers import BertConfig, GroundingDinoConfig, GroundingDinoModel, SwinConfig

    backbone = SwinConfig(
        image_size=32,
        patch_size=4,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[1, 1],
        window_size=2,
        out_features=["stage1", "stage2"],
    )
    config = GroundingDinoConfig(
        backbone_config=backbone,
        text_config=BertConfig(**SMALL).to_dict(),
        use_timm_backbone=False,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_queries=4,
        num_feature_levels=2,
    )
    pixels = torch.randn(1, 3, 32, 32)
    return thrice(GroundingDinoModel(config), pixel_values=pixels, input_ids=ids())


def clap() -> Case:
    from transformers import ClapAudioConfig, ClapConfig, ClapModel, ClapTextConfig

    text = ClapTextConfig(**SMALL, projection_dim=32)
    audio = ClapAudioConfig(
        enable_fusion=True,
        hidden_size=64,
        patch_embeds_hidden_size=32,
        depths=[1, 1],
        num_attention_heads=[1, 1],
        projection_dim=32,
    )
    model = ClapModel(ClapConfig.from_text_audio_configs(text, audio, projection_dim=32))
    tokens = ids()
    return thrice(
        model,
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        input_features=torch.randn(1, 4, 1001, audio.num_mel_bins),
        is_longer=torch.ones(1, 1, dtype=torch.bool),
    )


def to_bfloat16(model: torch.nn.Module) -> None:
    """Buffers are cast, their copies in plain attributes are not."""
    model.to(torch.bfloat16)


def overflow(model: torch.nn.Module) -> None:
    """Make the last encoder layer overflow in fp16, so that its guard's other arm runs.

    Only the last one: with infinities from the first layer on, everything after is NaN and equal
    whatever the code does.
    """
    layer_norm = model.get_encoder().layers[-1].final_layer_norm
    torch.nn.init.constant_(layer_norm.weight, 4e4)


VARIANTS: dict[str, Callable[[torch.nn.Module], None]] = {
    "bfloat16": to_bfloat16,
    "overflow": overflow,
}

ROWS: dict[str, Row] = {
    "t5": Row(t5, 3, "0", ("t5",)),
    "bart": Row(bart, 3, "0", ("bart",)),
    "bart-fp16": Row(bart_fp16, 7, "0", ("bart",), variants=("overflow",)),
    "blenderbot": Row(blenderbot, 3, "0", ("blenderbot", "blenderbot_small")),
    "marian": Row(marian, 3, "0", ("marian",)),
    "marian-fp16": Row(marian_fp16, 6, "0", ("marian",), variants=("overflow",)),
    "whisper": Row(whisper, 3, "0", ("whisper",)),
    "biogpt": Row(biogpt, 2, "0", ("biogpt",)),
    "pegasus": Row(pegasus, 2, "0", ("pegasus",)),
    "layoutlmv3": Row(layoutlmv3, 2, "0", ("layoutlmv3",)),
    "phi3": Row(phi3, 5, "0, wrong results", ("phi3",), variants=("bfloat16",)),
    "phi3-long": Row(phi3_long, 5, "0, wrong results", ("phi3",), variants=("bfloat16",)),
    "longformer": Row(
        longformer,
        5,
        "3",
        ("longformer",),
        left="`is_global_attn` is a Python boolean read from the attention mask, and decides in each "
        "layer between scores of different shapes, and whether tokens are looked up by `nonzero`. One "
        "read, in the encoder; the model that calls it is split with it.",
    ),
    "grounding-dino": Row(grounding_dino, 16, "7", ("grounding_dino", "swin", "bert")),
    "clap": Row(
        clap,
        2,
        "2",
        ("clap",),
        left="`torch.where(is_longer == 1)[0]` picks the rows that another module fuses, if there are "
        "any. All rows could be computed and then selected by the mask, but only in evaluation (there "
        "are batch norms on the way), and the rows are picked in one function and used in another.",
    ),
}


def build(name: str, variant: str = "") -> Case:
    """Build the row's model and inputs, the same ones every time."""
    torch.manual_seed(SEED)
    case = ROWS[name].build()
    if variant:
        VARIANTS[variant](case.model)
    return case
