"""Word alignments: subwords joined to words, heads chosen by agreement, links in Pharaoh's form."""

from collections import Counter

import foreign_models
import numpy as np
import pytest
import torch
from tiny import ENGLISH, FRENCH, tiny_model
from tiny_marian import marian_tokenizer

from vanilla_transformer.cli import main
from vanilla_transformer.evaluation.alignments import crosses, diagonal, error_rate, score_alignments
from vanilla_transformer.translation import Translator, load_translator
from vanilla_transformer.translation.alignments import (
    LEAST,
    AlignmentHeads,
    agreement,
    as_split,
    choices,
    choose_heads,
    links,
    pharaoh,
    pieces,
    split_words,
    stored_heads,
    word_weights,
    words_of,
)


@pytest.mark.parametrize(
    ("tokens", "numbers"),
    [
        (["The", " un", "true", " story", "</s>"], [0, 1, 1, 2, -1]),
        (["<s>", " a", "b", "c", " d"], [-1, 0, 0, 0, 1]),
        (["l'", "homme", " lit", "\u00a0?"], [0, 0, 1, 1]),
        (["a", " ", " b"], [0, -1, 1]),
        (["", "日", " 本"], [0, 0, 1]),
        (["The", "", "", " 日", "", "本"], [0, 1, 1, 1, 1, 1]),
        ([" ", " The", " old", " "], [-1, 0, 1, -1]),
        (["a b", "c"], [1, 1]),
        ([], []),
    ],
)
def test_words_of_tokens(tokens, numbers):
    assert words_of(tokens, ["<s>", "</s>"]) == numbers


def test_words_are_those_between_plain_spaces(tokenizer):
    for text in [*ENGLISH, *FRENCH, "Lit-il\u00a0?  Oui."]:
        numbers = words_of(pieces(tokenizer, tokenizer(text).input_ids), tokenizer.all_special_tokens)
        assert max(numbers) == len(split_words(text)) - 1
    assert split_words(" Lit-il\u00a0?  Oui. ") == ["Lit-il\u00a0?", "Oui."]
    assert [split_words(text) for text in ENGLISH] == [text.split(" ") for text in ENGLISH]


@pytest.mark.parametrize(
    ("numbers", "text", "expected"),
    [
        ([0, 1, 2, -1], "Est-ce vrai\u00a0?", [0, 1, 1, -1]),  # a plain space was made of the other one
        ([0, 1, 1], "Est-ce vrai\u00a0?", [0, 1, 1]),
        ([0, 1, 2], "one\ttwo three", [0, 0, 1]),
        ([0, 1, 2, 3], "what else is\u00a0it done by", [0, 1, 2, 3]),  # nobody knows
        ([], "", []),
    ],
)
def test_words_of_a_tokenizer_that_knows_one_space(numbers, text, expected):
    assert as_split(numbers, text) == expected


def test_links_point_at_words_of_the_texts(tmp_path):
    """Where SentencePiece makes plain spaces of others, and where the model says what its text leaves out."""
    model, tokenizer = foreign_models.ARCHITECTURES["marian"].build(tmp_path)
    translator = Translator(model, tokenizer)
    source, target = "The\u00a0old man reads", "The old man"
    first, last = tokenizer(text_target=["The old", "man"])["input_ids"]
    said = [*first[:-1], tokenizer.unk_token_id, *last]
    [(_, _, targets, sources)] = translator.read_pairs([(source, target)], [said])
    assert max(sources) + 1 == len(split_words(source)) == 3
    assert max(targets) + 1 == len(split_words(target)) == 3


def test_unknown_words_are_words(tmp_path):
    tokenizer = marian_tokenizer(tmp_path / "one")
    found = pieces(tokenizer, tokenizer("The old 日本 man reads").input_ids, source=True)
    numbers = words_of(found, set(tokenizer.all_special_tokens) - {tokenizer.unk_token})
    assert max(numbers) == 4 and numbers[found.index(" <unk>")] == 2


