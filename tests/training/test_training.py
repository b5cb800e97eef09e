import importlib.metadata
import json
import re
import shutil
from functools import partialmethod
from pathlib import Path

import pytest
import torch
from matplotlib.axes import Axes
from safetensors.torch import load_file, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import losses, tiny_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch._dynamo.testing import CompileCounter
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerFast

from vanilla_transformer.data.vocabulary import learn_tokenizer
from vanilla_transformer.inspection.curves import PANELS, draw_curves, logged
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerForSeq2SeqLM
from vanilla_transformer.model.search import is_as_made
from vanilla_transformer.training import arguments
from vanilla_transformer.training import train as training
from vanilla_transformer.training.checkpoints import checkpoints, mean_weights
from vanilla_transformer.training.tasks import TASKS, TranslationTask
from vanilla_transformer.training.train import train
from vanilla_transformer.training.trainer import RecipeTrainer
from vanilla_transformer.translation import load_translator


def test_a_run_ends_with_a_model_that_loads(finished):
    run = finished.run
    assert finished.model == run / "model" and finished.step == 12
    model = AutoModelForSeq2SeqLM.from_pretrained(finished.model)
    tokenizer = AutoTokenizer.from_pretrained(finished.model)
    assert len(tokenizer) == model.config.vocab_size
    assert model.generation_config.num_beams == 2 and model.generation_config.max_length == 512
    assert model.config.use_cache is True
    result = json.loads((run / "result.json").read_text())
    assert result["mean_of"] == ["checkpoint-10", "checkpoint-12"]
    assert re.search("tok:13a", result["validation"]["mean"]["BLEU"]["signature"])
    provenance = json.loads((run / "provenance.json").read_text())
    assert provenance["data"]["train"]["pairs"] == 120 and len(provenance["data"]["train"]["sha256"]) == 64
    assert provenance["packages"]["torch"] == importlib.metadata.version("torch")
    assert not list(run.glob("tmp-*"))


def test_evaluation_logs_nats_and_bleu_and_shows_translations(small_recipe, tmp_path, capsys):
    run = train(small_recipe(), tmp_path / "run").run
    history = json.loads((checkpoints(run)[-1] / "trainer_state.json").read_text())["log_history"]
    evaluations = [entry for entry in history if "eval_loss" in entry]
    assert [entry["step"] for entry in evaluations] == [5, 10, 12]
    assert all({"eval_loss", "eval_bleu"} <= entry.keys() for entry in evaluations)
    shown = capsys.readouterr().out
    assert shown.count("    -> ") == 9 and shown.count("     = ") == 9
    assert "train_runtime" in shown and "samples_per_second" not in shown  # as of batches of 8, which there are none


def test_the_evaluation_loss_is_the_unsmoothed_mean_over_tokens(finished):
    newest = checkpoints(finished.run)[-1]
    model = AutoModelForSeq2SeqLM.from_pretrained(newest).eval()
    tokenizer = AutoTokenizer.from_pretrained(finished.run / "tokenizer")
    total, tokens = 0.0, 0
    pairs = finished.splits["validation"]
    for source, target in zip(pairs["source"], pairs["target"], strict=True):
        inputs = tokenizer(source, text_target=target, return_tensors="pt")
        total += model(**inputs).loss.item() * inputs["labels"].shape[1]
        tokens += inputs["labels"].shape[1]
    history = json.loads((newest / "trainer_state.json").read_text())["log_history"]
    logged = [entry["eval_loss"] for entry in history if "eval_loss" in entry][-1]
    assert logged == pytest.approx(total / tokens, rel=1e-4)


