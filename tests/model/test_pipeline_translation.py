"""`pipeline("translation")` answers as in transformers 4.57, for our models and for those of transformers."""

import copy
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import datasets
import pytest
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BertConfig,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    FSMTConfig,
    FSMTForConditionalGeneration,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaModel,
    T5Config,
    pipeline,
)
from transformers.pipelines import check_task, get_supported_tasks
from transformers.pipelines.base import get_default_model_and_revision

sys.path.insert(0, str(Path(__file__).parent))
import foreign_models
from foreign_models import ARCHITECTURES, FORMS, ONE, POSITIONS, THREE, TWO

import vanilla_transformer
from vanilla_transformer.model.decoding import position_limit, token_limit
from vanilla_transformer.model.pipeline_translation import ReturnType, TranslationPipeline

RECORD = json.loads((Path(__file__).parent / "translation_pipeline_4_57.json").read_text())
MULTILINGUAL = [name for name, architecture in ARCHITECTURES.items() if architecture.source]

# Where we mean to differ from 4.57: form of call -> (architectures, our answer, reason).
TEXT = {"translation_text": "str"}
WRONG_TYPE = ("int", "None", "dict", "tuple", "list of int", "list of str and int", "generator of int")
DEVIATIONS = {
    "list inside list": (ARCHITECTURES, [[TEXT, TEXT], [TEXT]], "lost all but the first text, or raised"),
    "KeyDataset, batch_size=2": (ARCHITECTURES, {"lazy": [[TEXT]] * 3, "len": 3}, "len was the number of batches"),
    "str, max_length=5": (["marian", "mbart"], [TEXT], "its own 256 tokens overrode max_length, behind the positions"),
    **{form: (MULTILINGUAL, {"raises": "TypeError"}, "was a ValueError for some, TypeError for others")
       for form in WRONG_TYPE},
}  # fmt: skip


def expected(name: str, form: str):
    names, answer, _ = DEVIATIONS.get(form, ((), None, None))
    return answer if name in names else RECORD["answers"][name][form]


@pytest.fixture(scope="module")
def makers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    return {name: foreign_models.Maker(name, foreign_models.build(name, folder / name)) for name in ARCHITECTURES}


@pytest.fixture(params=ARCHITECTURES)
def make(request, makers):
    return makers[request.param]


@pytest.fixture
def marian(makers):
    return makers["marian"]


@pytest.fixture(autouse=True)
def untouched(makers):
    """Generation settings of the shared models as they were: a test may change them."""
    yield
    for maker in makers.values():
        maker.pipe.model.generation_config = GenerationConfig.from_pretrained(maker.checkpoint)


def unset_pipe(make, **settings):
    """A pipeline for which nobody, neither caller nor checkpoint, sets a length."""
    return make.make("translation", max_new_tokens=None, **make.architecture.languages, **settings)


def never_ending(pipe):
    """Make `</s>` impossible."""
    pipe.model.generation_config.suppress_tokens = [pipe.model.generation_config.eos_token_id]
    return pipe


def source_length(pipe, text: str, **settings) -> int:
    """Tokens that go into the encoder."""
    return len(pipe.preprocess(text, **settings)["rows"][0].inputs["input_ids"])


def texts_of(answers) -> list[str]:
    return [answer["translation_text"] for answer in answers]


# ---------------------------------------------------------------- every form of call, against the record of 4.57


def test_the_record_is_of_4_57_and_complete():
    assert RECORD["versions"]["transformers"] == "4.57.6"
    assert all(set(answers) == set(FORMS) for answers in RECORD["answers"].values())
    assert set(RECORD["answers"]) == set(RECORD["texts"]) == set(ARCHITECTURES)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_answers_are_shaped_as_in_4_57(name, form, makers):
    assert foreign_models.ask(makers[name], form) == expected(name, form)


def test_every_deviation_is_one():
    for form, (names, answer, _) in DEVIATIONS.items():
        assert all(RECORD["answers"][name][form] != answer for name in names)


def test_texts_are_those_of_4_57(make):
    name = next(name for name, architecture in ARCHITECTURES.items() if architecture is make.architecture)
    assert foreign_models.texts(make) == RECORD["texts"][name]


# ---------------------------------------------------------------- texts equal hand-run generate


