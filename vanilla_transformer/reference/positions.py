"""How a token learns where it stands (section 3.5): two vectors to add, one rotation, one bias of scores, or nothing.

A position is the number of tokens before it, of which padding is none.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .attention import Array, Weights

BUCKETS, FURTHEST = 32, 128  # of relative positions: T5's


def count_positions(mask: Array) -> Array:
    """(B, L), 1 for tokens -> (B, L): [[0, 0, 1, 1, 1], [1, 1, 0, 0, 0]] -> [[0, 0, 0, 1, 2], [0, 1, 1, 1, 1]].

    Padding gets the position of the token before it, which nobody reads.
    """
    return np.maximum(mask.cumsum(axis=-1) - 1, 0)


def angles(positions: Array, width: int, theta: float) -> Array:
    """pos / theta^(2i/width) for i = 0, ..., width/2 - 1: (B, L) -> (B, L, width/2), always in float64.

    With theta = 10000 the wave lengths run from 2 pi to 10000 * 2 pi.
    """
    i = np.arange(width // 2)
    return positions[..., None] / theta ** (2 * i / width)


def rounded(table: Array) -> Array:
    """Sines and cosines are those of float64 angles, rounded once to float32, whatever the model computes in."""
    return table.astype(np.float32)


def sinusoidal(w: Weights, positions: Array, d_model: int) -> Array:
    """PE(pos, 2i)   = sin(pos / 10000^(2i/d_model)),
    PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))  (section 3.5): (B, L) -> (B, L, D)"""
    table = np.empty((*positions.shape, d_model))
    table[..., 0::2] = np.sin(angles(positions, d_model, 10000.0))
    table[..., 1::2] = np.cos(angles(positions, d_model, 10000.0))
    return rounded(table)


def learned(w: Weights, positions: Array, d_model: int) -> Array:
    """PE(pos) = E_pos, a trained row (section 3.5, and Table 3, row E): (B, L) -> (B, L, D)"""
    limit = len(w["weight"])
    if positions.max() >= limit:
        raise ValueError(f"got {positions.max() + 1} tokens, but learned positions end at {limit}: shorten the input")
    return w["weight"][positions]


def rotary(x: Array, positions: Array, theta: float) -> Array:
    """R_pos x: each pair (x_2i, x_2i+1) turned by the angle m_i = pos / theta^(2i/K)
    (RoFormer, Su et al. 2021, equation 34; not in the paper):

        x_2i   cos m_i - x_2i+1 sin m_i
        x_2i+1 cos m_i + x_2i   sin m_i

    (R_m q)^T (R_n k) depends on the distance n - m alone. x: (B, L, K), a head's queries or keys -> (B, L, K)
    """
    m = angles(positions, x.shape[-1], theta)
    cos, sin = rounded(np.cos(m)), rounded(np.sin(m))
    turned = np.empty_like(x)
    turned[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    turned[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
    return turned


def relative(w: Weights, positions: Array, causal: bool) -> Array:
    """score(q, k) = q k^T / sqrt(d_k) + b[bucket(pos_k - pos_q)], b trained, one number for each bucket and head
    (T5, Raffel et al. 2020, section 2.1; not in the paper): (B, L) -> (B, H, L, L)"""
    distance = positions[:, None, :] - positions[:, :, None]  # distance: (B, L, L), of key from query
    return np.moveaxis(w["weight"][bucket(distance, causal)], -1, 1)  # (B, L, L, H) -> (B, H, L, L)


def bucket(distance: Array, causal: bool) -> Array:
    """T5's bucket of a distance n = |pos_k - pos_q|, of m buckets in all:

        n                                                                       for n < m/2
        min(m - 1, m/2 + floor(log(n / (m/2)) / log(128 / (m/2)) * m/2))        from there on

    m is 32 where only the past is seen. Where both sides are, m is 16, and keys behind the query have 16 added.
    """
    m = BUCKETS if causal else BUCKETS // 2
    n = np.maximum(-distance, 0) if causal else np.abs(distance)
    ahead = np.where(distance > 0, 0 if causal else m, 0)
    near = m // 2
    share = np.log(np.maximum(n, near) / near) / math.log(FURTHEST / near)  # 0 at m/2, 1 at 128
    far = near + np.floor(share * (m - near) + 1e-9).astype(int)  # a share that is whole stays so in spite of rounding
    return ahead + np.where(n < near, n, np.minimum(far, m - 1))


class Scheme(NamedTuple):
    """Where positions come in; what is not said does nothing."""

    add: Callable | None = None  # (weights, positions, D) -> (B, L, D), to the embeddings
    turn: Callable | None = None  # ((B, L, K), positions, theta) -> (B, L, K), queries and keys
    bias: Callable | None = None  # (weights, positions, causal) -> (B, H, L, L), to the scores


POSITIONS = {
    "sinusoidal": Scheme(add=sinusoidal),
    "learned": Scheme(add=learned),
    "rotary": Scheme(turn=rotary),
    "relative": Scheme(bias=relative),
    "none": Scheme(),
}