def test_epochs_are_reshuffled(small_recipe, tmp_path, monkeypatch):
    seen = []
    original = RecipeTrainer.compute_loss

    def spy(self, model, inputs, *args, **kwargs):
        seen.append(tuple(map(tuple, inputs["input_ids"].tolist())))
        return original(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(RecipeTrainer, "compute_loss", spy)
    train(
        small_recipe("training.max_steps=null", "training.num_train_epochs=2", "training.eval_steps=50"),
        tmp_path / "r",
    )
    half = len(seen) // 2
    rows = [
        sorted(tuple(x for x in row if x) for batch in epoch for row in batch) for epoch in (seen[:half], seen[half:])
    ]
    assert rows[0] == rows[1] and len(rows[0]) == 120  # every pair once an epoch
    assert seen[:half] != seen[half:] and set(seen[:half]) != set(seen[half:])


def test_accumulated_batches_equal_a_big_one(small_recipe, tmp_path):
    """What `num_items_in_batch` is for: with equal data in one update, equal gradients, hence equal weights."""
    common = ("training.max_steps=1", "model.dropout=0.0", "corpus.sizes={train: 64, validation: 4, test: 4}")
    common += ("training.eval_steps=1", "training.average_checkpoints=1")
    big = train(small_recipe(*common, "training.max_tokens=2048"), tmp_path / "big")
    parts = train(
        small_recipe(*common, "training.max_tokens=420", "training.gradient_accumulation_steps=4"), tmp_path / "parts"
    )
    state = [json.loads((checkpoints(r.run)[-1] / "trainer_state.json").read_text()) for r in (big, parts)]
    logged = [next(entry for entry in s["log_history"] if "grad_norm" in entry) for s in state]
    assert logged[0]["loss"] == pytest.approx(logged[1]["loss"], rel=1e-5)
    assert logged[0]["grad_norm"] == pytest.approx(logged[1]["grad_norm"], rel=1e-4)
    assert state[0]["epoch"] == state[1]["epoch"] == 1.0


def test_bf16_on_request(small_recipe, tmp_path):
    result = train(small_recipe("training.bf16=true"), tmp_path / "run")
    weights = load_file(result.model / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


def weights_after_one_step(recipe, run):
    return load_file(train(recipe, run).model / "model.safetensors"), losses(run)


def test_evaluation_decodes_by_the_fast_search_in_float32(small_recipe, tmp_path, monkeypatch):
    measure, seen = TranslationTask.measure, []

    def watched(self, model, *args):
        seen.append(is_as_made(model))
        return measure(self, model, *args)

    monkeypatch.setattr(TranslationTask, "measure", watched)
    train(small_recipe("training.bf16=true", "training.max_steps=5"), tmp_path / "run")
    assert seen == [True]


@pytest.mark.parametrize("trained_by, evaluated_by", [("eager",) * 2, ("sdpa",) * 2, ("flex_attention", "sdpa")])
def test_evaluation_in_float32_by_a_kernel_that_has_it(trained_by, evaluated_by, small_recipe, tmp_path, monkeypatch):
    """As flash_attention_2 has not, which cannot be had without a GPU: flex_attention stands for it."""
    kept = []
    monkeypatch.setattr(training, "finish", lambda task, run, trainer, *more: kept.append(trainer))
    train(small_recipe("training.max_steps=1"), tmp_path / "run")
    [trainer] = kept
    config = trainer.model.config
    trainer.model.set_attn_implementation(trained_by)
    with trainer.model_as_made() as model:
        assert model.config._attn_implementation == evaluated_by and is_as_made(model)
    assert config._attn_implementation == trained_by


def test_flash_attention_in_float32_is_refused(small_recipe, tmp_path):
    with pytest.raises(ValueError, match=r"half precision alone, and training.bf16=False means float32 here: set"):
        train(small_recipe("training.attn_implementation=flash_attention_2"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_r_drop(small_recipe, tmp_path):
    """Without dropout there is nothing to be drawn together; with it, the loss is more by what the two are apart."""
    one = ("training.max_steps=1", "training.eval_steps=1", "training.average_checkpoints=1")
    found = {}
    for dropout in (0.0, 0.3):
        for alpha in (0.0, 1e-9, 4.0, 8.0):
            settings = (*one, f"model.dropout={dropout}", f"training.r_drop={alpha}")
            found[dropout, alpha] = weights_after_one_step(small_recipe(*settings), tmp_path / f"{dropout}-{alpha}")
    for alpha in (1e-9, 4.0):
        assert found[0.0, alpha][1][1] == pytest.approx(found[0.0, 0.0][1][1], abs=1e-5)
        for name, weight in found[0.0, 0.0][0].items():
            torch.testing.assert_close(found[0.0, alpha][0][name], weight, atol=1e-4, rtol=0)
    base, four, eight = (found[0.3, alpha][1][1] for alpha in (1e-9, 4.0, 8.0))
    assert four - base > 0.001 and eight - base == pytest.approx(2 * (four - base), rel=1e-3)


@pytest.mark.parametrize("r_drop", [0.0, 3.0])
def test_source_dropout(r_drop, small_recipe, tmp_path, monkeypatch):
    """A share of the source's tokens is hidden in training, in each pass others; never </s>, nor in an evaluation."""
    seen: dict[bool, list[dict]] = {True: [], False: []}
    forward = VanillaTransformerForSeq2SeqLM.forward

    def watched(self, *args, **kwargs):
        if "attention_mask" in kwargs and kwargs.get("encoder_outputs") is None:
            seen[self.training].append(kwargs)
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(VanillaTransformerForSeq2SeqLM, "forward", watched)
    finished = train(small_recipe("training.source_dropout=0.3", f"training.r_drop={r_drop}"), tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(finished.model)
    hidden, ends, tokens = ({True: 0, False: 0} for _ in range(3))
    for learns, batches in seen.items():
        for batch in batches:
            ids = batch["input_ids"][batch["attention_mask"].bool()]
            hidden[learns] += int((ids == tokenizer.pad_token_id).sum())
            ends[learns] += int((ids == tokenizer.eos_token_id).sum()) - len(batch["input_ids"])
            tokens[learns] += len(ids) - len(batch["input_ids"])
            assert not (batch["input_ids"][~batch["attention_mask"].bool()] != tokenizer.pad_token_id).any()
    assert hidden[True] / tokens[True] == pytest.approx(0.3, abs=0.03) and tokens[True] > 2000
    assert hidden[False] == 0 < tokens[False] and set(ends.values()) == {0}
    if r_drop:
        assert any(not first.equal(second) for first, second in (x["input_ids"].chunk(2) for x in seen[True]))


@pytest.mark.parametrize("r_drop", [0.0, 3.0])
def test_compiled_layers_learn_the_same(r_drop, small_recipe, tmp_path, monkeypatch):
    """One code for the layers of a stack and all lengths, which evaluation does without."""
    compile_module, measure, graphs, seen = torch.nn.Module.compile, TranslationTask.measure, CompileCounter(), []

    def watched(self, model, *args):
        before, measured = graphs.frame_count, measure(self, model, *args)
        seen.append((is_as_made(model), graphs.frame_count - before))
        return measured

    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(compile_module, backend=graphs))
    monkeypatch.setattr(TranslationTask, "measure", watched)
    torch._dynamo.reset()
    settings = ("model.dropout=0.0", "model.encoder_layers=2", "model.decoder_layers=2", f"training.r_drop={r_drop}")
    plain = weights_after_one_step(small_recipe(*settings), tmp_path / "plain")
    assert graphs.frame_count == 0
    compiled = weights_after_one_step(small_recipe(*settings, "training.torch_compile=true"), tmp_path / "compiled")
    assert graphs.frame_count == 4  # with padding and without, of an encoder's and a decoder's layers
    assert set(seen) == {(True, 0)}
    torch.testing.assert_close(compiled, plain, atol=1e-4, rtol=1e-4)


def test_a_decay_that_ends_later_than_the_training(small_recipe, tmp_path):
    """The rate of a step does not depend on how many there will be: more can be had."""
    settings = ("training.lr_scheduler_type=linear", "training.decay_steps=14", "training.learning_rate=0.01")
    run = train(small_recipe(*settings, "training.max_steps=5"), tmp_path / "run").run
    train(small_recipe(*settings), run, resume=True)
    state = json.loads((checkpoints(run)[-1] / "trainer_state.json").read_text())
    rates = {entry["step"]: entry["learning_rate"] for entry in state["log_history"] if "learning_rate" in entry}
    assert rates[5] == pytest.approx(0.01) and rates[10] == pytest.approx(0.005)  # logged before the scheduler's step


@pytest.mark.parametrize("able", [True, False])
def test_bf16_where_it_is_faster(able, small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(arguments, "computes_in_bfloat16", lambda: able)
    run = train(small_recipe("training.bf16=auto"), tmp_path / "run").run
    assert json.loads((run / "provenance.json").read_text())["bf16"] is able


@pytest.mark.parametrize("bf16, able, told", [("true", False, True), ("true", True, False), ("auto", False, False)])
def test_emulated_bf16_is_told(bf16, able, told, small_recipe, tmp_path, monkeypatch, warnings_of):
    monkeypatch.setattr(arguments, "computes_in_bfloat16", lambda: able)
    one_step = [f"training.{name}=1" for name in ("max_steps", "eval_steps", "average_checkpoints")]
    train(small_recipe(f"training.bf16={bf16}", *one_step), tmp_path / "run")
    assert any("not known to be faster here" in text for text in warnings_of()) is told


def test_early_stopping(small_recipe, tmp_path):
    settings = ("training.patience=1", "training.eval_steps=2", "training.max_steps=40", "training.learning_rate=1e-9")
    assert train(small_recipe(*settings), tmp_path / "run").step == 4


def test_existing_output_is_kept(finished, small_recipe):
    with pytest.raises(FileExistsError, match=r"exists: go on from checkpoint-12 with --resume, or replace it with"):
        train(small_recipe(), finished.run)
    before = (finished.run / "result.json").stat().st_mtime_ns
    result = train(small_recipe("training.max_steps=2", "training.eval_steps=1"), finished.run, overwrite=True)
    assert result.step == 2 and (finished.run / "result.json").stat().st_mtime_ns != before
    assert [path.name for path in checkpoints(finished.run)] == ["checkpoint-1", "checkpoint-2"]


def test_a_run_folder_that_is_a_link_stays_one(small_recipe, tmp_path):
    """To a larger disk, say."""
    run, there = tmp_path / "run", tmp_path / "there"
    there.mkdir()
    run.symlink_to(there)
    once = small_recipe("training.max_steps=2", "training.eval_steps=1")
    train(once, run)
    (there / "checkpoint-1").rename(there / "checkpoint-9")
    train(once, run, overwrite=True)
    assert run.is_symlink() and [path.name for path in checkpoints(there)] == ["checkpoint-1", "checkpoint-2"]
    assert {path.name for path in tmp_path.iterdir()} == {"run", "there"}


def test_fine_tuning_keeps_config_and_tokenizer(finished, small_recipe, tmp_path):
    recipe = small_recipe("model=null", "tokenizer=null", "corpus.seed=5", "training.max_steps=3")
    result = train(recipe, tmp_path / "tuned", from_model=str(finished.model))
    before, after = (AutoModelForSeq2SeqLM.from_pretrained(folder) for folder in (finished.model, result.model))
    assert after.config.d_model == before.config.d_model
    assert AutoTokenizer.from_pretrained(result.model)("a b") == AutoTokenizer.from_pretrained(finished.model)("a b")
    moved = (after.lm_head.weight - before.lm_head.weight).abs().max()
    assert 0 < moved < 0.2


@pytest.mark.parametrize(("rate", "told"), [("null", True), ("0.0001", False)])
def test_a_rate_for_fresh_weights_is_told_in_fine_tuning(rate, told, finished, small_recipe, warnings_of, tmp_path):
    recipe = small_recipe("model=null", "tokenizer=null", "training.max_steps=5", f"training.learning_rate={rate}")
    train(recipe, tmp_path / "tuned", from_model=str(finished.model))
    peak = 16**-0.5 * recipe.training.warmup_steps**-0.5
    said = f"training.learning_rate is not set: its peak is {peak:.2g}, as for fresh weights"
    assert any(said in text for text in warnings_of()) is told


def test_fine_tuning_with_a_recipe_that_contradicts(finished, small_recipe, tmp_path):
    message = r"model.d_model is 32 in the recipe and 16 in .*tokenizer is 555.*--set model=null --set tokenizer=null"
    with pytest.raises(ValueError, match=message):
        recipe = small_recipe("model.d_model=32", "tokenizer.vocab_size=555")
        train(recipe, tmp_path / "x", from_model=str(finished.model))


def test_a_base_has_positions_for_whatever_bpe_dropout_makes_of_a_pair(small_recipe, tmp_path):
    """All pairs may be within them as they are, and one that is cut anew not, after hours."""
    short = ("model.positions=learned", "model.max_position_embeddings=40", "corpus.max_length=40")
    base = train(small_recipe(*short, "training.max_steps=1"), tmp_path / "base").model
    more = ("model=null", "tokenizer=null", "training.max_steps=1", "training.bpe_dropout=0.1")
    with pytest.raises(ValueError, match=r"max_length=128 tokens a side, and the positions of .* end at 40: lower"):
        train(small_recipe(*more), tmp_path / "x", from_model=str(base))
    train(small_recipe(*more, "corpus.max_length=40"), tmp_path / "y", from_model=str(base))


@pytest.mark.parametrize(
    ("task", "template", "told"),
    [
        ("translation", "causal", "makes '<s> a' of the text 'a', expected 'a </s>' for a translation model"),
        ("causal-lm", "translation", "makes 'a </s>' of the text 'a', expected '<s> a' for a causal model"),
        ("masked-lm", "causal", "the tokenizer has no mask_token"),
    ],
)
def test_a_tokenizer_of_another_task_is_refused(task, template, told, small_recipe, tmp_path):
    learn_tokenizer(["a b"], 260, template=template, show_progress=False).save_pretrained(tmp_path / "given")
    small = ("model={d_model: 16, ffn_dim: 16}", "decoding={}") if task != "translation" else ()
    recipe = small_recipe(f"task={task}", f"tokenizer={{path: {tmp_path / 'given'}}}", *small)
    with pytest.raises(ValueError, match=told):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_cannot_pad_is_refused_before_an_old_run_is_deleted(finished, small_recipe, tmp_path):
    tokenizer = learn_tokenizer(["a b"], 260, show_progress=False)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path / "given")
    with pytest.raises(ValueError, match="the tokenizer has no pad_token"):
        train(small_recipe(f"tokenizer={{path: {tmp_path / 'given'}}}"), finished.run, overwrite=True)
    assert finished.model.exists()


def given_tokenizer(folder: Path, special: list[str], **names) -> Path:
    """A byte-level BPE of these special tokens, each source with the last of them at its end."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.train_from_iterator(
        ["a b"],
        trainers.BpeTrainer(
            special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        ),
    )
    end = special[-1]
    before = f"{names['bos_token']} " if "bos_token" in names else ""
    after = "" if "bos_token" in names else f" {end}"
    around = [(token, tokenizer.token_to_id(token)) for token in special]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{before}$A{after}", special_tokens=around)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, **names).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("special", [["<pad>", "</s>"], ["</s>"]])
def test_a_model_begins_and_ends_as_the_tokenizer_that_it_is_given(special, small_recipe, tmp_path):
    """Ids 1 and 2 are letters of these, and no <s> and </s>."""
    given = given_tokenizer(tmp_path / "given", special, pad_token=special[0])
    result = train(small_recipe(f"tokenizer={{path: {given}}}", "training.max_steps=2"), tmp_path / "run")
    model = AutoModelForSeq2SeqLM.from_pretrained(result.model)
    end = len(special) - 1
    for settings in (model.config, model.generation_config):
        assert (settings.pad_token_id, settings.decoder_start_token_id, settings.eos_token_id) == (0, 0, end)
        assert settings.bos_token_id is None


def test_words_are_not_hidden_as_ends_of_a_text(small_recipe, tmp_path):
    given = given_tokenizer(tmp_path / "given", ["</s>"], pad_token="</s>")
    with pytest.raises(ValueError, match=r"0.1 hides words as padding, and the tokenizer pads with </s>"):
        train(small_recipe(f"tokenizer={{path: {given}}}", "training.source_dropout=0.1"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_pads_on_the_left_teaches_the_beginning(small_recipe, tmp_path, warnings_of):
    """Labels are shifted from the first place on: behind padding, no translation began with the start token."""
    given = given_tokenizer(tmp_path / "given", ["<pad>", "</s>"], pad_token="<pad>", padding_side="left")
    settings = (f"tokenizer={{path: {given}}}", "training.max_steps=2")
    result = train(small_recipe(*settings), tmp_path / "run")
    assert any("pads on the left: a translator's does so on the right, now" in line for line in warnings_of())
    assert AutoTokenizer.from_pretrained(result.model).padding_side == "right"


def test_a_tokenizer_of_another_model_is_refused(finished, small_recipe, tmp_path):
    """Its tokens have no embeddings."""
    shutil.copytree(finished.model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(tmp_path / "model")
    known = len(tokenizer) - 1
    with pytest.raises(ValueError, match=rf"has {known + 1} tokens, and the model has embeddings for {known}"):
        train(small_recipe(), tmp_path / "run", from_model=str(tmp_path / "model"))
    translator = load_translator(str(tmp_path / "model"))
    assert translator(["A dog."])
    with pytest.raises(ValueError, match=rf"makes the token {known} of a text, and .* embeddings for {known}"):
        translator(["A dog.", "A <new> dog."])


def test_a_text_whose_end_is_padding_is_refused_for_a_causal_model(small_recipe, tmp_path):
    given = given_tokenizer(tmp_path / "given", ["<s>", "</s>"], pad_token="</s>", bos_token="<s>")
    small = ("model={d_model: 16, ffn_dim: 16}", "decoding={}")
    recipe = small_recipe("task=causal-lm", f"tokenizer={{path: {given}}}", *small)
    with pytest.raises(ValueError, match="pads with </s>, its end of a text, which is never learned"):
        train(recipe, tmp_path / "run")


def test_pairs_longer_than_learned_positions_are_told_before_a_training(small_recipe, tokenizer, tmp_path):
    """Those of the validation set, which are not left out, and those of a model to start from."""
    short = ("model.positions=learned", "model.max_position_embeddings=9", "corpus.max_length=9")
    with pytest.raises(ValueError, match=r"a validation pair has 1\d tokens .* end at 9.*leave such pairs out"):
        train(small_recipe(*short), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    network = tiny_model(vocab_size=len(tokenizer), positions="learned", max_position_embeddings=9)
    for part in (network, tokenizer):
        part.save_pretrained(tmp_path / "base")
    with pytest.raises(ValueError, match=r"a train pair has \d+ tokens .*lower max_length of the pairs"):
        train(small_recipe("model=null", "tokenizer=null"), tmp_path / "run", from_model=str(tmp_path / "base"))


def test_without_model_section_a_base_is_needed(small_recipe, tmp_path):
    with pytest.raises(ValueError, match="--from MODEL"):
        train(small_recipe("model=null"), tmp_path / "x")


def test_a_base_or_tokenizer_that_is_not_there_is_named(small_recipe, tmp_path):
    recipe = small_recipe("model=null", "tokenizer=null")
    with pytest.raises(OSError, match="no folder 'nope/nowhere', and the Hub gives no such model"):
        train(recipe, tmp_path / "x", from_model="nope/nowhere")
    with pytest.raises(OSError, match="there is no tokenizer at 'nope/nowhere'"):
        train(small_recipe("tokenizer={path: nope/nowhere}"), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_base_that_lacks_weights_is_refused(finished, small_recipe, tmp_path):
    """transformers would begin with random ones in their place, and say so in a table of its log."""
    file = finished.model / "model.safetensors"
    weights = load_file(file)
    del weights["model.encoder.layers.0.feed_forward.fc1.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(OSError, match=r"lack 1 tensors that .* has, such as model.encoder.layers.0.feed_forward.fc1"):
        train(small_recipe("model=null", "tokenizer=null"), tmp_path / "x", from_model=str(finished.model))


def test_overwrite_deletes_nothing_before_all_is_known_to_be_right(finished, small_recipe, tmp_path):
    base = shutil.copytree(finished.model, tmp_path / "base")
    with pytest.raises(ValueError, match="contradicts"):
        train(small_recipe("tokenizer.vocab_size=555"), finished.run, overwrite=True, from_model=str(base))
    assert (finished.model / "model.safetensors").exists()
    whole = (finished.model, checkpoints(finished.run)[-1])
    for base in whole:
        with pytest.raises(ValueError, match=rf"holds {base} itself, which would be deleted: choose another -o"):
            train(small_recipe(), finished.run, overwrite=True, from_model=str(base))
    assert all((base / "model.safetensors").exists() for base in whole)
    texts = [str(finished.run / "corpus" / name) for name in ("train.en", "train.fr")]
    tokenizer = finished.run / "tokenizer"
    for held, *settings in (
        (texts[0], "corpus.name=files", "corpus.sizes=null", f"corpus.train={texts}", f"corpus.validation={texts}"),
        (tokenizer, f"tokenizer={{path: {tokenizer}}}"),
    ):
        Path(held).parent.mkdir(exist_ok=True)
        Path(held).touch()
        with pytest.raises(ValueError, match=rf"holds {held} itself, which would be deleted: choose another -o"):
            train(small_recipe(*settings), finished.run, overwrite=True)
        assert Path(held).exists()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("all of it")
    with pytest.raises(FileExistsError, match=r"no recipe.yaml, so it is no run, and is not deleted"):
        train(small_recipe(), precious, overwrite=True)
    with pytest.raises(FileExistsError, match="is a file: name a folder"):
        train(small_recipe(), precious / "thesis.tex")


def test_a_run_that_another_training_has_begun_meanwhile_is_not_deleted(small_recipe, tmp_path, monkeypatch):
    def slow(*arguments):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "recipe.yaml").write_text("of another")
        return load_splits(*arguments)

    load_splits = training.load_splits
    monkeypatch.setattr(training, "load_splits", slow)
    with pytest.raises(FileExistsError, match="run exists"):
        train(small_recipe(), tmp_path / "run")
    assert (tmp_path / "run" / "recipe.yaml").read_text() == "of another"


def test_a_place_where_nothing_can_be_written_is_told_at_once(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "load_splits", None)
    for place in ("/proc/run", "/sys/a/run"):  # not even by the superuser
        with pytest.raises(OSError, match=r"nothing can be written into /\w+, choose another -o"):
            train(small_recipe(), Path(place))


def test_flex_attention_is_for_gpus(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="flex_attention has gradients on GPUs only"):
        train(small_recipe("training.attn_implementation=flex_attention"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("longest", [9, 300])
def test_fine_tuning_on_longer_sentences_admits_them(longest, finished, small_recipe, tmp_path):
    before = AutoTokenizer.from_pretrained(finished.model).model_max_length
    lengths = (f"corpus.max_length={longest}", "training.max_tokens=512", "training.max_steps=1")
    recipe = small_recipe("model=null", "tokenizer=null", *lengths)
    result = train(recipe, tmp_path / "run", from_model=str(finished.model))
    assert AutoTokenizer.from_pretrained(result.model).model_max_length == max(before, longest)


def test_language_models_keep_the_weights_of_the_lower_loss():
    for name in ("causal-lm", "masked-lm"):
        assert TASKS[name].figure(None, {"loss": 1.5, "accuracy": 3.0}) == 1.5 and not TASKS[name].greater_is_better


class SeesTwo(arguments.Seq2SeqTrainingArguments):
    """Arguments of a process that sees two GPUs."""

    def __post_init__(self):
        super().__post_init__()
        self._n_gpu = 2


def test_of_several_gpus_one_is_used(warnings_of, small_recipe, tmp_path, monkeypatch):
    """As transformers would have it, DataParallel would divide each batch, and the number of its tokens."""
    monkeypatch.setattr(arguments, "Seq2SeqTrainingArguments", SeesTwo)
    assert train(small_recipe(), tmp_path / "run").step == 12
    assert any("one of 2 GPUs is used" in text for text in warnings_of())


def test_a_precision_that_is_not_the_recipes(finished, small_recipe, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    with pytest.raises(ValueError, match=r"told --mixed_precision fp16, and training.bf16=False means 'no' here"):
        train(small_recipe(), finished.run, overwrite=True)
    assert finished.model.is_dir()


@pytest.mark.parametrize(
    ("better", "newest", "mean"),
    [
        ("newest", (1.0, 2.5), (1.1, 1.5)),
        ("mean", (1.0, 1.5), (1.0, 1.5)),
        ("mean", (1.1, 2.5), (1.0, 1.5)),  # BLEU alone may differ by chance
        ("mean", (1.0, 1.5), (1.1, 2.5)),
    ],
)
def test_newest_weights_that_are_better_by_loss_and_bleu_are_kept(
    better, newest, mean, warnings_of, small_recipe, tmp_path, monkeypatch
):
    measured, scores = iter([newest, mean]), TranslationTask.scores

    def other(*args):
        found, (loss, bleu) = scores(*args), next(measured)
        return found | {"loss": loss, "BLEU": found["BLEU"] | {"score": bleu}}

    monkeypatch.setattr(TranslationTask, "scores", other)
    run = train(small_recipe(), tmp_path / "run").run
    told = json.loads((run / "result.json").read_text())
    assert told["weights"] == better and "loss_of_exchanged_sources" in told["validation"][better]
    folders = checkpoints(run)[-1:] if better == "newest" else [run / name for name in told["mean_of"]]
    ours, expected = load_file(run / "model" / "model.safetensors"), mean_weights(folders)
    assert all(torch.equal(ours[name], expected[name]) for name in ours)
    assert (run / "mean").exists() == (better == "newest")
    if better == "newest":  # the other can be scored too
        other = load_file(run / "mean" / "model.safetensors")
        expected = mean_weights([run / name for name in told["mean_of"]])
        assert all(torch.equal(other[name], expected[name]) for name in other)
        assert load_translator(run / "mean")(["a b"])
    warned = [text for text in warnings_of() if "newest weights are kept" in text]
    said = "{'loss': 1.1, 'bleu': 1.5} against {'loss': 1.0, 'bleu': 2.5}"
    assert [said in text for text in warned] == ([True] if better == "newest" else [])


def test_a_missing_tensorboard_is_told_before_anything_is_deleted(finished, small_recipe, monkeypatch):
    monkeypatch.setattr(arguments, "is_tensorboard_available", lambda: False)
    with pytest.raises(ImportError, match=r"report_to=tensorboard needs tensorboard: pip install .*\[tensorboard\]"):
        train(small_recipe("training.report_to=tensorboard"), finished.run, overwrite=True)
    assert finished.model.is_dir()


def test_the_same_seed_has_the_same_losses(small_recipe, tmp_path):
    settings = ("training.max_steps=20", "training.eval_steps=1", "training.eval_pairs=1")
    runs = [train(small_recipe(*settings), tmp_path / name).run for name in ("one", "two")]
    assert len(losses(runs[0])) == 20
    assert losses(runs[0]) == losses(runs[1])


def test_shards_are_for_another_script(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ValueError, match="shard with scripts/run_translation"):
        train(small_recipe(), tmp_path / "run")


def test_curves_of_nothing(tmp_path):
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "trainer_state.json").write_text('{"log_history": []}')
    with pytest.raises(ValueError, match="has logged nothing yet"):
        draw_curves(tmp_path, tmp_path / "curves.png")


def test_curves_are_drawn(finished, tmp_path):
    history = logged(finished.run)
    assert all(entry["tokens_per_second"] > 0 for entry in history if "loss" in entry)
    picture = draw_curves(finished.run, tmp_path / "new" / "curves.png")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    drawn = draw_curves(finished.run, tmp_path / "curves.svg").read_text("utf-8")
    assert drawn.count('id="axes_') == len(PANELS) and all(f"<!-- {title} -->" in drawn for title in PANELS)
    with pytest.raises(FileNotFoundError, match="no whole checkpoint"):
        draw_curves(tmp_path, tmp_path / "none.png")


def test_curves_are_those_of_the_log(finished, tmp_path, monkeypatch):
    drawn, plot = {}, Axes.plot

    def plotted(self, x, y, **options):
        drawn[options["label"]] = list(zip(x, y, strict=True))
        return plot(self, x, y, **options)

    monkeypatch.setattr(Axes, "plot", plotted)
    draw_curves(finished.run, tmp_path / "curves.png")
    log = logged(finished.run)
    for title in PANELS.values():
        for name, label in title.items():
            wanted = [(entry["step"], entry[name]) for entry in log if name in entry]
            assert drawn.get(label, []) == wanted and (wanted or name == "eval_accuracy")


def test_tensorboard_on_request(small_recipe, tmp_path):
    run = train(small_recipe("training.report_to=tensorboard"), tmp_path / "run").run
    [events] = (run / "runs").rglob("events.out.tfevents*")  # where README says
    read = EventAccumulator(str(events.parent))
    read.Reload()
    assert {"train/loss", "train/learning_rate", "train/grad_norm", "eval/loss", "eval/bleu"} <= set(
        read.Tags()["scalars"]
    )
    assert {one.step: one.value for one in read.Scalars("train/loss")} == pytest.approx(losses(run))


def test_no_tensorboard_without_request(finished):
    assert not list(finished.run.rglob("events.out.tfevents*"))


def test_the_folder_where_the_command_runs_is_not_deleted(finished, small_recipe, monkeypatch):
    (finished.run / "inside").mkdir()
    for place in (finished.run, finished.run / "inside"):
        monkeypatch.chdir(place)
        with pytest.raises(ValueError, match="is where this command runs, and would be deleted: go out of it"):
            train(small_recipe(), finished.run, overwrite=True)
    assert finished.model.exists()