@pytest.mark.parametrize("settings", [{"num_beams": 1}, {"num_beams": 3, "length_penalty": 0.6}])
def test_texts_equal_generate_by_hand(make, settings):
    model, tokenizer = make.pipe.model, make.pipe.tokenizer
    architecture, forced = make.architecture, {}
    if architecture.source:
        tokenizer.src_lang = architecture.source
        code = f"__{architecture.target}__" if "m2m" in type(tokenizer).__module__ else architecture.target
        forced = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(code)}
    for text in (ONE, TWO, THREE):
        inputs = tokenizer(text, return_tensors="pt")
        ids = model.generate(**inputs, max_new_tokens=6, **forced, **settings)[0]
        assert make.pipe(text, **settings)[0]["translation_text"] == tokenizer.decode(ids, skip_special_tokens=True)
        assert make.pipe(text, return_tensors=True, **settings)[0]["translation_token_ids"].tolist() == ids.tolist()


@pytest.mark.parametrize("name", MULTILINGUAL)
def test_the_target_language_comes_first(name, makers):
    make = makers[name]
    firsts = []
    for target in (make.architecture.target, make.architecture.other_target):
        ids = make.pipe(ONE, tgt_lang=target, return_tensors=True)[0]["translation_token_ids"]
        firsts.append(make.pipe.tokenizer.convert_ids_to_tokens(int(ids[1])).strip("_"))
    assert firsts == [make.architecture.target, make.architecture.other_target]


def test_languages_of_call_beat_constructor_beat_task(makers):
    def first(pipe, **languages):
        ids = pipe([ONE], return_tensors=True, **languages)[0]["translation_token_ids"]
        return pipe.tokenizer.convert_ids_to_tokens(int(ids[1]))

    by_task = makers["m2m100"].make("translation_en_to_fr")
    by_constructor = makers["m2m100"].make("translation_en_to_fr", tgt_lang="de")
    assert by_task.task == "translation_en_to_fr"
    assert first(by_task) == "__fr__"
    assert first(by_task, tgt_lang="it") == "__it__"
    assert first(by_constructor) == "__de__"
    assert first(by_constructor, tgt_lang="it") == "__it__"
    assert first(by_constructor) == "__de__"  # a call leaves nothing behind


def test_source_language_reaches_the_tokenizer(makers):
    rows = makers["mbart"].pipe.preprocess(ONE, src_lang="de_DE", tgt_lang="fr_XX")["rows"]
    assert makers["mbart"].pipe.tokenizer.convert_ids_to_tokens(rows[0].inputs["input_ids"])[-1] == "de_DE"


def test_forced_tokens_of_a_call_beat_the_language_and_those_of_a_generation_config_do_not(makers):
    pipe, target = makers["nllb"].pipe, makers["nllb"].architecture.target
    italian, wanted = pipe.tokenizer.convert_tokens_to_ids(["ita_Latn", target])
    by_call = pipe(ONE, return_tensors=True, forced_bos_token_id=italian)[0]["translation_token_ids"]
    # Published generation configs force the language of their example: `tgt_lang` is meant to change that.
    config = GenerationConfig(max_new_tokens=4, forced_bos_token_id=italian)
    by_config = pipe(ONE, return_tensors=True, generation_config=config)[0]["translation_token_ids"]
    assert (by_call[1], by_config[1]) == (italian, wanted)
    assert config.forced_bos_token_id == italian  # the caller's object is left alone


def test_missing_languages_are_named(makers):
    with pytest.raises(ValueError, match="`src_lang` and a `tgt_lang`"):
        makers["nllb"].make("translation")(ONE)


# ---------------------------------------------------------------- batches, order, streams


def test_batches_change_nothing_and_keep_the_order(make):
    texts = [ONE, TWO, THREE, TWO + " and " + ONE, TWO]
    one_by_one = [make.pipe(text)[0] for text in texts]
    assert len({*texts_of(one_by_one)}) > 2  # else order would not show
    for size in (1, 2, 5, 8):
        assert make.pipe(texts, batch_size=size) == one_by_one
        assert [answer for [answer] in make.pipe(iter(texts), batch_size=size)] == one_by_one


def test_padding_on_the_left_is_padding(marian):
    pipe = unset_pipe(marian)
    pipe.tokenizer.padding_side = "left"
    rows = [pipe.preprocess(text)["rows"] for text in (ONE, TWO)]
    seen = {}
    pipe.model.generate = lambda **inputs: seen.update(inputs) or torch.zeros(2, 3, dtype=torch.long)
    pipe._forward({"rows": rows}, Counter())
    assert seen["attention_mask"][1, 0] == 0 and seen["attention_mask"][:, -1].tolist() == [1, 1]
    assert (seen["input_ids"][seen["attention_mask"] == 0] == pipe.tokenizer.pad_token_id).all()


