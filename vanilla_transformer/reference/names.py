"""What a checkpoint holds: its architectures, the fields of its config.json, the names and shapes of its weights."""

from collections.abc import Iterator

from .layers import FEED_FORWARDS, NORMS, RESIDUALS
from .positions import BUCKETS, POSITIONS

ENCODER_DECODER, DECODER_ONLY, ENCODER_ONLY = (
    "vanilla_transformer",
    "vanilla_transformer_decoder",
    "vanilla_transformer_encoder",
)
# The fields that say N, h and d_ff; an encoder-decoder has them once for each side.
SIZES = {
    "": ("num_hidden_layers", "num_attention_heads", "ffn_dim"),
    "encoder": ("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"),
    "decoder": ("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"),
}
STACKS = {ENCODER_DECODER: ("encoder", "decoder"), DECODER_ONLY: ("",), ENCODER_ONLY: ("",)}
WORDS: dict[str, dict] = {
    "residual": RESIDUALS,
    "norm": NORMS,
    "positions": POSITIONS,
    "feed_forward": FEED_FORWARDS,
}
NEEDED = {"d_model", "vocab_size", "norm_eps", "max_position_embeddings", "tie_word_embeddings", "output_bias", *WORDS}
# Fields that early checkpoints do not have yet, with what they then mean.
ADDED_LATER = {"attention_bias": True, "scale_embedding": True, "rope_parameters": None}

Names = Iterator[tuple[str, tuple[int, ...]]]


def problems_of(config: dict) -> list[str]:
    """What in a config.json is missing here, or unknown."""
    kind = config.get("model_type")
    if kind not in STACKS:
        return [f"model_type={kind!r}, expected one of {', '.join(STACKS)}"]
    needed = NEEDED.union(*(SIZES[side] for side in STACKS[kind]))
    if kind == ENCODER_DECODER:
        needed |= {"share_encoder_decoder_embeddings"}
    problems = [f"{name} is missing" for name in sorted(needed - config.keys())]
    for name, known in WORDS.items():
        if name in config and config[name] not in known:
            problems.append(f"{name}={config[name]!r}, expected one of {', '.join(known)}")
    rope = config.get("rope_parameters") or {}
    if config.get("positions") == "rotary" and (rope.get("rope_type") != "default" or "rope_theta" not in rope):
        problems.append(f"rope_parameters={rope}, expected {{'rope_type': 'default', 'rope_theta': 10000.0}}")
    return problems


def expected_weights(config: dict) -> Names:
    """The name and shape of every weight; those that are tied are there once."""
    d_model, vocab = config["d_model"], config["vocab_size"]
    for side in STACKS[config["model_type"]]:
        path = f"{side}." if side else ""
        if side == "decoder":
            vocab = config.get("decoder_vocab_size") or vocab
        if side != "decoder" or not config["share_encoder_decoder_embeddings"]:
            yield f"{path}embed_tokens.weight", (vocab, d_model)
        yield from weights_of_stack(config, path, *(config[name] for name in SIZES[side]))
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (vocab, d_model)
    if config["output_bias"]:
        yield "lm_head.bias", (vocab,)


def weights_of_stack(config: dict, path: str, layers: int, heads: int, d_ff: int) -> Names:
    """One stack, the names of which begin with `path`; a linear map has a bias as well, of length `out`.

    | name | in the papers | shape (out, in) |
    |---|---|---|
    | q_proj, k_proj, v_proj | W_1^Q, ..., W_h^Q side by side; W^K, W^V | (D, D) |
    | o_proj | W^O | (D, D) |
    | fc1, gate | W_1, V of SwiGLU | (F, D) |
    | fc2 | W_2 | (D, F) |
    | norm | gamma, beta | (D) |
    | positions | E_pos; b of relative positions | (longest, D); (32, H) |
    """
    d_model = config["d_model"]

    def norm(path: str) -> Names:
        yield f"{path}norm.weight", (d_model,)
        if config["norm"] == "layernorm":
            yield f"{path}norm.bias", (d_model,)

    def linear(path: str, inputs: int, outputs: int, bias: bool = True) -> Names:
        yield f"{path}.weight", (outputs, inputs)
        if bias:
            yield f"{path}.bias", (outputs,)

    tables = {"learned": (config["max_position_embeddings"], d_model), "relative": (BUCKETS, heads)}
    if config["positions"] in tables:
        yield f"{path}positions.weight", tables[config["positions"]]
    for n in range(layers):
        layer = f"{path}layers.{n}."
        for attention in ("self_attn", "cross_attn") if path == "decoder." else ("self_attn",):
            for projection in ("q_proj", "k_proj", "v_proj", "o_proj"):
                yield from linear(f"{layer}{attention}.{projection}", d_model, d_model, config["attention_bias"])
            yield from norm(f"{layer}{attention}_residual.")
        yield from linear(f"{layer}feed_forward.fc1", d_model, d_ff)
        yield from linear(f"{layer}feed_forward.fc2", d_ff, d_model)
        if config["feed_forward"] == "swiglu":
            yield from linear(f"{layer}feed_forward.gate", d_model, d_ff)
        yield from norm(f"{layer}feed_forward_residual.")
    if config["residual"] == "pre":
        yield from norm(path)
