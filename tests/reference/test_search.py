"""Greedy and beam search find the tokens that `generate` of transformers finds, and its scores."""

import numpy as np
import pytest
import torch
from both import randomised, twins
from family import build, padded
from tiny import random_ids

from vanilla_transformer.reference import NumpyTransformer, model, search
from vanilla_transformer.reference.search import beam_search, greedy_search

START, END = 1, 2


def generating(folder, architecture: str, ends_early: float, seed: int = 1, **choice):
    """Twins that end after a few tokens, as the logit of </s> is raised by `ends_early`, and that repeat themselves
    less than those with tied embeddings, which say best what they have just read."""
    torch.manual_seed(seed)
    net = randomised(build(architecture, output_bias=True, tie_word_embeddings=False, **choice))
    with torch.no_grad():
        net.lm_head.bias[END] += ends_early
    net.save_pretrained(folder)
    return net, NumpyTransformer.from_pretrained(folder)


def without_padding(sequences: torch.Tensor, prompt: int, ends=(END,)) -> list[list[int]]:
    """The new tokens of each row, up to its first end; what comes behind it is filling."""
    rows = []
    for row in sequences[:, prompt:].tolist():
        stop = next((n for n, token in enumerate(row) if token in ends), len(row) - 1)
        rows.append(row[: stop + 1])
    return rows


def both_answers(net, twin, sources, max_new: int, num_return_sequences: int = 1, **settings):
    """Sources of unequal length in one padded batch -> tokens and scores by transformers, hypotheses by the twin."""
    width = max(map(len, sources))
    ids = torch.tensor([[*source, *[0] * (width - len(source))] for source in sources])
    given = dict(max_new_tokens=max_new, num_return_sequences=num_return_sequences, **settings)
    given |= dict(return_dict_in_generate=True, output_scores=True, do_sample=False)
    theirs = net.generate(ids, attention_mask=(ids != 0).long(), **given)
    ours = [
        found
        for source in sources
        for found in twin.search([START], source, max_new, best=num_return_sequences, **settings)
    ]
    return without_padding(theirs.sequences, 1), theirs.sequences_scores, ours


def some_sources() -> list[list[int]]:
    return [random_ids(length).tolist() for length in (7, 3, 5, 6)]


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("length_penalty", [0.6, 1.0, 2.0, 0.0])
@pytest.mark.parametrize("num_beams", [2, 4])
def test_beams(num_beams, length_penalty, early_stopping, tmp_path):
    net, twin = generating(tmp_path, "encoder-decoder", ends_early=2.0)
    settings = dict(num_beams=num_beams, length_penalty=length_penalty, early_stopping=early_stopping)
    tokens, scores, ours = both_answers(net, twin, some_sources(), 12, num_beams, **settings)
    assert [found.tokens for found in ours] == tokens
    assert [found.score for found in ours] == pytest.approx(scores.tolist(), abs=1e-4)
    favours_the_longest = length_penalty > 1 and early_stopping == "never"
    assert favours_the_longest or len({len(row) for row in tokens}) > 1  # they do end, at different lengths


@pytest.mark.parametrize("ends_early, capped", [(-9.0, True), (0.5, None), (4.0, False)])
@pytest.mark.parametrize("num_beams", [1, 2, 5])
def test_outputs_that_end_late_or_soon(num_beams, ends_early, capped, tmp_path):
    net, twin = generating(tmp_path, "encoder-decoder", ends_early, positions="relative", residual="pre")
    sources = some_sources()
    if num_beams == 1:
        ids = torch.tensor([sources[0]])
        tokens = without_padding(net.generate(ids, num_beams=1, do_sample=False, max_new_tokens=10), 1)
        ours = twin.search([START], sources[0], 10)
    else:
        settings = dict(num_beams=num_beams, length_penalty=1.0, early_stopping=False)
        tokens, _, ours = both_answers(net, twin, sources, 10, **settings)
    assert [found.tokens for found in ours] == tokens
    if capped is not None:
        assert all((row[-1] != END) == capped for row in tokens)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(40))