def test_generators_are_read_lazily(marian):
    read = []

    def texts():
        for text in (ONE, TWO, THREE):
            read.append(text)
            yield text

    answers = marian.pipe(texts())
    assert read == []
    assert next(iter(answers)) == marian.pipe(ONE)
    assert read == [ONE]


@pytest.mark.parametrize("size", [1, 2])
def test_columns_of_datasets(marian, size):
    rows = datasets.Dataset.from_dict({"en": [ONE, TWO, THREE]})
    assert type(rows["en"]) is datasets.Column
    expected = marian.pipe([ONE, TWO, THREE])
    assert marian.pipe(rows["en"], batch_size=size) == expected
    assert marian.pipe(list(rows["en"]), batch_size=size) == expected
    stream = marian.pipe(rows.to_iterable_dataset()["en"], batch_size=size)
    assert list(stream) == [[answer] for answer in expected]


def test_streams_can_be_asked_their_length(marian):
    dataset = foreign_models._key_dataset()
    assert len(marian.pipe(dataset)) == len(marian.pipe(dataset, batch_size=2)) == 3
    with pytest.raises(TypeError):
        len(marian.pipe(text for text in [ONE]))


def test_workers(marian):
    pipe = marian.pipe
    assert list(pipe(foreign_models._key_dataset(), num_workers=1)) == [[a] for a in pipe([ONE, TWO, THREE])]


def test_a_dataset_can_be_run_through_again(makers, caplog):
    answers = never_ending(unset_pipe(makers["t5"]))(foreign_models._key_dataset(), num_beams=1)
    assert list(answers) == list(answers)
    assert [r.message[:6] for r in caplog.records if "limit of their length" in r.message] == ["3 of 3"] * 2


def test_two_streams_at_once_do_not_mix(marian):
    first, second = marian.pipe(iter([ONE, TWO])), marian.pipe(iter([THREE, ONE]), return_tensors=True)
    mixed = list(zip(first, second, strict=True))
    assert [answer for [answer], _ in mixed] == marian.pipe([ONE, TWO])
    assert all(set(answer) == {"translation_token_ids"} for _, [answer] in mixed)


def test_lists_inside_lists_lose_no_text(make):
    flat = make.pipe([ONE, TWO, THREE])
    for size in (1, 2):
        assert make.pipe([[ONE, TWO], [THREE]], batch_size=size) == [flat[:2], flat[2:]]
        assert list(make.pipe(iter([[ONE, TWO], [THREE]]), batch_size=size)) == [flat[:2], flat[2:]]


# ---------------------------------------------------------------- empty and wrong input


def test_empty_input_gives_empty_output(make):
    assert make.pipe([]) == []
    assert list(make.pipe(iter([]))) == []
    assert make.pipe(datasets.Dataset.from_dict({"en": []})["en"]) == []
    assert make.pipe("") == [{"translation_text": ""}]
    assert make.pipe("", num_return_sequences=2) == [{"translation_text": ""}] * 2
    assert make.pipe([[]]) == [[]]
    assert make.pipe("", return_tensors=True)[0]["translation_token_ids"].tolist() == []


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_blank_text_in_the_middle(marian, blank, size):
    one, two = texts_of(marian.pipe([ONE, TWO]))
    assert texts_of(marian.pipe([ONE, blank, TWO], batch_size=size)) == [one, "", two]
    assert texts_of(marian.pipe([blank, blank, TWO], batch_size=size)) == ["", "", two]


def test_wrong_input_is_named(marian):
    with pytest.raises(TypeError, match=r"got tuple, expected a string, a list of strings.*list\(...\)"):
        marian.pipe((ONE, TWO))
    with pytest.raises(TypeError, match=r"got Dataset.*KeyDataset"):
        marian.pipe(datasets.Dataset.from_dict({"en": [ONE]}))
    with pytest.raises(TypeError, match="got 5 of type int, expected a string"):
        marian.pipe([ONE, 5])
    with pytest.raises(TypeError, match="expected a string"):
        marian.pipe([{"role": "user", "content": ONE}])
    with pytest.raises(ValueError, match="no_such_setting"):
        marian.pipe(ONE, no_such_setting=1)


def test_models_that_cannot_translate_are_refused(marian):
    decoder = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=1))
    headless = AutoModel.from_pretrained(marian.checkpoint)
    for model in (decoder, headless):
        message = f"got {type(model).__name__}, expected an encoder-decoder.*AutoModelForSeq2SeqLM"
        with pytest.raises(ValueError, match=message):
            pipeline("translation", model=model, tokenizer=marian.pipe.tokenizer, device="cpu")


# ---------------------------------------------------------------- length of sources


