"""Models that know many languages read and say those that they are told, and are not left to guess."""

import copy
from types import SimpleNamespace

import pytest
from foreign_models import ARCHITECTURES
from tiny import tiny_model

from vanilla_transformer.cli import main
from vanilla_transformer.inspection import collect_attention
from vanilla_transformer.model.language_tokens import token_of
from vanilla_transformer.translation import load_translator
from vanilla_transformer.translation.languages import set_languages

TEXT = "the dog"


@pytest.fixture(scope="module", params=["m2m100", "nllb", "mbart"])
def many(request, tmp_path_factory):
    """An architecture, and the folder of such a model, untrained."""
    folder = tmp_path_factory.mktemp(request.param)
    architecture = ARCHITECTURES[request.param]
    model, tokenizer = architecture.build(folder)
    model.generation_config.max_length = 20
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return architecture, folder


def test_languages_are_those_of_the_pipeline(many):
    """Source tokens and the first token of the translation."""
    architecture, folder = many
    for target in (architecture.target, architecture.other_target):
        translator = load_translator(folder, src_lang=architecture.source, tgt_lang=target)
        build = translator.tokenizer._build_translation_inputs
        wanted = build(TEXT, return_tensors=None, src_lang=architecture.source, tgt_lang=target)
        assert translator.encode([TEXT]) == [wanted["input_ids"]]
        for beams in (1, 2):
            assert translator([TEXT], num_beams=beams)[0].tokens[0] == wanted["forced_bos_token_id"]


def test_what_it_is_not_told_is_asked_for(many):
    architecture, folder = many
    with pytest.raises(ValueError, match=f"--src-lang {load_source(architecture, folder)} --tgt-lang"):
        load_translator(folder)
    with pytest.raises(ValueError, match="no language 'xx'"):
        load_translator(folder, tgt_lang="xx")
    with pytest.raises(ValueError, match=f"no language '{architecture.source}x'.* such as .*{architecture.source}"):
        load_translator(folder, src_lang=f"{architecture.source}x", tgt_lang=architecture.target)


def load_source(architecture, folder) -> str:
    """What such a tokenizer takes for the source where nobody says it."""
    return load_translator(folder, tgt_lang=architecture.target).tokenizer.src_lang


def test_a_model_that_was_saved_for_one_language_needs_no_telling(many, tmp_path):
    architecture, folder = many
    translator = load_translator(folder, src_lang=architecture.source, tgt_lang=architecture.target)
    for part in (translator.model, translator.tokenizer):
        part.save_pretrained(tmp_path)
    assert load_translator(tmp_path)([TEXT])[0].tokens == translator([TEXT])[0].tokens


def test_a_translation_that_is_given_is_of_the_language_that_the_model_says(many, tmp_path):
    """Only the model was saved with it; transformers would take the source's for that of a target, or fail."""
    architecture, folder = many
    translator = load_translator(folder, src_lang=architecture.source, tgt_lang=architecture.target)
    expected = collect_attention(translator.model, translator.tokenizer, TEXT, TEXT).next_tokens
    translator.model.save_pretrained(tmp_path)
    translator.tokenizer.tgt_lang = None
    translator.tokenizer.save_pretrained(tmp_path)
    loaded = load_translator(tmp_path, src_lang=architecture.source)
    assert loaded.tokenizer.tgt_lang == architecture.target
    assert collect_attention(loaded.model, loaded.tokenizer, TEXT, TEXT).next_tokens == expected


def test_a_language_by_the_name_of_its_token(tmp_path):
    model, tokenizer = ARCHITECTURES["m2m100"].build(tmp_path)
    set_languages(model, tokenizer, "__en__", "__fr__")
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == ("en", "fr")
    assert model.generation_config.forced_bos_token_id == tokenizer.convert_tokens_to_ids("__fr__")


def test_a_model_of_one_language_refuses_them(model_dir):
    with pytest.raises(ValueError, match=r"knows none.* leave --src-lang and --tgt-lang out"):
        load_translator(model_dir, tgt_lang="fr")


def test_names_of_languages_without_tokens_are_those_of_one_pair(tokenizer):
    """FSMT's tokenizer knows what they are called, and its model translates between these two."""
    model, named = tiny_model(vocab_size=len(tokenizer)), copy.deepcopy(tokenizer)
    named.src_lang, named.tgt_lang = "en", "fr"
    set_languages(model, named, None, None)
    assert model.generation_config.forced_bos_token_id is None
    with pytest.raises(ValueError, match="knows none"):
        set_languages(model, named, "en", "fr")


