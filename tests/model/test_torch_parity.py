"""torch as an independent witness: its `nn.Transformer` and `nn.MultiheadAttention` with our weights."""

import pytest
import torch
from tiny import tiny_model
from torch import nn

from vanilla_transformer.model.attention import CrossAttention, MultiHeadAttention, attention_function

H, D, F = 4, 32, 48
# Lengths of the three sources and targets of a batch: what comes after them is padding.
SOURCES, TARGETS = [7, 4, 1], [5, 2, 6]


def randomise(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.3)
        else:
            nn.init.xavier_uniform_(parameter, gain=2.0)


def packed(attention: MultiHeadAttention, prefix: str) -> dict[str, torch.Tensor]:
    """Weights of our attention in torch's layout: W^Q, W^K and W^V one below the other, (3D, D)."""
    parts = [attention.q_proj, attention.k_proj, attention.v_proj]
    return {
        f"{prefix}in_proj_weight": torch.cat([part.weight for part in parts]),
        f"{prefix}in_proj_bias": torch.cat([part.bias for part in parts]),
        f"{prefix}out_proj.weight": attention.o_proj.weight,
        f"{prefix}out_proj.bias": attention.o_proj.bias,
    }


def of_module(module: nn.Module, prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}{name}": value for name, value in module.state_dict().items()}


def torch_weights(model) -> dict[str, torch.Tensor]:
    """Weights of our encoder and decoder, by the names of `nn.Transformer`."""
    weights = {}
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(stack.layers):
            at = f"{side}.layers.{number}."
            weights |= packed(layer.self_attn, f"{at}self_attn.")
            norms = [layer.self_attn_residual.norm, layer.feed_forward_residual.norm]
            if side == "decoder":
                weights |= packed(layer.cross_attn, f"{at}multihead_attn.")
                norms.insert(1, layer.cross_attn_residual.norm)
            for place, norm in enumerate(norms, start=1):
                weights |= of_module(norm, f"{at}norm{place}.")
            weights |= of_module(layer.feed_forward.fc1, f"{at}linear1.")
            weights |= of_module(layer.feed_forward.fc2, f"{at}linear2.")
        weights |= of_module(stack.norm, f"{side}.norm.")  # of pre-norm stacks; an identity has none
    return weights


def torch_transformer(residual: str, activation: str) -> nn.Transformer:
    """torch ends both placements with a norm, which only the sums of pre-norm layers need: here only those have it."""
    pre = residual == "pre"
    settings = dict(d_model=D, nhead=H, dim_feedforward=F, dropout=0.0, activation=activation, norm_first=pre)
    settings |= dict(batch_first=True)
    encoder, decoder = nn.TransformerEncoderLayer(**settings), nn.TransformerDecoderLayer(**settings)
    return nn.Transformer(
        custom_encoder=nn.TransformerEncoder(encoder, 2, nn.LayerNorm(D) if pre else None, enable_nested_tensor=False),
        custom_decoder=nn.TransformerDecoder(decoder, 3, nn.LayerNorm(D) if pre else None),
        **settings,
    )


def tokens(lengths: list[int]) -> torch.Tensor:
    """(B, L), True for tokens."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("residual", ["post", "pre"])
def test_stacks_are_those_of_nn_transformer(residual, activation, attn_implementation):
    """Outputs, and gradients with respect to both inputs, where there are tokens."""
    ours = tiny_model(
        residual=residual, feed_forward=activation, attn_implementation=attn_implementation, positions="none",
        scale_embedding=False, d_model=D, encoder_layers=2, decoder_layers=3, encoder_attention_heads=H,
        decoder_attention_heads=H, encoder_ffn_dim=F, decoder_ffn_dim=F,
    ).model.double()  # fmt: skip
    randomise(ours)
    theirs = torch_transformer(residual, activation).double().eval()
    theirs.load_state_dict(torch_weights(ours))

    is_source, is_target = tokens(SOURCES), tokens(TARGETS)
    source = torch.randn(*is_source.shape, D, dtype=torch.float64, requires_grad=True)
    target = torch.randn(*is_target.shape, D, dtype=torch.float64, requires_grad=True)
    length = target.shape[1]
    expected = theirs(
        source, target, src_key_padding_mask=~is_source, tgt_key_padding_mask=~is_target,
        memory_key_padding_mask=~is_source, tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
    )[is_target]  # fmt: skip
    found = ours(
        inputs_embeds=source, attention_mask=is_source.long(), decoder_inputs_embeds=target,
        decoder_attention_mask=is_target.long(),
    ).last_hidden_state[is_target]  # fmt: skip
    assert expected.std() > 0.1
    assert (found - expected).abs().max() < 1e-10

    direction = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad((found * direction).sum(), (source, target)),
        torch.autograd.grad((expected * direction).sum(), (source, target)),
        strict=True,
    ):
        assert one.abs().max() > 1e-3
        assert (one - other).abs().max() < 1e-10


@pytest.mark.parametrize("kind", [MultiHeadAttention, CrossAttention])
def test_attention_is_that_of_nn_multihead_attention(kind):
    """Outputs, and the attention weights of each head."""
    config = tiny_model(d_model=D, attn_implementation="eager").config
    ours = kind(config, H, layer_idx=0, is_causal=False).double()
    randomise(ours)
    theirs = nn.MultiheadAttention(D, H, batch_first=True).double()
    theirs.load_state_dict(packed(ours, ""))

    is_source = tokens(SOURCES)
    memory = torch.randn(*is_source.shape, D, dtype=torch.float64)
    x = memory if kind is MultiHeadAttention else torch.randn(3, 5, D, dtype=torch.float64)
    expected, expected_weights = theirs(x, memory, memory, key_padding_mask=~is_source, average_attn_weights=False)
    mask = is_source[:, None, None].expand(-1, 1, x.shape[1], -1)  # mask: (B, 1, T, S)
    inputs = (x, mask) if kind is MultiHeadAttention else (x, mask, memory)
    found, weights = ours(*inputs, attention_interface=attention_function(config))
    assert weights.shape == (3, H, x.shape[1], max(SOURCES))
    assert (weights - expected_weights).abs().max() < 1e-12
    assert (found - expected).abs().max() < 1e-10
