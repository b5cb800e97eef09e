"""Marian as an independent witness: transformers' `MarianMTModel` and our model compute the same, both ways round."""

import json
from dataclasses import fields

import pytest
import torch
from tiny import ENGLISH, FRENCH, run_python, tiny_model
from tiny_marian import marian_checkpoint, marian_tokenizer, randomise, tiny_marian
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    MarianMTModel,
    MarianTokenizer,
    PreTrainedConfig,
    pipeline,
)
from transformers.activations import ACT2FN

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForSeq2SeqLM
from vanilla_transformer.cli import main
from vanilla_transformer.interop import convert, from_marian, to_marian
from vanilla_transformer.interop.marian import ACTIVATIONS, MARIAN_IS, SHARED_FIELDS
from vanilla_transformer.model.layers import FEED_FORWARDS
from vanilla_transformer.translation import load_translator

MARIANS = {
    "opus": {},
    "unequal": dict(
        encoder_layers=1, decoder_layers=3, encoder_attention_heads=4, decoder_ffn_dim=20, scale_embedding=False
    ),
    "relu": dict(activation_function="relu"),
    "gelu": dict(activation_function="gelu", logits_bias=False),
    "two vocabularies": dict(vocab_size=37, decoder_vocab_size=45, share_encoder_decoder_embeddings=False),
    "nothing tied": dict(share_encoder_decoder_embeddings=False, tie_word_embeddings=False),
    "wide": dict(d_model=48, encoder_attention_heads=8, decoder_attention_heads=3, max_position_embeddings=200),
}
OURS = {
    "paper": {},
    "silu": dict(feed_forward="silu", scale_embedding=False),
    "gelu": dict(feed_forward="gelu", output_bias=True),
    "two vocabularies": dict(share_encoder_decoder_embeddings=False, decoder_vocab_size=45),
    "head untied": dict(tie_word_embeddings=False, output_bias=True),
    "nothing tied": dict(tie_word_embeddings=False, share_encoder_decoder_embeddings=False),
}
marians = pytest.mark.parametrize("case", MARIANS)
ours = pytest.mark.parametrize("case", OURS)
# As `generate` is called: what it decodes with.
SEARCHES = {
    "greedy": dict(num_beams=1),
    "beam 4": dict(num_beams=4),
    "sampling": dict(num_beams=1, do_sample=True, temperature=1.3),
}
LENGTH = dict(max_length=24, min_new_tokens=6, no_repeat_ngram_size=2)  # random models like to repeat themselves
searches = pytest.mark.parametrize("search", SEARCHES)


def random_ours(dtype=torch.float64, **choice) -> VanillaTransformerForSeq2SeqLM:
    model = tiny_model(**choice).to(dtype)
    randomise(model)
    return model


def a_batch(config, sources=5):
    """Sources padded on the right, and targets that begin with the start token, which Marian's padding is."""
    pad = config.pad_token_id
    source = torch.randint(1, config.vocab_size - 1, (sources, 9))
    source[source == pad] = 1
    for row in range(1, sources):
        source[row, -2 * row :] = pad
    target = torch.randint(1, min(config.vocab_size, config.decoder_vocab_size) - 1, (sources, 7))
    target[:, 0] = config.decoder_start_token_id
    return dict(input_ids=source, attention_mask=source.ne(pad).long()), dict(decoder_input_ids=target)


def largest_difference(one, other) -> float:
    source, target = a_batch(one.config)
    with torch.no_grad():
        logits = one(**source, **target).logits
        assert logits.std() > 0.1  # there is something to compare
        return (logits - other(**source, **target).logits).abs().max().item()


def assert_same_tokens(one, other, **settings):
    source, _ = a_batch(one.config)
    answers = []
    for model in (one, other):
        torch.manual_seed(1)
        answers.append(model.generate(**source, **settings))
    assert answers[0].shape[1] > 5 and len(answers[0].unique(dim=0)) > 1  # another source, another answer
    assert torch.equal(*answers)


