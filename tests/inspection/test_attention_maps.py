"""Attention maps: the softmax that the model computed, whichever its kernel, with its tokens, and in files."""

import json

import numpy as np
import pytest
import torch
from tiny import ENGLISH, FRENCH, tiny_model
from tiny_marian import tiny_marian
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer.inspection import AttentionMaps, collect_attention, load_attention_json
from vanilla_transformer.inspection.collect import candidate_attention
from vanilla_transformer.translation import Translator
from vanilla_transformer.translation.alignments import AlignmentHeads, links, pieces, split_words, textless


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def model(request, model_dir):
    return AutoModelForSeq2SeqLM.from_pretrained(model_dir, attn_implementation=request.param)


def test_maps_are_what_the_model_computes(model, tokenizer):
    before = model.config._attn_implementation
    maps = collect_attention(model, tokenizer, ENGLISH[0], FRENCH[0])
    source = tokenizer(ENGLISH[0], return_tensors="pt").input_ids
    labels = tokenizer(text_target=FRENCH[0], return_tensors="pt").input_ids
    assert maps.cross.shape == (2, 2, labels.shape[1], source.shape[1])
    assert "".join(maps.source_tokens) == f"{ENGLISH[0]}</s>"
    assert maps.target_tokens == ["<s>", *maps.next_tokens[:-1]]
    assert "".join(maps.next_tokens) == f"{FRENCH[0]}</s>"
    for weights in maps.kinds().values():
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert not np.triu(maps.decoder, 1).any()
    with torch.no_grad():
        output = model.eval()(input_ids=source, labels=labels, output_attentions=True)
    for kind, weights in maps.kinds().items():
        theirs = torch.cat(getattr(output, f"{kind}_attentions")).numpy()
        np.testing.assert_allclose(weights, theirs, atol=1e-6)
    assert model.config._attn_implementation == before


def test_the_translation_is_found_where_none_is_given(model, tokenizer):
    maps = collect_attention(model, tokenizer, ENGLISH[0], num_beams=1)
    ids = model.generate(**tokenizer(ENGLISH[0], return_tensors="pt"), num_beams=1)
    assert maps.target == tokenizer.decode(ids[0], skip_special_tokens=True)
    candidates = candidate_attention(model, tokenizer, ENGLISH[0], n_best=3, num_beams=3)
    assert [c.score for c in candidates] == sorted((c.score for c in candidates), reverse=True)
    assert len({c.target for c in candidates}) == 3


@pytest.mark.parametrize("chosen", ["1:1,2:2", "2:1@read"])
def test_words_are_linked_as_the_translator_links_them(model, tokenizer, chosen):
    heads = AlignmentHeads.parse(chosen)
    for source, target in zip(ENGLISH, FRENCH, strict=True):
        weights, rows, columns = collect_attention(model, tokenizer, source, target).words(heads, textless(tokenizer))
        assert (rows, columns) == (split_words(target), split_words(source))
        assert [links(weights)] == Translator(model, tokenizer).align([(source, target)], heads)


def test_the_last_word_of_a_translation_that_was_cut(model, tokenizer, monkeypatch):
    """It has its place in the picture as in the alignments."""
    heads = AlignmentHeads.parse("1:1,2:2")
    monkeypatch.setattr(model.generation_config, "max_length", 5)
    answer = Translator(model, tokenizer)([ENGLISH[0]], num_beams=1)[0]
    assert tokenizer.eos_token_id not in answer.tokens and split_words(answer.text)
    weights, rows, _ = collect_attention(model, tokenizer, ENGLISH[0], num_beams=1).words(heads, textless(tokenizer))
    assert rows == split_words(answer.text)
    said = [answer.tokens]
    assert [links(weights)] == Translator(model, tokenizer).align([(ENGLISH[0], answer.text)], heads, said=said)


def test_words_that_cannot_be_linked(model, tokenizer):
    maps = collect_attention(model, tokenizer, ENGLISH[0], FRENCH[0])
    with pytest.raises(ValueError, match="no heads 1:3, 4:1 in maps of 2 layers of 2 heads"):
        maps.words(AlignmentHeads.parse("1:1,1:3,4:1"), textless(tokenizer))
    with pytest.raises(ValueError, match="expected words on both sides"):
        collect_attention(model, tokenizer, ENGLISH[0], "").words(AlignmentHeads.parse("1:1"), textless(tokenizer))
    with pytest.raises(ValueError, match="no cross-attention"):
        AttentionMaps(["a"], ["a"], ["</s>"]).words(AlignmentHeads.parse("1:1"), set())


def test_a_mode_of_training_is_left_as_it_was(model, tokenizer):
    model.train()
    one, two = (collect_attention(model, tokenizer, ENGLISH[0], FRENCH[0]) for _ in range(2))
    assert model.training
    np.testing.assert_array_equal(one.cross, two.cross)


