"""Other people's scripts: stock `Seq2SeqTrainer`, with the package imported and in a process that does not have it."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from family import ARCHITECTURES as FAMILY
from family import build
from foreign_models import ARCHITECTURES
from safetensors.torch import load_file
from tiny import ENGLISH, FRENCH, ROOT, random_ids, run_python, tiny_model
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from vanilla_transformer.data.vocabulary import learn_tokenizer

PLAIN_SCRIPT = """
import json, torch
{imports}
from datasets import Dataset
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

torch.set_num_threads(1)
tok = AutoTokenizer.from_pretrained({folder!r}, {options})
model = AutoModelForSeq2SeqLM.from_pretrained({folder!r}, {options})
english, french = {english!r}, {french!r}
data = Dataset.from_dict(dict(en=english, fr=french))
data = data.map(lambda row: tok(row["en"], text_target=row["fr"]), remove_columns=["en", "fr"])
lengths = []

def compute_metrics(prediction):
    ids = prediction.predictions
    lengths.extend((ids > 0).sum(1).tolist())
    return {{"longest": float((ids > 0).sum(1).max())}}

args = Seq2SeqTrainingArguments(
    "out", max_steps=4, learning_rate=1e-3, label_smoothing_factor=0.1, predict_with_generate=True, use_cpu=True,
    per_device_train_batch_size=2, per_device_eval_batch_size=2, eval_strategy="steps", eval_steps=2, save_steps=2,
    disable_tqdm=True,
)
trainer = Seq2SeqTrainer(
    model, args, DataCollatorForSeq2Seq(tok, model=model), data, data, processing_class=tok,
    compute_metrics=compute_metrics,
)
before = trainer.evaluate()["eval_loss"]
trainer.train()
after = trainer.evaluate()["eval_loss"]
trainer.save_model("saved")
batch = tok(english[:2], text_target=french[:2], padding=True, return_tensors="pt")
labels = batch["labels"].masked_fill(batch["labels"] == tok.pad_token_id, -100)
with torch.no_grad():
    logits = model.eval()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).logits