def test_two_vocabularies_have_two_texts(tmp_path):
    tokenizer = marian_tokenizer(tmp_path / "two", separate_vocabs=True)
    source, target = tokenizer("The old man").input_ids, tokenizer(text_target="Le vieil").input_ids
    assert "".join(pieces(tokenizer, source, source=True)[:-1]).strip() == "The old man"
    assert "".join(pieces(tokenizer, target)[:-1]).strip() == "Le vieil"


def test_weights_of_words():
    tokens = np.array([[0.2, 0.3, 0.4, 0.1], [0.0, 0.1, 0.8, 0.1], [0.6, 0.2, 0.0, 0.2]])
    weights = word_weights(tokens, targets=[0, 0, 1], sources=[0, 0, 1, -1])
    np.testing.assert_allclose(weights, [[0.3, 0.8], [0.6, 0.0]])
    assert links(weights) == [(0, 1), (1, 0)] and pharaoh(links(weights)) == "0-1 1-0"
    np.testing.assert_array_equal(word_weights(np.stack([tokens] * 2), [0, 0, 1], [0, 0, 1, -1]), [weights] * 2)
    assert links(weights, least=0.7) == [(1, 0)]
    assert links(np.zeros((0, 3))) == [] and pharaoh([]) == ""
    shared = word_weights(tokens, targets=[0, 2, 2], sources=[0, 1, 2, -1])  # two words in one token
    assert not shared[1].any() and choices(shared) == {(2, 0), (2, 2)} and agreement(shared) == (1, 3)
    assert links(shared) == [(0, 2), (1, 0), (2, 0), (2, 2)]


def test_a_source_word_that_no_word_has_chosen_is_linked_where_it_is_seen():
    weights = np.array([[0.94, 0.03, 0.03], [0.04, 0.3, 0.66]])  # "elle mange" of "she is eating"
    assert links(weights) == [(0, 0), (1, 1), (2, 1)]
    assert links(weights, least=0.5) == [(0, 0), (2, 1)]
    weights[1] = 0.04, LEAST - 0.01, 0.87 - LEAST
    assert links(weights) == [(0, 0), (2, 1)]


def test_the_heads_that_agree_are_chosen():
    """One head of six follows the true, crossing links in the row of the next token; the others are noise."""
    rng = np.random.default_rng(0)
    sentences, truth = [], [1, 0, 2, 3]
    for _ in range(20):
        cross = rng.dirichlet(np.ones(5), size=(2, 3, 6))  # (L, H, start + 4 words + </s>, 4 words + </s>)
        for target, source in enumerate(truth):
            cross[1, 2, 1 + target] = np.eye(5)[source]
        sentences.append((cross, [0, 1, 2, 3, -1], [0, 1, 2, 3, -1]))
    chosen = choose_heads(sentences)
    assert chosen == AlignmentHeads(((1, 2),), shifted=True)
    cross, targets, sources = sentences[0]
    assert links(word_weights(chosen.weights(cross), targets, sources)) == [(0, 1), (1, 0), (2, 2), (3, 3)]
    with pytest.raises(ValueError, match="no sentences"):
        choose_heads([])


def test_heads_that_make_up_for_each_other_are_chosen_together():
    """One sees the first half of each sentence only, one the second half, and one what it likes."""
    rng = np.random.default_rng(0)
    sentences = []
    for _ in range(20):
        cross = np.full((1, 3, 5, 4), 0.25)
        cross[0, 2] = rng.dirichlet(np.ones(4), size=5)
        for head, words in ((0, (1, 0)), (1, (3, 2))):
            for target, source in enumerate(words, 2 * head):
                cross[0, head, target] = np.eye(4)[source]
        sentences.append((cross, [0, 1, 2, 3], [0, 1, 2, 3]))
    chosen = choose_heads(sentences)
    assert set(chosen.heads) == {(0, 0), (0, 1)} and not chosen.shifted
    assert agreement(word_weights(chosen.weights(sentences[0][0]), *sentences[0][1:])) == (4, 4)


