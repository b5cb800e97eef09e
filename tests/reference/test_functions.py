"""Each function against numbers worked out by hand or known from elsewhere."""

import math

import numpy as np
import pytest
import torch

from vanilla_transformer.reference.attention import (
    linear,
    multi_head_attention,
    scaled_dot_product_attention,
    sees_all,
    sees_the_past,
    softmax,
)
from vanilla_transformer.reference.layers import gelu, layer_norm, post_norm, pre_norm, relu, rms_norm, silu, swiglu
from vanilla_transformer.reference.positions import bucket, count_positions, learned, relative, rotary, sinusoidal
from vanilla_transformer.reference.transformer import label_smoothed_loss, log_softmax, shift_right

near = pytest.approx


def test_softmax():
    assert softmax(np.array([0.0, math.log(3)])).tolist() == near([0.25, 0.75])
    assert softmax(np.array([1e4, 1e4, -1e4])).tolist() == near([0.5, 0.5, 0])
    assert log_softmax(np.array([0.0, math.log(3)])).tolist() == near([math.log(0.25), math.log(0.75)])


def test_linear_is_x_w_plus_b():
    w = {"weight": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])}  # (out, in)
    assert linear(np.array([1.0, 10.0]), w).tolist() == [21, 43, 65]
    assert linear(np.array([1.0, 10.0]), {**w, "bias": np.array([1.0, 0, -1])}).tolist() == [22, 43, 64]


def test_attention_equation_1():
    """d_k = 4: scores (2 ln 3, 0) / sqrt(4) = (ln 3, 0), hence weights 3/4 and 1/4."""
    query = np.array([[[1.0, 0, 0, 0]]])
    key = np.array([[[2 * math.log(3), 0, 0, 0], [0, 1, 1, 1]]])
    value = np.array([[[4.0, 8, 0, 0], [8, 0, 0, 4]]])
    both = np.array([[[True, True]]])
    assert scaled_dot_product_attention(query, key, value, both)[0, 0].tolist() == near([5, 6, 0, 1])
    assert scaled_dot_product_attention(query, key, value, np.array([[[False, True]]])).tolist() == [[[8, 0, 0, 4]]]
    assert scaled_dot_product_attention(query, key, value, ~both)[0, 0].tolist() == near([6, 4, 0, 2])  # an average
    bias = np.array([[[0, math.log(3)]]])
    assert scaled_dot_product_attention(query, key, value, both, bias)[0, 0].tolist() == near([6, 4, 0, 2])


def test_heads_read_their_own_part_and_are_put_side_by_side():
    """Two heads of size 1 that attend to one key: W^V of the heads, side by side, then W^O."""
    zero = {"weight": np.zeros((2, 2))}
    w = dict(
        q_proj=zero,
        k_proj=zero,
        v_proj={"weight": np.diag([2.0, 3.0])},
        o_proj={"weight": np.array([[0.0, 1], [1, 0]])},
    )
    memory = np.array([[[10.0, 100.0]]])
    assert multi_head_attention(w, 2, np.ones((1, 1, 2)), memory, np.array([[[True]]])).tolist() == [[[300, 20]]]


def test_who_sees_whom():
    mask = np.array([[0, 1, 1, 1]])
    assert sees_all(mask).tolist() == [[[False, True, True, True]]]
    assert sees_the_past(mask)[0].astype(int).tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]]
    assert sees_the_past(mask, 2)[0].astype(int).tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


def test_positions_are_the_tokens_before():
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    assert count_positions(mask).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [0, 1, 2, 3, 4]]


def test_sinusoids():
    """d_model = 4: angles pos and pos / 100."""
    found = sinusoidal({}, np.array([[0, 1, 700]]), 4)[0]
    assert found[0].tolist() == [0, 1, 0, 1]
    assert found[1].tolist() == near([math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)], abs=6e-8)
    assert found[2].tolist() == near([math.sin(700), math.cos(700), math.sin(7), math.cos(7)], abs=6e-8)
    assert found.dtype == np.float32 and found[1, 0] == np.float32(math.sin(1))  # rounded once


def test_learned_positions_end():
    w = {"weight": np.array([[1.0], [2.0]])}
    assert learned(w, np.array([[1, 0]]), 1).tolist() == [[[2], [1]]]
    with pytest.raises(ValueError, match=r"3 tokens.*end at 2"):
        learned(w, np.array([[2]]), 1)


def test_rotation():
    """A quarter of a turn per position: (x_0, x_1) -> (-x_1, x_0); the second pair turns by pos / theta^(1/2)."""
    x = np.array([[[1.0, 2.0, 3.0, 4.0]]])
    turned = rotary(x, np.array([[1]]), theta=4.0)[0, 0]
    c, s = math.cos(0.5), math.sin(0.5)
    assert turned[2:].tolist() == near([3 * c - 4 * s, 4 * c + 3 * s], abs=1e-6)
    assert turned[:2].tolist() == near([math.cos(1) - 2 * math.sin(1), 2 * math.cos(1) + math.sin(1)], abs=1e-6)
    q, k = (np.random.default_rng(n).normal(size=(1, 1, 8)) for n in (0, 1))
    scores = [
        (rotary(q, np.array([[m]]), 1e4) * rotary(k, np.array([[n]]), 1e4)).sum()
        for m, n in [(0, 5), (7, 12), (90, 95)]
    ]
    assert scores == near([scores[0]] * 3, abs=1e-5)  # of the distance alone


