"""Folders in, text out: the same text as the pipeline's, without torch; and what is told of folders that are none."""

import json
import runpy
import shutil
import sys

import numpy as np
import pytest
import torch
from both import randomised
from family import build
from tiny import ENGLISH, ROOT, run_python
from transformers import pipeline

from vanilla_transformer.reference import NumpyTransformer
from vanilla_transformer.reference.__main__ import main


def edited(folder, target, **fields):
    """A copy of a checkpoint with other values in its config.json; `None` drops a field."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text("utf-8")) | fields
    config = {name: value for name, value in config.items() if value is not None}
    (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return target


def test_text_is_the_pipelines(model_dir):
    translator, model = pipeline("translation", model=str(model_dir)), NumpyTransformer.from_pretrained(model_dir)
    for text in [*ENGLISH[:3], "</s> \u00e9t\u00e9 <pad>", " ", "e\u0301 \N{GRINNING FACE}"]:
        assert model.translate(text) == translator(text)[0]["translation_text"]


def test_added_tokens_are_their_own_text(model_dir, tmp_path):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(model_dir), AutoModelForSeq2SeqLM.from_pretrained(model_dir)
    tokenizer.add_tokens(["\u00e9l\u00e8ve"])
    model.resize_token_embeddings(len(tokenizer))
    with torch.no_grad():
        model.get_input_embeddings().weight[-1] = 3 * model.get_input_embeddings().weight[40]
    model.save_pretrained(tmp_path), tokenizer.save_pretrained(tmp_path)
    expected = pipeline("translation", model=str(tmp_path))("The \u00e9l\u00e8ve")[0]["translation_text"]
    assert "\u00e9l\u00e8ve" in expected
    assert NumpyTransformer.from_pretrained(tmp_path).translate("The \u00e9l\u00e8ve") == expected


def test_command(model_dir, capsys, monkeypatch):
    expected = pipeline("translation", model=str(model_dir))(ENGLISH[0])[0]["translation_text"]
    monkeypatch.delitem(sys.modules, "vanilla_transformer.reference.__main__")  # to be run, not imported
    monkeypatch.setattr(sys, "argv", ["reference", str(model_dir), ENGLISH[0]])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("vanilla_transformer.reference", run_name="__main__")
    assert end.value.code == 0 and capsys.readouterr().out == expected + "\n"


def test_a_copy_of_the_folder_runs_without_torch_and_transformers(model_dir, tmp_path):
    expected = pipeline("translation", model=str(model_dir))(ENGLISH[0])[0]["translation_text"]
    shutil.copytree(ROOT / "vanilla_transformer" / "reference", tmp_path / "oracle")
    code = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "sys.path.insert(0, '.')\n"
        "from oracle.__main__ import main\n"
        "sys.stdout.reconfigure(encoding='utf-8')\n"
        f"sys.exit(main([{str(model_dir)!r}, {ENGLISH[0]!r}]))"
    )
    assert run_python(code, tmp_path, without_package=True, PYTHONIOENCODING="utf-8") == expected + "\n"


def test_command_goes_on_with_a_text(tokenizer, tmp_path, capsys):
    model = randomised(build("decoder-only", vocab_size=len(tokenizer)))
    model.save_pretrained(tmp_path), tokenizer.save_pretrained(tmp_path)
    ids = tokenizer("The old", add_special_tokens=False, return_tensors="pt")["input_ids"]
    expected = tokenizer.decode(model.generate(ids, max_new_tokens=50, do_sample=False)[0], skip_special_tokens=True)
    assert main([str(tmp_path), "The old"]) == 0
    assert capsys.readouterr().out == expected + "\n" and expected.startswith("The old")
    assert main([str(tmp_path), ""]) == 1
    assert "nothing to go on with" in capsys.readouterr().err


def test_command_explains_itself(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0 and "python -m vanilla_transformer.reference" in capsys.readouterr().out


def said_of(folder, capsys, text="a") -> str:
    assert main([str(folder), text]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    return said


def test_what_is_told_of_folders_that_are_none(model_dir, tmp_path, capsys):
    assert "nowhere is no checkpoint: it has no config.json" in said_of(tmp_path / "nowhere", capsys)
    for missing in ("model.safetensors", "tokenizer.json"):
        folder = edited(model_dir, tmp_path / missing)
        (folder / missing).unlink()
        assert f"has no {missing}" in said_of(folder, capsys)
    folder = edited(model_dir, tmp_path / "damaged")
    (folder / "model.safetensors").write_bytes(b"12345678")
    assert "is damaged" in said_of(folder, capsys)
    folder = edited(model_dir, tmp_path / "no tokens")
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")
    assert "tokenizer.json is no JSON" in said_of(folder, capsys)
    folder = edited(model_dir, tmp_path / "list")
    (folder / "config.json").write_text("[]", encoding="utf-8")
    assert "holds a list" in said_of(folder, capsys)
    (folder / "config.json").write_text("{", encoding="utf-8")
    assert "config.json is no JSON" in said_of(folder, capsys)
    assert "surrogates" in said_of(model_dir, capsys, "a \ud800")


def test_all_that_is_unknown_in_a_configuration_is_told_at_once(model_dir, tmp_path):
    edited(model_dir, tmp_path / "a", residual="sandwich", norm="batchnorm", positions="rotary", d_model=None)
    with pytest.raises(ValueError) as told:
        NumpyTransformer.from_pretrained(tmp_path / "a")
    for part in (
        "residual='sandwich', expected one of post, pre",
        "norm='batchnorm'",
        "rope_parameters=",
        "d_model is",
    ):
        assert part in str(told.value)
    edited(model_dir, tmp_path / "b", model_type="marian")
    with pytest.raises(ValueError, match=r"model_type='marian', expected one of vanilla_transformer, .*_encoder"):
        NumpyTransformer.from_pretrained(tmp_path / "b")


def test_weights_that_do_not_fit_are_told_at_once(model_dir, tmp_path):
    edited(model_dir, tmp_path / "a", encoder_ffn_dim=31, decoder_layers=1, output_bias=True)
    with pytest.raises(ValueError) as told:
        NumpyTransformer.from_pretrained(tmp_path / "a")
    for part in (
        "encoder.layers.1.feed_forward.fc1.weight is (32, 16), expected (31, 16)",
        "decoder.layers.1.cross_attn.k_proj.bias is unknown",
        "lm_head.bias is missing",
    ):
        assert part in str(told.value)


def test_early_checkpoints_lack_some_fields(model_dir, tmp_path):
    early = edited(model_dir, tmp_path / "a", attention_bias=None, scale_embedding=None)
    given = [[5, 6, 7]], None, [[1, 8]]
    expected = NumpyTransformer.from_pretrained(model_dir)(*given)
    assert (NumpyTransformer.from_pretrained(early)(*given) == expected).all()


def test_settings_of_a_search_that_are_unknown_are_told(model_dir, tmp_path, capsys):
    folder = edited(model_dir, tmp_path / "a")
    settings = {"num_beams": 2, "no_repeat_ngram_size": 3, "bad_words_ids": [[7]], "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    assert "unknown settings no_repeat_ngram_size=3, bad_words_ids=[[7]]" in said_of(folder, capsys)
    notes = {"num_beams": 1, "alignment_heads": [[2, 3]], "alignment_shifted": True}  # as training leaves them
    (folder / "generation_config.json").write_text(json.dumps(notes), encoding="utf-8")
    assert main([str(folder), ENGLISH[0]]) == 0
    capsys.readouterr()
    (folder / "generation_config.json").unlink()  # the search of the paper is that of our models
    assert main([str(folder), ENGLISH[0]]) == 0
    expected = NumpyTransformer.from_pretrained(model_dir).translate(ENGLISH[0])
    assert capsys.readouterr().out == expected + "\n"


@pytest.mark.parametrize("architecture", ["decoder-only", "encoder-only"])
def test_models_that_do_not_translate(architecture, tmp_path):
    build(architecture).save_pretrained(tmp_path)
    model = NumpyTransformer.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="only vanilla_transformer translates"):
        model.translate("a")
    if architecture == "encoder-only":
        with pytest.raises(ValueError, match="neither translates nor continues"):
            model.search([1])


def test_what_is_no_batch(model_dir):
    model = NumpyTransformer.from_pretrained(model_dir)
    for ids in ([1, 2], [[]], [[0.5]], None):
        with pytest.raises(ValueError, match="got ids of shape"):
            model(ids)
    with pytest.raises(ValueError, match="mask of shape"):
        model([[1, 2]], [[1]])
    with pytest.raises(ValueError, match=r"expected numpy\.float64 or numpy\.float32"):
        NumpyTransformer.from_pretrained(model_dir, np.float16)
