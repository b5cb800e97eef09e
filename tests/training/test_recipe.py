from dataclasses import replace

import pytest
import torch

from vanilla_transformer import VanillaTransformerForSeq2SeqLM
from vanilla_transformer.training.recipe import Recipe, expand, load_recipe, recipe_names


def test_all_shipped_recipes_are_valid():
    assert {"phrasebook", "copy", "multi30k-en-de", "multi30k-en-fr"} <= set(recipe_names())
    for name in recipe_names():
        assert isinstance(load_recipe(name), Recipe)


@pytest.mark.parametrize("name, millions", [("multi30k-en-de", 4), ("multi30k-en-de-best", 8)])
def test_recipes_of_multi30k_are_as_small_as_they_say(name, millions):
    for other in (name, name.replace("-de", "-fr")):
        with torch.device("meta"):
            recipe = load_recipe(other)
            model = VanillaTransformerForSeq2SeqLM(recipe.model_config(recipe.tokenizer.vocab_size))
        assert (millions - 2) * 1e6 < model.num_parameters() <= millions * 1e6


def test_settings_change_a_recipe_and_have_the_fields_types():
    recipe = load_recipe("copy", ["training.max_steps=7", "training.learning_rate=3e-4", "model.dropout=0.2"])
    assert recipe.training.max_steps == 7
    assert recipe.training.learning_rate == 3e-4  # YAML reads 3e-4 as text
    assert recipe.model_config(300).dropout == 0.2


def test_settings_reach_keys_below_keys():
    usual = load_recipe("multi30k-en-fr-best")
    changed = load_recipe("multi30k-en-fr-best", ["diversification.training.source_dropout=0.1"])
    assert (changed.training, changed.model) == (usual.training, usual.model)
    assert changed.teacher().training == replace(usual.teacher().training, source_dropout=0.1)
    sizes = ["corpus.sizes={train: 9, validation: 8}", "corpus.sizes.train=50"]
    assert load_recipe("copy", sizes).corpus.sizes == {"train": 50, "validation": 8}


def test_ones_own_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("corpus: {name: reverse}\ntraining: {max_steps: 3, warmup_steps: 10}\n")
    recipe = load_recipe(str(tmp_path / "mine.yaml"), ["model=null"])
    assert (recipe.corpus.name, recipe.training.max_steps, recipe.model) == ("reverse", 3, None)


@pytest.mark.parametrize(
    "setting, message",
    [
        ("training.max_step=3", "'training.max_step': did you mean 'training.max_steps'"),
        ("trainig.max_steps=3", "'trainig': did you mean 'training'"),
        ("model.d_modle=64", "'model.d_modle': did you mean 'model.d_model'"),
        ("corpus.foo=1", "unknown key 'corpus.foo': expected one of config_name"),
        ("training.max_steps=many", "training.max_steps: got 'many', expected int"),
        ("training.max_steps=1e400", "training.max_steps: got inf, expected int"),
        ("training.max_steps=1e", "training.max_steps: got '1e', expected int"),
        ("training.bf16=7", "training.bf16: got 7, expected one of True, False, auto"),
        ("training.learning_rate=fast", "training.learning_rate: got 'fast', expected float"),
        ("training.lr_scheduler_type=steep", "got 'steep', expected one of inverse_sqrt, linear, cosine"),
        ("training.decay_steps=9", "decay_steps=9 is read by lr_scheduler_type=linear and cosine, and inverse_sqrt"),
        (
            "training={lr_scheduler_type: linear, decay_steps: 8, max_steps: 9}",
            "decay_steps=8 is less than max_steps=9",
        ),
        ("training={lr_scheduler_type: cosine, decay_steps: 8, num_train_epochs: 9}", "decay_steps=8 counts updates"),
        ("training.max_steps=-3", "max_steps=-3: expected a positive number"),
        ("training.num_train_epochs=2", "either max_steps or num_train_epochs, and not both"),
        ("training.label_smoothing=1.0", r"label_smoothing=1.0: expected a number in \[0, 1\)"),
        ("training.source_dropout=1.0", r"source_dropout=1.0: expected a number in \[0, 1\)"),
        ("corpus.max_length=99999", "corpus.max_length=99999 exceeds training.max_tokens"),
        ("model={positions: learned, max_position_embeddings: 9}", "exceeds model.max_position_embeddings=9, where"),
        ("corpus.name=files", "corpus.train is missing; corpus.validation is missing"),
        ("training", "expected section.key=value"),
        ("model.preset=huge", "unknown preset 'huge'"),
        ("training.max_steps=[1", r"--set training.max_steps=\[1 is no YAML"),
        ("corpus.sizes={train:200,validation:20}", "corpus.sizes.train:200"),
        ("corpus.sizes={trian: 5}", "did you mean 'corpus.sizes.train'"),
        ("corpus.sizes={train: 0}", "corpus.sizes.train=0: expected a whole number of pairs"),
        ("corpus.sizes={train: a}", "corpus.sizes.train='a'"),
        ("corpus.train=[a, b]", "corpus.train is set, but corpus.name=copy brings its own pairs"),
        ("corpus.max_pairs=5", "corpus.max_pairs is set, but corpus.name=copy brings its own pairs"),
        ("corpus.train=[1, 2]", "corpus.train: got .*expected a list of names"),
        ("model.vocab_size=5", "model.vocab_size is decided by the tokenizer"),
        ("model.eos_token_id=5", "model.eos_token_id is decided by the tokenizer"),
        ("model.share_encoder_decoder_embeddings=false", "one joint vocabulary only"),
        ("model=tiny", r"model: got 'tiny', expected keys and values, such as {preset: tiny}"),
        ("training.adam_beta1=2", r"adam_beta1=2.0: expected a number in \[0, 1\)"),
        ("training.seed=-1", "training.seed=-1"),
        ("training.learning_rate=.nan", "learning_rate=nan: expected a positive number"),
        ("decoding.length_penalty=.inf", "length_penalty=inf: expected a finite number"),
        ("training.r_drop_after=5", "r_drop_after=5 is read with training.r_drop only, which is 0: set it too"),
        ("training.r_drop_after=-1", "r_drop_after=-1: expected an update of training, 0 to max_steps - 1"),
        ("training={r_drop: 5, r_drop_after: 9, max_steps: 9}", "r_drop_after=9: expected an update of training"),
        ("training=5", "training: got 5, expected keys and values"),
        ("training={max_steps: 5, max_steps: 7}", "'max_steps' stands there twice, line 1"),
        ("decoding.max_length=1", "max_length=1 of decoding has room for the start token alone"),
        ("corpus.side=source", "corpus.side=source is for language models"),
        ("tokenizer={path: a, vocab_size: 500}", r"path=a names one: give tokenizer={path: a} alone"),
        ("model.dtype=float16", "unknown key 'model.dtype'"),
        ("model.id2label=x", "unknown key 'model.id2label'"),
        ("model.size_fields=x", "unknown key 'model.size_fields'"),
        ("model.num_hidden_layers=2", "of the encoder alone: give model.encoder_layers and model.decoder_layers"),
        ("model.num_attention_heads=2", "give model.encoder_attention_heads and model.decoder_attention_heads"),
        ("model.preset=[tiny]", r"model.preset: got \['tiny'\], expected one of tiny"),
        ("tokenizer.vocab_size=0", "tokenizer: got vocab_size=0, expected at least 259"),
        ("decoding={num_beams: 1, length_penalty: 2}", "ranks the beams of a search, and num_beams=1 has none"),
        ("training.max_steps.more=3", "training.max_steps is [0-9]+, expected keys and values"),
        ("corpus.sizes.trian=5", "did you mean 'corpus.sizes.train'"),
        ("training.max_steps=1.5", "training.max_steps: got 1.5, expected int"),
    ],
)
def test_clear_errors(setting, message):
    with pytest.raises(ValueError, match=message):
        load_recipe("copy", [setting])