def assert_bit_equal(one, other):
    one, other = one.state_dict(), other.state_dict()
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype and torch.equal(value, other[name]), name


@marians
def test_a_marian_model_gives_the_same_logits(case):
    marian = tiny_marian(**MARIANS[case])
    assert marian.model.decoder.embed_tokens.weight[marian.config.pad_token_id].abs().max() > 0
    assert largest_difference(marian, from_marian(marian)) < 1e-10


@ours
def test_our_model_gives_the_same_logits_as_marian(case):
    model = random_ours(**OURS[case])
    assert largest_difference(model, to_marian(model)) < 1e-10


@marians
@searches
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_marian_model_generates_the_same_tokens(case, search, dtype):
    marian = tiny_marian(dtype=dtype, **MARIANS[case])
    assert_same_tokens(marian, from_marian(marian), **LENGTH, **SEARCHES[search])


@ours
@searches
def test_our_model_generates_the_same_tokens_as_marian(case, search):
    model = random_ours(**OURS[case])
    assert_same_tokens(model, to_marian(model), **LENGTH, **SEARCHES[search])


@marians
def test_marian_there_and_back_is_bit_equal(case):
    marian = tiny_marian(**MARIANS[case])
    back = to_marian(from_marian(marian))
    assert_bit_equal(marian, back)
    one, other = marian.config.to_dict(), back.config.to_dict()
    assert other.pop("add_bias_logits") is (case != "gelu")
    assert one | {"dtype": None} == other | {"dtype": None}  # which a config has of models that were made with one
    assert marian.generation_config.to_dict() == back.generation_config.to_dict()


@ours
def test_ours_there_and_back_is_bit_equal(case):
    model = random_ours(**OURS[case])
    marian = to_marian(model)
    assert marian.config.forced_eos_token_id is None  # transformers' own default would force it
    back = from_marian(marian)
    assert_bit_equal(model, back)
    assert model.config.to_dict() | {"dtype": None} == back.config.to_dict() | {"dtype": None}


def test_a_bias_of_zeros_comes_back_as_one():
    model = tiny_model(output_bias=True)
    assert not model.lm_head.bias.any()
    assert_bit_equal(model, from_marian(to_marian(model)))


@ours
def test_saved_and_loaded_as_marian_it_stays_the_same(case, tmp_path):
    model = random_ours(**OURS[case])
    to_marian(model).save_pretrained(tmp_path)
    assert largest_difference(model, MarianMTModel.from_pretrained(tmp_path)) < 1e-10
    assert_bit_equal(model, from_marian(tmp_path))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_stay_short(dtype):
    marian = tiny_marian(dtype=dtype)
    model = from_marian(marian)
    assert model.dtype == dtype
    assert_bit_equal(marian, to_marian(model))


def test_settings_of_the_checkpoint_decide_what_is_generated():
    marian = tiny_marian()
    pad = marian.config.pad_token_id
    marian.final_logits_bias[0, pad] = 50  # padding is what it would say, were it not for `bad_words_ids`
    marian.final_logits_bias[0, 0] = -50  # and it never ends, were it not for `forced_eos_token_id`
    marian.generation_config.max_length = 12
    model = from_marian(marian)
    assert_same_tokens(marian, model)
    output = model.generate(**a_batch(marian.config)[0])
    assert output.shape[1] == 12 and not output[:, 1:].eq(pad).any() and output[:, -1].eq(0).all()


def test_without_any_length_outputs_end_where_they_end():
    marian = tiny_marian()
    marian.generation_config.max_length = None
    model = from_marian(marian)
    assert model.generation_config.max_length == marian.config.max_position_embeddings
    assert_same_tokens(marian, model, max_length=30)


