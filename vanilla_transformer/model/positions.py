# Copyright 2026 The vanilla_transformer authors. MIT License.
"""How a token learns where it stands (section 3.5). A position is the number of unmasked tokens before it.

There are three doors, each of them closed unless a scheme opens it:

| door | opened by | what comes in |
|---|---|---|
| `embed` | sinusoidal, learned | a vector added to the embedding |
| `rotation` | rotary | angles by which queries and keys are turned |
| `bias` | relative | a number added to each score |
"""

import math

import torch
from torch import nn


def visible(rows: torch.Tensor) -> torch.Tensor:
    """(B, 1, L, keys), a mask that is boolean (True = visible) or additive (0 = visible) -> (B, L, keys), boolean"""
    return (rows if rows.dtype == torch.bool else rows == 0)[:, 0]


def token_positions(
    mask: torch.Tensor | None, past: int | torch.Tensor, length: int, device, is_causal: bool
) -> torch.Tensor:
    """Positions of the last `length` tokens, (B or 1, length), where padding on either side counts for nothing.

    Args:
        mask: (B, past + length), 1 for tokens and 0 for padding; or (B, 1, length or 1, keys), a mask of rows that is
            either boolean (True = visible) or additive (0 = visible); or `None`, without padding.
        past: number of tokens already in the cache (a tensor for static caches).
        is_causal: whether a row sees no further than itself, or all tokens.
    """
    if mask is None or not isinstance(mask, torch.Tensor):
        return (torch.arange(length, device=device) + past)[None]
    if mask.ndim == 4 and is_causal:  # a row sees itself and all tokens before it
        seen = visible(mask).sum(-1)
    elif mask.ndim == 4:  # some row sees each key that is a token
        seen = visible(mask).any(dim=-2).long().cumsum(-1)
    else:
        seen = mask.long().cumsum(-1)[:, -length:]
    return (seen - 1).clamp(min=0)


def key_positions(
    mask: torch.Tensor | None, queries: torch.Tensor, total: int | torch.Tensor, length: int, offset: int
) -> torch.Tensor:
    """Positions of all keys, (B or 1, length), counted back from the last query, which is the last token.

    Args:
        mask: as for `token_positions`.
        queries: (B or 1, L), positions of the queries.
        total: number of tokens up to the last query, padding included (a tensor for static caches).
        length, offset: number of keys, and how many tokens a sliding cache has dropped before them.
    """
    if mask is None or not isinstance(mask, torch.Tensor):
        seen = (torch.arange(length, device=queries.device) < total - offset)[None]
    elif mask.ndim == 4:  # some row sees each key that is a token
        seen = visible(mask).any(dim=-2)
    else:
        seen = mask[:, offset:].bool()
    seen = nn.functional.pad(seen, (0, length - seen.shape[1]))  # a static cache has rooms not yet filled
    count = seen.long().cumsum(-1)
    return count - count[:, -1:] + queries.amax(-1, keepdim=True)