@pytest.fixture(scope="module")
def long_text(makers):
    """More tokens than any table of positions has."""
    text = " ".join([ONE] * 12)
    for make in makers.values():
        assert len(make.pipe.tokenizer(text)["input_ids"]) > POSITIONS + 5
    return text


@pytest.mark.parametrize("name", ["marian", "mbart"])
def test_over_long_input_is_refused_not_cut(name, makers, long_text):
    pipe = makers[name].pipe
    tokens = len(pipe.tokenizer(long_text)["input_ids"])
    with pytest.raises(ValueError, match=f"{tokens} tokens, 'a small house.*expected at most 64.*truncation=True"):
        pipe([ONE, long_text, TWO])


@pytest.mark.parametrize("name", ["marian", "mbart"])
def test_input_at_the_limit_is_translated_and_one_more_is_refused(name, makers):
    pipe = makers[name].pipe
    text = "z" * (POSITIONS - len(pipe.tokenizer("z")["input_ids"]) + 1)
    assert len(pipe.tokenizer(text)["input_ids"]) == POSITIONS
    assert pipe(text)
    with pytest.raises(ValueError, match=f"{POSITIONS + 1} tokens"):
        pipe(text + "z")


@pytest.mark.parametrize("name", ["marian", "mbart"])
def test_truncation_on_request_is_counted(name, makers, long_text, caplog):
    make = makers[name]
    answers = make.pipe([ONE, long_text, long_text], truncation=True)
    assert source_length(make.pipe, long_text, truncation=True, **make.architecture.languages) == POSITIONS
    assert len(answers) == 3 and answers[0] == make.pipe(ONE)[0]
    assert [r.message for r in caplog.records if "lost their end" in r.message] == [
        "2 of 3 texts had more tokens than fit and lost their end, as truncation was asked for."
    ]