def test_ours_as_marian_ends_before_marians_positions_do():
    model = tiny_model(max_position_embeddings=20)
    assert model.generation_config.max_length > 20
    assert to_marian(model).generate(torch.randint(3, 50, (2, 5))).shape[1] <= 20
    model.generation_config.max_length = None  # of which transformers make 20
    assert to_marian(model.train(False)).generation_config.max_length == 20
    longer = tiny_model(max_position_embeddings=60)
    longer.generation_config.max_length = None
    assert to_marian(longer).generation_config.max_length == 60


def test_padding_on_the_left_changes_nothing_in_ours():
    marian = tiny_marian()
    model = from_marian(marian)
    source, target = torch.randint(1, 38, (1, 6)), torch.tensor([[39, 4, 5]])
    padded = torch.cat([torch.full((1, 3), 39), source], dim=1)
    logits = model(input_ids=padded, attention_mask=padded.ne(39).long(), decoder_input_ids=target).logits
    assert (logits - marian(input_ids=source, decoder_input_ids=target).logits).abs().max() < 1e-10


def test_the_mask_of_sources_is_inferred_as_in_marian():
    marian = tiny_marian()
    source, _ = a_batch(marian.config)
    expected = marian.generate(**source, max_length=20)
    assert torch.equal(from_marian(marian).generate(source["input_ids"], max_length=20), expected)


def test_mode_and_attention_kernel_are_kept():
    marian = tiny_marian()
    marian.set_attn_implementation("eager")
    model = from_marian(marian.train())
    assert model.training and model.config._attn_implementation == "eager"
    assert not to_marian(model.eval()).training


@pytest.mark.parametrize("word", [word for words in ACTIVATIONS.values() for word in words])
def test_feed_forwards_are_the_activation_functions_of_transformers(word):
    name = next(name for name, words in ACTIVATIONS.items() if word in words)
    x = torch.linspace(-9, 9, 1001, dtype=torch.float64)
    assert torch.equal(FEED_FORWARDS[name].activation(x), ACT2FN[word](x))


def test_every_field_of_our_configuration_is_thought_of():
    ours, theirs = ({field.name for field in fields(cls)} for cls in (VanillaTransformerConfig, PreTrainedConfig))
    own = ours - theirs
    considered = {*SHARED_FIELDS, *MARIAN_IS, "feed_forward", "output_bias"}
    assert own - considered <= {"rope_parameters", "is_encoder_decoder"}  # follow from `positions`, always true
    assert considered <= own


@pytest.mark.parametrize("word", ["gelu_new", "quick_gelu", "tanh"])
def test_other_activation_functions_are_refused(word):
    with pytest.raises(ValueError, match=f"activation_function={word!r}: expected one of relu, gelu, swish, silu"):
        from_marian(tiny_marian(activation_function=word))


def test_what_ours_cannot_be_is_refused_with_all_reasons_at_once():
    marian = tiny_marian(
        activation_function="gelu_new", d_model=15, encoder_attention_heads=3, decoder_attention_heads=3,
        static_position_embeddings=False, normalize_before=True, tie_word_embeddings=False,
    )  # fmt: skip
    reasons = ["gelu_new", "static_position_embeddings=False", "normalize_before=True", "d_model=15 is odd",
               "the embeddings of encoder and decoder differ"]  # fmt: skip
    with pytest.raises(ValueError) as error:
        from_marian(marian)
    for reason in reasons:
        assert reason in str(error.value)


def test_old_settings_with_the_usual_values_are_no_obstacle():
    from_marian(tiny_marian(static_position_embeddings=True, normalize_before=False, add_bias_logits=False))


def test_positions_that_are_no_sinusoids_are_refused():
    marian = tiny_marian()
    marian.model.decoder.embed_positions.weight[5, 3] += 0.02
    with pytest.raises(ValueError, match=r"the decoder's position table is 0\.02 away from the sinusoids"):
        from_marian(marian)


