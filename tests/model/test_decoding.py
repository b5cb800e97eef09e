import pytest
import torch
from family import SEARCHES
from tiny import random_ids, tiny_model
from transformers import EncoderDecoderCache, GenerationConfig, StaticCache


def padded_batch():
    ids = random_ids(3, 7)
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] * 2 + [0] * 5])
    return ids * mask, mask


def never_ending(**choice):
    """A model that prefers any token to </s>, so that every output runs into its limit."""
    model = tiny_model(output_bias=True, **choice)
    with torch.no_grad():
        model.lm_head.bias[2] = -1e4
    return model


def test_static_cache_given_by_the_caller():
    model = tiny_model()
    ids, mask = padded_batch()
    options = dict(num_beams=1, max_new_tokens=8, attention_mask=mask)
    cache = EncoderDecoderCache(
        StaticCache(config=model.config, max_cache_len=20), StaticCache(config=model.config, max_cache_len=7)
    )
    assert torch.equal(model.generate(ids, past_key_values=cache, **options), model.generate(ids, **options))


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_padding_mask_is_inferred_when_it_is_not_given(search):
    model = tiny_model()
    ids, mask = padded_batch()
    options = dict(SEARCHES[search], max_new_tokens=10)
    with_mask = model.generate(ids, attention_mask=mask, **options)
    assert torch.equal(model.generate(ids, **options), with_mask)
    assert torch.equal(model.generate(input_ids=ids, **options), with_mask)
    everything = model.generate(ids, attention_mask=torch.ones_like(mask), **options)
    assert not torch.equal(everything, with_mask)  # the mask matters to this model


@pytest.mark.parametrize("use_cache", [True, False])
def test_decoder_prompts_of_unequal_length(use_cache):
    model = tiny_model()
    ids = random_ids(2, 5)
    prompts = torch.tensor([[1, 9, 8, 7], [0, 0, 1, 9]])
    options = dict(num_beams=1, max_new_tokens=6, use_cache=use_cache)
    together = model.generate(ids, decoder_input_ids=prompts, decoder_attention_mask=(prompts != 0).long(), **options)
    for i, prompt in enumerate(([1, 9, 8, 7], [1, 9])):
        alone = model.generate(ids[i : i + 1], decoder_input_ids=torch.tensor([prompt]), **options)[0]
        assert together[i, 4:].tolist() == alone[len(prompt) :].tolist()


def test_static_cache_with_padded_decoder_prompts():
    model = tiny_model()
    prompts = torch.tensor([[1, 9, 8, 7], [0, 0, 1, 9]])
    options = dict(decoder_input_ids=prompts, decoder_attention_mask=(prompts != 0).long(), num_beams=1)
    ids = random_ids(2, 5)
    expected = model.generate(ids, max_new_tokens=6, **options)
    assert torch.equal(model.generate(ids, max_new_tokens=6, cache_implementation="static", **options), expected)


def test_length_limit_is_the_source_plus_fifty_and_capped_outputs_are_counted(warnings_of):
    model = never_ending()
    out = model.generate(random_ids(3, 7))
    assert out.shape == (3, 1 + 7 + 50)
    assert any("3 of 3 outputs were cut at 58 tokens" in message for message in warnings_of())


def test_the_end_of_a_source_is_no_padding():
    """Of a model whose padding is its </s>, as with GPT's tokenizer."""
    model = tiny_model(pad_token_id=2)
    ids = torch.cat([random_ids(2, 5), torch.full((2, 1), 2)], 1)
    ids[1, 3:] = 2
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    expected = model.generate(ids, attention_mask=mask, max_new_tokens=8)
    assert torch.equal(model.generate(ids, max_new_tokens=8), expected)
    longest = never_ending(pad_token_id=2).generate(ids)
    assert longest.shape[1] == 1 + 6 + 50


