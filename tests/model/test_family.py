"""Every member of the family, one combination of choices after the other, keeps the family's promises."""

import pytest
import torch
from family import CHOICES, GENERATING, build, every_member, with_labels
from properties import (
    a_window_slides,
    batch_is_singles,
    cache_changes_nothing,
    eager_is_sdpa,
    nothing_leaks_from_the_future,
    padding_changes_nothing,
    reload_is_bit_equal,
)
from tiny import random_ids
from torch.nn import Embedding, LayerNorm, Linear, RMSNorm
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from vanilla_transformer.model.attention import scaled_dot_product_attention


@every_member()
def test_member(architecture, choice, tmp_path):
    model = build(architecture, **choice)
    eager_is_sdpa(model)
    padding_changes_nothing(model)
    batch_is_singles(model)
    if architecture in GENERATING:
        nothing_leaks_from_the_future(model)
        cache_changes_nothing(model)
    reload_is_bit_equal(model, tmp_path)


@every_member()
def test_gradients_reach_every_weight_and_checkpointing_changes_none(architecture, choice):
    model, inputs = build(architecture, **choice).train(), with_labels(architecture)
    found = []
    for checkpointing in (False, True, "reentrant"):
        model.zero_grad()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": checkpointing == "reentrant"})
            model.enable_input_require_grads()
        torch.manual_seed(0)
        loss = model(**inputs).loss
        loss.backward()
        found.append((loss.detach(), [p.grad.clone() for p in model.parameters()]))
    for loss, grads in found[1:]:
        torch.testing.assert_close(loss, found[0][0], atol=0, rtol=1e-6)
        torch.testing.assert_close(grads, found[0][1], atol=1e-6, rtol=1e-5)
    # A bias on keys moves all scores of a query alike.
    still = [n for n, p in model.named_parameters() if not p.grad.abs().sum() and not n.endswith("k_proj.bias")]
    assert not still


@pytest.mark.parametrize("architecture", GENERATING)
def test_every_kind_of_module_is_initialised(architecture):
    """As in the paper's base: matrices Xavier-uniform, embeddings N(0, 1/d_model), norms 1 and 0."""
    model = build(
        architecture, norm="rmsnorm", positions="relative", feed_forward="swiglu", d_model=64, vocab_size=900
    )
    for name, module in model.named_modules():
        if isinstance(module, Linear) and not name.endswith("lm_head"):
            assert module.weight.abs().max() <= (6 / sum(module.weight.shape)) ** 0.5
            assert module.bias is None or not module.bias.any()
        elif isinstance(module, Embedding):
            assert module.weight.std().item() == pytest.approx(1 / 8, rel=0.25)
        elif isinstance(module, (LayerNorm, RMSNorm)):
            assert (module.weight == 1).all()


@pytest.mark.parametrize("window", [2, 3])
def test_a_sliding_window_sees_so_many_tokens(window):
    a_window_slides(build("decoder-only", sliding_window=window))


@pytest.mark.parametrize("positions", CHOICES["positions"])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("attn", ["eager", "sdpa"])
def test_texts_that_are_packed_into_a_row_do_not_see_each_other(positions, window, attn):
    """As `DataCollatorWithFlattening` makes them: positions that begin anew, and no mask."""
    model = build("decoder-only", positions=positions, sliding_window=window, attn_implementation=attn)
    texts = [random_ids(1, length) for length in (4, 1, 3)]
    packed, where = torch.cat(texts, 1), torch.cat([torch.arange(text.shape[1]) for text in texts])[None]
    alone = torch.cat([model(text, use_cache=False).logits for text in texts], 1)
    torch.testing.assert_close(model(packed, position_ids=where, use_cache=False).logits, alone)
    labels = packed.masked_fill(where == 0, -100)
    model(packed, position_ids=where, labels=labels).loss.backward()


def test_kernels_are_told_of_the_window_and_of_packed_texts():
    """A flash attention makes its mask itself, of these."""
    heard = []

    def kernel(module, query, key, value, mask, **told):
        heard.append(told)
        return scaled_dot_product_attention(module, query, key, value, mask, **told)

    AttentionInterface.register("probe", kernel)
    AttentionMaskInterface.register("probe", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    model, where = build("decoder-only", sliding_window=3, attn_implementation="probe"), torch.tensor([[0, 1, 0, 1]])
    model(random_ids(1, 4), position_ids=where, use_cache=False)
    assert len(heard) == 2 and all(told["sliding_window"] == 3 and told["position_ids"] is where for told in heard)


def test_continuous_batching_adds_nothing_to_scores():
    """It tells a model of its cache by a keyword."""
    with pytest.raises(ValueError, match="generate_batch adds nothing to scores, as positions='relative'"):
        build("decoder-only", positions="relative")(random_ids(1, 3), cache=object())
