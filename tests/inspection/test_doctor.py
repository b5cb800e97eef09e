"""The doctor finds nothing wrong with sound models, and something wrong with each that was broken on purpose."""

import json

import foreign_models
import pytest
import torch
from family import build
from test_mutations import MUTATIONS, wrap
from tiny import tiny_model
from tiny_marian import tiny_marian
from transformers import AutoModelForSeq2SeqLM, BertConfig, EncoderDecoderConfig, EncoderDecoderModel

from vanilla_transformer.cli import main
from vanilla_transformer.inspection.doctor import CHECKS, examine
from vanilla_transformer.model import attention, search

BROKEN = [case for case in MUTATIONS if case.values[1] == "encoder-decoder"]


def failed(model, tokenizer=None) -> dict[str, str]:
    return {finding.check: finding.told for finding in examine(model, tokenizer) if finding.verdict == "FAIL"}


@pytest.mark.parametrize(
    "choice",
    [
        {},
        dict(residual="pre", norm="rmsnorm", feed_forward="swiglu", positions="rotary"),
        dict(positions="relative", attention_dropout=0.5),
        dict(positions="learned", tie_word_embeddings=False),
        dict(positions="none", output_bias=True, attention_bias=False),
    ],
    ids=lambda choice: choice.get("positions", "paper"),
)
def test_sound_models(choice, tokenizer):
    torch.manual_seed(0)
    assert failed(build("encoder-decoder", vocab_size=len(tokenizer), **choice), tokenizer) == {}


def test_embeddings_that_have_grown_in_training_are_sound():
    torch.manual_seed(0)
    model = build("encoder-decoder", vocab_size=1000, d_model=64)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(8)
    assert "positions_leave_tokens_in_sight" not in failed(model)


def test_a_sound_model_of_transformers():
    torch.manual_seed(0)
    model = tiny_marian(dtype=torch.float32)
    model.generation_config.max_length = 512
    assert failed(model) == {}


@pytest.mark.parametrize("name", ["t5", "m2m100", "mbart"])
def test_sound_models_of_transformers_with_dropout(name, tmp_path):
    model = AutoModelForSeq2SeqLM.from_pretrained(foreign_models.build(name, tmp_path)).float()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.3
        if hasattr(part, "layerdrop"):
            part.layerdrop = 0.9
    model.generation_config.max_length = 512
    assert failed(model) == {}


def test_a_pair_of_models():
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    model = EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(config, config))
    model.config.decoder_start_token_id = model.config.pad_token_id = 0
    assert len(examine(model)) == len(CHECKS)


@pytest.mark.parametrize("name, architecture, choice, mutate", BROKEN)
def test_planted_faults(name, architecture, choice, mutate, monkeypatch):
    torch.manual_seed(0)
    assert failed(build(architecture, **choice)) == {}
    mutate(monkeypatch)
    torch.manual_seed(0)
    assert failed(build(architecture, **choice))


def test_a_decoder_without_its_source(monkeypatch):
    wrap(monkeypatch, attention.CrossAttention, "forward",
         lambda forward: lambda self, x, *args, **kwargs: (torch.zeros_like(x), None))  # fmt: skip
    assert "the_source_is_read" in failed(tiny_model())


def test_numbers_that_are_none():
    model = tiny_model()
    with torch.no_grad():
        model.model.decoder.layers[0].feed_forward.fc1.weight[0, 0] = torch.nan
    assert "fc1.weight" in failed(model)["weights_are_numbers"]


def test_numbers_too_large_for_16_bits():
    model = tiny_model()
    with torch.no_grad():
        model.model.decoder.layers[0].feed_forward.fc1.weight.mul_(1e6)
    assert "float16_is_finite" in failed(model)


def test_traps_of_generation_settings():
    model = tiny_model()
    model.generation_config.max_length = 20
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 7
    told = failed(model)["outputs_have_a_limit_and_an_end"]
    assert "stops after 20 tokens" in told and "eos_token_id is not set" in told
    model.generation_config.max_length = None  # then an output of ours has the longest source + 50 tokens
    assert "max_length" not in failed(model)["outputs_have_a_limit_and_an_end"]
    assert "pad_token_id is 7 there and 0 in config" in told


def test_a_decoder_start_that_generate_does_not_see():
    """It asks the generation config, and takes bos where there is none."""
    model = tiny_model()
    assert model.config.decoder_start_token_id is not None
    model.generation_config.decoder_start_token_id = None
    assert "decoder_start_token_id is not set" in failed(model)["outputs_have_a_limit_and_an_end"]
    model.generation_config.decoder_start_token_id = 9
    told = failed(model)["outputs_have_a_limit_and_an_end"]
    assert f"decoder_start_token_id is 9 there and {model.config.decoder_start_token_id} in config" in told


def test_a_search_of_ours_that_errs(monkeypatch):
    """`generate` by the library's own search, which this leaves as it is, would not show it."""
    wrap(monkeypatch, search, "greedy", lambda greedy: lambda *args: greedy(*args).flip(1))
    assert "fast=False" in failed(tiny_model())["the_cache_changes_nothing"]


@pytest.mark.parametrize("name", ["marian", "mbart", "t5", "m2m100"])
def test_tokenizers_of_transformers(name, tmp_path):
    """Languages around a text, two vocabularies and SentencePiece's spaces are no faults."""
    model, tokenizer = foreign_models.ARCHITECTURES[name].build(tmp_path)
    told = failed(model, tokenizer).get("text_comes_back", "")
    assert "end with" not in told


def test_a_tokenizer_of_another_model(tokenizer):
    told = failed(tiny_model(vocab_size=50), tokenizer)["text_comes_back"]
    assert f"{len(tokenizer)} tokens and 50 embeddings" in told


def test_the_command(model_dir, tmp_path, capsys):
    assert main(["doctor", str(model_dir), "--json", str(tmp_path / "found.json")]) == 0
    out = capsys.readouterr().out
    assert out.count("PASS") == len(CHECKS) and f"{len(CHECKS)} checks, 0 failed" in out
    assert [entry["verdict"] for entry in json.loads((tmp_path / "found.json").read_text())] == ["PASS"] * len(CHECKS)
    settings = json.loads((model_dir / "generation_config.json").read_text())
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in model_dir.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "generation_config.json").write_text(json.dumps({**settings, "max_length": 20}))
    assert main(["doctor", str(broken)]) == 1
    captured = capsys.readouterr()
    assert "FAIL  outputs have a limit and an end" in captured.out and "remedy: set them" in captured.out
    assert "1 failed" in captured.out and "Traceback" not in captured.err
