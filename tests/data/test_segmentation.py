"""BPE dropout: the same text in other pieces, the same pieces for the same seed."""

import random
import unicodedata

import pytest
from tiny import ENGLISH, FRENCH
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from vanilla_transformer.data.segmentation import BpeDropoutCollator, Segmentation
from vanilla_transformer.data.vocabulary import learn_tokenizer

TEXTS = [*ENGLISH, *FRENCH, "¡Où? naïve—café 12,345 €  two  spaces\t日本語 🙂‍↔️ e\u0301 </s> <pad>", " leading", "x"]


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer([*ENGLISH, *FRENCH], 330, show_progress=False)


def cut(tokenizer, text, dropout, seed=0, choice=0):
    return Segmentation(tokenizer, dropout, seed)(unicodedata.normalize("NFC", text), random.Random(choice))


@pytest.mark.parametrize("text", TEXTS)
def test_without_dropout_it_is_the_tokenizer(tokenizer, text):
    assert cut(tokenizer, text, 0.0) == tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("dropout", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("text", TEXTS)
def test_nothing_of_the_text_is_lost(tokenizer, text, dropout):
    ids = cut(tokenizer, text, dropout)
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)
    if dropout == 1:
        assert len(ids) == len(unicodedata.normalize("NFC", text).encode())


def test_words_are_cut_in_many_ways_most_often_in_their_own(tokenizer):
    segmentation, rng = Segmentation(tokenizer, 0.1, 0), random.Random(0)
    own = tokenizer(" children", add_special_tokens=False)["input_ids"]
    cuts = [tuple(segmentation(" children", rng)) for _ in range(500)]
    assert len(set(cuts)) > 5
    assert max(set(cuts), key=cuts.count) == tuple(own)
    assert 0.2 < cuts.count(tuple(own)) / 500 < 0.9


def test_a_cut_depends_on_seed_and_choice_alone(tokenizer):
    text = " ".join(ENGLISH)
    again = Segmentation(tokenizer, 0.3, 0)
    again(" ".join(FRENCH), random.Random(3))
    assert again(text, random.Random(0)) == cut(tokenizer, text, 0.3)
    assert cut(tokenizer, text, 0.3) != cut(tokenizer, text, 0.3, seed=1)
    assert cut(tokenizer, text, 0.3) != cut(tokenizer, text, 0.3, choice=1)


def test_batches(tokenizer):
    encoded = tokenizer(ENGLISH, text_target=FRENCH)
    rows = [{"input_ids": s, "labels": t} for s, t in zip(encoded["input_ids"], encoded["labels"], strict=True)]
    collate = BpeDropoutCollator(tokenizer, 0.3, seed=0, longest=99)
    batches = [collate(part, return_tensors="pt") for part in (rows, rows, rows[:3], rows[3:])]
    assert batches[0]["input_ids"].equal(batches[1]["input_ids"])
    for side, texts in (("input_ids", ENGLISH), ("labels", FRENCH)):
        ids = batches[0][side].masked_fill(batches[0][side] == -100, tokenizer.pad_token_id)
        assert tokenizer.batch_decode(ids, skip_special_tokens=True) == texts
        assert all(row[row != tokenizer.pad_token_id][-1] == tokenizer.eos_token_id for row in ids)
    assert batches[0]["attention_mask"].equal((batches[0]["input_ids"] != tokenizer.pad_token_id).long())
    alone = [[token for token in row.tolist() if token] for part in batches[2:] for row in part["input_ids"]]
    assert alone != [[token for token in row.tolist() if token] for row in batches[0]["input_ids"]]


def test_a_sentence_that_would_become_too_long_stays(tokenizer):
    ids = tokenizer([" ".join(ENGLISH)])["input_ids"][0]
    batch = BpeDropoutCollator(tokenizer, 0.9, 0, longest=len(ids))([{"input_ids": ids, "labels": ids}], "pt")
    assert batch["input_ids"].tolist() == [ids] and batch["labels"].tolist() == [ids]


def test_other_tokenizers_are_refused():
    words = Tokenizer(models.WordLevel({"a": 0, "Ġ": 1}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(ValueError, match="a byte-level BPE, and the tokenizer is a WordLevel"):
        Segmentation(PreTrainedTokenizerFast(tokenizer_object=words), 0.1, 0)

    class SlowTokenizer:
        def get_vocab(self):
            return {"a": 0, "Ġ": 1}

    with pytest.raises(ValueError, match="the tokenizer is a SlowTokenizer"):
        Segmentation(SlowTokenizer(), 0.1, 0)


def test_what_is_remembered_has_an_end_and_decides_nothing(tokenizer, monkeypatch):
    text = " ".join(ENGLISH)
    wanted = cut(tokenizer, text, 0.3)
    monkeypatch.setattr("vanilla_transformer.data.segmentation.REMEMBERED", 2)
    segmentation = Segmentation(tokenizer, 0.3, 0)
    assert segmentation(text, random.Random(0)) == wanted
    assert 0 < len(segmentation.known) <= 2