print(json.dumps(dict(before=before, after=after, lengths=lengths, logits=logits.tolist())))
"""


@pytest.fixture(scope="module")
def never_ending(tokenizer, tmp_path_factory):
    """A checkpoint whose outputs run into their limit, so that a limit of 20 tokens would show."""
    folder = tmp_path_factory.mktemp("never-ending")
    torch.manual_seed(0)
    model = tiny_model(vocab_size=len(tokenizer), output_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2] = -1e4
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("package", [True, False])
def test_a_plain_script_fine_tunes(package, never_ending, tmp_path):
    code = PLAIN_SCRIPT.format(
        imports="import vanilla_transformer" if package else "",
        options="" if package else "trust_remote_code=True",
        folder=str(never_ending),
        english=ENGLISH[:5],
        french=FRENCH[:5],
    )
    out = json.loads(run_python(code, tmp_path, without_package=not package).splitlines()[-1])
    assert out["after"] < out["before"]
    # Five texts in batches of two, evaluated four times: each output has its source's length and 50 tokens more.
    assert len(out["lengths"]) == 20 and min(out["lengths"]) >= 60

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved").eval()
    batch = tokenizer(ENGLISH[:2], text_target=FRENCH[:2], padding=True, return_tensors="pt")
    batch["labels"] = batch["labels"].masked_fill(batch["labels"] == 0, -100)
    assert torch.equal(model(**batch).logits, torch.tensor(out["logits"]))
    assert model.generate(random_ids(1, 20)).shape[1] == 71


COLLATORS = {"decoder-only": dict(mlm=False), "encoder-only": dict(mlm=True, mlm_probability=0.5, seed=0)}


@pytest.mark.parametrize("architecture", FAMILY)
def test_transformers_own_trainer_evaluates(architecture, tmp_path):
    """It has a loss and labels only of batches that have all that `forward` calls a label."""
    tokenizer = learn_tokenizer(ENGLISH, 300, template="masked", show_progress=False)
    model = build(architecture, vocab_size=len(tokenizer))
    rows = [{"input_ids": ids, "labels": ids} for ids in tokenizer(ENGLISH[:5])["input_ids"]]
    if architecture == "encoder-decoder":
        collate = DataCollatorForSeq2Seq(tokenizer)
    else:
        rows = [{"input_ids": row["input_ids"]} for row in rows]
        collate = DataCollatorForLanguageModeling(tokenizer, **COLLATORS[architecture])
    found = []
    arguments = TrainingArguments(
        str(tmp_path / "out"),
        max_steps=2,
        use_cpu=True,
        per_device_eval_batch_size=8,
        eval_strategy="steps",
        eval_steps=1,
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=False,
        disable_tqdm=True,
        report_to="none",
    )
    trainer = Trainer(
        model, arguments, collate, rows, rows, processing_class=tokenizer,
        compute_metrics=lambda prediction: found.append(prediction.label_ids) or {"seen": 1.0},
    )  # fmt: skip
    trainer.train()
    metrics = trainer.evaluate()
    assert metrics["eval_seen"] == 1.0 and len(found[-1]) == 5
    if architecture != "encoder-only":  # whose masks are others each time
        batch = collate(rows)
        with torch.no_grad():
            assert metrics["eval_loss"] == pytest.approx(model.eval()(**batch).loss.item(), rel=1e-5)


def run_translation(tmp_path, launcher, model, parallel_files, *more):
    files = [str(file) for file in parallel_files]
    arguments = (
        f"--model_name_or_path {model} --output_dir {tmp_path / 'out'} --max_steps 4 --use_cpu --do_train --do_eval"
    )
    arguments += " --predict_with_generate --label_smoothing_factor 0.1 --per_device_eval_batch_size 64 --save_steps 2"
    command = [*launcher, str(ROOT / "scripts" / "run_translation.py"), *arguments.split()]
    command += ["--train_files", *files, "--validation_files", *files, *more]
    return subprocess.run(command, cwd=tmp_path, env={**os.environ}, capture_output=True, text=True, timeout=300)


LAUNCHERS = {
    "python": [sys.executable],
    "accelerate": [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1"],
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_run_translation(launcher, model_dir, parallel_files, tmp_path):
    result = run_translation(tmp_path, LAUNCHERS[launcher], model_dir, parallel_files)
    assert result.returncode == 0, result.stderr[-3000:]
    metrics = json.loads((tmp_path / "out" / "eval_results.json").read_text())
    assert metrics["eval_loss"] > 0 and 0 <= metrics["eval_bleu"] <= 100
    reloaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    before = AutoModelForSeq2SeqLM.from_pretrained(model_dir)
    assert (reloaded.lm_head.weight - before.lm_head.weight).abs().max() > 0
    again = run_translation(tmp_path, LAUNCHERS[launcher], model_dir, parallel_files)
    assert again.returncode == 1 and "checkpoint-4, or choose another --output_dir" in again.stderr
    whole = load_file(tmp_path / "out" / "model.safetensors")
    shutil.rmtree(tmp_path / "out" / "checkpoint-4")
    more = ("--resume_from_checkpoint", str(tmp_path / "out" / "checkpoint-2"))
    resumed = run_translation(tmp_path, LAUNCHERS[launcher], model_dir, parallel_files, *more)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(weights[name], whole[name]) for name in whole)


def test_run_translation_has_float32_weights_whatever_the_file_has(model_dir, parallel_files, tmp_path):
    """A step of 1e-5 is less than half of what lies between two numbers of bfloat16 near 0.1, and would be none."""
    half = tmp_path / "half"
    shutil.copytree(model_dir, half)
    before = AutoModelForSeq2SeqLM.from_pretrained(model_dir, dtype=torch.bfloat16)
    before.save_pretrained(half)
    result = run_translation(tmp_path, LAUNCHERS["python"], half, parallel_files, "--learning_rate", "1e-5")
    assert result.returncode == 0, result.stderr[-3000:]
    after, before = load_file(tmp_path / "out" / "model.safetensors"), load_file(half / "model.safetensors")
    changed = [(after[name] != x.float()).float().mean().item() for name, x in before.items() if x.ndim == 2]
    assert {x.dtype for x in after.values()} == {torch.float32} and min(changed) > 0.5


def test_run_translation_of_a_model_of_many_languages(parallel_files, tmp_path):
    """It is told which ones, or it would take German for English, and say whatever comes first."""
    for part in ARCHITECTURES["nllb"].build(tmp_path):
        part.save_pretrained(tmp_path / "nllb")
    result = run_translation(tmp_path, LAUNCHERS["python"], tmp_path / "nllb", parallel_files)
    assert result.returncode == 1 and "was not told into which: name them, such as --src-lang" in result.stderr
    told = ("--src_lang", "deu_Latn", "--tgt_lang", "fra_Latn", "--label_smoothing_factor", "0")  # which M2M100 cannot
    result = run_translation(tmp_path, LAUNCHERS["python"], tmp_path / "nllb", parallel_files, *told)
    assert result.returncode == 0, result.stderr[-3000:]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == ("deu_Latn", "fra_Latn")
    assert model.generation_config.forced_bos_token_id == tokenizer.convert_tokens_to_ids("fra_Latn")


def test_run_translation_tells_of_pairs_that_no_position_is_left_for(parallel_files, tokenizer, tmp_path):
    """Before the training, and not at its first evaluation."""
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=17, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2,
    )  # fmt: skip
    for part in (BartForConditionalGeneration(config), tokenizer):
        part.save_pretrained(tmp_path / "bart")
    result = run_translation(tmp_path, LAUNCHERS["python"], tmp_path / "bart", parallel_files, "--max_length", "17")
    told = "the positions of BartForConditionalGeneration end at 17: give the model more"
    assert result.returncode == 1 and told in result.stderr and "Traceback" not in result.stderr, result.stderr[-3000:]
    assert "a validation pair has " in result.stderr and not list((tmp_path / "out").glob("*"))
    result = run_translation(tmp_path, LAUNCHERS["python"], tmp_path / "bart", parallel_files, "--max_length", "2")
    told = "no pair of train is within max_length=2 tokens: raise it"
    assert result.returncode == 1 and told in result.stderr and "Traceback" not in result.stderr, result.stderr[-3000:]


def test_run_translation_counts_what_it_drops(model_dir, parallel_files, tmp_path):
    source = parallel_files[0]
    source.write_text("\n" + source.read_text("utf-8").split("\n", 1)[1], "utf-8")
    result = run_translation(tmp_path, LAUNCHERS["python"], model_dir, parallel_files)
    assert result.returncode == 0 and result.stderr.count("dropped 1 pairs (empty side)") == 2, result.stderr[-3000:]


TELLS_REFERENCES = """
import json, runpy, sys
from pathlib import Path
import vanilla_transformer.evaluation as evaluation