def test_heads_are_kept_with_the_model(model_dir, tmp_path):
    translator = load_translator(model_dir)
    assert stored_heads(translator.model) == AlignmentHeads(((0, 0), (0, 1)), shifted=False)
    AlignmentHeads(((1, 1),), shifted=True).store(translator.model.generation_config)
    translator.model.save_pretrained(tmp_path)
    translator.tokenizer.save_pretrained(tmp_path)
    again = load_translator(tmp_path)
    assert stored_heads(again.model) == AlignmentHeads(((1, 1),), shifted=True)
    assert again(ENGLISH, num_beams=2) == translator(ENGLISH, num_beams=2)


def test_such_a_model_is_searched_as_fast(model_dir, monkeypatch):
    from vanilla_transformer.model import search

    translator, made = load_translator(model_dir), []
    AlignmentHeads(((1, 1),), shifted=True).store(translator.model.generation_config)
    init = search.Steps.__init__
    monkeypatch.setattr(search.Steps, "__init__", lambda self, *args: made.append(1) or init(self, *args))
    translator(ENGLISH[:1], num_beams=2)
    assert made


def test_links_of_a_batch_are_those_of_one(model_dir):
    """Whatever stands beside a pair; a blank side has none."""
    translator = load_translator(model_dir)
    pairs = [*zip(ENGLISH, FRENCH, strict=True), ("", "rien"), ("A", "Un deux trois quatre cinq six sept huit")]
    together = translator.align(pairs)
    assert together == [translator.align([pair])[0] for pair in pairs]
    assert together == translator.align(pairs, max_tokens=64)
    assert together[6] == []
    for (source, target), found in zip(pairs[:6], together, strict=False):
        assert sorted({t for _, t in found}) == list(range(len(target.split(" "))))
        assert all(s < len(source.split(" ")) for s, _ in found)
    some = translator.align(pairs, AlignmentHeads.parse("2:1@read"))
    assert some != together
    assert sum(map(len, translator.align(pairs, least=0.5))) < sum(map(len, together))


def test_candidates_with_links(model_dir):
    translator = load_translator(model_dir)
    found = translator.candidates([ENGLISH[0], ""], num_beams=2, n_best=2, return_alignments=True)
    assert [[c.text for c in best] for best in found] == [
        [c.text for c in best] for best in translator.candidates([ENGLISH[0], ""], num_beams=2, n_best=2)
    ]
    said = found[0][1]
    assert said.links == translator.align([(ENGLISH[0], said.text)], said=[said.tokens])[0]
    assert found[1][0].links == []
    assert translator([ENGLISH[0]])[0].links is None


@pytest.mark.parametrize("text", ["", "1", "0:1", "1:1;2:1", "1:1@there", "a:b", "1:1,"])
def test_heads_that_are_none(text):
    with pytest.raises(ValueError, match="expected LAYER:HEAD"):
        AlignmentHeads.parse(text)