def test_shared_embeddings_with_a_separate_head():
    """transformers keeps three matrices for these settings: equal ones are shared, as `to_marian` makes them."""
    marian = to_marian(random_ours(tie_word_embeddings=False))
    model = from_marian(marian)
    assert model.config.share_encoder_decoder_embeddings
    assert torch.equal(marian.model.shared.weight, marian.model.encoder.embed_tokens.weight)
    assert model.model.encoder.embed_tokens.weight is model.model.decoder.embed_tokens.weight
    assert largest_difference(marian, model) < 1e-10


def test_layers_skipped_in_training_are_warned_of(warnings_of):
    marian = tiny_marian(encoder_layerdrop=0.2)
    assert largest_difference(marian, from_marian(marian)) < 1e-10
    assert any("encoder_layerdrop=0.2 is left out" in text for text in warnings_of())


@pytest.mark.parametrize(
    "choice, reason",
    [
        (dict(residual="pre"), "residual='pre': Marian has 'post' only"),
        (dict(norm="rmsnorm"), "norm='rmsnorm'"),
        (dict(norm_eps=1e-6), "norm_eps=1e-06: Marian has 1e-05 only"),
        (dict(positions="learned"), "positions='learned'"),
        (dict(positions="rotary"), "positions='rotary'"),
        (dict(positions="relative"), "positions='relative'"),
        (dict(positions="none"), "positions='none'"),
        (dict(feed_forward="swiglu"), "feed_forward='swiglu': Marian has relu, gelu, silu only"),
        (dict(attention_bias=False), "attention_bias=False"),
        (dict(bos_token_id=None), "decoder_start_token_id=None"),
        (
            dict(pad_token_id=45, decoder_vocab_size=40, share_encoder_decoder_embeddings=False),
            "pad_token_id=45: .* below 40",
        ),
    ],
    ids=lambda value: "-".join(map(str, value.items())) if isinstance(value, dict) else "",
)
def test_what_marian_cannot_be_is_refused(choice, reason):
    with pytest.raises(ValueError, match=reason):
        to_marian(tiny_model(**choice))


def test_all_that_marian_cannot_be_is_told_at_once():
    with pytest.raises(ValueError, match=r"residual='pre'.*attention_bias=False.*feed_forward='swiglu'"):
        to_marian(tiny_model(residual="pre", attention_bias=False, feed_forward="swiglu"))


def test_a_word_of_tomorrow_is_refused():
    model = tiny_model()
    model.config.__dict__["norm"] = "groupnorm"  # past the check of the word
    with pytest.raises(ValueError, match="norm='groupnorm': Marian has 'layernorm' only"):
        to_marian(model)


def test_other_models_are_refused(tmp_path):
    bart = BartForConditionalGeneration(
        BartConfig(vocab_size=20, d_model=8, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=8, decoder_ffn_dim=8,
                   encoder_attention_heads=1, decoder_attention_heads=1)
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"got a BartForConditionalGeneration .*'bart'.*expected a MarianMTModel"):
        from_marian(bart)
    bart.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="a model of type 'bart': expected 'marian'"):
        from_marian(tmp_path)
    with pytest.raises(ValueError, match=r"expected a VanillaTransformerForSeq2SeqLM \('vanilla_transformer'\)"):
        to_marian(tiny_marian())


# Checkpoints

OPUS_LEFTOVERS = dict(
    _num_labels=3, add_bias_logits=False, add_final_layer_norm=False, classif_dropout=0.0, extra_pos_embeddings=71,
    id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, normalize_before=False, normalize_embedding=False,
    num_hidden_layers=2, static_position_embeddings=True, max_length=20, num_beams=3, bad_words_ids=[[39]],
)  # fmt: skip


def test_an_old_checkpoint_with_everything_in_its_config(tmp_path):
    """As OPUS-MT was published: weights in a .bin file, which holds the positions too, and no generation config."""
    marian = tiny_marian(dtype=torch.float32)
    config = {key: value for key, value in marian.config.to_dict().items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps({**config, **OPUS_LEFTOVERS, "architectures": ["MarianMTModel"]}))
    torch.save(marian.state_dict(), tmp_path / "pytorch_model.bin")
    expected, model = MarianMTModel.from_pretrained(tmp_path).eval(), from_marian(tmp_path)
    assert expected.generation_config.bad_words_ids == [[39]] and expected.generation_config.num_beams == 3
    assert_same_tokens(expected, model)
    assert largest_difference(expected.double(), model.double()) < 1e-10
    assert not hasattr(model.config, "normalize_before")


