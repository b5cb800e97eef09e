"""The model in torch computes what the papers say: its logits and losses are those of the NumPy reference."""

import inspect
import math

import numpy as np
import pytest
import torch
from both import difference, padded_batch, randomised, twins
from family import ARCHITECTURES, batch, build, every_member, with_labels
from tiny import random_ids
from transformers import PreTrainedConfig

from vanilla_transformer.reference import NumpyTransformer, attention, layers, names, positions, transformer

FLOAT64, FLOAT32 = 1e-9, 1e-4


@every_member()
def test_logits_of_every_member(architecture, choice, tmp_path):
    model, twin = twins(tmp_path, architecture, **choice)
    given = padded_batch(architecture)
    assert difference(model, twin, given) < FLOAT64
    assert difference(model.float(), NumpyTransformer.from_pretrained(tmp_path, np.float32), given) < FLOAT32
    assert twin(**{name: tensor.numpy() for name, tensor in given.items()}).std() > 0.3  # not all of them alike


SETTINGS = [
    dict(output_bias=True),
    dict(attention_bias=False, positions="rotary"),
    dict(scale_embedding=False),
    dict(tie_word_embeddings=False, output_bias=True),
    dict(positions="rotary", rope_parameters={"rope_type": "default", "rope_theta": 37.0}),
    dict(norm_eps=0.1, norm="rmsnorm", residual="pre"),
]


@pytest.mark.parametrize("attn", ["eager", "sdpa"])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "-".join(setting))
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_other_settings(architecture, setting, attn, tmp_path):
    model, twin = twins(tmp_path, architecture, attn_implementation=attn, **setting)
    assert difference(model, twin, padded_batch(architecture)) < FLOAT64
    assert difference(model, twin, batch(architecture)) < FLOAT64  # without masks


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("share, target_vocab", [(True, None), (False, None), (False, 61)])
def test_one_vocabulary_or_two(share, target_vocab, tie, tmp_path):
    choice = dict(tie_word_embeddings=tie, share_encoder_decoder_embeddings=share, decoder_vocab_size=target_vocab)
    model, twin = twins(tmp_path, "encoder-decoder", **choice)
    given = {"input_ids": random_ids(2, 6), "decoder_input_ids": random_ids(2, 5, vocab_size=target_vocab or 50)}
    assert difference(model, twin, given) < FLOAT64
    assert twin(**{name: tensor.numpy() for name, tensor in given.items()}).shape[-1] == (target_vocab or 50)


@pytest.mark.parametrize("window", [2, 4, 9])
@pytest.mark.parametrize("scheme", ["sinusoidal", "relative"])
def test_sliding_window(window, scheme, tmp_path):
    model, twin = twins(tmp_path, "decoder-only", sliding_window=window, positions=scheme)
    assert difference(model, twin, padded_batch("decoder-only")) < FLOAT64


def test_sides_of_unequal_size(tmp_path):
    sizes = dict(encoder_layers=1, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=2)
    model, twin = twins(tmp_path, "encoder-decoder", decoder_ffn_dim=24, positions="relative", **sizes)
    assert difference(model, twin, padded_batch("encoder-decoder")) < FLOAT64


@pytest.mark.parametrize("scheme", ["sinusoidal", "rotary", "relative"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_texts_longer_than_any_table(scheme, architecture, tmp_path):
    """Past max_position_embeddings, and past 128, where all distances share T5's last bucket."""
    model, twin = twins(tmp_path, architecture, positions=scheme, max_position_embeddings=8)
    assert difference(model, twin, batch(architecture, rows=1, source=200, target=200)) < FLOAT64


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_source_of_padding_alone(architecture, tmp_path):
    model, twin = twins(tmp_path, architecture, attn_implementation="eager")
    given = batch(architecture)
    given["attention_mask"] = torch.ones_like(given["input_ids"])
    given["attention_mask"][1] = 0
    found = twin(**{name: tensor.numpy() for name, tensor in given.items()})
    assert np.isfinite(found).all()
    if architecture == "encoder-decoder":
        assert difference(model, twin, given) < FLOAT64


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_loss(architecture, epsilon, tmp_path):
    model, twin = twins(tmp_path, architecture)
    given = with_labels(architecture)
    with torch.no_grad():
        expected = model(**given, label_smoothing=epsilon).loss.item()  # in float32, as training is
    found = twin.loss(**{name: tensor.numpy() for name, tensor in given.items()}, label_smoothing=epsilon)
    assert found == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_checkpoints_of_half_precision_are_read_to_the_bit(dtype, tmp_path):
    model = randomised(build("encoder-decoder", positions="learned")).to(dtype)
    model.save_pretrained(tmp_path)
    assert (
        difference(model.double(), NumpyTransformer.from_pretrained(tmp_path), padded_batch("encoder-decoder")) < 1e-9
    )


def test_checkpoints_of_several_files(tmp_path):
    model = randomised(build("encoder-decoder"))
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert difference(model, NumpyTransformer.from_pretrained(tmp_path), padded_batch("encoder-decoder")) < FLOAT64


def test_checkpoints_without_a_head(tmp_path):
    model = randomised(build("encoder-decoder"))
    model.model.save_pretrained(tmp_path)
    assert difference(model, NumpyTransformer.from_pretrained(tmp_path), padded_batch("encoder-decoder")) < FLOAT64


def half_split(w, where, d_model):
    """[all sines | all cosines], as Marian has it."""
    angles = positions.angles(where, d_model, 10000.0)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float32)


def rotary_of_halves(x, rotary=positions.rotary, **where):
    """Dimension i is paired with i + K/2, as in Llama."""
    interleaved = x.reshape(*x.shape[:-1], 2, -1).swapaxes(-1, -2).reshape(x.shape)
    turned = rotary(interleaved, **where)
    return turned.reshape(*x.shape[:-1], -1, 2).swapaxes(-1, -2).reshape(x.shape)


def tanh_gelu(x):
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def unbiased(x, w, eps):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True, ddof=1) + eps) * w["weight"] + w["bias"]