def test_models_of_transformers_too(tokenizer):
    """MarianMT returns no attention under sdpa."""
    model = tiny_marian(vocab_size=len(tokenizer))
    model.set_attn_implementation("sdpa")
    maps = collect_attention(model, tokenizer, ENGLISH[0], FRENCH[0])
    np.testing.assert_allclose(maps.cross.sum(-1), 1, atol=1e-5)
    assert model.config._attn_implementation == "sdpa"


def test_json_comes_back(model, tokenizer, tmp_path):
    maps = candidate_attention(model, tokenizer, ENGLISH[0], n_best=1, num_beams=2)[0]
    maps.save(tmp_path / "maps.json")
    data = json.loads((tmp_path / "maps.json").read_text())
    assert data["version"] == 1 and data["heads"] == {"encoder": 2, "decoder": 2, "cross": 2}
    assert data["layers"]["cross"] == 2 and data["model"] == maps.model != ""
    again = load_attention_json(tmp_path / "maps.json")
    for name in ("source_tokens", "target_tokens", "next_tokens", "source", "target", "model", "score"):
        assert getattr(again, name) == getattr(maps, name)
    for kind, weights in maps.kinds().items():
        np.testing.assert_allclose(getattr(again, kind), weights, atol=1e-6)


def test_the_files_of_the_first_visualizer(tmp_path):
    rng = np.random.default_rng(0)
    file = tmp_path / "attention.json"
    former = {
        "encoder_self": rng.random((2, 4, 5, 5)).tolist(),
        "decoder_masked_self": rng.random((2, 4, 3, 3)).tolist(),
        "decoder_encdec": rng.random((2, 4, 3, 5)).tolist(),
    }
    file.write_text(json.dumps({"tokens": None, "attentions": former}))
    maps = load_attention_json(file)
    assert maps.cross.shape == (2, 4, 3, 5) and maps.source_tokens == list("01234")
    np.testing.assert_allclose(maps.decoder, former["decoder_masked_self"], rtol=1e-6)
    file.write_text(json.dumps({"tokens": list("abcde"), "attentions": {"encoder_self": former["encoder_self"]}}))
    maps = load_attention_json(file)
    assert maps.source_tokens == list("abcde") and list(maps.kinds()) == ["encoder"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no", "is no JSON"),
        ("[1]", "holds no attention maps"),
        ('{"attentions": {}}', "expected any of encoder_self"),
        ('{"attentions": {"encoder_self": [[1]]}}', "has 2 axes"),
        ('{"format": "vanilla_transformer.attention", "version": 9}', "has version 9"),
        ('{"format": "vanilla_transformer.attention", "version": 1}', "lacks source_tokens, target_tokens"),
    ],
)
def test_other_files(text, told, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=told):
        load_attention_json(tmp_path / "x.json")


def test_maps_that_do_not_fit():
    with pytest.raises(ValueError, match=r"cross has the shape \(1, 1, 2, 3\).*2 target tokens, 2 source tokens"):
        AttentionMaps(["a", "b"], ["c", "d"], ["d", ""], cross=np.zeros((1, 1, 2, 3)))
    with pytest.raises(ValueError, match="2 tokens are read and 1 said"):
        AttentionMaps(["a", "b"], ["c", "d"], ["d"])


def test_bad_questions(model, tokenizer, model_dir):
    with pytest.raises(ValueError, match="blank source"):
        collect_attention(model, tokenizer, " ")
    with pytest.raises(ValueError, match="got a target, and num_beams"):
        collect_attention(model, tokenizer, "a", "b", num_beams=2)


def test_bertviz(model, tokenizer):
    """The arguments of its `head_view` for an encoder-decoder: one (1, H, queries, keys) tensor a layer."""
    maps = collect_attention(model, tokenizer, ENGLISH[0], FRENCH[0])
    given = maps.to_bertviz()
    assert set(given) == {
        *(f"{kind}_attention" for kind in ("encoder", "decoder", "cross")),
        "encoder_tokens",
        "decoder_tokens",
    }
    assert all(layer.shape == (1, *maps.cross.shape[1:]) for layer in given["cross_attention"])
    assert len(given["decoder_tokens"]) == maps.cross.shape[2]


def test_pieces_of_text(tokenizer):
    text = "The naïve café 日本, 🙂 end"
    ids = tokenizer(text).input_ids
    found = pieces(tokenizer, ids)
    assert len(found) == len(ids) and found[-1] == "</s>"
    assert "".join(found[:-1]) == text
    assert "" in found  # the first bytes of a character


def test_sides_beyond_learned_positions(tokenizer):
    model = tiny_model(vocab_size=len(tokenizer), positions="learned", max_position_embeddings=12)
    with pytest.raises(ValueError, match=r"the source has .* positions end at 12"):
        collect_attention(model, tokenizer, "The man reads. " * 9, "Un livre.")
    with pytest.raises(ValueError, match=r"the target has .* positions end at 12"):
        collect_attention(model, tokenizer, "The man.", "Un livre. " * 9)
