"""Attention (section 3.2): softmax, the scaled dot product, several heads, and who may attend to whom."""

import math
from collections.abc import Callable

import numpy as np

Array = np.ndarray
Weights = dict  # a tree: names of modules down to "weight" and "bias"


def softmax(x: Array) -> Array:
    """softmax(x)_i = exp(x_i) / sum_j exp(x_j), over the last axis.

    The largest x is taken from all of them, which cancels out, so that no exponential overflows.
    """
    exp = np.exp(x - x.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def linear(x: Array, w: Weights) -> Array:
    """x W + b, the bias only where there is one: (..., in) -> (..., out)"""
    y = x @ w["weight"].T
    return y + w["bias"] if "bias" in w else y


def scaled_dot_product_attention(query: Array, key: Array, value: Array, visible: Array, bias=0.0) -> Array:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V  (equation 1).

    What may not be attended to gets a score "of -infinity" (section 3.2.3): here the smallest finite number, so that a
    query that sees nothing at all, as in a row of padding, becomes an average and not NaN.

    Args:
        query: (B, T, K); key and value: (B, S, K).
        visible: (B or 1, T or 1, S), True where a query may attend to a key.
        bias: (B, T, S), added to the scores; of relative positions only.
    """
    d_k = query.shape[-1]
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(d_k) + bias  # scores: (B, T, S)
    scores = np.where(visible, scores, np.finfo(scores.dtype).min)
    return softmax(scores) @ value  # (B, T, S) (B, S, K) -> (B, T, K)


def multi_head_attention(
    w: Weights,
    num_heads: int,
    x: Array,
    memory: Array,
    visible: Array,
    turn: Callable[[Array], Array] = lambda projected: projected,
    bias: Array | None = None,
) -> Array:
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O,
    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)  (section 3.2.2).

    Self-attention has `memory` = `x`; in cross-attention it is the encoder's output (section 3.2.3).

    Args:
        w: "q_proj" holds W_1^Q, ..., W_h^Q side by side, "k_proj" and "v_proj" likewise; "o_proj" is W^O.
        x: (B, T, D), memory: (B, S, D).
        turn: what rotary positions do to the queries and keys of a head, (B, L, K) -> (B, L, K).
        bias: (B, H, T, S), what relative positions add to the scores of each head.
    """
    queries, keys, values = (
        np.split(projected, num_heads, axis=-1)  # (B, L, D) -> H times (B, L, K)
        for projected in (linear(x, w["q_proj"]), linear(memory, w["k_proj"]), linear(memory, w["v_proj"]))
    )
    heads = [
        scaled_dot_product_attention(
            turn(queries[i]), turn(keys[i]), values[i], visible, 0.0 if bias is None else bias[:, i]
        )
        for i in range(num_heads)
    ]
    return linear(np.concatenate(heads, axis=-1), w["o_proj"])  # H times (B, T, K) -> (B, T, D)


def sees_all(mask: Array) -> Array:
    """Every query may attend to every token, to padding none: (B, S), 1 for tokens -> (B, 1, S)."""
    return mask[:, None, :] == 1


def sees_the_past(mask: Array, window: int | None = None) -> Array:
    """Position i may attend to j <= i (section 3.2.3, third point), and with a window W only to i - W < j:
    (B, T), 1 for tokens -> (B, T, T).

    Of four tokens, W = 2 lets attend:  1 . . .
                                        1 1 . .
                                        . 1 1 .
                                        . . 1 1
    """
    i, j = np.indices((mask.shape[1], mask.shape[1]))
    allowed = j <= i if window is None else (j <= i) & (i - window < j)
    return allowed & sees_all(mask)
