import math

import numpy as np
import pytest
import torch
from tiny import random_ids, tiny_config, tiny_model

from vanilla_transformer.model.attention import MultiHeadAttention, scaled_dot_product_attention


def three_loops(query, key, value, visible):
    """Equation 1 for one head, element by element, in float64."""
    out = np.zeros((len(query), value.shape[1]))
    for i, q in enumerate(query):
        scores = [math.exp(q @ k / math.sqrt(len(q))) if visible[i, j] else 0.0 for j, k in enumerate(key)]
        for j, score in enumerate(scores):
            out[i] += score / sum(scores) * value[j]
    return out


def test_equation_1_against_three_loops():
    q, k, v = (torch.randn(1, 1, n, 4, dtype=torch.float64) for n in (3, 5, 5))
    visible = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 1, 0, 1], [0, 0, 0, 0, 1]]).bool()
    module = torch.nn.Module().eval()
    expected = three_loops(*(x[0, 0].numpy() for x in (q, k, v)), visible.numpy())
    for mask in (visible[None, None], torch.zeros(3, 5).double().masked_fill(~visible, -1e30)[None, None]):
        out, weights = scaled_dot_product_attention(module, q, k, v, mask, scaling=4**-0.5)
        np.testing.assert_allclose(out[0, :, 0].numpy(), expected, atol=1e-12)
        assert (weights[0, 0][~visible] == 0).all()


def test_multi_head_attention_is_torchs():
    ours = MultiHeadAttention(tiny_config(), num_heads=2, layer_idx=0, is_causal=False).double()
    theirs = torch.nn.MultiheadAttention(16, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.q_proj.bias, ours.k_proj.bias, ours.v_proj.bias]))
        theirs.out_proj.weight.copy_(ours.o_proj.weight)
        theirs.out_proj.bias.copy_(ours.o_proj.bias)
    x = torch.randn(3, 5, 16, dtype=torch.float64)
    out, weights = ours(x, None, attention_interface=scaled_dot_product_attention)
    expected, expected_weights = theirs(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(weights, expected_weights, atol=1e-12, rtol=0)


def test_weights_are_the_softmax_itself_also_in_training():
    model = tiny_model(attention_dropout=0.5, attn_implementation="eager").train()
    out = model(input_ids=random_ids(2, 6), labels=random_ids(2, 4), output_attentions=True)
    for name in ("encoder_attentions", "decoder_attentions", "cross_attentions"):
        for weights in getattr(out, name):
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


@pytest.mark.parametrize("attn", ["sdpa", "eager"])
def test_all_padded_row_stays_finite(attn):
    model = tiny_model(attn_implementation=attn)
    mask = torch.tensor([[1, 1, 1], [0, 0, 0]])
    out = model(input_ids=random_ids(2, 3), attention_mask=mask, labels=random_ids(2, 4))
    assert out.logits.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attn", ["sdpa", "eager"])
def test_half_precision_with_padding(dtype, attn):
    model = tiny_model(attn_implementation=attn)
    inputs = dict(input_ids=random_ids(2, 5), attention_mask=torch.tensor([[1] * 5, [1, 1, 0, 0, 0]]))
    inputs["labels"] = random_ids(2, 4)
    expected = model(**inputs).logits
    out = model.to(dtype)(**inputs).logits
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), expected, atol=0.1, rtol=0.05)
