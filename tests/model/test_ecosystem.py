"""The tools of the ecosystem work on the family: adapters, half precision, device maps, pipelines, Auto classes."""

import pytest
import torch
import transformers
from family import ARCHITECTURES, GENERATING, batch, build, with_labels
from peft import LoraConfig, PeftModel, get_peft_model
from properties import attention_rows_sum_to_one, reload_is_bit_equal
from transformers import AutoConfig, AutoModel, pipeline

from vanilla_transformer.data.vocabulary import learn_tokenizer

AUTO = {
    "encoder-decoder": "AutoModelForSeq2SeqLM",
    "decoder-only": "AutoModelForCausalLM",
    "encoder-only": "AutoModelForMaskedLM",
}
TASKS = {"encoder-decoder": "SEQ_2_SEQ_LM", "decoder-only": "CAUSAL_LM", "encoder-only": "FEATURE_EXTRACTION"}
IDS = torch.tensor([[1, 9, 8, 7, 6], [1, 5, 4, 3, 7]])
each = pytest.mark.parametrize("architecture", ARCHITECTURES)


@each
def test_auto_classes_find_the_member(architecture, tmp_path):
    model = build(architecture)
    model.save_pretrained(tmp_path)
    assert type(AutoConfig.from_pretrained(tmp_path)) is type(model.config)
    assert type(AutoModel.from_pretrained(tmp_path)) is type(model.model)
    assert type(getattr(transformers, AUTO[architecture]).from_pretrained(tmp_path)) is type(model)


@each
def test_lora_trains_and_merges(architecture, tmp_path):
    model = build(architecture, dropout=0.0)
    inputs = with_labels(architecture)
    before = model(**inputs)
    lora = get_peft_model(model, LoraConfig(TASKS[architecture], r=4, target_modules=["q_proj", "v_proj"]))
    optimizer = torch.optim.Adam((p for p in lora.parameters() if p.requires_grad), lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        lora(**inputs).loss.backward()
        optimizer.step()
    lora.eval()
    trained = lora(**inputs)
    assert trained.loss < 0.9 * before.loss
    lora.save_pretrained(tmp_path)
    with lora.disable_adapter():
        torch.testing.assert_close(lora(**inputs).logits, before.logits)
    torch.manual_seed(0)
    merged = lora.merge_and_unload()
    torch.testing.assert_close(merged(**inputs).logits, trained.logits, atol=1e-4, rtol=1e-4)
    torch.manual_seed(0)
    again = PeftModel.from_pretrained(build(architecture, dropout=0.0), tmp_path)
    assert any("lora" in name for name, _ in again.named_parameters())


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
def test_half_precision(architecture, dtype, positions, tmp_path):
    """Close to float32, the same bits after a reload with `dtype=` and a device map, gradients that are finite."""
    model = build(architecture, positions=positions)
    inputs = with_labels(architecture)
    expected = model(**inputs)
    model.save_pretrained(tmp_path / "full")
    half = type(model).from_pretrained(tmp_path / "full", dtype=dtype, device_map="cpu").eval()
    assert {p.dtype for p in half.parameters()} == {dtype}
    out = half(**inputs)
    assert out.logits.dtype == dtype and out.loss.dtype == torch.float32
    torch.testing.assert_close(out.logits.float(), expected.logits, atol=0.05, rtol=0.05)
    reload_is_bit_equal(half, tmp_path / "half", dtype=dtype, device_map="cpu")
    out.loss.backward()
    assert all(p.grad.isfinite().all() for p in half.parameters())


@pytest.mark.parametrize(
    "architecture, positions",
    [("encoder-decoder", "sinusoidal"), ("decoder-only", "relative"),
     *(pytest.param(*case, marks=pytest.mark.full)
       for case in [("encoder-decoder", "relative"), ("decoder-only", "rotary"), ("encoder-only", "relative")])],
)  # fmt: skip
def test_flex_attention_computes_the_same(architecture, positions):
    torch._dynamo.reset()  # its kernels for CPUs know no sizes that vary from call to call
    model = build(architecture, positions=positions, d_model=64)
    inputs = batch(architecture)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][0, 4:] = 0
    with torch.no_grad():
        expected = model(**inputs).logits
        model.set_attn_implementation("flex_attention")
        logits = model(**inputs).logits
        torch.testing.assert_close(logits[1:], expected[1:], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(logits[0, :4], expected[0, :4], atol=1e-5, rtol=1e-4)
        assert len(model(**inputs, output_attentions=True)[-1]) == 2  # which the formula itself computes


@pytest.mark.full
@pytest.mark.parametrize("architecture", GENERATING)
def test_flex_attention_decodes_the_same(architecture):
    torch._dynamo.reset()
    model = build(architecture, d_model=64)
    expected = model.generate(IDS, num_beams=1, max_new_tokens=4)
    model.set_attn_implementation("flex_attention")
    assert torch.equal(model.generate(IDS, num_beams=1, max_new_tokens=4), expected)


@each
def test_relative_positions_refuse_flash_attention(architecture):
    for attn in ("flash_attention_2", "flash_attention_3"):
        with pytest.raises(ValueError, match=r"positions='relative'.*'eager', 'sdpa' or 'flex_attention'"):
            build(architecture, positions="relative", attn_implementation=attn)
    with pytest.raises(ValueError, match="flex_attention"):
        build(architecture, positions="relative").set_attn_implementation("flash_attention_2")


@each
def test_attentions_are_rows_that_sum_to_one(architecture):
    attention_rows_sum_to_one(build(architecture, attention_dropout=0.5, positions="relative"))


TEXTS = ["Le chat dort.", "Le vieil homme lit un livre.", "La vieille femme lit une lettre."] * 3


def test_text_generation_pipeline(tmp_path):
    tokenizer = learn_tokenizer(TEXTS, 290, template="causal", show_progress=False)
    build("decoder-only", vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    generator = pipeline("text-generation", model=str(tmp_path))
    assert tokenizer("Le chat")["input_ids"][0] == tokenizer.bos_token_id
    assert tokenizer.eos_token_id not in tokenizer("Le chat")["input_ids"]
    one, two = generator(["Le chat", "La"], max_new_tokens=5, do_sample=False, batch_size=2)
    assert one[0]["generated_text"].startswith("Le chat") and two[0]["generated_text"].startswith("La")
    alone = generator("La", max_new_tokens=5, do_sample=False)[0]["generated_text"]
    assert two[0]["generated_text"] == alone  # padded on the left


def test_fill_mask_pipeline(tmp_path):
    tokenizer = learn_tokenizer(TEXTS, 290, template="masked", show_progress=False)
    build("encoder-only", vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    fill = pipeline("fill-mask", model=str(tmp_path))
    assert fill.tokenizer.mask_token == "<mask>"
    answers = fill("Le <mask> dort.", top_k=3)
    assert len(answers) == 3 and sum(answer["score"] for answer in answers) <= 1
    assert all(answer["sequence"].startswith("Le") and answer["sequence"].endswith("dort.") for answer in answers)