def test_a_model_that_begins_with_its_language_needs_no_telling(tmp_path):
    """mBART of one pair, such as facebook/mbart-large-en-ro."""
    model, tokenizer = ARCHITECTURES["mbart"].build(tmp_path)
    model.generation_config.decoder_start_token_id = tokenizer.convert_tokens_to_ids("ro_RO")
    set_languages(model, tokenizer, None, None)
    assert model.generation_config.forced_bos_token_id is None


def test_names_of_languages_are_no_words(many):
    """Of alignments and attention maps."""
    architecture, folder = many
    translator = load_translator(folder, src_lang=architecture.source, tgt_lang=architecture.target)
    assert len(translator.align([(TEXT, TEXT)])[0]) <= 2 * 2
    assert collect_attention(translator.model, translator.tokenizer, TEXT, TEXT).cross.ndim == 4


def test_the_commands(many, tmp_path, capsys):
    architecture, folder = many
    told = ["--src-lang", architecture.source, "--tgt-lang", architecture.target, "--threads", "1"]
    source, output, page = (tmp_path / name for name in ("a.txt", "b.txt", "c.json"))
    source.write_text(f"{TEXT}\n", encoding="utf-8")
    assert main(["translate", str(folder), str(source), "-o", str(output), *told]) == 0
    translator = load_translator(folder, src_lang=architecture.source, tgt_lang=architecture.target)
    assert output.read_text("utf-8") == translator([TEXT])[0].text + "\n"
    assert main(["evaluate", str(folder), str(source), str(source), "--json", str(page), *told]) == 0
    assert f'"tgt_lang": "{architecture.target}"' in page.read_text("utf-8")
    capsys.readouterr()
    assert main(["translate", str(folder), str(source)]) == 1
    assert "name them, such as --src-lang" in capsys.readouterr().err


def test_a_model_that_is_told_in_words_says_so(tmp_path, caplog):
    """T5 reads its task before each source."""
    model, tokenizer = ARCHITECTURES["t5"].build(tmp_path)
    model.config.task_specific_params = {
        "summarization": {"prefix": "summarize: "},
        "translation_en_to_de": {"prefix": "translate English to German: "},
    }
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    load_translator(tmp_path)
    assert "'translate English to German: '" in caplog.text and "pipeline('translation_en_to_de')" in caplog.text
    with pytest.raises(ValueError, match=r"got the languages en and de.* begin with a task, such as 'translate Engl"):
        load_translator(tmp_path, src_lang="en", tgt_lang="de")
    caplog.clear()
    model.config.task_specific_params = None
    model.save_pretrained(tmp_path)
    load_translator(tmp_path)
    assert "task" not in caplog.text


def test_a_marian_of_many_languages_is_told_by_its_sources(tmp_path, caplog):
    """As opus-mt-en-ROMANCE is."""
    model, tokenizer = ARCHITECTURES["marian"].build(tmp_path)
    set_languages(model, tokenizer, None, None)
    assert not caplog.text
    tokenizer.supported_language_codes = [">>fra<<", ">>ita<<"]
    set_languages(model, tokenizer, None, None)
    assert "which language is wanted by what they begin with, such as '>>fra<<'" in caplog.text
    with pytest.raises(ValueError, match=r"got the languages None and fr, .*'>>fra<<'.*leave --src-lang"):
        set_languages(model, tokenizer, None, "fr")


@pytest.mark.parametrize(
    ("special", "added", "language", "token"),
    [
        (["<s>", "__python__", "__en_XX__"], {}, "python", "__python__"),  # PLBart
        (["<s>", "__eng__", "__fra__"], {}, "fra", "__fra__"),  # SeamlessM4T
        (["<s>", "<mine>"], {"eng_Latn": 5, "fra_Latn": 6}, "fra_Latn", "fra_Latn"),  # NLLB, a user's own token added
    ],
)
def test_languages_by_the_names_that_tokenizers_have_for_them(special, added, language, token):
    tokenizer = SimpleNamespace(all_special_tokens=special, get_added_vocab=lambda: added)
    assert token_of(tokenizer, language) == token
    with pytest.raises(ValueError, match=f"no language '{language}e', but 2, such as .*{language}"):
        token_of(tokenizer, f"{language}e")
