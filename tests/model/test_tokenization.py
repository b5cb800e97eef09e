import json
import unicodedata

import numpy as np
import pytest
import torch
from tiny import ENGLISH, FRENCH, run_python
from transformers import AutoTokenizer, TokenizersBackend

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.data.vocabulary import learn_tokenizer

HARD = [
    "two  spaces", " leading and trailing ", "line\r\nend\n", "tab\there", "l'homme d’aujourd'hui", "Comment ?\u00a0!",
    "a\u202fb", "ﬁn ﬂoat", "e\u0301te\u0301", "👩‍👩‍👧 🇫🇷", "ქართული", "汉字 かな 한국어", "العربية", "\u200b", "",
    "</s>", "<pad><s> x </s>", "<|endoftext|>", "1,234.50 €", "ǅ ʼn", "\x00\x7f", "ÀÉÎÕÜ",
]  # fmt: skip


@pytest.mark.parametrize("text", HARD)
def test_nothing_is_lost(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id and ids.count(tokenizer.eos_token_id) == 1
    assert not {tokenizer.pad_token_id, tokenizer.bos_token_id} & set(ids)
    assert tokenizer.decode(ids, skip_special_tokens=True) == unicodedata.normalize("NFC", text)


def test_reloaded_by_auto_tokenizer(model_dir, tokenizer):
    reloaded = AutoTokenizer.from_pretrained(model_dir)
    assert type(reloaded) is VanillaTransformerTokenizer
    assert reloaded.model_max_length == 64
    for text in HARD + ENGLISH:
        assert reloaded(text) == tokenizer(text)


def test_without_the_package_the_same_ids(model_dir, tokenizer, tmp_path):
    code = (
        "import json, sys\n"
        "from transformers import AutoTokenizer\n"
        f"tokenizer = AutoTokenizer.from_pretrained({str(model_dir)!r}, trust_remote_code=True)\n"
        f"print(json.dumps([type(tokenizer).__name__, tokenizer({HARD!r})['input_ids'], tokenizer.model_max_length]))"
    )
    name, ids, length = json.loads(run_python(code, tmp_path, without_package=True))
    assert name == TokenizersBackend.__name__
    assert ids == tokenizer(HARD)["input_ids"] and length == 64


def test_targets_end_like_sources(tokenizer):
    both = tokenizer("The cat", text_target="Le chat")
    assert both["labels"] == tokenizer("Le chat")["input_ids"]


def test_an_added_token_is_its_own_text(model_dir):
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    tokenizer.add_tokens(["été", "<汉>"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<français>"]})
    words, tag = tokenizer.convert_tokens_to_ids(["été", "<汉>"]), tokenizer.convert_tokens_to_ids("<français>")
    ids = [tag, *words, *tokenizer(" à vélo")["input_ids"]]
    assert tokenizer.decode(ids) == "<français>été<汉> à vélo</s>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "été<汉> à vélo"


def test_labels_with_minus_100_decode(tokenizer):
    ids = tokenizer("Le chat")["input_ids"]
    for labels in ([*ids, -100, -100], torch.tensor([*ids, -100]), np.array([*ids, -100])):
        assert tokenizer.decode(labels, skip_special_tokens=True) == "Le chat"
    assert tokenizer.batch_decode([[*ids, -100], [-100, -100]], skip_special_tokens=True) == ["Le chat", ""]
    assert tokenizer.decode(ids[0]) == tokenizer.decode([ids[0]])


@pytest.mark.parametrize("text", ["a\ud800b", ["fine", "\udfff"]])
def test_a_lone_surrogate_is_a_clear_error(tokenizer, text):
    with pytest.raises(ValueError, match="lone surrogate at character"):
        tokenizer(text)


def test_a_lone_surrogate_in_the_second_text(tokenizer):
    for call in (lambda: tokenizer("a", "b\ud800"), lambda: tokenizer("a", text_target="b\ud800")):
        with pytest.raises(ValueError, match="lone surrogate at character 1"):
            call()


def test_readable_tokens_of_labels_added_tokens_and_wrong_ids():
    tokenizer = learn_tokenizer(ENGLISH, 300, show_progress=False)
    tokenizer.add_tokens(["éfoo"])
    assert tokenizer.readable_tokens([2, -100, len(tokenizer) - 1]) == ["</s>", "éfoo"]
    assert tokenizer.readable_tokens(tokenizer("\ufffd")["input_ids"])[:3] == ["<0xEF>", "<0xBF>", "<0xBD>"]
    with pytest.raises(ValueError, match="token id 9999, expected one below 301"):
        tokenizer.readable_tokens([9999])


def test_a_wrong_type_is_still_transformers_own_error(tokenizer):
    with pytest.raises((TypeError, ValueError)):
        tokenizer(5)


def test_tokens_are_shown_as_people_read_them():
    tokenizer = learn_tokenizer(ENGLISH + FRENCH, 400, show_progress=False)
    shown = tokenizer.readable_tokens(tokenizer("Ma sœur frère 汉")["input_ids"])
    assert shown[-1] == "</s>" and "Ã" not in "".join(shown) and "Ġ" not in "".join(shown)
    assert "".join(shown[:-1]).startswith("Ma sœur frère ")
    assert shown[-4:-1] == ["<0xE6>", "<0xB1>", "<0x89>"]  # one character that training never showed


def test_every_single_byte_token_can_be_shown(tokenizer):
    shown = [tokenizer.readable_tokens([i])[0] for i in range(3, 3 + 256)]
    assert len(set(shown)) == 256 and "a" in shown and " " in shown and "<0xC3>" in shown


def test_vocabulary_smaller_than_its_alphabet():
    with pytest.raises(ValueError, match="vocab_size=100, expected at least 259"):
        learn_tokenizer(ENGLISH, 100)


def test_vocabulary_is_of_the_size_asked_for_and_joint():
    learned = learn_tokenizer(ENGLISH + FRENCH, 290, show_progress=False)
    assert len(learned) == 290
    assert learned.convert_ids_to_tokens([0, 1, 2]) == ["<pad>", "<s>", "</s>"]
    assert learned.unk_token is None
