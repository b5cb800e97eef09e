# Copyright 2026 The vanilla_transformer authors. MIT License.
"""The one place where an architecture is described, with the paper's base model as the default.

| configuration | models | stacks |
|---|---|---|
| `VanillaTransformerConfig` | encoder-decoder: the paper's | encoder, decoder |
| `VanillaTransformerDecoderConfig` | decoder-only: causal language models | one, causal |
| `VanillaTransformerEncoderConfig` | encoder-only: masked language models | one, sees both ways |
"""

from dataclasses import fields
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, NamedTuple

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig

Residual = Literal["post", "pre"]
Norm = Literal["layernorm", "rmsnorm"]
Positions = Literal["sinusoidal", "learned", "rotary", "relative", "none"]
FeedForward = Literal["relu", "gelu", "silu", "swiglu"]

# In the paper's terms: N layers, h heads, d_ff, P_drop. A configuration says which of its fields these are.
PRESETS: dict[str, dict[str, Any]] = {
    # The size published for Multi30k (Wu et al. 2021), where 29,000 pairs ask for strong dropout.
    "tiny": dict(d_model=128, layers=4, heads=4, ffn_dim=256, dropout=0.3),
    "small": dict(d_model=256, layers=3, heads=4, ffn_dim=1024),
    # Table 3 of the paper, rows "base" (the defaults below) and "big".
    "base": dict(),
    "big": dict(d_model=1024, heads=16, ffn_dim=4096, dropout=0.3),
}

# How alike two names must be (difflib's ratio) for the one to be taken as a misspelling of the other.
NEAR_MISS = 0.8


class StackSize(NamedTuple):
    """What a stack of layers reads of its configuration, whichever of the three that is."""

    vocab_size: int
    layers: int
    heads: int
    ffn_dim: int


def innermost(error: BaseException) -> BaseException:
    """Of a wrong configuration, the error that its own check raised."""
    return innermost(error.__cause__) if isinstance(error, StrictDataclassError) and error.__cause__ else error


