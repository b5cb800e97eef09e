# Copyright 2026 The vanilla_transformer authors. MIT License.
"""How a token learns where it stands (section 3.5). A position is the number of unmasked tokens before it."""

import torch
from torch import nn


def token_positions(mask: torch.Tensor | None, past: int | torch.Tensor, length: int, device) -> torch.Tensor:
    """Positions of the last `length` tokens, (B or 1, length), where padding on either side counts for nothing.

    Args:
        mask: (B, past + length), 1 for tokens and 0 for padding; or (B, 1, length, keys), a causal mask that is
            either boolean (True = visible) or additive (0 = visible); or `None`, without padding.
        past: number of tokens already in the cache (a tensor for static caches).
    """
    if mask is None or not isinstance(mask, torch.Tensor):
        return (torch.arange(length, device=device) + past)[None]
    if mask.ndim == 4:  # a causal row sees itself and all tokens before it
        seen = (mask if mask.dtype == torch.bool else mask == 0)[:, 0].sum(-1)
    else:
        seen = mask.long().cumsum(-1)[:, -length:]
    return (seen - 1).clamp(min=0)


class SinusoidalPositions(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))  (section 3.5)."""

    limit = None  # positions of any size have a sinusoid

    def __init__(self, config):
        super().__init__()
        self.d_model = config.d_model
        # Not saved: `_init_weights` of the model fills it again after loading.
        self.table = nn.Buffer(self.compute(config.max_position_embeddings), persistent=False)

    def compute(self, length: int) -> torch.Tensor:
        """The table of the first `length` positions, (length, d_model): float64 angles, rounded once to float32."""
        position = torch.arange(length, dtype=torch.float64, device="cpu")[:, None]
        even = torch.arange(0, self.d_model, 2, dtype=torch.float64, device="cpu")
        angles = position / 10000 ** (even / self.d_model)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()

    def forward(self, x: torch.Tensor, positions: torch.Tensor, length: int) -> torch.Tensor:
        if length > self.table.shape[0]:  # grow by doubling, so that decoding token by token rarely grows
            with torch.inference_mode(False):  # a table made while decoding serves training as well
                grown = self.compute(max(length, 2 * self.table.shape[0]))
                self.table = grown.to(self.table)  # type: ignore[assignment]
        return x + self.table[positions].to(x.dtype)


class LearnedPositions(nn.Embedding):
    """PE(pos) = E_pos, a trained vector for each position (section 3.5; Table 3, row E)."""

    def __init__(self, config):
        super().__init__(config.max_position_embeddings, config.d_model)
        self.limit = config.max_position_embeddings

    def forward(self, x: torch.Tensor, positions: torch.Tensor, length: int) -> torch.Tensor:
        if length > self.limit:
            raise ValueError(
                f"got a sequence of {length} tokens, but learned positions end at "
                f"max_position_embeddings={self.limit}: shorten or truncate the input, or train with "
                "positions='sinusoidal'"
            )
        return x + super().forward(positions)


# One constructor (config) and one call (x (B, L, D), positions (B or 1, L), length: an upper bound of positions + 1).
POSITIONS = {"sinusoidal": SinusoidalPositions, "learned": LearnedPositions}