@pytest.fixture
def opus(tmp_path):
    return marian_checkpoint(tmp_path / "opus")


def error_of(capsys, *arguments) -> str:
    assert main([str(argument) for argument in arguments]) == 1
    err = capsys.readouterr().err
    line = err.strip().splitlines()[-1]
    assert "Traceback" not in err and line.startswith("vanilla-transformer convert: error: ")
    return line


def test_convert_makes_a_folder_that_translates(opus, tmp_path, capsys):
    folder = tmp_path / "deep" / "ours"
    assert main(["convert", str(opus), "-o", str(folder)]) == 0
    assert "VanillaTransformerForSeq2SeqLM of " in capsys.readouterr().out
    assert not list(tmp_path.rglob("tmp-*"))

    marian, tokenizer = MarianMTModel.from_pretrained(opus).eval(), MarianTokenizer.from_pretrained(opus)
    converted = AutoTokenizer.from_pretrained(folder)
    assert isinstance(converted, MarianTokenizer)
    batch = tokenizer(ENGLISH, padding=True, return_tensors="pt")
    assert converted(ENGLISH, padding=True)["input_ids"] == batch["input_ids"].tolist()
    expected = tokenizer.batch_decode(marian.generate(**batch), skip_special_tokens=True)
    assert len(set(expected)) > 1

    translator = pipeline("translation", model=str(folder))
    assert [answer["translation_text"] for answer in translator(ENGLISH)] == expected
    assert [translation.text for translation in load_translator(folder)(ENGLISH)] == expected
    source, output = tmp_path / "text.en", tmp_path / "text.fr"
    source.write_text("".join(f"{line}\n" for line in ENGLISH), encoding="utf-8")
    assert main(["translate", str(folder), str(source), "-o", str(output)]) == 0
    assert output.read_text(encoding="utf-8").splitlines() == expected


def test_a_converted_folder_loads_without_the_package(opus, tmp_path):
    model = convert(opus, tmp_path / "ours")
    tokenizer = AutoTokenizer.from_pretrained(opus)
    expected = model.generate(**tokenizer(ENGLISH[:2], padding=True, return_tensors="pt")).tolist()
    code = (
        "import json\n"
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer\n"
        "tokenizer = AutoTokenizer.from_pretrained('ours', trust_remote_code=True)\n"
        "model = AutoModelForSeq2SeqLM.from_pretrained('ours', trust_remote_code=True)\n"
        f"batch = tokenizer({ENGLISH[:2]!r}, padding=True, return_tensors='pt')\n"
        "print(json.dumps(model.generate(**batch).tolist()))"
    )
    assert json.loads(run_python(code, tmp_path, without_package=True).splitlines()[-1]) == expected


def test_two_vocabularies_with_their_tokenizer(tmp_path):
    tokenizer = marian_tokenizer(tmp_path / "opus", separate_vocabs=True)
    size = len(tokenizer.target_encoder)
    assert tokenizer.encoder != tokenizer.target_encoder and len(tokenizer.encoder) == size
    marian = tiny_marian(dtype=torch.float32, vocab_size=size, share_encoder_decoder_embeddings=False)
    marian.save_pretrained(tmp_path / "opus")
    tokenizer.save_pretrained(tmp_path / "opus")
    convert(tmp_path / "opus", tmp_path / "ours")
    batch = tokenizer(ENGLISH, padding=True, return_tensors="pt")
    expected = tokenizer.batch_decode(marian.generate(**batch), skip_special_tokens=True)
    assert [translation.text for translation in load_translator(tmp_path / "ours")(ENGLISH)] == expected


