from typing import get_args

import pytest
from huggingface_hub.errors import StrictDataclassError
from tiny import tiny_config

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerDecoderConfig,
    VanillaTransformerEncoderConfig,
    VanillaTransformerForSeq2SeqLM,
)
from vanilla_transformer.model import configuration_vanilla_transformer as configuration
from vanilla_transformer.model.layers import FEED_FORWARDS, NORMS, RESIDUALS
from vanilla_transformer.model.positions import POSITIONS


def test_default_is_the_papers_base_model():
    c = VanillaTransformerConfig()
    assert (c.encoder_layers, c.decoder_layers, c.d_model, c.encoder_ffn_dim) == (6, 6, 512, 2048)
    assert (c.encoder_attention_heads, c.decoder_attention_heads, c.dropout) == (8, 8, 0.1)
    assert (c.residual, c.positions, c.feed_forward) == ("post", "sinusoidal", "relu")
    assert c.tie_word_embeddings and c.share_encoder_decoder_embeddings and c.scale_embedding
    assert (c.pad_token_id, c.bos_token_id, c.eos_token_id, c.decoder_start_token_id) == (0, 1, 2, 1)


@pytest.mark.parametrize(
    "name, layers, d_model, heads, ffn, dropout",
    [("tiny", 4, 128, 4, 256, 0.3), ("small", 3, 256, 4, 1024, 0.1), ("base", 6, 512, 8, 2048, 0.1),
     ("big", 6, 1024, 16, 4096, 0.3)],
)  # fmt: skip
def test_presets(name, layers, d_model, heads, ffn, dropout):
    c = VanillaTransformerConfig.preset(name, vocab_size=99)
    assert (c.encoder_layers, c.decoder_layers, c.d_model, c.dropout) == (layers, layers, d_model, dropout)
    assert (c.encoder_attention_heads, c.decoder_attention_heads) == (heads, heads)
    assert (c.encoder_ffn_dim, c.decoder_ffn_dim) == (ffn, ffn)
    assert (c.vocab_size, c.decoder_vocab_size) == (99, 99)


def test_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'huge'.*tiny, small, base, big"):
        VanillaTransformerConfig.preset("huge")


@pytest.mark.parametrize(
    "make", [VanillaTransformerConfig, lambda **kw: VanillaTransformerConfig.preset("tiny", **kw)]
)
@pytest.mark.parametrize("typo, meant", [("d_modle", "d_model"), ("encoder_layer", "encoder_layers"),
                                         ("drop_out", "dropout"), ("vocabsize", "vocab_size")])  # fmt: skip
def test_misspelt_key_is_an_error_that_suggests_the_nearest_name(make, typo, meant):
    with pytest.raises(ValueError, match=f"{typo!r}: did you mean '{meant}'"):
        make(**{typo: 1})


@pytest.mark.parametrize("name", ["cls_token_id", "sep_token_id", "mask_token_id", "tie_encoder_decoder"])
def test_names_of_transformers_are_no_misspellings(name, tmp_path):
    VanillaTransformerEncoderConfig(**{name: 4}).save_pretrained(tmp_path)
    assert getattr(VanillaTransformerEncoderConfig.from_pretrained(tmp_path), name) == 4


def test_rotary_positions_that_are_set_later():
    config = VanillaTransformerConfig()
    config.positions = "rotary"
    with pytest.raises(ValueError, match=r"rope_parameters=None: expected \{'rope_type': 'default', 'rope_theta'"):
        VanillaTransformerForSeq2SeqLM(config)
    with pytest.raises(StrictDataclassError, match=r"'rope_theta': a positive number"):
        VanillaTransformerConfig(positions="rotary", rope_parameters={"rope_type": "default", "rope_theta": "1e6"})


