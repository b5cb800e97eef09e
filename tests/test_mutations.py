"""Each property catches a bug: the code is broken on purpose, and the function that other tests call must fail."""

from collections.abc import Callable

import properties
import pytest
import torch
from family import ARCHITECTURES, build
from tiny import random_ids
from torch import nn
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask

from vanilla_transformer.model import attention, head, layers, modeling_vanilla_transformer, positions, stacks

ALL, SEQ2SEQ, CAUSAL = list(ARCHITECTURES), ["encoder-decoder"], ["decoder-only"]
DECODER = "vanilla_transformer.model.modeling_vanilla_transformer_decoder"
MUTATIONS: list = []


def mutation(name: str, architectures: list[str] = SEQ2SEQ, **choice):
    """Names the property (its function) that notices a bug, and the models that have it."""

    def register(mutate: Callable):
        for architecture in architectures:
            case = (name, architecture, choice, mutate)
            MUTATIONS.append(pytest.param(*case, id=f"{mutate.__name__}-{architecture}"))
        return mutate

    return register


def wrap(monkeypatch, place, name: str, make: Callable):
    monkeypatch.setattr(place, name, make(getattr(place, name)))


@mutation("eager_is_sdpa", ALL)
def scores_are_not_scaled(monkeypatch):
    wrap(monkeypatch, attention, "scaled_dot_product_attention",
         lambda formula: lambda *args, **kwargs: formula(*args, **{**kwargs, "scaling": 1.0}))  # fmt: skip


@mutation("nothing_leaks_from_the_future", ["encoder-decoder", "decoder-only"])
def the_decoder_is_not_causal(monkeypatch):
    monkeypatch.setattr(stacks, "create_causal_mask", create_bidirectional_mask)
    monkeypatch.setattr(f"{DECODER}.create_causal_mask", create_bidirectional_mask)
    wrap(
        monkeypatch,
        attention.MultiHeadAttention,
        "__init__",
        lambda init: lambda self, config, heads, layer, is_causal: init(self, config, heads, layer, False),
    )


@mutation("labels_are_shifted_once")
def labels_are_not_shifted(monkeypatch):
    monkeypatch.setattr(modeling_vanilla_transformer, "shift_right", lambda labels, *tokens: labels.clamp(min=0))


@mutation("labels_are_shifted_once")
def labels_are_shifted_twice(monkeypatch):
    wrap(monkeypatch, modeling_vanilla_transformer, "shift_right",
         lambda once: lambda labels, *tokens: once(once(labels, *tokens), *tokens))  # fmt: skip


@mutation("an_encoder_sees_both_ways", ["encoder-decoder", "encoder-only"])
def the_encoder_is_causal(monkeypatch):
    monkeypatch.setattr(stacks.Stack, "create_mask", lambda self, position_ids, **kwargs: create_causal_mask(**kwargs))
    wrap(
        monkeypatch,
        attention.MultiHeadAttention,
        "__init__",
        lambda init: lambda self, config, heads, layer, is_causal: init(self, config, heads, layer, True),
    )


@mutation("padding_changes_nothing", ALL)
def positions_count_padding(monkeypatch):
    monkeypatch.setattr(stacks, "token_positions", lambda mask, past, length, *rest: torch.arange(length)[None])


@mutation("padding_changes_nothing", ALL, positions="relative")
def distances_count_padding(monkeypatch):
    wrap(monkeypatch, positions.RelativePositions, "bias",
         lambda bias: lambda self, queries, keys: bias(self, queries, torch.arange(keys.shape[1])[None]))  # fmt: skip


@mutation("padding_changes_nothing", CAUSAL, positions="relative")
def distances_in_a_cache_count_padding(monkeypatch):
    wrap(monkeypatch, stacks, "key_positions", lambda keys: lambda mask, *rest: keys(None, *rest))


@mutation("padding_changes_nothing", SEQ2SEQ)
def padding_of_the_source_is_attended_to(monkeypatch):
    def unmasked(**kwargs):
        return create_bidirectional_mask(**{**kwargs, "attention_mask": None})

    monkeypatch.setattr(stacks, "create_bidirectional_mask", unmasked)


@mutation("batch_is_singles", ALL)
def the_norm_is_taken_over_the_batch(monkeypatch):
    monkeypatch.setattr(layers.LayerNorm, "forward", lambda self, x: (x - x.mean(0)) / x.std())


@mutation("an_empty_row_is_finite", ALL)
def masked_scores_are_minus_infinity(monkeypatch):
    def attend(formula):
        def infinite(module, query, key, value, mask, *args, **kwargs):
            low = torch.finfo(query.dtype).min
            mask = None if mask is None else mask.masked_fill(mask == low, -torch.inf)
            return formula(module, query, key, value, mask, *args, **kwargs)

        return infinite

    wrap(monkeypatch, attention, "scaled_dot_product_attention", attend)


@mutation("attention_rows_sum_to_one", ALL, attention_dropout=0.5)
def attention_is_returned_after_dropout(monkeypatch):
    def attend(formula):
        def dropped(*args, dropout, **kwargs):
            heads, weights = formula(*args, dropout=dropout, **kwargs)
            return heads, nn.functional.dropout(weights, dropout)

        return dropped

    wrap(monkeypatch, attention, "scaled_dot_product_attention", attend)


@mutation("cache_changes_nothing")
def the_offset_of_the_cache_is_dropped(monkeypatch):
    wrap(monkeypatch, stacks, "token_positions",
         lambda count: lambda mask, past, length, *rest: count(mask[:, -length:], 0, length, *rest)
         if mask is not None else count(None, 0, length, *rest))  # fmt: skip


