import io
import sys
from types import SimpleNamespace

import pytest
import torch
from foreign_models import ARCHITECTURES, ONE
from tiny import ENGLISH, tiny_model
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.translation import Translation, Translator, files, load_translator, parts, translate
from vanilla_transformer.translation.alignments import AlignmentHeads

MIXED = [ENGLISH[0], "", "A dog.", "   ", *ENGLISH[1:4], "cat " * 12]


@pytest.fixture
def translator(model_dir):
    return load_translator(model_dir)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_any_batching_gives_what_generate_gives_one_by_one(translator, num_beams):
    expected = []
    for text in MIXED:
        if not text.strip():
            expected.append("")
            continue
        ids = translator.tokenizer(text, return_tensors="pt")
        limit = 1 + ids.input_ids.shape[1] + 10
        # random weights never end: the same limit for all makes them comparable
        translator.model.generation_config.max_length = 12
        out = translator.model.generate(**ids, num_beams=num_beams, max_length=min(limit, 12))
        expected.append(translator.tokenizer.decode(out[0], skip_special_tokens=True))
    for max_tokens in (1, 64, 4096):
        answers = translator(MIXED, num_beams=num_beams, max_tokens=max_tokens)
        assert [t.text for t in answers] == expected


def test_candidates_come_best_first_with_scores(translator):
    translator.model.generation_config.max_length = 10
    candidates = translator.candidates(["A cat.", "", "The dog sleeps."], num_beams=4, n_best=3, scores=True)
    assert [len(c) for c in candidates] == [3, 3, 3]
    for best in (candidates[0], candidates[2]):
        scores = [t.score for t in best]
        assert scores == sorted(scores, reverse=True) and len({t.text for t in best}) == 3
    assert [t.text for t in candidates[1]] == ["", "", ""]


def test_scores_are_log_probabilities_over_length(translator):
    translator.model.generation_config.max_length = 8
    for penalty in (0.0, 1.0, 2.0):
        best = translator(["A cat."], num_beams=3, scores=True, length_penalty=penalty)[0]
        ids = translator.tokenizer("A cat.", return_tensors="pt")
        out = translator.model.generate(**ids, num_beams=3, length_penalty=penalty, max_length=8)
        logits = translator.model(**ids, decoder_input_ids=out[:, :-1]).logits
        log_probability = logits.log_softmax(-1).gather(-1, out[:, 1:, None]).sum().item()
        assert best.score == pytest.approx(log_probability / (out.shape[1] - 1) ** penalty, rel=1e-4)


def test_capped_translations_are_counted_once(model_dir, caplog, monkeypatch):
    monkeypatch.setattr("transformers.utils.logging.get_logger", lambda *a: None, raising=False)
    translator = load_translator(model_dir)
    with torch.no_grad():
        translator.model.lm_head.weight[2] = -100.0
    messages = []
    monkeypatch.setattr("vanilla_transformer.translation.translate.logger.warning", messages.append)
    translator(ENGLISH, num_beams=1)
    assert len(messages) == 1 and f"{len(ENGLISH)} of {len(ENGLISH)} translations were cut" in messages[0]


def test_longer_than_in_training_is_translated_whole_with_one_counted_warning(translator, monkeypatch):
    messages = []
    monkeypatch.setattr("vanilla_transformer.translation.translate.logger.warning", messages.append)
    translator.model.generation_config.max_length = 5
    long = "cat " * 200
    translator([long, "A cat.", long], num_beams=1)
    assert any("2 of 3 sources are longer than the 64 tokens" in message for message in messages)


@pytest.fixture
def learned(tokenizer):
    model = tiny_model(vocab_size=len(tokenizer), positions="learned", max_position_embeddings=20)
    return Translator(model, tokenizer)


def test_over_long_for_learned_positions_is_an_error_with_line_length_and_limit(learned):
    with pytest.raises(ValueError, match=r"line 3 has \d+ tokens, but positions end at 20 \(2 such lines\)"):
        learned(["A cat.", "", "cat " * 50, "dog " * 50])


def test_truncation_on_request_is_counted(learned, monkeypatch):
    messages = []
    monkeypatch.setattr("vanilla_transformer.translation.translate.logger.warning", messages.append)
    learned(["A cat.", "cat " * 50], truncation=True, num_beams=1)
    assert any("1 sources were cut to 20 tokens" in message for message in messages)
    assert learned.cut(learned.encode(["cat " * 50]))[0][-1] == learned.tokenizer.eos_token_id


@pytest.mark.parametrize(
    "options, message",
    [({"num_beams": 0}, "num_beams=0, expected at least 1"),
     ({"num_beams": 2, "n_best": 3}, "n_best=3 with num_beams=2"),
     ({"num_beams": 1, "scores": True}, "scores are those of beam search"),
     ({"num_beams": 1, "length_penalty": 0.6}, "length_penalty=0.6 is a matter of beam search: got num_beams=1")],
)  # fmt: skip
def test_options_that_do_not_fit(translator, options, message):
    with pytest.raises(ValueError, match=message):
        translator(["A cat."], **options)


def test_nothing_in_nothing_out(translator):
    assert translator([]) == []
    assert [t.text for t in translator(["", " "])] == ["", ""]