def test_outputs_that_end_by_force_are_counted_as_cut(warnings_of):
    """As those of OPUS-MT, whose last token is an </s> in any case."""
    model = never_ending()
    model.generation_config.forced_eos_token_id = 2
    out = model.generate(random_ids(3, 7))
    assert (out[:, -1] == 2).all()
    assert any("3 of 3 outputs were cut at 58 tokens" in message for message in warnings_of())


def test_labels_of_a_batch_say_nothing_of_what_is_found(warnings_of):
    """`Seq2SeqTrainer` leaves them in what it generates from."""
    model, ids = tiny_model(), random_ids(2, 5)
    for fast in (True, False):
        expected = model.generate(ids, max_new_tokens=5, fast=fast)
        assert torch.equal(model.generate(ids, labels=random_ids(2, 3), max_new_tokens=5, fast=fast), expected)
    assert not [message for message in warnings_of() if "labels" in message]


def test_padding_does_not_lengthen_the_limit():
    model = never_ending()
    ids = torch.cat([random_ids(1, 4), torch.zeros(1, 6, dtype=torch.long)], 1)
    assert model.generate(ids, num_beams=1).shape[1] == 1 + 4 + 50


def test_generation_config_caps_the_limit():
    model = never_ending()
    model.generation_config.max_length = 12
    assert model.generate(random_ids(2, 7)).shape[1] == 12


def test_learned_positions_cap_the_limit():
    model = never_ending(positions="learned", max_position_embeddings=20)
    assert model.generate(random_ids(2, 7)).shape[1] <= 20


@pytest.mark.parametrize(
    "options, length",
    [
        ({"max_new_tokens": 5}, 6),
        ({"max_length": 9}, 9),
        ({"generation_config": GenerationConfig(max_new_tokens=70)}, 71),
    ],
)
def test_a_length_set_by_the_caller_wins_without_a_warning(options, length, warnings_of):
    assert never_ending().generate(random_ids(1, 3), **options).shape[1] == length
    assert not [message for message in warnings_of() if "cut" in message or "max_length" in message]


def test_finished_outputs_are_not_counted_as_capped(warnings_of):
    model = tiny_model(output_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2] = 1e4
    assert model.generate(random_ids(2, 3)).shape[1] <= 3
    assert not [message for message in warnings_of() if "cut" in message]


@pytest.mark.parametrize("attn", ["sdpa", "eager"])
@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("cache", [None, "static"])
def test_attentions_of_generate_are_never_empty(attn, search, cache):
    model = tiny_model(attn_implementation=attn)
    ids, mask = padded_batch()
    options = dict(SEARCHES[search], max_new_tokens=4, attention_mask=mask, cache_implementation=cache)
    out = model.generate(ids, output_attentions=True, return_dict_in_generate=True, **options)
    rows = 3 * options["num_beams"]
    assert torch.equal(out.sequences, model.generate(ids, **options))
    assert [w.shape for w in out.encoder_attentions] == [(3, 2, 7, 7)] * 2
    assert len(out.cross_attentions) == len(out.decoder_attentions) >= 1
    for step in out.cross_attentions:
        assert len(step) == 2 and all(w.shape == (rows, 2, 1, 7) for w in step)
        torch.testing.assert_close(step[0].sum(-1), torch.ones(rows, 2, 1))


def test_saved_generation_config_is_the_papers(tmp_path):
    model = tiny_model()
    model.save_pretrained(tmp_path)
    saved = GenerationConfig.from_pretrained(tmp_path)
    assert (saved.num_beams, saved.length_penalty, saved.early_stopping, saved.max_length) == (4, 1.0, True, 512)
    assert (saved.pad_token_id, saved.eos_token_id, saved.decoder_start_token_id) == (0, 2, 1)


def test_a_changed_generation_config_survives_a_reload(tmp_path):
    model = tiny_model()
    model.generation_config.num_beams = 7
    model.save_pretrained(tmp_path)
    assert type(model).from_pretrained(tmp_path).generation_config.num_beams == 7