@mutation("cache_changes_nothing", ["encoder-decoder", "decoder-only"])
def beams_keep_the_cache_of_others(monkeypatch):
    for cache in (Cache, stacks.EncoderDecoderCache):
        monkeypatch.setattr(cache, "reorder_cache", lambda self, beams: None)


@mutation("a_big_batch_is_its_parts", ALL, dropout=0.0)
def each_part_is_divided_by_its_own_labels(monkeypatch):
    wrap(monkeypatch, head, "cross_entropy",
         lambda loss: lambda logits, labels, smoothing, items: loss(logits, labels, smoothing))  # fmt: skip


@mutation("a_big_batch_is_its_parts", ALL, dropout=0.0)
def smoothing_counts_padding(monkeypatch):
    def cross_entropy(logits, labels, smoothing, items):
        logs = logits.log_softmax(-1)
        right = logs.gather(-1, labels.clamp(min=0)[..., None])[..., 0].masked_fill(labels < 0, 0)
        return -((1 - smoothing) * right.sum() + smoothing * logs.mean(-1).sum()) / items

    monkeypatch.setattr(head, "cross_entropy", cross_entropy)


@mutation("tied_weights_move_together", ALL)
def tied_weights_are_copies(monkeypatch):
    for _, model in ARCHITECTURES.values():
        monkeypatch.setattr(model, "tie_weights", lambda self, *args, **kwargs: None)


@mutation("every_weight_moves", ALL)
def a_sub_layer_gets_no_gradient(monkeypatch):
    wrap(monkeypatch, layers.ReLUFeedForward, "forward", lambda forward: lambda self, x: forward(self, x).detach())


@mutation("every_weight_moves", SEQ2SEQ)
def the_source_gets_no_gradient(monkeypatch):
    wrap(monkeypatch, attention.CrossAttention, "forward",
         lambda forward: lambda self, x, mask, memory, *args, **kwargs: forward(
             self, x, mask, memory.detach(), *args, **kwargs))  # fmt: skip


@mutation("reload_is_bit_equal", ALL)
def tables_are_not_made_anew(monkeypatch):
    def init(initialise):
        return lambda self, module: None if isinstance(module, positions.Sinusoids) else initialise(self, module)

    wrap(monkeypatch, stacks.VanillaTransformerPreTrainedModel, "_init_weights", init)
    # Memory that nobody has written may hold anything, at times even a table that was there before.
    wrap(monkeypatch, torch, "empty_like", lambda empty: lambda *args, **kwargs: empty(*args, **kwargs).fill_(7))


@mutation("positions_go_on", ALL, max_position_embeddings=8)
@mutation("positions_go_on", CAUSAL, max_position_embeddings=8, positions="rotary")
def the_table_of_positions_ends(monkeypatch):
    monkeypatch.setattr(positions.Sinusoids, "rows",
                        lambda self, where, length: self.table[where.clamp(max=len(self.table) - 1)])  # fmt: skip


@mutation("tokens_and_positions_are_of_one_size", ALL, d_model=64, vocab_size=1000)
def the_embedding_is_not_scaled(monkeypatch):
    wrap(monkeypatch, stacks.Stack, "__init__",
         lambda init: lambda self, config: (init(self, config), setattr(self, "embed_scale", 1.0))[0])  # fmt: skip


@mutation("only_distances_count", CAUSAL, positions="rotary")
def keys_are_not_rotated(monkeypatch):
    turned = []

    def queries_only(rotate):
        def every_other(x, rotation):
            turned.append(x)
            return rotate(x, rotation) if len(turned) % 2 else x

        return every_other

    wrap(monkeypatch, attention, "rotate", queries_only)


@mutation("a_window_slides", CAUSAL, sliding_window=3)
def the_window_is_forgotten(monkeypatch):
    monkeypatch.setattr(f"{DECODER}.create_sliding_window_causal_mask", create_causal_mask)


@pytest.mark.parametrize("name, architecture, choice, mutate", MUTATIONS)
def test_a_bug_is_caught(name, architecture, choice, mutate, monkeypatch, tmp_path):
    def check():
        torch.manual_seed(0)
        folder = [tmp_path] if name == "reload_is_bit_equal" else []
        getattr(properties, name)(build(architecture, **choice), *folder)

    check()
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        check()


@pytest.fixture(scope="module")
def trained():
    """A model that has learned to copy 4 tokens, and sentences to copy."""
    torch.manual_seed(0)
    model = build("encoder-decoder", d_model=32, dropout=0.0, vocab_size=13, residual="pre").train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(250):
        ids = random_ids(64, 4, vocab_size=13)
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    return model.eval(), random_ids(32, 4, vocab_size=13)


def test_a_decoder_without_its_source_is_caught(trained, monkeypatch):
    model, ids = trained
    properties.a_trained_model_reads_its_source(model, ids, ids)
    wrap(monkeypatch, attention.CrossAttention, "forward",
         lambda forward: lambda self, x, *args, **kwargs: (torch.zeros_like(x), None))  # fmt: skip
    with pytest.raises(AssertionError):
        properties.a_trained_model_reads_its_source(model, ids, ids)


def test_every_property_has_a_bug_that_it_catches():
    own = {name for name, thing in vars(properties).items() if getattr(thing, "__module__", "") == properties.__name__}
    helpers = {"architecture_of", "changed", "equal_in_parts"}
    elsewhere = {"a_trained_model_reads_its_source"}
    assert own - helpers == {case.values[0] for case in MUTATIONS} | elsewhere
