"""What a layer is made of beside attention (sections 3.1 and 3.3): norms, feed-forward networks, residuals."""

import math
from collections.abc import Callable

import numpy as np

from .attention import Array, Weights, linear


def layer_norm(x: Array, w: Weights, eps: float) -> Array:
    """LayerNorm(x) = (x - mean(x)) / sqrt(var(x) + eps) * gamma + beta, over the last axis
    (section 3.1; Ba, Kiros, Hinton 2016): (B, L, D) -> (B, L, D)"""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * w["weight"] + w["bias"]


def rms_norm(x: Array, w: Weights, eps: float) -> Array:
    """RMSNorm(x) = x / sqrt(mean(x^2) + eps) * gamma, over the last axis  (Zhang, Sennrich 2019; not in the paper)"""
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * w["weight"]


NORMS = {"layernorm": layer_norm, "rmsnorm": rms_norm}

erf = np.vectorize(math.erf, otypes=[float])  # erf(x) = 2/sqrt(pi) integral from 0 to x of exp(-t^2) dt


def relu(x: Array) -> Array:
    """max(0, x)"""
    return np.maximum(0, x)


def gelu(x: Array) -> Array:
    """x Phi(x), with Phi(x) = (1 + erf(x / sqrt(2))) / 2 of the normal distribution  (Hendrycks, Gimpel 2016)"""
    return (x * (1 + erf(x / math.sqrt(2))) / 2).astype(x.dtype)


def silu(x: Array) -> Array:
    """x sigmoid(x) = x / (1 + exp(-x)), with 1 / (1 + exp(-x)) = (1 + tanh(x/2)) / 2, where nothing overflows"""
    return x * (1 + np.tanh(x / 2)) / 2


def two_linear(activation: Callable[[Array], Array]) -> Callable[[Array, Weights], Array]:
    """FFN(x) = activation(x W_1 + b_1) W_2 + b_2, with max(0, .) equation 2: (B, L, D) -> (B, L, F) -> (B, L, D)"""
    return lambda x, w: linear(activation(linear(x, w["fc1"])), w["fc2"])


def swiglu(x: Array, w: Weights) -> Array:
    """FFN(x) = (SiLU(x W_1 + b_1) * (x V + c)) W_2 + b_2  (Shazeer 2020, there without biases; not in the paper)"""
    return linear(silu(linear(x, w["fc1"])) * linear(x, w["gate"]), w["fc2"])


FEED_FORWARDS = {"relu": two_linear(relu), "gelu": two_linear(gelu), "silu": two_linear(silu), "swiglu": swiglu}


def post_norm(x: Array, sublayer: Callable, norm: Callable) -> Array:
    """LayerNorm(x + Sublayer(x))  (section 3.1)"""
    return norm(x + sublayer(x))


def pre_norm(x: Array, sublayer: Callable, norm: Callable) -> Array:
    """x + Sublayer(LayerNorm(x)), and one more norm behind the last layer  (Xiong et al. 2020; not in the paper)"""
    return x + sublayer(norm(x))


RESIDUALS = {"post": post_norm, "pre": pre_norm}
