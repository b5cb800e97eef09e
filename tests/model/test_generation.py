"""What transformers' own generation tests demand, of both members that generate: all roads give the same tokens."""

import shutil

import pytest
import torch
from family import GENERATING, SEARCHES, build
from tiny import random_ids
from transformers.cache_utils import Cache

POSITIONS = ["sinusoidal", "learned", "rotary", "relative", "none"]
# Prompts of unequal length, padded on the left; a decoder reads them behind its start token, an encoder as sources.
IDS = torch.tensor([[1, 9, 8, 7, 6, 5], [0, 0, 0, 1, 5, 4], [0, 1, 30, 31, 32, 33]])
MASK = IDS.ne(0).long()

either = pytest.mark.parametrize("architecture", GENERATING)
any_search = pytest.mark.parametrize("search", SEARCHES)


def generate(model, ids=IDS, mask=MASK, **options):
    torch.manual_seed(1)
    return model.generate(ids, attention_mask=mask, **{"max_new_tokens": 10, **options})


@either
@any_search
@pytest.mark.parametrize("positions", POSITIONS)
def test_no_cache_a_growing_one_and_a_static_one(architecture, search, positions):
    model = build(architecture, positions=positions)
    options = SEARCHES[search]
    expected = generate(model, **options)
    assert len(expected) == 3 * options.get("num_return_sequences", 1)
    assert torch.equal(generate(model, use_cache=False, **options), expected)
    assert torch.equal(generate(model, cache_implementation="static", **options), expected)


@any_search
@pytest.mark.parametrize("window", [2, 4])
@pytest.mark.parametrize("positions", POSITIONS)
def test_caches_of_a_sliding_window(search, window, positions):
    model = build("decoder-only", positions=positions, sliding_window=window)
    options = SEARCHES[search]
    expected = generate(model, use_cache=False, **options)
    assert torch.equal(generate(model, **options), expected)
    assert torch.equal(generate(model, cache_implementation="static", **options), expected)


@either
@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_left_padding_changes_nothing_and_a_batch_is_its_rows(architecture, search, positions):
    model = build(architecture, positions=positions)
    together = generate(model, **SEARCHES[search])
    for row, ids, mask in zip(together, IDS, MASK.bool(), strict=True):
        alone = generate(model, ids[mask][None], None, **SEARCHES[search])[0]
        skipped = 0 if model.config.is_encoder_decoder else len(ids) - int(mask.sum())
        assert row[skipped : skipped + len(alone)].tolist() == alone.tolist()
        assert not row[skipped + len(alone) :].any()


@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_right_padding_of_a_source_changes_nothing(search, positions):
    model = build("encoder-decoder", positions=positions)
    right = torch.stack([torch.cat([ids[ids != 0], ids[ids == 0]]) for ids in IDS])
    options = SEARCHES[search]
    assert torch.equal(generate(model, right, right.ne(0).long(), **options), generate(model, **options))


@either
@any_search
def test_dictionaries_hold_the_same_tokens_and_their_scores(architecture, search):
    model = build(architecture)
    options = SEARCHES[search]
    asked = dict(return_dict_in_generate=True, output_scores=True, output_logits=True, output_hidden_states=True)
    out = generate(model, **asked, **options)
    assert torch.equal(out.sequences, generate(model, **options))
    steps = out.sequences.shape[1] - (1 if model.config.is_encoder_decoder else IDS.shape[1])
    assert len(out.scores) == len(out.logits) >= steps
    assert isinstance(out.past_key_values, Cache)
    if options["num_beams"] > 1:
        steps_of = model.compute_transition_scores(out.sequences, out.scores, out.beam_indices)
        scored = steps_of.sum(-1) / (steps_of < 0).sum(-1)  # length_penalty 1: divided by the tokens generated
        torch.testing.assert_close(scored, out.sequences_scores, atol=1e-5, rtol=1e-4)


@either
@pytest.mark.parametrize("positions", POSITIONS)
def test_an_assistant_changes_the_speed_only(architecture, positions):
    model = build(architecture, positions=positions)
    torch.manual_seed(3)
    assistant = build(architecture, positions=positions)
    for row in range(3):
        ids = IDS[row][IDS[row] != 0][None]
        expected = generate(model, ids, None, num_beams=1)
        assert torch.equal(generate(model, ids, None, num_beams=1, assistant_model=assistant), expected)
        assert torch.equal(generate(model, ids, None, num_beams=1, prompt_lookup_num_tokens=3), expected)


@any_search
def test_embeddings_instead_of_ids(search):
    options = SEARCHES[search]
    causal = build("decoder-only")
    embeds = causal.get_input_embeddings()(IDS)
    continued = generate(causal, **options)[:, IDS.shape[1] :]
    torch.manual_seed(1)
    by_embeds = causal.generate(inputs_embeds=embeds, attention_mask=MASK, max_new_tokens=10, **options)
    assert torch.equal(by_embeds, continued)
    model = build("encoder-decoder")
    expected = generate(model, **options)
    torch.manual_seed(1)
    embeds = model.get_input_embeddings()(IDS)
    by_embeds = model.generate(inputs_embeds=embeds, attention_mask=MASK, max_new_tokens=10, **options)
    assert torch.equal(by_embeds, expected)
    torch.manual_seed(1)
    encoded = model.get_encoder()(IDS, attention_mask=MASK)
    assert torch.equal(
        model.generate(encoder_outputs=encoded, attention_mask=MASK, max_new_tokens=10, **options), expected
    )


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_cache_can_be_gone_on_with(positions):
    model = build("decoder-only", positions=positions)
    first = generate(model, max_new_tokens=4, num_beams=1, min_new_tokens=4, return_dict_in_generate=True)
    longer = torch.cat([first.sequences, torch.tensor([[11, 12]] * 3)], 1)
    mask = torch.cat([MASK, torch.ones(3, 6, dtype=torch.long)], 1)
    expected = generate(model, longer, mask, num_beams=1)
    assert torch.equal(generate(model, longer, mask, num_beams=1, past_key_values=first.past_key_values), expected)


# torch 2.6 cannot trace `merge_with_config_defaults`, which stands around every forward in transformers.
old_torch = pytest.mark.skipif(torch.__version__ < "2.7", reason="torch 2.6 compiles no model of transformers 5")
COMPILERS = ["aot_eager", pytest.param("inductor", marks=pytest.mark.full)]


@old_torch
@either
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("backend", COMPILERS)
def test_forward_and_static_decoding_compile_into_one_graph(architecture, positions, backend):
    if backend == "inductor" and not shutil.which("g++"):
        pytest.skip("inductor needs g++ on a CPU")
    torch._dynamo.reset()
    model = build(architecture, positions=positions)
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    if architecture == "encoder-decoder":
        inputs["decoder_input_ids"] = random_ids(3, 5)
    expected, tokens = model(**inputs).logits, generate(model, num_beams=1)
    compiled = torch.compile(model.forward, fullgraph=True, backend=backend)
    with torch.no_grad():
        torch.testing.assert_close(compiled(**inputs).logits, expected, atol=5e-6, rtol=1e-5)
    model.forward = compiled
    assert torch.equal(generate(model, num_beams=1, cache_implementation="static"), tokens)