@strict
class FamilyConfig(PreTrainedConfig):
    """The fields that all three configurations share; it describes no model by itself.

    The paper's symbols: d_k = d_v = d_model / h, and P_drop is `dropout`.

    Args:
        vocab_size: V, number of tokens; 37,000 is the paper's joint English-German vocabulary (section 5.1).
        max_position_embeddings: longest sequence in tokens, for learned positions only; others have no limit.
        residual: `"post"` is the paper's LayerNorm(x + Sublayer(x)); `"pre"` is x + Sublayer(LayerNorm(x)).
        norm, positions, feed_forward: names of the registries in `layers.py` and `positions.py`.
        rope_parameters: of rotary positions alone, `{"rope_type": "default", "rope_theta": 10000.0}`.
        output_bias: a bias on the logits, which the paper does not have.
        scale_embedding: multiply embeddings by sqrt(d_model) (section 3.4).
        tie_word_embeddings: one matrix for the (decoder's) embedding and the output projection.

    Raises:
        ValueError: for a key that is nearly the name of a field.
        StrictDataclassError (of huggingface_hub): for values that contradict each other, all told at once.
    """

    keys_to_ignore_at_inference = ["past_key_values"]
    # Of each preset's terms, the fields of this configuration.
    size_fields: ClassVar[dict[str, tuple[str, ...]]] = {
        "layers": ("num_hidden_layers",),
        "heads": ("num_attention_heads",),
        "ffn_dim": ("ffn_dim",),
    }

    vocab_size: int = 37000
    max_position_embeddings: int = 1024
    d_model: int = 512

    residual: Residual = "post"
    norm: Norm = "layernorm"
    norm_eps: float = 1e-5
    positions: Positions = "sinusoidal"
    rope_parameters: dict[str, Any] | None = None
    feed_forward: FeedForward = "relu"
    attention_bias: bool = True
    output_bias: bool = False
    scale_embedding: bool = True

    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0

    tie_word_embeddings: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self, **kwargs):
        reject_near_misses(kwargs, self.field_names())
        asked = self.rope_parameters or kwargs.keys() & {"rope_theta", "rope_scaling"}
        super().__post_init__(**kwargs)  # fills `rope_parameters` in, also for those who have no use for it
        if self.positions != "rotary" and not asked:
            self.rope_parameters = None

    @classmethod
    def preset(cls, name: Literal["tiny", "small", "base", "big"], **overrides: Any):
        """A named size, with any field overridden: `preset("small", vocab_size=8000)`.

        Raises:
            ValueError: for an unknown name.
        """
        if name not in PRESETS:
            raise ValueError(f"unknown preset {name!r}: expected one of {', '.join(PRESETS)}")
        sizes = {field: value for term, value in PRESETS[name].items() for field in cls.size_fields.get(term, (term,))}
        return cls(**{**sizes, **overrides})

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Every name that the constructor knows, those of transformers' base class included."""
        return tuple(cls.__dataclass_fields__) + tuple(cls.attribute_map)

    @classmethod
    def own_fields(cls) -> set[str]:
        """Those of our own classes alone: without types, labels and outputs, which are no architecture."""
        return {field.name for field in fields(cls)} - {field.name for field in fields(PreTrainedConfig)}

    def stack_size(self, side: str) -> StackSize:
        """Of the stack `side`, "encoder" or "decoder"; a configuration with one stack has one size."""
        layers, heads, ffn_dim = (getattr(self, self.size_fields[term][0]) for term in ("layers", "heads", "ffn_dim"))
        return StackSize(self.vocab_size, layers, heads, ffn_dim)

    def validate_architecture(self):
        """Called by transformers after construction and before saving."""
        # What was set since and is nearly a field could not be loaded again.
        self.refuse([*near_misses(vars(self), self.field_names()), *self.problems()])

    def refuse(self, problems: list[str]) -> None:
        """Raise `ValueError` if there are any."""
        if problems:
            raise ValueError(f"invalid {type(self).__name__}: " + "; ".join(problems))

    def problems(self) -> list[str]:
        """What contradicts what: fields, values and remedy, one sentence each."""
        problems: list[str] = []
        for name in self.size_fields["heads"]:
            heads = getattr(self, name)
            if heads < 1 or self.d_model % heads:
                problems.append(
                    f"d_model={self.d_model} is not divisible by {name}={heads}: "
                    "choose a number of heads that divides d_model"
                )
            elif self.positions == "rotary" and self.d_model // heads % 2:
                problems.append(
                    f"positions='rotary' turns pairs of dimensions, but d_model / {name} = {self.d_model // heads} is "
                    "odd: choose an even head size"
                )
        sizes = [*self.size_fields["layers"], *self.size_fields["ffn_dim"]]
        for name in ("vocab_size", "max_position_embeddings", "d_model", *sizes):
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
        vocabulary = max(self.vocab_size, getattr(self, "decoder_vocab_size", None) or 0)
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            value = getattr(self, name, None)
            for token in value if isinstance(value, list) else [value]:
                if token is not None and not 0 <= token < vocabulary:
                    problems.append(f"{name}={token}: expected a token of the vocabulary, 0 to {vocabulary - 1}")
        return problems + self.rope_problems()

    def rope_problems(self) -> list[str]:
        rope = self.rope_parameters or {}
        if self.positions != "rotary":
            unread = [f"rope_parameters={rope} is read by positions='rotary' only, not by {self.positions!r}: drop it"]
            return unread if rope else []
        unknown = rope.keys() - {"rope_type", "rope_theta"}
        if unknown or rope["rope_type"] != "default" or not rope["rope_theta"] > 0:
            return [f"rope_parameters={rope}: expected {{'rope_type': 'default', 'rope_theta': a positive number}}"]
        return []