def norm_outside_of_the_root(x, w, eps):
    return x / (np.sqrt((x**2).mean(-1, keepdims=True)) + eps) * w["weight"]


def wider(mask, window=None, sees=attention.sees_the_past):
    return sees(mask, None if window is None else window + 1)


def sees_one_ahead(mask, window=None):
    i, j = np.indices((mask.shape[1], mask.shape[1]))
    return (j <= i + 1) & attention.sees_all(mask)


def from_the_key(distance, causal, bucket=positions.bucket):
    return bucket(-distance, causal)


def sinusoids_of_i(where, width, theta):
    return where[..., None] / theta ** (np.arange(width // 2) / width)


def unscaled(config, *rest, embed=transformer.embed):
    return embed({**config, "scale_embedding": False}, *rest)


def padding_counts(mask):
    return np.cumsum(np.ones_like(mask), axis=-1) - 1


def sees_padding(mask):
    return np.ones_like(mask, dtype=bool)[:, None, :]


# What is broken on purpose: a module and a name in it, or a table and its key; what is put there; where it shows.
NORMS, FEED_FORWARDS, RESIDUALS, SCHEMES = layers.NORMS, layers.FEED_FORWARDS, layers.RESIDUALS, positions.POSITIONS
MUTATIONS = {
    "half-split sinusoid": (SCHEMES, "sinusoidal", positions.Scheme(add=half_split), {}),
    "wave lengths of i, not of 2i": (positions, "angles", sinusoids_of_i, {}),
    "rotary in halves": (SCHEMES, "rotary", positions.Scheme(turn=rotary_of_halves), dict(positions="rotary")),
    "no rotation": (SCHEMES, "rotary", positions.Scheme(), dict(positions="rotary")),
    "past and future swapped": (positions, "bucket", from_the_key, dict(positions="relative")),
    "padding counts": (transformer, "count_positions", padding_counts, {}),
    "the future is seen": (transformer, "sees_the_past", sees_one_ahead, {}),
    "padding is seen": (transformer, "sees_all", sees_padding, {}),
    "window off by one": (transformer, "sees_the_past", wider, dict(sliding_window=2)),
    "pre for post": (RESIDUALS, "post", layers.pre_norm, {}),
    "post for pre": (RESIDUALS, "pre", layers.post_norm, dict(residual="pre")),
    "variance by n - 1": (NORMS, "layernorm", unbiased, {}),
    "eps outside of the root": (NORMS, "rmsnorm", norm_outside_of_the_root, dict(norm="rmsnorm")),
    "GELU by tanh": (FEED_FORWARDS, "gelu", layers.two_linear(tanh_gelu), dict(feed_forward="gelu")),
    "ReLU for SiLU": (FEED_FORWARDS, "silu", layers.two_linear(layers.relu), dict(feed_forward="silu")),
    "no gate": (FEED_FORWARDS, "swiglu", layers.two_linear(layers.silu), dict(feed_forward="swiglu")),
    "embeddings not scaled": (transformer, "embed", unscaled, {}),
    "scores not scaled": (attention.math, "sqrt", lambda x: 1.0, dict(scale_embedding=False)),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_formula_is_noticed(mutation, tmp_path, monkeypatch):
    where, name, instead, choice = MUTATIONS[mutation]
    architecture = "decoder-only" if "sliding_window" in choice else "encoder-decoder"
    model, twin = twins(tmp_path, architecture, **choice)
    given = padded_batch(architecture)
    assert difference(model, twin, given) < FLOAT64
    (monkeypatch.setitem if isinstance(where, dict) else monkeypatch.setattr)(where, name, instead)
    assert difference(model, twin, given) > 1e-6


def test_every_field_of_the_configuration_is_known():
    """A field that is new there, and changes logits, must be read here as well."""
    known = names.NEEDED | names.ADDED_LATER.keys() | {field for side in names.SIZES.values() for field in side}
    known |= {"decoder_vocab_size", "share_encoder_decoder_embeddings", "sliding_window"}
    known |= {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"}
    without_effect = {"dropout", "attention_dropout", "activation_dropout", "use_cache", "is_encoder_decoder"}
    for config_class, _ in ARCHITECTURES.values():
        fields = {field for base in config_class.__mro__[:3] for field in inspect.get_annotations(base)}
        fields -= set(PreTrainedConfig.__dataclass_fields__) | {"size_fields"}
        assert "residual" in fields and fields - without_effect <= known