def test_convert_and_back_is_the_same_model(opus, tmp_path):
    convert(opus, tmp_path / "ours")
    assert main(["convert", str(tmp_path / "ours"), "-o", str(tmp_path / "back"), "--to", "marian"]) == 0
    assert_bit_equal(MarianMTModel.from_pretrained(opus), MarianMTModel.from_pretrained(tmp_path / "back"))
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path / "back"), MarianTokenizer)


def test_a_marian_model_is_trained_further_and_goes_back(opus, parallel_files, tmp_path):
    """With the settings that its checkpoint has for `generate`, and its own tokenizer."""
    convert(opus, tmp_path / "ours")
    source, target = parallel_files
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f"corpus: {{train: [{source}, {target}], validation: [{source}, {target}]}}\n"
        "training: {max_steps: 2, eval_steps: 2, eval_pairs: 2, warmup_steps: 1, max_tokens: 256}\n"
    )
    train = ["train", str(recipe), "-o", str(tmp_path / "run"), "--from", str(tmp_path / "ours")]
    assert main([*train, "--set", "model=null", "--set", "tokenizer=null"]) == 0
    convert(tmp_path / "run" / "model", tmp_path / "tuned", to="marian")
    before, after = MarianMTModel.from_pretrained(opus), MarianMTModel.from_pretrained(tmp_path / "tuned")
    assert not torch.equal(before.model.shared.weight, after.model.shared.weight)
    assert before.config.to_dict().keys() <= after.config.to_dict().keys()
    assert after.generation_config.bad_words_ids == before.generation_config.bad_words_ids
    assert after.generation_config.forced_eos_token_id == 0
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path / "tuned"), MarianTokenizer)


def test_our_own_model_as_marian_translates_the_same(model_dir, tmp_path):
    """With the byte-level tokenizer, which no MarianTokenizer is; also where this package is not installed."""
    convert(model_dir, tmp_path / "marian", to="marian")
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(model_dir), AutoTokenizer.from_pretrained(model_dir)
    batch = tokenizer(ENGLISH[:3], padding=True, return_tensors="pt")
    expected = tokenizer.batch_decode(model.generate(**batch, max_length=20), skip_special_tokens=True)
    code = (
        "import json\n"
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer\n"
        "tokenizer = AutoTokenizer.from_pretrained('marian')\n"
        "model = AutoModelForSeq2SeqLM.from_pretrained('marian')\n"
        f"batch = tokenizer({ENGLISH[:3]!r}, padding=True, return_tensors='pt')\n"
        "texts = tokenizer.batch_decode(model.generate(**batch, max_length=20), skip_special_tokens=True)\n"
        "print(json.dumps([type(model).__name__, texts]))"
    )
    for without_package in (True, False):
        start = "" if without_package else "import vanilla_transformer\n"
        out = run_python(start + code, tmp_path, without_package=without_package)
        assert json.loads(out.splitlines()[-1]) == ["MarianMTModel", expected]


def test_output_that_exists_is_replaced_on_request_only(opus, tmp_path, capsys):
    folder = tmp_path / "ours"
    convert(opus, folder)
    (folder / "precious").write_text("")
    assert "exists: replace it with --overwrite" in error_of(capsys, "convert", opus, "-o", folder)
    assert (folder / "precious").exists()
    assert main(["convert", str(opus), "-o", str(folder), "--overwrite"]) == 0
    assert not (folder / "precious").exists() and (folder / "config.json").exists()


@pytest.mark.parametrize("more", [".git", "checkpoint-4"])
def test_a_folder_that_holds_more_than_a_model_is_not_replaced(more, opus, tmp_path, capsys):
    folder = tmp_path / "ours"
    convert(opus, folder)
    (folder / more).mkdir()
    error = error_of(capsys, "convert", opus, "-o", folder, "--overwrite")
    assert f"holds more than a model ({more}): choose another folder" in error and (folder / more).exists()