@strict
class VanillaTransformerConfig(FamilyConfig):
    """Configuration of the encoder-decoder Transformer of "Attention Is All You Need".

    N is `encoder_layers` and `decoder_layers`, h the attention heads, d_ff the `*_ffn_dim`; see `FamilyConfig` for the
    fields that all members of the family have.

    Args:
        decoder_vocab_size: number of target tokens; `None` takes `vocab_size`, which then counts those of both sides.
        share_encoder_decoder_embeddings: one matrix for the embeddings of both sides (needs one vocabulary). Together
            with `tie_word_embeddings` it is the paper's three-way tying (section 3.4).
    """

    model_type = "vanilla_transformer"
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
    }
    size_fields = {
        "layers": ("encoder_layers", "decoder_layers"),
        "heads": ("encoder_attention_heads", "decoder_attention_heads"),
        "ffn_dim": ("encoder_ffn_dim", "decoder_ffn_dim"),
    }

    decoder_vocab_size: int | None = None
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048

    share_encoder_decoder_embeddings: bool = True
    use_cache: bool = True
    is_encoder_decoder: bool = True
    decoder_start_token_id: int | None = None

    def __post_init__(self, **kwargs):
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.bos_token_id
        super().__post_init__(**kwargs)

    def stack_size(self, side: str) -> StackSize:
        vocab_size = {"encoder": self.vocab_size, "decoder": self.decoder_vocab_size}[side]
        parts = (getattr(self, f"{side}_{part}") for part in ("layers", "attention_heads", "ffn_dim"))
        return StackSize(vocab_size, *parts)  # type: ignore[arg-type]  # the constructor has filled it in

    def problems(self) -> list[str]:
        problems = super().problems()
        if self.decoder_vocab_size < 1:  # type: ignore[operator]
            problems.append(f"decoder_vocab_size={self.decoder_vocab_size}: expected at least 1")
        if self.share_encoder_decoder_embeddings and self.decoder_vocab_size != self.vocab_size:
            problems.append(
                f"share_encoder_decoder_embeddings=True needs one vocabulary, but vocab_size={self.vocab_size} and "
                f"decoder_vocab_size={self.decoder_vocab_size}: set both to the same number, or "
                "share_encoder_decoder_embeddings=False"
            )
        if not self.is_encoder_decoder:
            problems.append("is_encoder_decoder=False: this configuration describes an encoder-decoder")
        return problems


@strict
class SingleStackConfig(FamilyConfig):
    """What the two configurations with one stack share: N is `num_hidden_layers`, h `num_attention_heads`, d_ff
    `ffn_dim`."""

    attribute_map = {"hidden_size": "d_model", "intermediate_size": "ffn_dim"}

    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    ffn_dim: int = 2048

    def problems(self) -> list[str]:
        problems = super().problems()
        if self.is_encoder_decoder:
            problems.append("is_encoder_decoder=True: this configuration describes a single stack")
        return problems


@strict
class VanillaTransformerDecoderConfig(SingleStackConfig):
    """Configuration of the decoder-only member: the paper's decoder without the attention to an encoder.

    Args:
        sliding_window: W, how many tokens, itself included, a token may attend to; `None` for all before it.
    """

    model_type = "vanilla_transformer_decoder"

    sliding_window: int | None = None
    use_cache: bool = True

    def problems(self) -> list[str]:
        problems = super().problems()
        # Of a window of one token, transformers' sliding caches keep everything instead of nothing.
        if self.sliding_window is not None and self.sliding_window < 2:
            problems.append(f"sliding_window={self.sliding_window}: expected at least 2, or None")
        return problems


@strict
class VanillaTransformerEncoderConfig(SingleStackConfig):
    """Configuration of the encoder-only member: the paper's encoder, read by a head that fills masked tokens in."""

    model_type = "vanilla_transformer_encoder"


def near_misses(keys, names) -> list[str]:
    """A sentence for every key that is nearly, but not exactly, one of the names."""
    problems = []
    for key in keys:
        near = get_close_matches(key, names, n=1, cutoff=NEAR_MISS) if key not in names else []
        if near:
            problems.append(f"unknown key {key!r}: did you mean {near[0]!r}?")
    return problems


def reject_near_misses(keys, names) -> None:
    """Raise `ValueError` for every key that is nearly, but not exactly, one of the names."""
    problems = near_misses(keys, names)
    if problems:
        raise ValueError("; ".join(problems))
