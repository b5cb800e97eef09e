"""The stacks, the three models that are made of them, logits and loss  (Figure 1; sections 3.1, 3.4 and 5.4).

`config` is a checkpoint's config.json as a dictionary, `w` its weights as a tree of arrays. Token ids and masks are
(B, L), a mask has 1 for tokens and 0 for padding, on either side.
"""

import math
from functools import partial

import numpy as np

from .attention import Array, Weights, linear, multi_head_attention, sees_all, sees_the_past
from .layers import FEED_FORWARDS, NORMS, RESIDUALS
from .positions import POSITIONS, count_positions

IGNORED_LABEL = -100  # where nothing is to be predicted


def embed(config: dict, w: Weights, ids: Array, positions: Array) -> Array:
    """E[ids] sqrt(d_model) + PE(positions)  (sections 3.4 and 3.5): (B, L) -> (B, L, D)"""
    x = w["embed_tokens"]["weight"][ids]
    if config["scale_embedding"]:
        x = x * math.sqrt(config["d_model"])
    add = POSITIONS[config["positions"]].add
    return x if add is None else x + add(w.get("positions"), positions, config["d_model"])


def layer(
    config: dict,
    w: Weights,
    num_heads: int,
    x: Array,
    visible: Array,
    where: dict,
    memory: tuple[Array, Array] | None = None,
) -> Array:
    """Self-attention and feed-forward network, in a decoder with attention to the encoder's output between them, each
    of the two or three within its residual connection  (section 3.1): (B, L, D) -> (B, L, D).

    Args:
        where: how positions come into self-attention; cross-attention knows none.
        memory: the encoder's output (B, S, D) and its mask (B, S); for the decoder of an encoder-decoder.
    """

    def residual(name, x, sublayer):
        return RESIDUALS[config["residual"]](x, sublayer, partial(norm, config, w[f"{name}_residual"]["norm"]))

    x = residual("self_attn", x, lambda x: multi_head_attention(w["self_attn"], num_heads, x, x, visible, **where))
    if memory is not None:
        y, seen = memory[0], sees_all(memory[1])
        x = residual("cross_attn", x, lambda x: multi_head_attention(w["cross_attn"], num_heads, x, y, seen))
    return residual("feed_forward", x, lambda x: FEED_FORWARDS[config["feed_forward"]](x, w["feed_forward"]))


def norm(config: dict, w: Weights, x: Array) -> Array:
    """The norm that the configuration names: (B, L, D) -> (B, L, D)"""
    return NORMS[config["norm"]](x, w, config["norm_eps"])


def stack(
    config: dict,
    w: Weights,
    num_heads: int,
    ids: Array,
    mask: Array,
    causal: bool,
    memory: tuple[Array, Array] | None = None,
) -> Array:
    """Embeddings, positions and N layers  (section 3.1): (B, L) -> (B, L, D). `memory`: see `layer`."""
    scheme, positions = POSITIONS[config["positions"]], count_positions(mask)
    where: dict = {}
    if scheme.turn:
        where["turn"] = partial(scheme.turn, positions=positions, theta=config["rope_parameters"]["rope_theta"])
    if scheme.bias:
        where["bias"] = scheme.bias(w["positions"], positions, causal)
    visible = sees_the_past(mask, config.get("sliding_window")) if causal else sees_all(mask)

    x = embed(config, w, ids, positions)  # x: (B, L, D)
    for n in range(len(w["layers"])):
        x = layer(config, w["layers"][str(n)], num_heads, x, visible, where, memory)
    return norm(config, w["norm"], x) if config["residual"] == "pre" else x  # post has normalised already


def encoder(config: dict, w: Weights, source: Array, source_mask: Array) -> Array:
    """The left half of Figure 1: (B, S) -> (B, S, D)"""
    return stack(config, w["encoder"], config["encoder_attention_heads"], source, source_mask, causal=False)


def decoder(config: dict, w: Weights, target: Array, target_mask: Array, memory: Array, source_mask: Array) -> Array:
    """The right half of Figure 1: (B, T), and the encoder's (B, S, D) -> (B, T, D)"""
    heads = config["decoder_attention_heads"]
    return stack(config, w["decoder"], heads, target, target_mask, True, (memory, source_mask))


def decoder_only(config: dict, w: Weights, ids: Array, mask: Array) -> Array:
    """The right half of Figure 1 without the sub-layer that attends to an encoder: (B, T) -> (B, T, D)"""
    return stack(config, w, config["num_attention_heads"], ids, mask, causal=True)


def encoder_only(config: dict, w: Weights, ids: Array, mask: Array) -> Array:
    """The left half of Figure 1 by itself: (B, S) -> (B, S, D)"""
    return stack(config, w, config["num_attention_heads"], ids, mask, causal=False)


def logits(config: dict, w: Weights, x: Array) -> Array:
    """x E^T, by the matrix of the (decoder's) embeddings if tied, else x W  (section 3.4), plus a bias where there is
    one, which the paper does not have: (B, T, D) -> (B, T, V)"""
    head = dict(w.get("lm_head", {}))
    if config["tie_word_embeddings"]:
        head["weight"] = w.get("decoder", w)["embed_tokens"]["weight"]
    return linear(x, head)


def log_softmax(x: Array) -> Array:
    """log softmax(x)_i = x_i - log sum_j exp(x_j), over the last axis"""
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def shift_right(labels: Array, start: int, pad: int) -> Array:
    """What the decoder reads while it is trained to say `labels`, "offset by one position" (section 3.1):
    with start 1 and padding 0, [[7, 8, 2], [9, 2, -100]] -> [[1, 7, 8], [1, 9, 2]]."""
    shifted = np.concatenate([np.full_like(labels[:, :1], start), labels[:, :-1]], axis=1)
    return np.where(shifted == IGNORED_LABEL, pad, shifted)


def label_smoothed_loss(logits: Array, labels: Array, epsilon: float = 0.0) -> float:
    """The mean over target tokens y, in nats, of  (1 - eps) (-log p(y)) + eps/V sum_v (-log p(v))  (section 5.4).

    Szegedy et al. (2015), whom the paper cites, spread eps over all V tokens, the right one included. With labels that
    are all ignored it is 0. logits: (B, T, V), labels: (B, T)
    """
    counted = labels != IGNORED_LABEL
    log_p = log_softmax(logits[counted])  # log_p: (n, V), for n target tokens
    right = -np.take_along_axis(log_p, labels[counted][:, None], axis=-1)[:, 0]
    everywhere = -log_p.mean(axis=-1)
    return float(((1 - epsilon) * right + epsilon * everywhere).sum() / max(counted.sum(), 1))
