# Copyright 2026 The vanilla_transformer authors. MIT License.
"""What a layer is made of (sections 3.1 and 3.3): norms, feed-forward networks, residual connections, the layers."""

from collections.abc import Callable

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import CrossAttention, MultiHeadAttention
from .linear import Linear


class LayerNorm(nn.LayerNorm):
    """LayerNorm(x) = (x - mean(x)) / sqrt(var(x) + eps) * gamma + beta, over the last axis  (section 3.1)."""

    def __init__(self, config):
        super().__init__(config.d_model, eps=config.norm_eps)


class RMSNorm(nn.RMSNorm):
    """RMSNorm(x) = x / sqrt(mean(x^2) + eps) * gamma, over the last axis  (Zhang, Sennrich 2019; not in the paper)."""

    def __init__(self, config):
        super().__init__(config.d_model, eps=config.norm_eps)


NORMS = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}


class Dropout(nn.Dropout):
    """Each number to zero with probability P_drop, the others times 1 / (1 - P_drop)  (section 5.4)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or not self.p:
            return x
        if x.device.type != "cpu" or self.p == 1 or torch.compiler.is_compiling():
            return super().forward(x)
        # torch draws a number for each element, which took a tenth of a training step on a CPU: here 16 bits do.
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        dropped = round(self.p * 2**16)
        kept = words.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
        return x * kept.to(x.dtype).mul_(2**16 / (2**16 - dropped))


class ReLUFeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2  (equation 2)."""

    activation: Callable[[torch.Tensor], torch.Tensor] = staticmethod(nn.functional.relu)

    def __init__(self, config, ffn_dim: int):
        super().__init__()
        self.fc1 = Linear(config.d_model, ffn_dim)
        self.fc2 = Linear(ffn_dim, config.d_model)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.dropout(self.activation(self.fc1(x))))  # (B, L, D) -> (B, L, F) -> (B, L, D)


class GELUFeedForward(ReLUFeedForward):
    """FFN(x) = GELU(x W_1 + b_1) W_2 + b_2, GELU(x) = x Phi(x)  (Hendrycks and Gimpel 2016; not in the paper)."""

    activation = staticmethod(nn.functional.gelu)


class SiLUFeedForward(ReLUFeedForward):
    """FFN(x) = SiLU(x W_1 + b_1) W_2 + b_2, SiLU(x) = x sigmoid(x)  (not in the paper; "swish" in Marian)."""

    activation = staticmethod(nn.functional.silu)


class SwiGLUFeedForward(SiLUFeedForward):
    """FFN(x) = (SiLU(x W_1 + b_1) * (x V + c)) W_2 + b_2, V is `gate`  (Shazeer 2020, without bias; not in the paper).

    It has half as many weights again as the others of the same d_ff, which Shazeer makes up for by 2/3 of d_ff.
    """

    def __init__(self, config, ffn_dim: int):
        super().__init__(config, ffn_dim)
        self.gate = Linear(config.d_model, ffn_dim)

    def forward(self, x):
        return self.fc2(self.dropout(self.activation(self.fc1(x)) * self.gate(x)))


FEED_FORWARDS = {
    "relu": ReLUFeedForward,
    "gelu": GELUFeedForward,
    "silu": SiLUFeedForward,
    "swiglu": SwiGLUFeedForward,
}


class PostNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x)))  (sections 3.1 and 5.4)."""

    def __init__(self, config):
        super().__init__()
        self.norm = NORMS[config.norm](config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x, sublayer):
        return self.norm(x + self.dropout(sublayer(x)))

    @staticmethod
    def final_norm(config) -> nn.Module:
        return nn.Identity()  # the last sub-layer has normalised already


class PreNorm(PostNorm):
    """x + Dropout(Sublayer(LayerNorm(x)))  (not in the paper; steadier in deep stacks, Xiong et al. 2020)."""

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))

    @staticmethod
    def final_norm(config) -> nn.Module:
        return NORMS[config.norm](config)  # the sum of all sub-layers has not been normalised yet


RESIDUALS = {"post": PostNorm, "pre": PreNorm}


class EncoderLayer(GradientCheckpointingLayer):
    """Self-attention, then the feed-forward network, each with its residual connection  (section 3.1, "Encoder")."""

    def __init__(self, config, num_heads: int, ffn_dim: int, layer_idx: int, is_causal: bool):
        super().__init__()
        self.self_attn = MultiHeadAttention(config, num_heads, layer_idx, is_causal)
        self.self_attn_residual = RESIDUALS[config.residual](config)
        self.feed_forward = FEED_FORWARDS[config.feed_forward](config, ffn_dim)
        self.feed_forward_residual = RESIDUALS[config.residual](config)

    def forward(self, x, mask, position_bias, **kwargs):
        """x: (B, L, D) -> (B, L, D)"""
        x = self.self_attn_residual(x, lambda x: self.self_attn(x, mask, position_bias=position_bias, **kwargs)[0])
        return self.feed_forward_residual(x, lambda x: self.feed_forward(x))  # accelerate's hooks move a module


class DecoderLayer(EncoderLayer):
    """The encoder's two sub-layers, with cross-attention between them  (section 3.1, "Decoder")."""

    def __init__(self, config, num_heads: int, ffn_dim: int, layer_idx: int, is_causal: bool):
        super().__init__(config, num_heads, ffn_dim, layer_idx, is_causal)
        self.cross_attn = CrossAttention(config, num_heads, layer_idx, is_causal=False)
        self.cross_attn_residual = RESIDUALS[config.residual](config)

    def forward(self, x, mask, position_bias, memory, memory_mask=None, rotation=None, **kwargs):
        """x: (B, T, D), memory: (B, S, D) -> (B, T, D)"""
        where = dict(position_bias=position_bias, rotation=rotation)  # positions of the target say nothing of a source
        x = self.self_attn_residual(x, lambda x: self.self_attn(x, mask, **where, **kwargs)[0])
        x = self.cross_attn_residual(x, lambda x: self.cross_attn(x, memory_mask, memory, **kwargs)[0])
        return self.feed_forward_residual(x, lambda x: self.feed_forward(x))  # accelerate's hooks move a module
