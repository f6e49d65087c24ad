"""A small transformer encoder, written the way model libraries write them.

It has the graph breaks that real models have: validation that looks at values, log calls, a guard
against overflow in half precision, and a choice between two heads.
`benchmarks/demo.py` rewrites a copy of this file.
"""

import logging

import torch
from torch import nn
from torch.nn import functional as F

logger = logging.getLogger(__name__)


class Attention(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        batch, length, size = hidden_states.shape
        qkv = self.qkv(hidden_states).view(batch, length, 3, self.num_heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        output = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask)
        return self.out(output.transpose(1, 2).reshape(batch, length, size))


class EncoderLayer(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int):
        super().__init__()
        self.attention = Attention(hidden_size, num_heads)
        self.attention_norm = nn.LayerNorm(hidden_size)
        self.fc1 = nn.Linear(hidden_size, 4 * hidden_size)
        self.fc2 = nn.Linear(4 * hidden_size, hidden_size)
        self.final_norm = nn.LayerNorm(hidden_size)

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        residual = hidden_states
        hidden_states = self.attention(hidden_states, attention_mask)
        hidden_states = self.attention_norm(residual + hidden_states)

        residual = hidden_states
        hidden_states = self.fc2(F.gelu(self.fc1(hidden_states)))
        hidden_states = self.final_norm(residual + hidden_states)

        if hidden_states.dtype == torch.float16 and (
            torch.isinf(hidden_states).any() or torch.isnan(hidden_states).any()
        ):
            clamp_value = torch.finfo(hidden_states.dtype).max - 1000
            hidden_states = torch.clamp(hidden_states, min=-clamp_value, max=clamp_value)

        return hidden_states


class Head(nn.Module):
    def __init__(self, hidden_size: int):
        super().__init__()
        self.fc1 = nn.Linear(hidden_size, 4 * hidden_size)
        self.fc2 = nn.Linear(4 * hidden_size, hidden_size)

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.gelu(self.fc1(pooled)))


class Encoder(nn.Module):
    def __init__(self, hidden_size: int = 32, num_heads: int = 4, num_layers: int = 2):
        super().__init__()
        self.layers = nn.ModuleList(
            [EncoderLayer(hidden_size, num_heads) for _ in range(num_layers)]
        )
        self.gate = nn.Linear(hidden_size, 1)
        self.small_head = nn.Linear(hidden_size, hidden_size)
        self.large_head = Head(hidden_size)

    def forward(
        self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        if torch.isnan(inputs_embeds).any():
            raise ValueError("inputs_embeds has NaN")

        mask = None
        if attention_mask is None:
            logger.warning("no attention_mask was given, padding is attended to")
        else:
            if (attention_mask == 0).all():
                logger.warning("attention_mask hides every token")
            mask = attention_mask[:, None, None, :].to(torch.bool)

        hidden_states = inputs_embeds
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask)

        pooled = hidden_states.mean(dim=1)
        if self.gate(pooled).mean() < 0:
            return self.small_head(pooled)
        return self.large_head(pooled)