def test_translations_keep_the_spaces_that_their_tokenizer_would_clean_up(opus, monkeypatch):
    """Such as opus-mt of 2023: the words of "Oui ? Non" are three, by which alignments number them, and "?" is one."""
    translator = load_translator(opus)
    tokenizer, model = translator.tokenizer, translator.model
    tokenizer.clean_up_tokenization_spaces = True
    text = FRENCH[0].replace(".", " .")
    said = tokenizer(text_target=[text])["input_ids"][0]
    assert tokenizer.decode(said, skip_special_tokens=True) == FRENCH[0]
    output = torch.tensor([[model.config.decoder_start_token_id, *said]])
    monkeypatch.setattr(model, "generate", lambda **_: output)
    assert translator(ENGLISH[:1], num_beams=1)[0].text == text


def test_what_stands_beside_the_output_stays(opus, tmp_path):
    (tmp_path / "tmp-ours").mkdir()
    (tmp_path / "tmp-ours" / "thesis.tex").write_text("")
    convert(opus, tmp_path / "ours")
    assert (tmp_path / "tmp-ours" / "thesis.tex").exists()
    assert {path.name for path in tmp_path.iterdir()} >= {"ours", "tmp-ours"}
    assert not list(tmp_path.glob("tmp-ours-*"))


def test_a_folder_that_holds_no_model_or_the_source_is_never_replaced(opus, tmp_path, capsys):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("")
    for output, message in [
        (tmp_path / "home", "holds something that is no model"),
        (tmp_path / "home" / "letter", "is a file"),
        (opus, "holds the source itself"),
        (tmp_path, "holds the source itself"),
    ]:
        assert message in error_of(capsys, "convert", opus, "-o", output, "--overwrite")
    assert (tmp_path / "home" / "letter").exists() and (opus / "model.safetensors").exists()


def test_what_cannot_be_converted_leaves_the_output_alone(opus, tmp_path, capsys):
    folder = tmp_path / "ours"
    convert(opus, folder)
    weights = (folder / "model.safetensors").read_bytes()
    broken = marian_checkpoint(tmp_path / "broken", activation_function="gelu_new")
    assert "gelu_new" in error_of(capsys, "convert", broken, "-o", folder, "--overwrite")
    assert (folder / "model.safetensors").read_bytes() == weights


def test_mistakes_are_told_in_a_line(opus, model_dir, tmp_path, capsys):
    def error(source, *options):
        return error_of(capsys, "convert", source, "-o", tmp_path / "out", *options)

    assert "'vanilla_transformer': expected 'marian'" in error(model_dir)
    assert "'marian': expected 'vanilla_transformer'" in error(opus, "--to", "marian")
    assert "does not exist" in error(tmp_path / "nowhere")
    assert "has no config.json" in error(tmp_path)
    assert "the Hub gives no such model" in error("Helsinki-NLP/opus-mt-xx-yy")
    BertConfig().save_pretrained(tmp_path / "bert")
    assert "a model of type 'bert'" in error(tmp_path / "bert")
    weights = opus / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert "the weights in" in error(opus)
    weights.unlink()
    tiny_marian().save_pretrained(opus)
    for file in ("source.spm", "target.spm", "vocab.json"):
        (opus / file).unlink()
    assert "lacks files" in error(opus)
    (opus / "tokenizer_config.json").unlink()
    assert "has a model but no tokenizer" in error(opus)
    assert not (tmp_path / "out").exists()


def test_a_missing_sentencepiece_names_its_extra(opus, tmp_path):
    code = (
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "PathFinder.find_spec = lambda name, *more: None if name == 'sentencepiece' else find(name, *more)\n"
        "from vanilla_transformer.cli import main\n"
        "sys.stderr = sys.stdout\n"
        f"print(main(['convert', {str(opus)!r}, '-o', 'out']))"
    )
    out = run_python(code, tmp_path)
    assert "needs SentencePiece: pip install" in out and out.splitlines()[-1] == "1"