@pytest.mark.parametrize("name", ["t5", "m2m100", "nllb"])
def test_models_without_a_limit_translate_long_input_whole(name, makers, long_text):
    make = makers[name]
    whole = len(make.pipe.tokenizer(long_text)["input_ids"])
    assert source_length(make.pipe, long_text, **make.architecture.languages) == whole
    sources = []
    hook = make.pipe.model.get_encoder().register_forward_pre_hook(
        lambda encoder, args, kwargs: sources.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    make.pipe(long_text)
    hook.remove()
    assert sources == [whole]


@pytest.mark.parametrize("name", ["t5", "m2m100", "nllb"])
def test_model_max_length_warns_once_and_does_not_cut(name, makers, long_text, caplog):
    pipe = makers[name].make("translation", **makers[name].architecture.languages)
    before = pipe([long_text, ONE, long_text])
    pipe.tokenizer.model_max_length = 40
    caplog.clear()
    assert pipe([long_text, ONE, long_text]) == before
    assert [r.message[:47] for r in caplog.records if "model_max_length" in r.message] == [
        "2 of 3 texts had more than the 40 tokens that t"
    ]
    list(pipe(iter([long_text])))  # a stream tells at its end
    assert "1 of 1 texts had more than the 40 tokens" in caplog.text


def test_truncation_cuts_to_model_max_length_where_that_is_less(marian, long_text):
    pipe = unset_pipe(marian)
    pipe.tokenizer.model_max_length = 30
    assert source_length(pipe, long_text, truncation=True) == 30


def test_position_limits_of_tables(makers):
    def limit(model, stack=None):
        return position_limit(stack or model.get_encoder(), model.config)

    limits = {name: limit(make.pipe.model) for name, make in makers.items()}
    assert limits == {"marian": 64, "mbart": 64, "t5": None, "m2m100": None, "nllb": None}
    fsmt = FSMTConfig(
        langs=["en", "de"], src_vocab_size=20, tgt_vocab_size=20, d_model=8, max_position_embeddings=16,
        encoder_layers=1, decoder_layers=1, encoder_attention_heads=1, decoder_attention_heads=1,
    )  # fmt: skip
    assert limit(FSMTForConditionalGeneration(fsmt)) is None  # its table grows
    sizes = dict(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    roberta = RobertaModel(RobertaConfig(max_position_embeddings=16, pad_token_id=1, **sizes)).eval()
    assert limit(roberta, roberta) == 14  # counts from behind the padding id
    assert roberta(torch.full((1, 14), 5)).last_hidden_state.shape[1] == 14
    with pytest.raises((IndexError, RuntimeError)):
        roberta(torch.full((1, 15), 5))
    bert = EncoderDecoderModel(
        EncoderDecoderConfig.from_encoder_decoder_configs(
            BertConfig(max_position_embeddings=12, **sizes), BertConfig(max_position_embeddings=24, **sizes)
        )
    )
    assert limit(bert) == 12
    assert position_limit(bert.get_decoder(), bert.config) == 24


# ---------------------------------------------------------------- length of translations


def longest_translation(make) -> int:
    source = source_length(make.pipe, TWO, **make.architecture.languages)
    limit = position_limit(make.pipe.model.get_decoder(), make.pipe.model.config)
    return source + 50 if limit is None else min(source + 50, limit - 1)


@pytest.mark.parametrize("polluted", [None, 20])
def test_never_the_twenty_tokens_of_the_library(make, polluted, caplog):
    pipe = never_ending(unset_pipe(make))
    pipe.model.generation_config.max_length = polluted  # 20 is what Seq2SeqTrainer leaves behind
    ids = pipe(TWO, return_tensors=True, num_beams=1)[0]["translation_token_ids"]
    assert len(ids) - 1 == longest_translation(make) > 20
    assert "1 of 1 translations reached the limit of their length" in caplog.text
    assert "seem to have been set" not in caplog.text


def test_longest_source_of_the_batch_counts(makers):
    pipe = never_ending(unset_pipe(makers["t5"]))
    sources = [len(pipe.tokenizer(text)["input_ids"]) for text in (ONE, TWO)]
    lengths = [len(a["translation_token_ids"]) - 1 for a in pipe([ONE, TWO], return_tensors=True, num_beams=1)]
    assert lengths == [length + 50 for length in sources]
    together = pipe([ONE, TWO], return_tensors=True, num_beams=1, batch_size=2)
    assert [len(a["translation_token_ids"]) - 1 for a in together] == [max(sources) + 50] * 2


def test_capped_translations_are_counted_once_a_call(makers, caplog):
    pipe = never_ending(unset_pipe(makers["t5"]))
    pipe([ONE, TWO, THREE], num_return_sequences=2, num_beams=2, batch_size=2)
    list(pipe(iter([ONE, TWO]), num_beams=1))
    counted = [r.message.split(" translations")[0] for r in caplog.records if "limit of their length" in r.message]
    assert counted == ["6 of 6", "2 of 2"]


def test_finished_translations_are_not_counted_as_capped(makers, caplog):
    pipe = unset_pipe(makers["t5"])
    eos = pipe.model.generation_config.eos_token_id
    pipe(TWO, sequence_bias=[[[eos], 100.0]])
    assert "limit of their length" not in caplog.text


def test_an_end_forced_by_the_length_is_counted_as_capped(marian, caplog):
    pipe = unset_pipe(marian)
    end = pipe.model.generation_config.eos_token_id
    pipe.model.generation_config.forced_eos_token_id = end
    ids = pipe(TWO, num_beams=1, sequence_bias=[[[end], -100.0]], return_tensors=True)[0]["translation_token_ids"]
    assert ids[-1] == end
    assert "1 of 1 translations reached" in caplog.text


@pytest.mark.parametrize("own", [{"max_length": 9}, {"max_new_tokens": 8}])
def test_lengths_of_checkpoint_and_caller_are_kept(makers, own, caplog):
    def length(pipe, **settings):
        return len(pipe(TWO, return_tensors=True, num_beams=1, **settings)[0]["translation_token_ids"])

    checkpoint = never_ending(unset_pipe(makers["t5"]))
    for name, value in own.items():
        setattr(checkpoint.model.generation_config, name, value)
    assert length(checkpoint) == 9
    assert "1 of 1 translations reached the limit" in caplog.text  # the caller may not know
    caplog.clear()
    assert length(never_ending(unset_pipe(makers["t5"])), **own) == 9
    assert length(never_ending(unset_pipe(makers["t5"])), generation_config=GenerationConfig(**own)) == 9
    assert length(never_ending(makers["t5"].make("translation", **{"max_new_tokens": None, **own}))) == 9
    assert "limit of their length" not in caplog.text  # the caller knows


def test_a_generation_config_without_a_length_leaves_it_open(makers):
    pipe = never_ending(unset_pipe(makers["t5"]))
    ids = pipe(TWO, generation_config=GenerationConfig(num_beams=1), return_tensors=True)[0]["translation_token_ids"]
    assert len(ids) - 1 == longest_translation(makers["t5"])


def test_old_settings_of_a_task_still_count(makers, caplog):
    """The published T5 checkpoints keep prefix, length and beams for each task in config.json."""
    make = makers["t5"]
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(make.checkpoint), make.pipe.tokenizer
    config = T5Config.from_pretrained(make.checkpoint)
    config.task_specific_params = {"translation_en_to_de": {"prefix": "katze ", "max_length": 5, "num_beams": 1}}
    model.config = config
    pipe = pipeline("translation_en_to_de", model=model, tokenizer=tokenizer, device="cpu")
    never_ending(pipe)
    ids = pipe(TWO, return_tensors=True)[0]["translation_token_ids"]
    by_hand = model.generate(**tokenizer("katze " + TWO, return_tensors="pt"), max_length=5, num_beams=1)[0]
    assert ids.tolist() == by_hand.tolist() and len(ids) == 5
    assert pipe("") == [{"translation_text": ""}]
    other = pipeline("translation_en_to_fr", model=model, tokenizer=tokenizer, device="cpu")
    assert "1 of 1 translations reached" in caplog.text  # the caller set no length
    assert other.prefix == "" and len(other(TWO, return_tensors=True)[0]["translation_token_ids"]) > 5


# ---------------------------------------------------------------- other arguments


def test_without_a_model_the_defaults_are_those_of_4_57():
    for pair in (("en", "fr"), ("en", "de"), ("en", "ro")):
        task, settings, languages = check_task("translation_{}_to_{}".format(*pair))
        assert (task, languages) == ("translation", pair)
        assert get_default_model_and_revision(settings, languages) == ("google-t5/t5-base", "a9723ea")
    with pytest.raises(ValueError, match="default"):
        pipeline("translation")
    with pytest.raises(ValueError, match="default"):
        pipeline("translation_fr_to_en")
    assert "translation" in get_supported_tasks()
    with pytest.raises(KeyError, match="summarization has been removed"):
        pipeline("summarization")  # which is not ours to bring back


def test_four_beams_unless_somebody_says_otherwise(marian):
    seen = []

    def beams(pipe, **settings):
        generate = type(pipe.model).generate
        pipe.model.generate = lambda **kwargs: seen.append(kwargs.get("num_beams")) or generate(pipe.model, **kwargs)
        pipe(TWO, **settings)
        return seen[-1]

    assert beams(unset_pipe(marian)) == 4
    assert beams(unset_pipe(marian, num_beams=2)) == 2
    assert beams(unset_pipe(marian, num_beams=2), num_beams=3) == 3
    of_checkpoint = unset_pipe(marian)
    of_checkpoint.model.generation_config.num_beams = 5
    assert beams(of_checkpoint) is None  # so that `generate` reads the checkpoint's


def test_dtype_and_device(marian):
    pipe = pipeline("translation", model=str(marian.checkpoint), dtype=torch.bfloat16, device="cpu", max_new_tokens=6)
    assert pipe.model.dtype == torch.bfloat16 and pipe.device == torch.device("cpu")
    assert isinstance(pipe(ONE)[0]["translation_text"], str)


def test_return_type_and_stop_sequence(makers):
    make = makers["t5"]
    assert set(make.pipe(ONE, return_type=ReturnType.TENSORS)[0]) == {"translation_token_ids"}
    ids = make.pipe(ONE, return_tensors=True)[0]["translation_token_ids"]
    stop = make.pipe.tokenizer.convert_ids_to_tokens(int(ids[2])).strip("▁")
    assert len(make.pipe(ONE, stop_sequence=stop, return_tensors=True, num_beams=1)) == 1


def test_answers_of_generate_in_a_dictionary_are_read_too(marian):
    assert marian.pipe(ONE, return_dict_in_generate=True, output_scores=True) == marian.pipe(ONE)


def test_tokenizer_without_padding_serves_single_texts(marian):
    pipe = unset_pipe(marian)
    pipe.tokenizer.pad_token = None
    [text] = texts_of(pipe(ONE, max_new_tokens=6))
    assert text.removeprefix("<pad>") == marian.pipe(ONE)[0]["translation_text"]


# ---------------------------------------------------------------- our own model


@pytest.fixture(scope="module")
def own_tokenizer(tmp_path_factory):
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(BPE({piece: i for i, piece in enumerate(special + letters)}, [], unk_token="<unk>"))
    tokenizer.add_special_tokens(special)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return vanilla_transformer.VanillaTransformerTokenizer(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def own_model(tokenizer, **settings):
    config = vanilla_transformer.VanillaTransformerConfig.preset(
        "tiny", vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32,
        decoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2, **settings,
    )  # fmt: skip
    torch.manual_seed(0)
    model = vanilla_transformer.VanillaTransformerForSeq2SeqLM(config).eval()
    with torch.no_grad():
        model.get_input_embeddings().weight[:4] *= 0.1
    return model


@pytest.fixture(scope="module")
def own_checkpoint(own_tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    own_model(own_tokenizer).save_pretrained(folder)
    own_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def own(own_checkpoint):
    return pipeline("translation", model=str(own_checkpoint), device="cpu")


def test_own_model_is_served(own):
    assert type(own) is TranslationPipeline
    ids = own.model.generate(**own.tokenizer(TWO, return_tensors="pt"), max_new_tokens=8)[0]
    assert own(TWO, max_new_tokens=8) == [{"translation_text": own.tokenizer.decode(ids, skip_special_tokens=True)}]
    answers = own([ONE, "", TWO], max_new_tokens=8)
    assert own([ONE, "", TWO], max_new_tokens=8, batch_size=3) == answers and answers[1]["translation_text"] == ""


@pytest.mark.parametrize("form", [form for form in FORMS if "language" not in form and "task" not in form])
def test_own_model_answers_as_marian_does(own, own_checkpoint, form):
    make = foreign_models.Maker("marian", own_checkpoint)
    assert foreign_models.ask(make, form) == expected("marian", form)


@pytest.mark.parametrize("max_length", [512, 12])
def test_own_model_counts_its_capped_outputs_itself(own, max_length, caplog):
    never_ending(own).model.generation_config.max_length = max_length
    ids = own(TWO, return_tensors=True, num_beams=1)[0]["translation_token_ids"]
    assert len(ids) == min(1 + source_length(own, TWO) + 50, max_length)
    assert sum("1 of 1" in record.message for record in caplog.records) == 1


def test_own_model_warns_once_a_call_of_all_capped_outputs(own, caplog):
    never_ending(own).model.generation_config.max_length = 12
    own([TWO, ONE, TWO], num_beams=1)
    assert sum("3 of 3 translations reached the limit" in record.message for record in caplog.records) == 1
    assert not [record for record in caplog.records if "were cut" in record.message]


@pytest.mark.parametrize("name", ["own", "marian", "t5"])
def test_a_token_without_an_embedding_is_named(name, own, makers):
    pipe = own if name == "own" else makers[name].pipe
    tokenizer = copy.deepcopy(pipe.tokenizer)
    tokenizer.add_tokens([f"zzz{number}" for number in range(300)])
    added = pipeline("translation", model=pipe.model, tokenizer=tokenizer, device="cpu")
    assert added([ONE], max_new_tokens=3)
    with pytest.raises(ValueError, match=r"the token 'zzz299', number \d+, of .* embeddings for \d+: they do not"):
        added([ONE, "zzz299"], max_new_tokens=3)


def test_a_model_without_a_table_of_embeddings_translates(own):
    """CANINE hashes letters."""
    from transformers import CanineConfig, CanineModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    canine = CanineModel(CanineConfig(**sizes, num_hash_buckets=32, num_hash_functions=2))
    assert token_limit(canine) > 10**9
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(own.model.get_encoder(), "get_input_embeddings", canine.get_input_embeddings)
        assert own(ONE, max_new_tokens=3)


def test_no_beams_and_no_stop_sequence(own):
    with pytest.raises(ValueError, match="num_beams=0"):
        own(TWO, num_beams=0)
    with pytest.raises(ValueError, match="num_return_sequences=0, expected at least 1"):
        own(TWO, num_return_sequences=0)
    with pytest.raises(ValueError, match="stop_sequence='', of which this tokenizer makes no token"):
        own(TWO, stop_sequence="")


def test_a_stop_sequence_without_a_token(makers):
    """T5 knows no line breaks."""
    with pytest.raises(ValueError, match=r"stop_sequence='\\n', of which this tokenizer makes no token"):
        makers["t5"].pipe(ONE, stop_sequence="\n")


@pytest.mark.parametrize("name", MULTILINGUAL)
def test_a_language_that_the_tokenizer_does_not_know(makers, name):
    """It would be a piece of a word, or <unk>."""
    source, target = ARCHITECTURES[name].source, ARCHITECTURES[name].target
    for languages in ({"src_lang": "xx", "tgt_lang": target}, {"src_lang": source, "tgt_lang": "xx"}):
        with pytest.raises(ValueError, match="knows no language 'xx'"):
            makers[name].pipe(ONE, **languages)


def test_own_model_limits_sources_by_its_positions(own_tokenizer):
    def pipe(positions):
        model = own_model(own_tokenizer, positions=positions, max_position_embeddings=32)
        return pipeline("translation", model=model, tokenizer=own_tokenizer, device="cpu", max_new_tokens=4)

    assert pipe("sinusoidal")("a" * 40)
    assert pipe("learned")("a" * 31)
    with pytest.raises(ValueError, match=r"41 tokens, 'aaaa.*at most 32"):
        pipe("learned")("a" * 40)


# ---------------------------------------------------------------- checkpoints that bring the pipeline along

LOADER = """
import socket, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "vanilla_transformer":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())

def refuse(*args, **kwargs):
    raise OSError("the network was asked")

socket.socket.connect = refuse
from transformers import pipeline

pipe = pipeline("translation", model=sys.argv[1], device="cpu", max_new_tokens=6, trust_remote_code=True)
print(type(pipe).__module__.split(".")[0], pipe(["a house", "", "a cat"]))
"""


def load_without_the_package(folder: Path, tmp_path: Path) -> str:
    """What a fresh process says: offline, with nothing cached, in another folder."""
    (tmp_path / "loader.py").write_text(LOADER)
    environment = {
        **os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "loader.py", str(folder)]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    return ended.stdout.strip() or ended.stderr


def test_a_checkpoint_brings_the_pipeline_along(own, tmp_path):
    own.save_pretrained(tmp_path / "saved", include_pipeline=True)
    answers = own(["a house", "", "a cat"], max_new_tokens=6)
    assert load_without_the_package(tmp_path / "saved", tmp_path) == f"transformers_modules {answers}"


@pytest.mark.parametrize("trust", [{}, {"trust_remote_code": True}, {"trust_remote_code": False}])
def test_the_installed_pipeline_beats_a_brought_one(own, tmp_path, trust):
    own.save_pretrained(tmp_path, include_pipeline=True)
    assert "custom_pipelines" not in own.model.config.to_dict()  # the next save may be without the file
    assert "custom_pipelines" in json.loads((tmp_path / "config.json").read_text())
    again = pipeline("translation", model=str(tmp_path), device="cpu", **trust)
    assert type(again) is TranslationPipeline
    assert again(TWO, max_new_tokens=6) == own(TWO, max_new_tokens=6)


def test_pipelines_of_others_stay(own, tmp_path):
    """In a checkpoint of ours that names some more, and in a foreign one that has one of its own."""
    own.save_pretrained(tmp_path, include_pipeline=True)
    saved = json.loads((tmp_path / "config.json").read_text())
    theirs = {"summary": {"impl": "theirs.Pipeline", "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}}
    saved["custom_pipelines"] |= theirs
    (tmp_path / "config.json").write_text(json.dumps(saved))
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert model.config.custom_pipelines == theirs
    TranslationPipeline(model=model, tokenizer=own.tokenizer).save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["custom_pipelines"] == theirs
    assert not (tmp_path / "again" / "pipeline_translation.py").exists()


def test_no_code_is_brought_along_unasked(marian, own, tmp_path):
    for name, pipe in {"own": own, "marian": marian.pipe}.items():
        pipe.save_pretrained(tmp_path / name)
        assert not (tmp_path / name / "pipeline_translation.py").exists()
        assert "custom_pipelines" not in json.loads((tmp_path / name / "config.json").read_text())
        again = pipeline("translation", model=str(tmp_path / name), device="cpu")
        assert again(TWO, max_new_tokens=6) == pipe(TWO, max_new_tokens=6)
    assert type(AutoTokenizer.from_pretrained(tmp_path / "marian")) is type(marian.pipe.tokenizer)


def test_a_foreign_checkpoint_can_bring_it_along_too(marian, tmp_path):
    saved = tmp_path / "saved"
    marian.pipe.save_pretrained(saved, include_pipeline=True)
    answers = marian.pipe(["a house", "", "a cat"])
    assert load_without_the_package(saved, tmp_path) == f"transformers_modules {answers}"
    # transformers wants to be trusted or told, as for everybody's pipelines
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        pipeline("translation", model=str(saved), device="cpu")
    told = pipeline("translation", model=str(saved), device="cpu", pipeline_class=TranslationPipeline)
    assert told(ONE, max_new_tokens=6) == marian.pipe(ONE)


def test_a_brought_pipeline_stays_when_saved_again(marian, tmp_path):
    marian.pipe.save_pretrained(tmp_path / "first", include_pipeline=True)
    trusted = pipeline("translation", model=str(tmp_path / "first"), device="cpu", trust_remote_code=True)
    trusted.save_pretrained(tmp_path / "second")
    assert (tmp_path / "second" / "pipeline_translation.py").exists()
    second = json.loads((tmp_path / "second" / "config.json").read_text())
    assert second["custom_pipelines"]["translation"]["impl"] == "pipeline_translation.TranslationPipeline"
