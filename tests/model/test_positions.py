import math

import pytest
import torch
from tiny import random_ids, tiny_config, tiny_model

from vanilla_transformer.model.positions import (
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    rotate,
    token_positions,
)


def test_sinusoid_is_the_papers_formula():
    table = SinusoidalPositions(tiny_config(max_position_embeddings=600), 2, False).table
    for pos in (0, 1, 7, 599):
        for i in range(8):
            angle = pos / 10000 ** (2 * i / 16)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=6e-8)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=6e-8)


def test_sinusoids_reach_beyond_the_configured_length():
    short, long = (SinusoidalPositions(tiny_config(max_position_embeddings=n), 2, False) for n in (4, 64))
    x, positions = torch.zeros(1, 50, 16), torch.arange(50)[None]
    torch.testing.assert_close(short.embed(x, positions, 50), long.embed(x, positions, 50), atol=0, rtol=0)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-6), (torch.float32, 1e-6), (torch.bfloat16, 0.03)])
def test_pairs_are_turned_by_an_angle_that_grows_with_the_position(dtype, error, monkeypatch):
    """RoFormer, equation 34, of heads that lie beside each other in memory; with complex numbers, and as compilers and
    exports have it, without."""
    config = tiny_config(positions="rotary", d_model=16)
    rotation = RotaryPositions(config, 2, False).rotation(torch.tensor([[0, 1, 5], [2, 3, 4]]), 6)
    x = torch.randn(2, 3, 16, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()
    heads = x.unflatten(-1, (2, 8)).transpose(1, 2)  # (B, H, L, K)
    expected = torch.empty(2, 2, 3, 8, dtype=torch.float64)
    for row, positions in enumerate([[0, 1, 5], [2, 3, 4]]):
        for place, position in enumerate(positions):
            for i in range(4):
                angle = position / config.rope_parameters["rope_theta"] ** (2 * i / 8)
                turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]).double()
                pair = slice(2 * i, 2 * i + 2)
                expected[row, :, place, pair] = heads[row, :, place, pair].double() @ turn.T
    gradients = []
    for compiling in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda compiling=compiling: compiling)
        turned = rotate(heads, rotation)
        assert turned.dtype == dtype
        torch.testing.assert_close(turned.double(), expected, atol=error, rtol=error)
        gradients.append(torch.autograd.grad((turned * heads.detach().flip(-1)).sum(), x)[0])
    torch.testing.assert_close(*gradients, atol=error, rtol=error)


def test_an_ensemble_of_rotary_models_is_one_call():
    """As `torch.func` has it, complex numbers or not."""
    models = [tiny_model(positions="rotary") for _ in range(2)]
    inputs = {"input_ids": random_ids(2, 6), "decoder_input_ids": random_ids(2, 5), "use_cache": False}

    def logits(*state):
        return torch.func.functional_call(models[0], state, kwargs=inputs).logits

    together = torch.func.vmap(logits)(*torch.func.stack_module_state(models))
    torch.testing.assert_close(together, torch.stack([model(**inputs).logits for model in models]))
    assert not torch.allclose(*together)


def test_position_is_the_number_of_tokens_before():
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    assert token_positions(mask, 0, 5, "cpu", True).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [0, 1, 2, 3, 4]]
    assert token_positions(mask, 4, 1, "cpu", True).tolist() == [[2], [2], [4]]
    assert token_positions(None, 3, 2, "cpu", True).tolist() == [[3, 4]]
    causal = torch.ones(2, 2).tril().bool()[None, None]
    assert token_positions(causal, 0, 2, "cpu", True).tolist() == [[0, 1]]


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "relative"])
@pytest.mark.parametrize("additive", [False, True])
def test_an_encoder_reads_masks_of_rows(positions, additive):
    """(B, 1, 1, S), as BERT and BART take them too, means the same as (B, S)."""
    model, ids, target = tiny_model(positions=positions), random_ids(2, 6), random_ids(2, 4)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 0, 0]])
    rows = mask[:, None, None].bool()
    if additive:
        rows = torch.zeros(rows.shape).masked_fill(~rows, torch.finfo(torch.float32).min)
    expected, out = (
        model(input_ids=ids, attention_mask=told, decoder_input_ids=target).logits for told in (mask, rows)
    )
    torch.testing.assert_close(out, expected)
    assert not torch.allclose(model(input_ids=ids.flip(1), attention_mask=rows, decoder_input_ids=target).logits, out)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("attn", ["sdpa", "eager"])