@pytest.mark.parametrize(
    "columns, line", [((False, False), "a\tb c d\n"), ((True, True), "a\u00a0b\u00a0c d\t-0.5000\t0-0 1-1\n")]
)
def test_a_line_and_its_columns_stay_so_whatever_a_model_says(columns, line):
    """Links number words between plain spaces: "a<TAB>b<line separator>c" is the first one."""
    said = Translation("a\tb\u2028c d", score=-0.5, links=[(0, 0), (1, 1)])
    assert files.as_line(said, *columns) == line


def test_a_lone_surrogate(translator):
    with pytest.raises(ValueError, match="lone surrogate"):
        translator(["fine", "bad \ud800"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("emulated", [True, False])
def test_fewer_bits(dtype, emulated, model_dir, monkeypatch, warnings_of):
    monkeypatch.setattr(translate, "emulates", lambda of: emulated and of == getattr(torch, dtype))
    translator = load_translator(model_dir, dtype=dtype, device="cpu")
    assert any(f"emulates products in torch.{dtype}" in text for text in warnings_of()) is emulated
    assert translator.model.dtype == getattr(torch, dtype)
    translator.model.generation_config.max_length = 5
    assert len(translator(ENGLISH)) == len(ENGLISH)


def test_models_of_transformers_too(tmp_path, tokenizer):
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=40, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2,
    )  # fmt: skip
    BartForConditionalGeneration(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    translator = load_translator(tmp_path)
    assert len(translator(["A cat.", "The dog."], num_beams=2)) == 2
    with pytest.raises(ValueError, match="positions end at 40"):
        translator(["cat " * 60])
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path), type(tokenizer))
    assert type(AutoModelForSeq2SeqLM.from_pretrained(tmp_path)) is type(translator.model)


@pytest.fixture
def foreign(tmp_path):
    """A T5 that never ends by itself, and numbers no positions."""
    model, tokenizer = ARCHITECTURES["t5"].build(tmp_path)
    model.generation_config.max_length = model.generation_config.max_new_tokens = None
    model.generation_config.suppress_tokens = [tokenizer.eos_token_id]
    return Translator(model.eval(), tokenizer)


def test_what_a_trainer_leaves_is_no_length(foreign, translator):
    [whole] = foreign([ONE], num_beams=1)
    foreign.model.generation_config.max_length = 20
    assert foreign([ONE], num_beams=1) == [whole] and len(whole.tokens) > 40
    translator.model.generation_config.max_length = 20  # what our own models say is meant
    with torch.no_grad():
        translator.model.lm_head.weight[2] = -100.0
    assert len(translator(["A cat."], num_beams=1)[0].tokens) == 19


@pytest.mark.parametrize("new_tokens", [7, 90])
@pytest.mark.parametrize("ours", [True, False])
def test_new_tokens_of_the_settings_are_kept_and_told(foreign, translator, ours, new_tokens, warnings_of):
    """Also more than a source and 50, as in `generate` and the pipeline."""
    subject = translator if ours else foreign
    with torch.no_grad():
        translator.model.lm_head.weight[2] = -100.0
    subject.model.generation_config.max_new_tokens = new_tokens
    answers = subject(["the cat", "the cat sleeps"], num_beams=1)
    assert [len(answer.tokens) for answer in answers] == [new_tokens] * 2
    [told] = warnings_of()
    assert told.startswith("2 of 2 translations were cut at their length limit")


def test_a_cut_source_keeps_all_that_closes_it(tmp_path):
    """mBART has the language behind </s>."""
    model, tokenizer = ARCHITECTURES["mbart"].build(tmp_path)
    translator = Translator(model, tokenizer)
    [ids] = translator.encode([f"{ONE} " * 20])
    [cut] = translator.cut([ids])
    assert len(cut) == translator.source_limit < len(ids)
    assert cut[-2:] == ids[-2:] and cut[-2] == tokenizer.eos_token_id and cut[:-2] == ids[: len(cut) - 2]
    assert len(translator.cut([[tokenizer.eos_token_id] * len(ids)])[0]) == len(cut)
    unknown = [ids[0]] * 9 + [tokenizer.unk_token_id] * len(ids) + ids[-2:]
    assert translator.cut([unknown])[0][:9] == [ids[0]] * 9


def test_heads_that_are_not_there_are_told_before_any_work(translator, monkeypatch):
    monkeypatch.setattr(Translator, "generate", lambda *args: pytest.fail("a translation had begun"))
    with pytest.raises(ValueError, match="no heads 9:1"):
        translator(["A cat."], return_alignments=AlignmentHeads.parse("9:1"))


def test_standard_output_is_utf8_whatever_the_locale_says(model_dir, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("A cat.\n", encoding="utf-8")
    monkeypatch.setattr(files, "text_of", lambda *args: "é\n")
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    files.translate_files(model_dir, [tmp_path / "in.txt"], num_beams=1)
    sys.stdout.flush()
    assert written.getvalue() == "é\n".encode()


def test_small_files_are_divided_too_and_others_go_on_with_them(tmp_path):
    def of(processes: int) -> parts.Parts:
        one = SimpleNamespace(
            num_processes=processes, process_index=0, is_main_process=True, wait_for_everyone=lambda: None
        )
        return parts.Parts(tmp_path / "out", {"text": "x"}, 5, one)

    lines = list("abcde")
    assert [chunk for _, chunk in of(1).chunks(lines)] == [lines]
    two = of(2)
    assert len(two.all) == 2 and [chunk for _, chunk in two.chunks(lines)] == [lines[:3]]
    two.all[0].write_text("a\nb\nc\n")
    assert [chunk for _, chunk in of(1).chunks(lines)] == [lines[3:]]