def test_buckets_of_distances_by_whole_numbers():
    """floor(log(n/e) / log(128/e) * r) >= j is n^r >= e^(r-j) 128^j, which whole numbers decide without rounding."""

    def exactly(n: int, buckets: int) -> int:
        e = r = buckets // 2
        return n if n < e else e + sum(n**r >= e ** (r - j) * 128**j for j in range(1, r))

    n = np.arange(3000)
    assert bucket(-n, causal=True).tolist() == [exactly(i, 32) for i in n.tolist()]
    assert bucket(-n, causal=False).tolist() == [exactly(i, 16) for i in n.tolist()]
    assert bucket(n[1:], causal=False).tolist() == [16 + exactly(i, 16) for i in n[1:].tolist()]
    assert not bucket(n, causal=True).any()


def test_buckets_are_t5s():
    from transformers.models.t5.modeling_t5 import T5Attention

    for causal in (True, False):
        distance = torch.arange(-300, 300)
        expected = T5Attention._relative_position_bucket(distance, not causal, 32, 128)
        assert bucket(distance.numpy(), causal).tolist() == expected.tolist()


def test_relative_bias_has_a_number_for_each_head():
    w = {"weight": np.stack([np.arange(32.0), 100 + np.arange(32.0)], axis=1)}  # (32, H)
    bias = relative(w, np.array([[0, 1, 2]]), causal=False)
    assert bias.shape == (1, 2, 3, 3)
    assert bias[0, 0].tolist() == [[0, 17, 18], [1, 0, 17], [2, 1, 0]]
    assert (bias[0, 1] - bias[0, 0] == 100).all()


def test_norms():
    x = np.array([1.0, 3.0, 5.0, 7.0])  # mean 4, variance 5, mean square 21
    w = {"weight": np.array([1.0, 1, 2, 2]), "bias": np.array([0.0, 0, 0, 1])}
    assert layer_norm(x, w, 4.0).tolist() == near([-1, -1 / 3, 2 / 3, 3])
    assert rms_norm(x, w, 4.0).tolist() == near([0.2, 0.6, 2, 2.8])


def test_activations():
    x = np.array([-2.0, 0, 1])
    assert relu(x).tolist() == [0, 0, 1]
    assert gelu(x).tolist() == near([-2 * 0.022750131948179195, 0, 0.8413447460685429], abs=1e-15)
    assert silu(x).tolist() == near([-2 / (1 + math.exp(2)), 0, 1 / (1 + math.exp(-1))], abs=1e-15)
    assert np.isfinite(silu(np.array([-1e4, 1e4]))).all()
    wide = np.linspace(-40, 40, 4001)
    for ours, torchs in ((gelu, torch.nn.functional.gelu), (silu, torch.nn.functional.silu)):
        np.testing.assert_allclose(ours(wide), torchs(torch.from_numpy(wide)).numpy(), atol=1e-14)
        assert ours(wide.astype(np.float32)).dtype == np.float32


def test_swiglu_gates():
    w = {name: {"weight": np.array([[factor]])} for name, factor in (("fc1", 1.0), ("gate", 10.0), ("fc2", 2.0))}
    assert swiglu(np.array([3.0]), w).tolist() == near([2 * 30 * 3 / (1 + math.exp(-3))])


def test_residuals():
    x, double, plus_one = np.array([3.0]), lambda x: 2 * x, lambda x: x + 1
    assert post_norm(x, double, plus_one).tolist() == [10]  # norm(3 + 6)
    assert pre_norm(x, double, plus_one).tolist() == [11]  # 3 + 2 norm(3)


def test_smoothed_loss():
    """p = (1/4, 3/4), eps 0.2: 0.8 (-ln 1/4) + 0.1 (-ln 1/4 - ln 3/4), in nats."""
    logits = np.log(np.array([[[0.25, 0.75], [0.5, 0.5]]]))
    assert label_smoothed_loss(logits, np.array([[0, -100]])) == near(math.log(4))
    expected = 0.8 * math.log(4) + 0.1 * (math.log(4) + math.log(4 / 3))
    assert label_smoothed_loss(logits, np.array([[0, -100]]), 0.2) == near(expected)
    assert label_smoothed_loss(logits, np.array([[0, 1]])) == near((math.log(4) + math.log(2)) / 2)
    assert label_smoothed_loss(logits, np.array([[-100, -100]])) == 0


def test_labels_are_read_one_place_later():
    labels = np.array([[7, 8, 2], [9, 2, -100]])
    assert shift_right(labels, 1, 0).tolist() == [[1, 7, 8], [1, 9, 2]]