class Doors:
    """A scheme opens one of these; the others stay closed.

    All are made of (config, num_heads, is_causal). `limit` is the number of positions that there are, if any.
    """

    limit: int | None = None
    opens_bias = False

    def embed(self, x: torch.Tensor, positions: torch.Tensor, length: int) -> torch.Tensor:
        """x: (B, L, D), positions: (B or 1, L), all below `length` -> (B, L, D)"""
        return x

    def rotation(self, positions: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """positions: (B or 1, L), all below `length` -> cosines and sines (B or 1, 1, L, K/2)"""
        return None

    def bias(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
        """Positions of queries (B or 1, L) and keys (B or 1, S) -> what is added to the scores (B or 1, H, L, S)"""
        return None


class NoPositions(Doors, nn.Module):
    """PE(pos) = 0: nothing tells order but the causal mask (Haviv et al. 2022; not in the paper)."""

    def __init__(self, config, num_heads: int, is_causal: bool):
        super().__init__()


class Sinusoids(Doors, nn.Module):
    """Rows sin(pos / theta^(2i/width)), cos(pos / theta^(2i/width)), interleaved, for positions of any size."""

    def __init__(self, width: int, theta: float, length: int):
        super().__init__()
        self.width = width
        self.theta = theta
        # Not saved: `_init_weights` of the model fills it again after loading.
        self.table = nn.Buffer(self.compute(length), persistent=False)

    def compute(self, length: int) -> torch.Tensor:
        """The table of the first `length` positions, (length, width): float64 angles, rounded once to float32."""
        position = torch.arange(length, dtype=torch.float64, device="cpu")[:, None]
        even = torch.arange(0, self.width, 2, dtype=torch.float64, device="cpu")
        angles = position / self.theta ** (even / self.width)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()

    def rows(self, positions: torch.Tensor, length: int) -> torch.Tensor:
        """positions: (B or 1, L), all below `length` -> (B or 1, L, width)"""
        if length > self.table.shape[0]:  # grow by doubling, so that decoding token by token rarely grows
            with torch.inference_mode(False):  # a table made while decoding serves training as well
                grown = self.compute(max(length, 2 * self.table.shape[0]))
                self.table = grown.to(self.table)  # type: ignore[assignment]
        return self.table[positions]


class SinusoidalPositions(Sinusoids):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))  (section 3.5)."""

    def __init__(self, config, num_heads: int, is_causal: bool):
        super().__init__(config.d_model, 10000.0, config.max_position_embeddings)

    def embed(self, x, positions, length):
        return x + self.rows(positions, length).to(x.dtype)


class LearnedPositions(Doors, nn.Embedding):
    """PE(pos) = E_pos, a trained vector for each position (section 3.5; Table 3, row E)."""

    def __init__(self, config, num_heads: int, is_causal: bool):
        super().__init__(config.max_position_embeddings, config.d_model)
        self.limit = config.max_position_embeddings

    def embed(self, x, positions, length):
        if length > self.limit and not self.reaches(positions):
            raise ValueError(
                f"got a sequence of {length} tokens, but learned positions end at "
                f"max_position_embeddings={self.limit}: shorten or truncate the input, or train with "
                "positions='sinusoidal'"
            )
        return x + self(positions)

    def reaches(self, positions: torch.Tensor) -> bool:
        """Whether it is padding alone that makes the sequence too long; compiled code does not ask."""
        return not torch.compiler.is_compiling() and int(positions.max()) < self.num_embeddings


class RotaryPositions(Sinusoids):
    """(q_2i, q_2i+1) turned by the angle pos / theta^(2i/K), keys likewise, so that q k^T = f(distance)
    (RoFormer, Su et al. 2021, equation 34; not in the paper, whose wave lengths it has)."""

    def __init__(self, config, num_heads: int, is_causal: bool):
        theta = config.rope_parameters["rope_theta"]
        super().__init__(config.d_model // num_heads, theta, config.max_position_embeddings)

    def rotation(self, positions, length):
        sin, cos = self.rows(positions, length)[:, None].unflatten(-1, (-1, 2)).unbind(-1)  # (B, 1, L, K/2)
        return cos, sin


def rotate(x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
    """(x_2i cos - x_2i+1 sin, x_2i sin + x_2i+1 cos): (B, H, L, K) -> (B, H, L, K)  (RoFormer, equation 34)"""
    if rotation is None:
        return x
    if x.device.type == "cpu" and not torch.compiler.is_compiling() and not torch.jit.is_tracing():
        # (x_2i + i x_2i+1) (cos + i sin): a CPU reads neighbours together several times as fast as every second number.
        # Compilers and exports know no complex numbers.
        exact = torch.promote_types(x.dtype, torch.float32)
        turn = torch.view_as_complex(torch.stack(rotation, dim=-1).to(exact))
        pairs = torch.view_as_complex(x.to(exact).unflatten(-1, (-1, 2)))  # (B, H, L, K/2)
        return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)
    cos, sin = (part.to(x.dtype) for part in rotation)
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class RelativePositions(Doors, nn.Embedding):
    """score(q, k) = q k^T / sqrt(d_k) + b[bucket(pos_k - pos_q)], a trained number per head and bucket of distances,
    the same in all layers  (T5, Raffel et al. 2020, section 2.1; not in the paper).

    Half of the 32 buckets hold one distance each, the rest grow with the logarithm up to 128, and the last holds all
    that is further away. Where a token sees both ways, each way has half of them.
    """

    BUCKETS, FURTHEST = 32, 128  # T5's
    opens_bias = True

    def __init__(self, config, num_heads: int, is_causal: bool):
        super().__init__(self.BUCKETS, num_heads)
        self.is_causal = is_causal

    def bias(self, queries, keys):
        distance = keys[:, None, :] - queries[:, :, None]  # (B, L, S), negative for what came before
        return self(self.bucket(distance)).permute(0, 3, 1, 2)  # (B, L, S, H) -> (B, H, L, S)

    def bucket(self, distance: torch.Tensor) -> torch.Tensor:
        """-1 is bucket 1, -2 is 2, ...; where both ways are seen, the future begins in the middle: +1 is bucket 17."""
        buckets, ahead = self.BUCKETS, torch.zeros_like(distance)
        if self.is_causal:
            distance = distance.clamp(max=0)
        else:
            buckets //= 2
            ahead = (distance > 0) * buckets
        exact = buckets // 2
        growth = self.FURTHEST / exact
        # The distances at which the buckets exact + 1, exact + 2, ... begin; whole numbers are meant to be whole.
        begins = [math.ceil(exact * growth ** (k / (buckets - exact)) - 1e-9) for k in range(1, buckets - exact)]
        far = exact + torch.bucketize(distance.abs(), torch.tensor(begins, device=distance.device), right=True)
        return ahead + torch.where(distance.abs() < exact, distance.abs(), far)


POSITIONS = {
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
    "rotary": RotaryPositions,
    "relative": RelativePositions,
    "none": NoPositions,
}