def test_beams_of_many_models(seed, tmp_path):
    net, twin = generating(tmp_path, "encoder-decoder", ends_early=seed % 5 / 2, seed=seed)
    for num_beams, length_penalty, early_stopping in [
        (2, 0.6, True),
        (3, 1.0, False),
        (4, 2.0, False),
        (4, 1.0, True),
    ]:
        settings = dict(num_beams=num_beams, length_penalty=length_penalty, early_stopping=early_stopping)
        tokens, _, ours = both_answers(net, twin, some_sources(), 15, num_beams, **settings)
        assert [found.tokens for found in ours] == tokens


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("num_beams", [1, 3])
def test_decoder_only_from_padded_prompts(num_beams, window, tmp_path):
    """One batch of prompts with padding on the left, in transformers with its cache; here one prompt at a time."""
    net, twin = generating(tmp_path, "decoder-only", 1.0, sliding_window=window, positions="rotary")
    prompts = [random_ids(length).tolist() for length in (5, 2, 4)]
    ids, mask = padded(torch.tensor([[*p, *[0] * (5 - len(p))] for p in prompts]), [0] * 3, [0] * 3)
    for row, prompt in enumerate(prompts):
        ids[row], mask[row] = 0, 0
        ids[row, 5 - len(prompt) :], mask[row, 5 - len(prompt) :] = torch.tensor(prompt), 1
    options = dict(num_beams=num_beams, max_new_tokens=8, do_sample=False, early_stopping=False, length_penalty=1.0)
    tokens = without_padding(net.generate(ids, attention_mask=mask, **options), 5)
    options = dict(num_beams=num_beams, length_penalty=1.0, early_stopping=False) if num_beams > 1 else {}
    assert [twin.search(prompt, None, 8, **options)[0].tokens for prompt in prompts] == tokens


def test_several_ends(tmp_path):
    net, twin = generating(tmp_path, "encoder-decoder", 0.0)
    net.generation_config.eos_token_id = [2, 9, 17]
    settings = dict(num_beams=3, length_penalty=1.0, early_stopping=False)
    source = random_ids(6).tolist()
    theirs = net.generate(torch.tensor([source]), max_new_tokens=10, **settings)
    found = twin.search([START], source, 10, eos_token_id=[2, 9, 17], **settings)[0]
    assert [found.tokens] == without_padding(theirs, 1, (2, 9, 17))


@pytest.mark.parametrize("choice", [{}, dict(positions="learned", max_position_embeddings=20)])
def test_how_long_an_output_may_be(choice, tmp_path, tokenizer):
    """min(S + 50, what generation_config.json and learned positions allow), as in our `generate`."""
    net, _ = twins(tmp_path, "encoder-decoder", vocab_size=len(tokenizer), output_bias=True, **choice)
    with torch.no_grad():
        net.lm_head.bias[END] = -50  # never ends
    tokenizer.save_pretrained(tmp_path)
    for max_length in (512, 30):
        net.generation_config.max_length = max_length
        net.save_pretrained(tmp_path)
        source = tokenizer("a b")["input_ids"]
        theirs = net.generate(torch.tensor([source]))
        text = NumpyTransformer.from_pretrained(tmp_path).translate("a b")
        assert text == tokenizer.decode(theirs[0], skip_special_tokens=True)
        assert theirs.shape[1] == min(1 + len(source) + 50, max_length, choice.get("max_position_embeddings", 999))


def table_of(rows: dict[tuple, list[float]]):
    """Probabilities of three tokens, of which 2 ends, behind what was said so far."""
    return lambda ids: np.log([rows[tuple(row[1:])] for row in ids.tolist()])


ROOT = {(): [0.6, 0.35, 0.05], (0,): [0.3, 0.3, 0.4], (1,): [0.05, 0.05, 0.9]}


def test_greedy_by_hand():
    """0 (0.6), then the end (0.4)."""
    found = greedy_search(table_of(ROOT), [9], [2], 5)
    assert found.tokens == [0, 2] and found.score == pytest.approx(np.log(0.24))
    assert greedy_search(table_of(ROOT), [9], [2], 1).tokens == [0]


def test_beams_find_what_greed_misses():
    """1 and the end: 0.35 * 0.9 = 0.315, more than 0.24."""
    found = beam_search(table_of(ROOT), [9], [2], 2, num_beams=2, length_penalty=0.0, best=2)
    assert [hypothesis.tokens for hypothesis in found] == [[1, 2], [0, 2]]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([np.log(0.315), np.log(0.24)])
    found = beam_search(table_of(ROOT), [9], [2], 2, num_beams=2, length_penalty=2.0)
    assert found[0].score == pytest.approx(np.log(0.315) / 4)


def unpunished(*args, beams=search.beam_search, **settings):
    return beams(*args, **{**settings, "length_penalty": 0.0})


def patient(*args, beams=search.beam_search, **settings):
    return beams(*args, **{**settings, "early_stopping": False})


@pytest.mark.parametrize("wrong", [unpunished, patient])
def test_a_wrong_search_is_noticed(wrong, tmp_path, monkeypatch):
    net, twin = generating(tmp_path, "encoder-decoder", ends_early=2.0)
    monkeypatch.setattr(model, "beam_search", wrong)
    settings = dict(num_beams=4, length_penalty=2.0, early_stopping=True)
    tokens, _, ours = both_answers(net, twin, some_sources(), 12, 4, **settings)
    assert [found.tokens for found in ours] != tokens
