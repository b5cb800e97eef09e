"""A checkpoint without the package: loaded by `trust_remote_code`, offline, from another folder, with no caches."""

import json

import pytest
import torch
from family import build
from tiny import random_ids, run_python, tiny_model
from transformers import AutoModelForSeq2SeqLM

LOAD = """
import json, sys, torch
from pathlib import Path
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM
assert not any(name.startswith("vanilla_transformer.") for name in sys.modules)
folder, ids, labels = {folder!r}, torch.tensor({ids}), torch.tensor({labels})
config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
base = AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
print(json.dumps(dict(
    names=[type(config).__name__, type(base).__name__, type(model).__name__],
    hidden=base(input_ids=ids, decoder_input_ids=ids).last_hidden_state.double().sum().item(),
    logits=model(input_ids=ids, labels=labels).logits.tolist(),
    generated=model.generate(ids, max_new_tokens=6).tolist(),
    limit=model.generate(ids).shape[1],
)))
model.save_pretrained("second")
"""


@pytest.mark.parametrize(
    "choice",
    [dict(), dict(residual="pre", positions="learned", tie_word_embeddings=False),
     dict(share_encoder_decoder_embeddings=False, decoder_vocab_size=40)],
)  # fmt: skip
def test_loads_without_the_package_and_saves_again(choice, tmp_path):
    model = tiny_model(**choice)
    folder = tmp_path / "first"
    model.save_pretrained(folder)
    ids, labels = random_ids(2, 5, vocab_size=40), random_ids(2, 4, vocab_size=40)
    expected = model(input_ids=ids, labels=labels).logits
    generated = model.generate(ids, max_new_tokens=6)
    for generation in ("first", "second"):
        work = tmp_path / f"work-{generation}"
        work.mkdir()
        code = LOAD.format(folder=str(folder), ids=ids.tolist(), labels=labels.tolist())
        out = json.loads(run_python(code, work, without_package=True).splitlines()[-1])
        assert out["names"] == [
            "VanillaTransformerConfig",
            "VanillaTransformerModel",
            "VanillaTransformerForSeq2SeqLM",
        ]
        assert torch.equal(torch.tensor(out["logits"]), expected)
        assert out["generated"] == generated.tolist()
        assert out["limit"] <= 1 + 5 + 50
        hidden = model.model(input_ids=ids, decoder_input_ids=ids).last_hidden_state.double().sum().item()
        assert out["hidden"] == pytest.approx(hidden, abs=1e-5)
        folder = work / "second"
    reloaded = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    assert torch.equal(reloaded(input_ids=ids, labels=labels).logits, expected)


def test_a_saved_base_model_brings_its_code_too(tmp_path):
    tiny_model().model.save_pretrained(tmp_path / "base")
    code = (
        "from transformers import AutoModel\n"
        f"print(type(AutoModel.from_pretrained({str(tmp_path / 'base')!r}, trust_remote_code=True)).__name__)"
    )
    assert run_python(code, tmp_path, without_package=True).strip() == "VanillaTransformerModel"


def test_saved_files_are_flat_and_safe(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors"} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl"))]
    for path in tmp_path.glob("*.py"):
        assert "import vanilla_transformer" not in path.read_text() and "from .." not in path.read_text()
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"].keys() == {
        "AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM"
    }  # fmt: skip


SINGLE = """
import json, sys, torch, transformers
assert not any(name.startswith("vanilla_transformer.") for name in sys.modules)
folder, ids = {folder!r}, torch.tensor({ids})
base = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
model = transformers.{auto}.from_pretrained(folder, trust_remote_code=True).eval()
print(json.dumps(dict(
    names=[type(base).__name__, type(model).__name__],
    hidden=base(ids).last_hidden_state.double().sum().item(),
    logits=model(ids).logits.tolist(),
    generated=model.generate(ids, max_new_tokens=6).tolist() if model.can_generate() else None,
)))
model.save_pretrained("second")
"""


@pytest.mark.parametrize(
    "architecture, auto",
    [("decoder-only", "AutoModelForCausalLM"), ("encoder-only", "AutoModelForMaskedLM")],
)
def test_the_single_stacks_load_without_the_package_too(architecture, auto, tmp_path):
    model = build(architecture, positions="rotary", norm="rmsnorm", feed_forward="swiglu", residual="pre")
    model.save_pretrained(tmp_path / "first")
    ids, folder = random_ids(2, 5), tmp_path / "first"
    for generation in ("first", "second"):
        work = tmp_path / f"work-{generation}"
        work.mkdir()
        code = SINGLE.format(folder=str(folder), ids=ids.tolist(), auto=auto)
        out = json.loads(run_python(code, work, without_package=True).splitlines()[-1])
        assert out["names"] == [type(model.model).__name__, type(model).__name__]
        assert torch.equal(torch.tensor(out["logits"]), model(ids).logits)
        assert out["hidden"] == pytest.approx(model.model(ids).last_hidden_state.double().sum().item(), abs=1e-5)
        if model.can_generate():
            assert out["generated"] == model.generate(ids, max_new_tokens=6).tolist()
        folder = work / "second"