def test_the_command(model_dir, tmp_path, capsys):
    source = tmp_path / "source"
    source.write_text(f"{ENGLISH[0]}\n\n{ENGLISH[1]}\n")
    assert main(["translate", str(model_dir), str(source), "--beams", "2", "--scores", "--alignments"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [len(line) for line in lines] == [3, 3, 3] and lines[1] == ["", "", ""]
    translator = load_translator(model_dir)
    answer = translator([ENGLISH[0], "", ENGLISH[1]], num_beams=2, return_alignments=True)[0]
    assert lines[0][0] == answer.text and lines[0][2] == pharaoh(answer.links)
    words = ["translate", str(model_dir), str(source), "-o", str(tmp_path / "out"), "--alignment-heads"]
    assert main([*words, "2:2@read"]) == 0
    found = (tmp_path / "out").read_text().splitlines()[0].split("\t")[1]
    answer = translator([ENGLISH[0], "", ENGLISH[1]], return_alignments=AlignmentHeads(((1, 1),), True))[0]
    assert found == pharaoh(answer.links)
    assert main([*words, "3:1", "--overwrite"]) == 1
    assert "no heads 3:1 in a decoder of 2 layers of 2" in capsys.readouterr().err


def test_error_rates():
    sure = [[(0, 0), (1, 2), (2, 1)], [(0, 0)]]
    assert error_rate(sure, sure) == 0
    assert error_rate([[], []], sure) == 1
    assert error_rate([[(0, 0), (1, 1)], [(0, 0)]], sure) == pytest.approx(1 - 2 * 2 / (3 + 4))
    assert [crosses(links) for links in sure] == [True, False]
    assert diagonal(4, 2) == [(0, 0), (2, 1)] and diagonal(2, 4) == [(0, 0), (0, 1), (1, 2), (1, 3)]


def test_a_score_counts_what_was_found(model_dir):
    translator = load_translator(model_dir)
    pairs = list(zip(ENGLISH, FRENCH, strict=True))
    found = translator.align(pairs)
    score = score_alignments(translator, ENGLISH, FRENCH, found)
    assert score.error_rate == 0 and score.sentences == 6 and score.crossing_sentences == sum(map(crosses, found))
    straight = [diagonal(len(s.split(" ")), len(t.split(" "))) for s, t in pairs]
    assert score.diagonal == pytest.approx(error_rate(straight, found))


def test_what_was_said_is_read_and_not_its_text_cut_anew(model_dir):
    """The tokens of a search are those of its score; its text may be cut into others."""
    translator = load_translator(model_dir)
    model, tokenizer = translator.model, translator.tokenizer
    inputs = tokenizer([ENGLISH[0]], return_tensors="pt")
    (answer,) = translator([ENGLISH[0]], num_beams=1)
    (row,) = model.generate(**inputs, num_beams=1).tolist()
    assert list(answer.tokens) == row[1:] != tokenizer(text_target=answer.text).input_ids
    (best,) = translator.candidates([ENGLISH[0]], num_beams=2, scores=True)[0]
    said = torch.tensor([best.tokens])
    with torch.no_grad():
        log_p = model(**inputs, labels=said).logits.log_softmax(-1).gather(-1, said[:, :, None])
    assert float(log_p.sum()) / said.shape[1] == pytest.approx(best.score, abs=1e-4)


def test_beyond_the_positions(tokenizer, caplog):
    """An output as long as the positions is aligned; of a target that is longer, the part that fits."""
    torch.manual_seed(0)
    model = tiny_model(vocab_size=len(tokenizer), positions="learned", max_position_embeddings=16).eval()
    translator = Translator(model, tokenizer)
    (answer,) = translator(["A"], num_beams=1, return_alignments=True)
    assert len(answer.tokens) == 15 and answer.links
    (found,) = translator.align([("A man", " ".join("abcdefghijklmnopqrst"))])
    assert 0 < len(found) < 20


def test_what_is_cut_is_told_once_where_the_rest_of_a_file_follows(tokenizer, monkeypatch):
    model = tiny_model(vocab_size=len(tokenizer), positions="learned", max_position_embeddings=16).eval()
    translator, messages, counts = Translator(model, tokenizer), [], Counter()
    monkeypatch.setattr("vanilla_transformer.translation.translate.logger.warning", messages.append)
    options = {"num_beams": 1, "truncation": True, "return_alignments": True}
    for _ in range(2):
        translator.candidates(["A cat.", "cat " * 50], **options, counts=counts)
    assert not messages
    translator.warn(counts)
    assert sum("2 sources were cut to 16 tokens" in message for message in messages) == 1
    messages.clear()
    translator.candidates(["A cat.", "cat " * 50], **options)
    assert sum("1 sources were cut to 16 tokens" in message for message in messages) == 1
    messages.clear()
    translator.align([("A man", " ".join("abcdefghijklmnopqrst"))])
    assert messages == ["1 translations are aligned up to token 15, the end of the positions"]


@pytest.mark.parametrize("name", ["t5", "m2m100"])
def test_models_of_transformers(name, tmp_path):
    languages = foreign_models.ARCHITECTURES[name].languages
    translator = load_translator(foreign_models.build(name, tmp_path), **languages)
    (answer,) = translator([foreign_models.ONE], num_beams=2, return_alignments=True)
    words = split_words(answer.text), split_words(foreign_models.ONE)
    assert all(source < len(words[1]) and target < len(words[0]) for source, target in answer.links)
    with pytest.raises(ValueError, match="no heads 2:1 in a decoder of 1 layers of 2"):
        translator.align([("a", "b")], AlignmentHeads.parse("2:1"))