def test_a_checkpoint_that_says_nothing_of_a_search_has_the_papers(tmp_path):
    model = tiny_model()
    model.save_pretrained(tmp_path)
    settings, papers = tmp_path / "generation_config.json", model.generation_config.to_diff_dict()
    settings.unlink()
    assert type(model).from_pretrained(tmp_path).generation_config.to_diff_dict() == papers
    given = GenerationConfig(num_beams=2)
    assert type(model).from_pretrained(tmp_path, generation_config=given).generation_config.num_beams == 2
    settings.write_text("{")
    with pytest.raises(OSError, match=r"generation_config\.json cannot be read as JSON"):
        type(model).from_pretrained(tmp_path)


def test_continuous_batching_is_refused():
    with pytest.raises(NotImplementedError, match="translation pipeline"):
        tiny_model().generate_batch([[3, 4]])


def test_encoder_outputs_and_embeddings_as_source():
    model = tiny_model()
    ids = random_ids(2, 5)
    expected = model.generate(ids, max_new_tokens=6)
    encoded = model.get_encoder()(ids)
    assert torch.equal(model.generate(encoder_outputs=encoded, max_new_tokens=6), expected)
    embeds = model.get_input_embeddings()(ids)
    assert torch.equal(model.generate(inputs_embeds=embeds, max_new_tokens=6), expected)


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_settings_in_a_generation_config_are_those_of_the_call(search):
    """What the given configuration leaves open (padding, end, start) is the model's own, for the mask as well."""
    model = tiny_model()
    ids, _ = padded_batch()
    options = dict(SEARCHES[search], max_new_tokens=10)
    by_config = model.generate(ids, generation_config=GenerationConfig(**options))
    assert torch.equal(by_config, model.generate(ids, **options))
    assert torch.equal(model.generate(ids, GenerationConfig(**options), None), by_config)  # by position, as elsewhere


@pytest.mark.parametrize("given", [{"max_new_tokens": 4}, {"generation_config": GenerationConfig(max_new_tokens=4)}])
def test_new_tokens_are_counted_behind_the_start_token_that_generate_adds(given):
    model = never_ending()
    prompt = torch.tensor([[5, 6], [7, 8]])
    assert model.generate(random_ids(2, 3), decoder_input_ids=prompt, **given).shape[1] == 1 + 2 + 4
    started = torch.tensor([[1, 6], [1, 8]])
    assert model.generate(random_ids(2, 3), decoder_input_ids=started, **given).shape[1] == 2 + 4
    if "max_new_tokens" in given:
        out = model.generate(random_ids(2, 3), decoder_input_ids=prompt, decoder_start_token_id=5, **given)
        assert out.shape[1] == 2 + 4


def test_a_checkpoint_may_set_the_length_itself():
    model = never_ending()
    model.generation_config.max_new_tokens, model.generation_config.max_length = 5, None
    assert model.generate(random_ids(1, 3)).shape[1] == 6


def test_no_beams():
    with pytest.raises(ValueError, match="num_beams=0, expected at least 1"):
        tiny_model().generate(random_ids(1, 3), num_beams=0)


@pytest.mark.parametrize(
    "source, error, message",
    [
        ([[3, 4, 2]], TypeError, r"got a source of type list, expected a tensor of token ids \(B, S\)"),
        (torch.tensor([3, 4, 2]), ValueError, r"of shape \(3,\), expected \(B, S\).*ids\[None\]"),
        (torch.zeros(0, 3, dtype=torch.long), ValueError, r"of shape \(0, 3\)"),
        (torch.zeros(2, 0, dtype=torch.long), ValueError, r"of shape \(2, 0\)"),
    ],
)
def test_what_is_no_batch_of_sources(source, error, message):
    for call in ({"inputs": source}, {"input_ids": source}):
        with pytest.raises(error, match=message):
            tiny_model().generate(**call)