def told(texts, references, scores=evaluation.translation_scores):
    Path("scored.json").write_text(json.dumps([references, texts]))
    return scores(texts, references)

evaluation.translation_scores = told
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_run_translation_scores_against_what_was_written(parallel_files, tmp_path):
    """A word that the tokenizer does not know is a word of the reference all the same."""
    text = " ".join(ENGLISH + FRENCH[1:])
    words = ["<pad>", "<s>", "</s>", "<unk>", *sorted(set(text.split()))]
    known = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    known.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    known.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    special = dict(pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=known, **special)
    assert tokenizer.decode(tokenizer(FRENCH[0])["input_ids"], skip_special_tokens=True) != FRENCH[0]
    for part in (tiny_model(vocab_size=len(words)), tokenizer):
        part.save_pretrained(tmp_path / "known")
    command = [sys.executable, "-c", TELLS_REFERENCES, str(ROOT / "scripts" / "run_translation.py")]
    command += ["--model_name_or_path", "known", "--output_dir", "out", "--do_eval", "--predict_with_generate"]
    command += ["--use_cpu", "--validation_files", *map(str, parallel_files)]
    scored = []
    for more in ([], ["--train_sampling_strategy", "group_by_length"]):  # which is how training goes, and not this
        result = subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr[-3000:]
        scored.append(json.loads((tmp_path / "scored.json").read_text()))
    references, texts = scored[0]
    assert references == FRENCH * 20 and texts == texts[:6] * 20 and len(set(texts)) > 1
    assert scored[1] == scored[0]


def test_run_translation_evaluates_alone(model_dir, parallel_files, tmp_path):
    """Which needs no pairs to train on; what is not done is told."""
    command = [sys.executable, str(ROOT / "scripts" / "run_translation.py"), "--model_name_or_path", str(model_dir)]
    command += ["--output_dir", str(tmp_path / "out"), "--validation_files", *map(str, parallel_files), "--use_cpu"]
    for more, told in (
        ([], "nothing to do: give --do_train, --do_eval or both"),
        (["--do_train"], "--do_train needs pairs to train on: give --train_files"),
        (["--do_eval", "--do_predict"], "--do_predict is not done here"),
        (["--do_eval", "--predict_with_generate", "--dataloader_drop_last"], "--dataloader_drop_last drops sentences"),
        (["--do_eval"], ""),
    ):
        result = subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert result.returncode == bool(told) and told in result.stderr, result.stderr[-3000:]
    assert json.loads((tmp_path / "out" / "eval_results.json").read_text())["eval_loss"] > 0


def test_run_translation_explains_itself():
    script = str(ROOT / "scripts" / "run_translation.py")
    result = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and "--train_files" in result.stdout and "Longest side" in result.stdout
    told = re.search(r"  --ddp_timeout .*?\(default:\s*(\d+)\)", result.stdout, re.DOTALL)
    assert int(told[1]) > 1e6  # the first process may tokenize a large corpus for longer than torch's 30 minutes


def test_run_translation_misspelt_argument(model_dir, parallel_files, tmp_path):
    result = run_translation(tmp_path, LAUNCHERS["python"], model_dir, parallel_files, "--max_lenght", "5")
    assert result.returncode != 0 and "max_lenght" in result.stderr
