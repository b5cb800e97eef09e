"""Marian in and out: OPUS-MT checkpoints, `MarianMTModel` in transformers, as our model, and ours as one of them.

Both are the paper's Transformer, with the same numbers in the same places but for one thing. The sinusoid of a
position is interleaved in the paper, and in two halves in Marian:

    paper:   sin_0 cos_0 sin_1 cos_1 sin_2 cos_2        Marian:   sin_0 sin_1 sin_2 cos_0 cos_1 cos_2

What it is added to is the residual stream, the vector of D numbers that runs from the embedding through all layers to
the logits. Whatever touches the stream reads it with a matrix, writes to it with a matrix, or normalises it, and none
of that depends on the order of the D numbers as long as all agree on it. So the conversion reorders that axis in every
weight, and the two models compute the same function: nothing in our model knows of Marian.
"""

import copy
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import MarianConfig, MarianMTModel, PreTrainedModel
from transformers.utils import logging

from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.modeling_vanilla_transformer import VanillaTransformerForSeq2SeqLM
from ..model.positions import Sinusoids
from .loading import load_model

logger = logging.get_logger(__name__)

# Fields of the same name and meaning in both configurations.
SHARED_FIELDS = (
    *("vocab_size", "decoder_vocab_size", "max_position_embeddings", "d_model"),
    *("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"),
    *("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"),
    *("dropout", "attention_dropout", "activation_dropout", "scale_embedding", "use_cache"),
    *("tie_word_embeddings", "share_encoder_decoder_embeddings"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)
# What every Marian model is, in the words of our configuration. Biases of zero could stand for no `attention_bias`,
# but the model that comes back would have them, and train them.
MARIAN_IS = dict(residual="post", norm="layernorm", norm_eps=1e-5, positions="sinusoidal", attention_bias=True)
# Our feed-forward networks, and Marian's words for their activation functions: the first is the one to write.
ACTIVATIONS = {"relu": ("relu",), "gelu": ("gelu",), "silu": ("swish", "silu")}
# Settings in the config.json of old checkpoints that transformers no longer reads, with the only value it computes.
UNREAD = dict(
    static_position_embeddings=True, normalize_before=False, normalize_embedding=False, add_final_layer_norm=False
)
# A table of sinusoids that was rounded to bfloat16 is this close to the exact one; a trained table is not.
ROUNDING = 5e-3

# Parts of the names of our weights, and what Marian calls them.
RENAMED = {
    "self_attn_residual.norm": "self_attn_layer_norm",
    "cross_attn_residual.norm": "encoder_attn_layer_norm",
    "feed_forward_residual.norm": "final_layer_norm",
    "cross_attn": "encoder_attn",
    "feed_forward.fc": "fc",
    "o_proj": "out_proj",
    "lm_head.bias": "final_logits_bias",
}
READS_STREAM = {"embed_tokens", "q_proj", "k_proj", "v_proj", "fc1", "lm_head"}  # weight: (other, D), bias: (other,)
WRITES_STREAM = {"o_proj", "fc2", "norm"}  # weight: (D, ...), bias: (D,)


def from_marian(source: str | Path | MarianMTModel) -> VanillaTransformerForSeq2SeqLM:
    """Our model with the weights and generation settings of a Marian model: same logits, same tokens.

    Two things differ on purpose. A source that is padded on the left gives what it gives without padding, where Marian
    numbers the padding too. And when a call sets no length, an output has at most source + 50 tokens (section 6.1 of
    the paper), where Marian's runs to the checkpoint's `max_length`, or to 20 tokens if that is not set.

    Args:
        source: a model, the folder of one, or a Hub id such as `"Helsinki-NLP/opus-mt-en-fr"`.

    Raises:
        OSError: if there is no such model.
        ValueError: for what is no Marian model, or one that ours cannot be; all reasons at once.
    """
    marian = load_model(source, MarianMTModel)
    config = our_config(marian)
    model = like(VanillaTransformerForSeq2SeqLM, config, marian)
    theirs = marian.state_dict()
    order = interleaved(config.d_model)
    model.load_state_dict({name: reorder(name, theirs[marian_name(name)], order) for name in model.state_dict()})
    model.generation_config = generation_of(marian)
    if model.generation_config.max_length is None and model.generation_config.max_new_tokens is None:
        model.generation_config.max_length = config.max_position_embeddings
    return model


def to_marian(source: str | Path | VanillaTransformerForSeq2SeqLM) -> MarianMTModel:
    """The way back: a `MarianMTModel` that computes what our model does, up to `max_position_embeddings` tokens.

    Its `generate` knows no limit that depends on the source, only `max_length`. Embeddings that are shared while the
    output projection is not (`tie_word_embeddings=False`) become equal matrices, which training would part.

    Raises:
        OSError: if there is no such model.
        ValueError: for what is no model of ours, or one that Marian cannot be; all reasons at once.
    """
    model = load_model(source, VanillaTransformerForSeq2SeqLM)
    config = marian_config(model)
    marian = like(MarianMTModel, config, model)
    order = interleaved(config.d_model).argsort()
    weights = {name: value for name, value in marian.state_dict().items() if name.endswith("embed_positions.weight")}
    weights["final_logits_bias"] = torch.zeros_like(marian.final_logits_bias)
    weights |= {marian_name(name): reorder(name, value, order) for name, value in model.state_dict().items()}
    weights["final_logits_bias"] = weights["final_logits_bias"].view(1, -1)  # (V,) -> (1, V)
    if config.share_encoder_decoder_embeddings:
        weights["model.shared.weight"] = weights["model.encoder.embed_tokens.weight"]
    marian.load_state_dict(weights)
    marian.generation_config = generation_of(model)
    # Marian's table of positions ends, and where no length is given, transformers stop after 20 tokens.
    length = marian.generation_config.max_length or config.max_position_embeddings
    marian.generation_config.max_length = min(length, config.max_position_embeddings)
    return marian


def like(kind: Any, config: MarianConfig | VanillaTransformerConfig, other: PreTrainedModel) -> Any:
    """A new model of class `kind`, with data type, device, attention kernel and mode of the other."""
    model = kind._from_config(config, dtype=other.dtype, attn_implementation=other.config._attn_implementation)
    return model.to(other.device).train(other.training)


def interleaved(d_model: int) -> torch.Tensor:
    """Where our dimensions stand in Marian, (D,): 0, D/2, 1, D/2 + 1, ..."""
    return torch.arange(d_model).view(2, -1).T.flatten()


def marian_name(name: str) -> str:
    """`model.decoder.layers.0.cross_attn.o_proj.bias` -> `model.decoder.layers.0.encoder_attn.out_proj.bias`"""
    for ours, theirs in RENAMED.items():
        name = name.replace(ours, theirs)
    return name


def reorder(name: str, weight: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The weight, known by our name of it, with the axis of the residual stream in the given order (D,).

    Heads and the inner layer of the feed-forward network (d_ff) are not on the stream, and stay as they are.
    """
    module, kind = name.split(".")[-2:]
    if module in WRITES_STREAM:
        return weight[order.to(weight.device)]
    if module not in READS_STREAM:
        raise ValueError(f"got the weight {name} of shape {tuple(weight.shape)}: Marian has nothing like it")
    if kind == "bias":
        return weight.flatten()  # that of the logits is (1, V) in Marian
    return weight[:, order.to(weight.device)]


def generation_of(model: PreTrainedModel):
    """A copy of the settings of `generate`, no longer marked as derived from the configuration of the other model."""
    settings = copy.deepcopy(model.generation_config)
    settings._from_model_config = False
    return settings


def our_config(marian: MarianMTModel) -> VanillaTransformerConfig:
    """Our configuration of a Marian model, or a `ValueError` with all that is in the way."""
    config = marian.config
    problems = [
        f"{name}={getattr(config, name)}, which transformers passes over as well: expected {value}"
        for name, value in UNREAD.items()
        if getattr(config, name, value) != value
    ]
    feed_forward = next((ours for ours, words in ACTIVATIONS.items() if config.activation_function in words), None)
    if feed_forward is None:
        known = ", ".join(word for words in ACTIVATIONS.values() for word in words)
        problems.append(f"activation_function={config.activation_function!r}: expected one of {known}")
    problems += unshared(marian) + untrue_positions(marian)
    # Marian's bias of the logits is always there, and never trained in transformers: where it is zero, there is none.
    # `to_marian` marks those that we have, be they zero, with a name of old checkpoints.
    output_bias = getattr(config, "add_bias_logits", False) or bool(marian.final_logits_bias.any())
    fields = {name: getattr(config, name) for name in SHARED_FIELDS}
    try:
        ours = VanillaTransformerConfig(
            **fields, **MARIAN_IS, feed_forward=feed_forward or "relu", output_bias=output_bias
        )  # type: ignore[arg-type]
    except StrictDataclassError as error:  # our configuration knows itself what contradicts what
        problems.append(str(error.__cause__ or error))
    if problems:
        raise ValueError("this Marian model cannot be converted: " + "; ".join(problems))
    for name in ("encoder_layerdrop", "decoder_layerdrop"):
        if getattr(config, name):
            logger.warning(
                f"{name}={getattr(config, name)} is left out: it skips layers in training only, and further training "
                "of the converted model will not"
            )
    return ours


def unshared(marian: MarianMTModel) -> list[str]:
    """transformers shares embeddings only together with the output projection, and otherwise keeps a matrix for each
    side, whatever the configuration says."""
    config, model = marian.config, marian.model
    if config.tie_word_embeddings or not config.share_encoder_decoder_embeddings:
        return []
    if torch.equal(model.encoder.embed_tokens.weight, model.decoder.embed_tokens.weight):
        return []
    return [
        "share_encoder_decoder_embeddings=True with tie_word_embeddings=False, but the embeddings of encoder and "
        "decoder differ: set share_encoder_decoder_embeddings=False"
    ]


def untrue_positions(marian: MarianMTModel) -> list[str]:
    """Old checkpoints bring their table of positions along, which is then used instead of the formula."""
    problems = []
    d_model = marian.config.d_model
    for side in ("encoder", "decoder") if d_model % 2 == 0 else ():
        table = getattr(marian.model, side).embed_positions.weight  # table: (P, D)
        exact = Sinusoids(d_model, 10000.0, table.shape[0]).table.to(table)[:, interleaved(d_model).argsort()]
        difference = (table - exact).abs().max().item()
        if not difference < ROUNDING:
            problems.append(f"the {side}'s position table is {difference:.2g} away from the sinusoids of the paper")
    return problems


def marian_config(model: VanillaTransformerForSeq2SeqLM) -> MarianConfig:
    """Marian's configuration of a model of ours, or a `ValueError` with all that is in the way."""
    config = model.config
    problems = [
        f"{name}={getattr(config, name)!r}: Marian has {value!r} only"
        for name, value in MARIAN_IS.items()
        if getattr(config, name) != value
    ]
    if config.feed_forward not in ACTIVATIONS:
        problems.append(f"feed_forward={config.feed_forward!r}: Marian has {', '.join(ACTIVATIONS)} only")
    if config.decoder_start_token_id is None:
        problems.append("decoder_start_token_id=None: Marian needs a token to start with")
    smallest = min(config.vocab_size, config.decoder_vocab_size)
    if config.pad_token_id is not None and not 0 <= config.pad_token_id < smallest:
        problems.append(
            f"pad_token_id={config.pad_token_id}: Marian's embeddings need one below {smallest}, the size of the "
            "smaller vocabulary"
        )
    if problems:
        raise ValueError("Marian cannot be this model: " + "; ".join(problems))
    return MarianConfig(
        **{name: getattr(config, name) for name in SHARED_FIELDS},
        activation_function=ACTIVATIONS[config.feed_forward][0],
        add_bias_logits=config.output_bias,
        forced_eos_token_id=model.generation_config.forced_eos_token_id,
    )
