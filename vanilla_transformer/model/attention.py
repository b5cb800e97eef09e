# Copyright 2026 The vanilla_transformer authors. MIT License.
"""Attention (section 3.2): the formula as a function, and the two modules that call it."""

import torch
from torch import nn
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .positions import rotate


def scaled_dot_product_attention(
    module, query, key, value, attention_mask, scaling, dropout=0.0, position_bias=None, **kwargs
):
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V  (equation 1).

    The readable twin ("eager") of transformers' sdpa, flash and flex kernels, with their signature.

    Args:
        query: (B, H, T, K); key and value: (B, H, S, K).
        attention_mask: (B, 1, T, S), added to the scores, or boolean with True for "may attend"; or `None`.
        position_bias: (B, H, T, S), of relative positions, added to the scores; or `None`.

    Returns:
        The heads' outputs (B, T, H, K), and the softmax itself (B, H, T, S), before any dropout: its rows sum to 1.
    """
    scores = query @ key.transpose(-2, -1) * scaling  # scores: (B, H, T, S)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        if attention_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
        else:
            scores = scores + attention_mask
    # The smallest finite number instead of -inf, so that a row that may attend to nothing is an average, not NaN.
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    heads = nn.functional.dropout(weights, dropout, module.training) @ value  # heads: (B, H, T, K)
    return heads.transpose(1, 2).contiguous(), weights


def attention_function(config):
    """The kernel that `attn_implementation` names: "eager", "sdpa", a flash attention or "flex_attention"."""
    return ALL_ATTENTION_FUNCTIONS.get_interface(config._attn_implementation, scaled_dot_product_attention)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O,
    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)  (section 3.2.2).

    Self-attention: queries, keys and values are the same sequence. `q_proj` holds the W_i^Q of all heads side by side,
    `k_proj` and `v_proj` likewise, `o_proj` is W^O.
    """

    def __init__(self, config, num_heads: int, layer_idx: int, is_causal: bool):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = is_causal  # read by the sdpa and flash kernels when no mask is needed
        self.head_dim = config.d_model // num_heads
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_dropout
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(config.d_model, config.d_model, bias=config.attention_bias) for _ in range(4)
        )

    def split_heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, L, D) -> (B, H, L, K)

    def attend(self, query, key, value, mask, attention_interface, **kwargs):
        dropout = self.attention_dropout if self.training else 0.0
        heads, weights = attention_interface(
            self, query, key, value, mask, dropout=dropout, scaling=self.scaling, **kwargs
        )
        return self.o_proj(heads.flatten(-2)), weights  # heads: (B, T, H, K) -> (B, T, D)

    def forward(self, x, mask, rotation=None, past_key_values: EncoderDecoderCache | Cache | None = None, **kwargs):
        """x: (B, T, D) -> (B, T, D), and the attention weights (B, H, T, past + T) where the kernel returns them."""
        query, key, value = (self.split_heads(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        query, key = rotate(query, rotation), rotate(key, rotation)
        if past_key_values is not None:
            cache = getattr(past_key_values, "self_attention_cache", past_key_values)
            key, value = cache.update(key, value, self.layer_idx)
        return self.attend(query, key, value, mask, **kwargs)


class CrossAttention(MultiHeadAttention):
    """Queries come from the decoder, keys and values from the encoder's output (section 3.2.3, first point).

    With a cache, keys and values of a source are computed in the first step and read in all later ones.
    """

    def forward(self, x, mask, memory, past_key_values: EncoderDecoderCache | None = None, **kwargs):
        """x: (B, T, D), memory: (B, S, D) -> (B, T, D), and the attention weights (B, H, T, S) where returned."""
        if past_key_values is not None and past_key_values.is_updated.get(self.layer_idx):
            cached = past_key_values.cross_attention_cache.layers[self.layer_idx]
            key, value = cached.keys, cached.values
        else:
            key, value = self.split_heads(self.k_proj(memory)), self.split_heads(self.v_proj(memory))
            if past_key_values is not None:
                key, value = past_key_values.cross_attention_cache.update(key, value, self.layer_idx)
                past_key_values.is_updated[self.layer_idx] = True
        return self.attend(self.split_heads(self.q_proj(x)), key, value, mask, **kwargs)