def test_other_unknown_keys_stay_as_transformers_needs_them(tmp_path):
    VanillaTransformerConfig(favourite_colour="blue").save_pretrained(tmp_path)
    assert VanillaTransformerConfig.from_pretrained(tmp_path).favourite_colour == "blue"


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"d_model": 10, "encoder_attention_heads": 4}, r"d_model=10 .*encoder_attention_heads=4.*divides"),
        ({"decoder_attention_heads": 0}, r"decoder_attention_heads=0"),
        ({"dropout": 1.5}, r"dropout=1.5: expected a probability"),
        ({"encoder_layers": 0}, r"encoder_layers=0: expected at least 1"),
        ({"d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 3}, "odd.*positions='learned'"),
        ({"decoder_vocab_size": 7}, r"decoder_vocab_size=7: set both to the same number, or share_encoder_"),
        ({"norm_eps": 0.0}, "norm_eps=0.0"),
    ],
)
def test_contradictions_name_fields_values_and_remedy(fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        tiny_config(**fields)


def test_all_problems_are_told_at_once():
    with pytest.raises(StrictDataclassError, match=r"(?s)encoder_layers=0.*dropout=2"):
        tiny_config(encoder_layers=0, dropout=2)


def test_words_and_registries_are_the_same():
    for literal, registry in [("Residual", RESIDUALS), ("Norm", NORMS), ("Positions", POSITIONS),
                              ("FeedForward", FEED_FORWARDS)]:  # fmt: skip
        assert set(get_args(getattr(configuration, literal))) == set(registry)


def test_a_word_that_no_class_stands_for_is_refused():
    with pytest.raises(StrictDataclassError, match="residual"):
        tiny_config(residual="sandwich")


def test_a_contradiction_set_later_is_told_before_a_training():
    """Not by its first checkpoint, which could not be saved."""
    config = VanillaTransformerConfig.preset("small")
    config.d_model = 250
    with pytest.raises(ValueError, match="divides"):
        VanillaTransformerForSeq2SeqLM(config)


def test_a_vocabulary_set_later_is_that_of_both_sides(tmp_path):
    """As a script sets it when it has its tokenizer: such a model could be trained, and not be saved."""
    config = tiny_config()
    config.vocab_size = 40
    model = VanillaTransformerForSeq2SeqLM(config)
    assert model.model.decoder.embed_tokens.num_embeddings == model.lm_head.out_features == 40
    model.save_pretrained(tmp_path)
    assert VanillaTransformerConfig.from_pretrained(tmp_path).decoder_vocab_size == 40


def test_a_near_miss_set_later_is_not_saved(tmp_path):
    config = tiny_config()
    config.d_modle = 3
    with pytest.raises(StrictDataclassError, match="unknown key 'd_modle': did you mean 'd_model'"):
        config.save_pretrained(tmp_path)


@pytest.mark.parametrize(
    "config_class, fields, message",
    [
        (VanillaTransformerDecoderConfig, dict(sliding_window=1), "sliding_window=1: expected at least 2, or None"),
        (VanillaTransformerDecoderConfig, dict(is_encoder_decoder=True), "describes a single stack"),
        (VanillaTransformerEncoderConfig, dict(num_attention_heads=7), "is not divisible by num_attention_heads=7"),
        (VanillaTransformerEncoderConfig, dict(positions="rotary", d_model=24), "num_attention_heads = 3 is odd"),
        (VanillaTransformerConfig, dict(pad_token_id=-1), "pad_token_id=-1: .*, 0 to 36999"),
        (VanillaTransformerDecoderConfig, dict(vocab_size=9, eos_token_id=[2, 9]), "eos_token_id=9: .*, 0 to 8"),
        (VanillaTransformerConfig, dict(rope_theta=500.0), "is read by positions='rotary' only, not by 'sinusoidal'"),
        (VanillaTransformerConfig, dict(positions="rotary", rope_parameters={"rope_type": "linear", "factor": 2.0}),
         "expected {'rope_type': 'default'"),
    ],
)  # fmt: skip
def test_contradictions_of_the_family(config_class, fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        config_class(**fields)


def test_rotary_angles_are_written_down_and_read_again(tmp_path):
    config = VanillaTransformerDecoderConfig(positions="rotary", rope_theta=500.0)
    config.save_pretrained(tmp_path)
    assert VanillaTransformerDecoderConfig.from_pretrained(tmp_path).rope_parameters == {
        "rope_type": "default", "rope_theta": 500.0
    }  # fmt: skip