def test_a_model_that_contradicts_itself():
    """And all else that is wrong, in one error."""
    message = "training.seed=-1.*d_model=100 is not divisible by encoder_attention_heads=8"
    with pytest.raises(ValueError, match=message):
        load_recipe("copy", ["model.d_model=100", "model.encoder_attention_heads=8", "training.seed=-1"])


def test_unknown_recipe_suggests_the_nearest():
    with pytest.raises(FileNotFoundError, match=r"no recipe 'multi30k-en-d'.*did you mean 'multi30k-en-de'"):
        load_recipe("multi30k-en-d")


def test_a_file_that_is_no_recipe(tmp_path):
    (tmp_path / "list.yaml").write_text("- a\n")
    with pytest.raises(ValueError, match="is no recipe"):
        load_recipe(str(tmp_path / "list.yaml"))


def test_variables_in_paths(monkeypatch):
    monkeypatch.setenv("SOMEWHERE", "/data")
    assert expand("$SOMEWHERE/a") == "/data/a"
    monkeypatch.delenv("SOMEWHERE")
    with pytest.raises(ValueError, match=r"variable is not set: export it, or .* --set corpus.folder=DIR"):
        expand("$SOMEWHERE/a")


def test_whole_numbers_in_scientific_notation():
    for number in ("1e4", "1E4", "1e+4"):
        assert load_recipe("copy", [f"training.max_tokens={number}"]).training.max_tokens == 10_000


def test_fractions_in_scientific_notation_are_no_text_in_the_model_either():
    """YAML 1.1 has them as text where there is no point in them."""
    turned = "model={positions: rotary, norm_eps: 1e-6, rope_parameters: {rope_type: default, rope_theta: 1e6}}"
    config = load_recipe("copy", [turned]).model_config(500)
    assert (config.norm_eps, config.rope_parameters["rope_theta"]) == (1e-6, 1e6)


def test_files_that_are_no_yaml_or_no_utf8(tmp_path):
    (tmp_path / "broken.yaml").write_text("corpus: [1, 2\n")
    with pytest.raises(ValueError, match=r"broken.yaml is no YAML: .*line"):
        load_recipe(str(tmp_path / "broken.yaml"))
    (tmp_path / "latin.yaml").write_bytes("# é\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"latin.yaml, line 1 is not UTF-8"):
        load_recipe(str(tmp_path / "latin.yaml"))