@pytest.mark.parametrize("residual", ["post", "pre"])
def test_left_and_right_padding_change_nothing(positions, attn, residual):
    model = tiny_model(positions=positions, residual=residual, attn_implementation=attn)
    source, target = random_ids(1, 5), random_ids(1, 4)
    expected = model(input_ids=source, decoder_input_ids=target).logits
    pad = torch.zeros(1, 3, dtype=torch.long)
    ones = torch.ones_like
    for order in (lambda x, p: torch.cat([p, x], 1), lambda x, p: torch.cat([x, p], 1)):
        out = model(
            input_ids=order(source, pad),
            attention_mask=order(ones(source), pad),
            decoder_input_ids=order(target, pad),
            decoder_attention_mask=order(ones(target), pad),
        ).logits
        kept = order(ones(target), pad).bool()
        torch.testing.assert_close(out[kept][None], expected, atol=2e-6, rtol=1e-5)


def test_learned_positions_end_with_an_error_that_says_how_to_go_on():
    model = tiny_model(positions="learned", max_position_embeddings=6)
    with pytest.raises(ValueError, match=r"7 tokens.*max_position_embeddings=6.*sinusoidal"):
        model(input_ids=random_ids(1, 7), decoder_input_ids=random_ids(1, 2))


def test_tokens_and_positions_are_of_one_size():
    model = tiny_model(d_model=64, vocab_size=1000)
    tokens = (model.model.encoder.embed_tokens.weight * 8).std().item()
    positions = model.model.encoder.positions.table[:50].std().item()
    assert 0.5 < positions / tokens < 2
    learned = tiny_model(d_model=64, vocab_size=1000, positions="learned").model.encoder.positions.weight.std().item()
    assert 0.5 < learned / tokens < 2


def test_a_table_that_grew_while_decoding_trains_on():
    model = tiny_model(max_position_embeddings=4)
    with torch.inference_mode():
        model.generate(random_ids(1, 20), max_new_tokens=20)
    table = model.model.decoder.positions.table
    assert table.shape[0] >= 20 and not table.is_inference()
    table.copy_(table.clone())  # as DistributedDataParallel does
    model(input_ids=random_ids(1, 20), labels=random_ids(1, 20)).loss.backward()


def test_tables_are_left_out_of_what_processes_exchange():
    assert tiny_model()._ddp_params_and_buffers_to_ignore == [
        "model.encoder.positions.table",
        "model.decoder.positions.table",
    ]


def test_padding_does_not_count_against_the_end_of_learned_positions():
    model = tiny_model(positions="learned", max_position_embeddings=6)
    ids, target = random_ids(1, 5), random_ids(1, 2)
    padded = torch.cat([ids, torch.zeros(1, 3, dtype=torch.long)], 1)
    expected = model(input_ids=ids, decoder_input_ids=target).logits
    out = model(input_ids=padded, attention_mask=padded.ne(0).long(), decoder_input_ids=target).logits
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("is_causal", [True, False])
def test_buckets_of_distances_are_those_of_t5(is_causal):
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-400, 401)[None]
    ours = RelativePositions(tiny_config(), 2, is_causal).bucket(distances)
    theirs = T5Attention._relative_position_bucket(distances, not is_causal, num_buckets=32, max_distance=128)
    assert torch.equal(ours, theirs)
