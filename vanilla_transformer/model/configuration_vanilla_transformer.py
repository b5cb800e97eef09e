# Copyright 2026 The vanilla_transformer authors. MIT License.
"""The one place where an architecture is described, with the paper's base model as the default."""

from difflib import get_close_matches
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

Residual = Literal["post", "pre"]
Norm = Literal["layernorm"]
Positions = Literal["sinusoidal", "learned"]
FeedForward = Literal["relu", "gelu", "silu"]

PRESETS: dict[str, dict[str, Any]] = {
    # The size published for Multi30k (Wu et al. 2021), where 29,000 pairs ask for strong dropout.
    "tiny": dict(
        d_model=128,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        dropout=0.3,
    ),
    "small": dict(
        d_model=256,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
    ),
    # Table 3 of the paper, rows "base" (the defaults below) and "big".
    "base": dict(),
    "big": dict(
        d_model=1024,
        encoder_attention_heads=16,
        decoder_attention_heads=16,
        encoder_ffn_dim=4096,
        decoder_ffn_dim=4096,
        dropout=0.3,
    ),
}

# How alike two names must be (difflib's ratio) for the one to be taken as a misspelling of the other.
NEAR_MISS = 0.8


@strict
class VanillaTransformerConfig(PreTrainedConfig):
    """Configuration of the encoder-decoder Transformer of "Attention Is All You Need".

    The paper's symbols: N is `encoder_layers` and `decoder_layers`, h the attention heads, d_ff the `*_ffn_dim`,
    P_drop is `dropout`, and d_k = d_v = d_model / h.

    Args:
        vocab_size: V, number of source tokens; 37,000 is the paper's joint English-German vocabulary (section 5.1).
        decoder_vocab_size: number of target tokens; `None` takes `vocab_size`.
        max_position_embeddings: longest sequence in tokens, for learned positions only; sinusoids have no limit.
        residual: `"post"` is the paper's LayerNorm(x + Sublayer(x)); `"pre"` is x + Sublayer(LayerNorm(x)).
        output_bias: a bias on the logits, which the paper does not have.
        scale_embedding: multiply embeddings by sqrt(d_model) (section 3.4).
        tie_word_embeddings: one matrix for the decoder's embedding and the output projection.
        share_encoder_decoder_embeddings: one matrix for the embeddings of both sides (needs one vocabulary).
            Both together are the paper's three-way tying (section 3.4).

    Raises:
        ValueError: for a key that is nearly the name of a field.
        StrictDataclassError (of huggingface_hub): for values that contradict each other, all told at once.
    """

    model_type = "vanilla_transformer"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
    }

    vocab_size: int = 37000
    decoder_vocab_size: int | None = None
    max_position_embeddings: int = 1024
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048

    residual: Residual = "post"
    norm: Norm = "layernorm"
    norm_eps: float = 1e-5
    positions: Positions = "sinusoidal"
    feed_forward: FeedForward = "relu"
    attention_bias: bool = True
    output_bias: bool = False
    scale_embedding: bool = True

    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0

    tie_word_embeddings: bool = True
    share_encoder_decoder_embeddings: bool = True
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = None

    def __post_init__(self, **kwargs):
        reject_near_misses(kwargs, self.field_names())
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.bos_token_id
        super().__post_init__(**kwargs)

    @classmethod
    def preset(cls, name: Literal["tiny", "small", "base", "big"], **overrides: Any) -> "VanillaTransformerConfig":
        """A named size, with any field overridden: `preset("small", vocab_size=8000)`.

        Raises:
            ValueError: for an unknown name.
        """
        if name not in PRESETS:
            raise ValueError(f"unknown preset {name!r}: expected one of {', '.join(PRESETS)}")
        return cls(**{**PRESETS[name], **overrides})

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Every name that the constructor knows, those of transformers' base class included."""
        return tuple(cls.__dataclass_fields__) + tuple(cls.attribute_map)

    def validate_architecture(self):
        """Called by transformers after construction and before saving."""
        problems = []
        for side in ("encoder", "decoder"):
            heads = getattr(self, f"{side}_attention_heads")
            if heads < 1 or self.d_model % heads:
                problems.append(
                    f"d_model={self.d_model} is not divisible by {side}_attention_heads={heads}: "
                    "choose a number of heads that divides d_model"
                )
        sides = [f"{side}_{size}" for side in ("encoder", "decoder") for size in ("layers", "ffn_dim")]
        for name in ("vocab_size", "decoder_vocab_size", "max_position_embeddings", "d_model", *sides):
            if getattr(self, name) < 1:
                problems.append(f"{name}={getattr(self, name)}: expected at least 1")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0 <= getattr(self, name) < 1:
                problems.append(f"{name}={getattr(self, name)}: expected a probability in [0, 1)")
        if self.norm_eps <= 0:
            problems.append(f"norm_eps={self.norm_eps}: expected a positive number, such as 1e-5")
        if self.positions == "sinusoidal" and self.d_model % 2:
            problems.append(
                f"positions='sinusoidal' pairs sines with cosines, but d_model={self.d_model} is odd: "
                "choose an even d_model or positions='learned'"
            )
        if self.share_encoder_decoder_embeddings and self.decoder_vocab_size != self.vocab_size:
            problems.append(
                f"share_encoder_decoder_embeddings=True needs one vocabulary, but vocab_size={self.vocab_size} and "
                f"decoder_vocab_size={self.decoder_vocab_size}: set share_encoder_decoder_embeddings=False"
            )
        if not self.is_encoder_decoder:
            problems.append("is_encoder_decoder=False: this configuration describes an encoder-decoder")
        if problems:
            raise ValueError("invalid VanillaTransformerConfig: " + "; ".join(problems))


def reject_near_misses(keys, names) -> None:
    """Raise `ValueError` for every key that is nearly, but not exactly, one of the names."""
    problems = []
    for key in keys:
        near = get_close_matches(key, names, n=1, cutoff=NEAR_MISS) if key not in names else []
        if near:
            problems.append(f"unknown key {key!r}: did you mean {near[0]!r}?")
    if problems:
        raise ValueError("; ".join(problems))
