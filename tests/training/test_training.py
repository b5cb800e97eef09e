import importlib.metadata
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import SMALL
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, TrainerCallback

from vanilla_transformer.inspection.curves import draw_curves, logged
from vanilla_transformer.model.search import is_as_made
from vanilla_transformer.training import train as training
from vanilla_transformer.training.checkpoints import (
    checkpoints,
    discard,
    mean_weights,
    remove_unfinished,
    rotate,
    select,
)
from vanilla_transformer.training.tasks import TASKS, TranslationTask
from vanilla_transformer.training.train import train
from vanilla_transformer.training.trainer import (
    DivergenceError,
    RecipeTrainer,
    StopOnInterrupt,
    entropy,
    exchange_sources,
)


def losses(run: Path) -> dict[int, float]:
    state = json.loads((checkpoints(run)[-1] / "trainer_state.json").read_text())
    return {entry["step"]: entry["loss"] for entry in state["log_history"] if "loss" in entry}


@pytest.fixture
def finished(small_recipe, tmp_path):
    """A run that was never interrupted."""
    run = tmp_path / "whole"
    return train(small_recipe(), run)


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


class Crash(Exception):
    pass


def crash_at(monkeypatch, step: int) -> None:
    class CrashCallback(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == step:
                raise Crash

    monkeypatch.setattr(training, "early_stopping", lambda recipe: [CrashCallback()])


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("training.bpe_dropout=0.2", "tokenizer.vocab_size=280"),
        pytest.param(
            ("training.optimizer=muon",),
            marks=pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch 2.9 brings it"),
        ),
    ],
)
def test_resumed_in_the_middle_of_an_epoch_equals_never_stopped(settings, small_recipe, tmp_path, monkeypatch):
    finished = train(small_recipe(*settings), tmp_path / "whole")
    run = tmp_path / "broken"
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, 9)  # after checkpoint-5, within the second epoch
        train(small_recipe(*settings), run)
    assert [path.name for path in checkpoints(run)] == ["checkpoint-5"]
    half_written = run / "tmp-checkpoint-9" / "checkpoint-9"
    half_written.mkdir(parents=True)
    (half_written / "model.safetensors").write_bytes(b"half")
    train(small_recipe(*settings), run, resume=True)
    for name in ("checkpoint-10", "checkpoint-12", "model"):
        ours, theirs = (load_file(folder / name / "model.safetensors") for folder in (run, finished.run))
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert losses(run) == losses(finished.run)
    assert not list(run.glob("tmp-*"))


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


@pytest.mark.parametrize("able", [True, False])
def test_bf16_where_it_is_faster(able, small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "computes_in_bfloat16", lambda: able)
    run = train(small_recipe("training.bf16=auto"), tmp_path / "run").run
    assert json.loads((run / "provenance.json").read_text())["bf16"] is able


def test_early_stopping(small_recipe, tmp_path):
    settings = ("training.patience=1", "training.eval_steps=2", "training.max_steps=40", "training.learning_rate=1e-9")
    assert train(small_recipe(*settings), tmp_path / "run").step == 4


def test_early_stopping_goes_on_counting_when_it_resumes(small_recipe, tmp_path):
    common = ("training.patience=2", "training.eval_steps=1", "training.learning_rate=1e-9")
    whole = train(small_recipe(*common), tmp_path / "whole")
    train(small_recipe(*common, "training.max_steps=2"), tmp_path / "parts")
    assert train(small_recipe(*common), tmp_path / "parts", resume=True).step == whole.step == 3


def test_existing_output_is_kept(finished, small_recipe):
    with pytest.raises(FileExistsError, match=r"exists: go on from checkpoint-12 with --resume, or replace it with"):
        train(small_recipe(), finished.run)
    before = (finished.run / "result.json").stat().st_mtime_ns
    result = train(small_recipe("training.max_steps=2", "training.eval_steps=1"), finished.run, overwrite=True)
    assert result.step == 2 and (finished.run / "result.json").stat().st_mtime_ns != before
    assert [path.name for path in checkpoints(finished.run)] == ["checkpoint-1", "checkpoint-2"]


def test_resume_needs_a_checkpoint_and_the_same_recipe(finished, small_recipe, tmp_path):
    with pytest.raises(ValueError, match="no whole checkpoint to resume from"):
        train(small_recipe(), tmp_path / "nothing", resume=True)
    with pytest.raises(
        ValueError, match=r"training.max_tokens was 256, now 128; .*same one|max_tokens was 256, now 128"
    ):
        train(small_recipe("training.max_tokens=128"), finished.run, resume=True)
    for setting in ("training.average=best", "training.patience=3"):
        with pytest.raises(ValueError, match=r"training.eval_pairs was 4, now 10"):
            train(small_recipe(setting, "training.eval_pairs=10"), finished.run, resume=True)
    with pytest.raises(ValueError, match="--from starts a new training and --resume goes on"):
        train(small_recipe(), finished.run, resume=True, from_model="x")


def test_mean_and_choice_of_checkpoints(tmp_path):
    history = []
    for step, bleu, value in [(1, 5.0, 1.0), (2, 9.0, 2.0), (3, 7.0, 6.0)]:
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        save_file({"w": torch.tensor([value])}, folder / "model.safetensors")
        history.append({"step": step, "eval_bleu": bleu})
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    (tmp_path / "tmp-checkpoint-4").mkdir()

    def names(which, count, metric="bleu", greater=True, every=1):
        return [path.name for path in select(tmp_path, which, count, metric, greater, every)]

    assert names("last", 2) == ["checkpoint-2", "checkpoint-3"]
    assert names("best", 2) == ["checkpoint-2", "checkpoint-3"]
    assert names("best", 1) == ["checkpoint-2"]
    assert names("best", 1, greater=False) == ["checkpoint-1"]
    assert names("last", 3, every=2) == ["checkpoint-2", "checkpoint-3"]  # without that of an interrupt
    assert mean_weights(checkpoints(tmp_path))["w"].item() == 3.0
    rotate(tmp_path, [tmp_path / "checkpoint-2"])
    assert [p.name for p in checkpoints(tmp_path)] == ["checkpoint-2", "checkpoint-3"]  # the best, and the newest


def test_no_folder_that_is_deleted_looks_whole(tmp_path, monkeypatch):
    """Killed in the middle of it, there is none of its name."""

    def killed(folder):
        (folder / "optimizer.pt").unlink()
        raise KeyboardInterrupt

    for step in (1, 2):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        for name in ("optimizer.pt", "trainer_state.json"):
            (folder / name).write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            rotate(tmp_path, [])
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-2"]
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]
    discard(tmp_path / "checkpoint-2")
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_a_plain_trainer_has_not_finished(tmp_path):
    """It writes them in place, and their state last."""
    (tmp_path / "checkpoint-1").mkdir()
    assert not checkpoints(tmp_path)
    (tmp_path / "checkpoint-1" / "trainer_state.json").write_text("{}")
    assert checkpoints(tmp_path)


def test_disk_full_keeps_the_last_good_checkpoint(small_recipe, tmp_path, monkeypatch):
    run = tmp_path / "run"
    save_model = RecipeTrainer.save_model

    def full_from_step_10(self, output_dir=None, _internal_call=False):
        save_model(self, output_dir, _internal_call)
        if self.state.global_step >= 10:
            (Path(output_dir) / "model.safetensors").write_bytes(b"the first half")
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(RecipeTrainer, "save_model", full_from_step_10)
    message = r"(?s)checkpoint-10 with [0-9]+ MB of disk left: .*No space left.*checkpoint-5 is whole.*--resume"
    with pytest.raises(OSError, match=message):
        train(small_recipe(), run)
    assert [path.name for path in checkpoints(run)] == ["checkpoint-5"]
    monkeypatch.undo()
    assert train(small_recipe(), run, resume=True).step == 12


def test_fine_tuning_keeps_config_and_tokenizer(finished, small_recipe, tmp_path):
    recipe = small_recipe("model=null", "tokenizer=null", "corpus.seed=5", "training.max_steps=3")
    result = train(recipe, tmp_path / "tuned", from_model=str(finished.model))
    before, after = (AutoModelForSeq2SeqLM.from_pretrained(folder) for folder in (finished.model, result.model))
    assert after.config.d_model == before.config.d_model
    assert AutoTokenizer.from_pretrained(result.model)("a b") == AutoTokenizer.from_pretrained(finished.model)("a b")
    moved = (after.lm_head.weight - before.lm_head.weight).abs().max()
    assert 0 < moved < 0.2


def test_fine_tuning_with_a_recipe_that_contradicts(finished, small_recipe, tmp_path):
    message = r"model.d_model is 32 in the recipe and 16 in .*tokenizer is 555.*--set model=null --set tokenizer=null"
    with pytest.raises(ValueError, match=message):
        recipe = small_recipe("model.d_model=32", "tokenizer.vocab_size=555")
        train(recipe, tmp_path / "x", from_model=str(finished.model))


def test_without_model_section_a_base_is_needed(small_recipe, tmp_path):
    with pytest.raises(ValueError, match="--from MODEL"):
        train(small_recipe("model=null"), tmp_path / "x")


def command(run: Path, *more: str) -> list[str]:
    settings = [
        part
        for setting in [*SMALL, "training.max_steps=2000", "training.eval_steps=40"]
        for part in ("--set", setting)
    ]
    return [
        sys.executable,
        "-m",
        "vanilla_transformer",
        "train",
        "copy",
        "-o",
        str(run),
        *settings,
        "--threads",
        "1",
        *more,
    ]


def wait_for(condition, seconds=90):
    for _ in range(seconds * 10):
        if condition():
            return
        time.sleep(0.1)
    raise TimeoutError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_with_a_checkpoint_and_says_how_to_go_on(number, tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(command(run), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: checkpoints(run))
        process.send_signal(number)
        _, errors = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 130
    step = int(re.search(r"stopped after step (\d+), which is saved. Go on with: .*--resume", errors)[1])
    assert checkpoints(run)[-1].name == f"checkpoint-{step}"
    assert "Traceback" not in errors
    assert step in losses(run)  # what was summed up since the last log is not lost


def test_interrupts_that_are_echoes_and_those_that_are_not(monkeypatch):
    """Whoever is impatient presses again and again, and is heard a second after the first time."""
    now = iter([10.0, 10.6, 11.2])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    stop = StopOnInterrupt()
    stop.tells, stop.echo = False, 1
    stop.stop(signal.SIGINT, None)
    stop.stop(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        stop.stop(signal.SIGINT, None)


def test_an_interrupt_while_the_last_checkpoint_is_saved(small_recipe, tmp_path, monkeypatch):
    """It is answered as one before it: nothing more is done, and --resume writes the final model."""
    save = RecipeTrainer._save_checkpoint

    def interrupted(trainer, *arguments):
        save(trainer, *arguments)
        if trainer.state.global_step == 12:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RecipeTrainer, "_save_checkpoint", interrupted)
    result = train(small_recipe(), tmp_path / "run")
    assert result.model is None and result.step == 12
    assert train(small_recipe(), tmp_path / "run", resume=True).model


def test_kill_dash_9_and_resume(tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(command(run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(checkpoints(run)) >= 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    newest = checkpoints(run)[-1]
    steps = int(newest.name.split("-")[1]) + 3
    more = ("--resume", "--set", f"training.max_steps={steps}")
    result = subprocess.run(command(run, *more), capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr[-2000:]
    assert json.loads((run / "result.json").read_text())["step"] == steps


KILLED = """
import os, signal, sys
from pathlib import Path
import torch, transformers.modeling_utils
from vanilla_transformer.cli import main
from vanilla_transformer.training import trainer

def dies(original):
    def call(what, where, *args, **kwargs):
        if str(where).endswith(sys.argv[1]):
            if not isinstance(what, Path):  # else it is the name that a whole one would have got
                Path(where).write_bytes(b"half of a file")
            os.kill(os.getpid(), signal.SIGKILL)
        return original(what, where, *args, **kwargs)
    return call

trainer.publish, torch.save = dies(trainer.publish), dies(torch.save)
transformers.modeling_utils.safe_save_file = dies(transformers.modeling_utils.safe_save_file)
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("file", ["/model.safetensors", "/optimizer.pt", ""])
def test_killed_during_a_save(file, finished, tmp_path):
    """Whatever was written of a checkpoint, the run goes on from the one before, and ends as if never killed."""
    run = tmp_path / "killed"
    words = ["train", "copy", "-o", str(run), *(part for setting in SMALL for part in ("--set", setting))]
    kill = [sys.executable, "-c", KILLED, f"checkpoint-10{file}", *words]
    done = subprocess.run(kill, capture_output=True, text=True, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert [path.name for path in checkpoints(run)] == ["checkpoint-5"] and list(run.glob("tmp-checkpoint-10"))
    again = [sys.executable, "-m", "vanilla_transformer", *words, "--resume"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert losses(run) == losses(finished.run)
    assert not list(run.glob("tmp-*"))


def test_overwrite_deletes_nothing_before_all_is_known_to_be_right(finished, small_recipe, tmp_path):
    with pytest.raises(ValueError, match="contradicts"):
        recipe = small_recipe("tokenizer.vocab_size=555")
        train(recipe, finished.run, overwrite=True, from_model=str(finished.model))
    assert (finished.model / "model.safetensors").exists()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("all of it")
    with pytest.raises(FileExistsError, match=r"no recipe.yaml, so it is no run, and is not deleted"):
        train(small_recipe(), precious, overwrite=True)
    with pytest.raises(FileExistsError, match="is a file: name a folder"):
        train(small_recipe(), precious / "thesis.tex")


def test_a_finished_run_has_nothing_to_resume(finished, small_recipe):
    with pytest.raises(ValueError, match=r"is finished, after 12 steps: raise training\.max_steps"):
        train(small_recipe(), finished.run, resume=True)


def test_killed_before_the_final_model_is_written(finished, small_recipe, tmp_path, monkeypatch):
    run = tmp_path / "run"
    monkeypatch.setattr(training, "finish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(small_recipe(), run)
    monkeypatch.undo()
    assert train(small_recipe(), run, resume=True).step == 12
    assert [path.name for path in checkpoints(run)] == ["checkpoint-10", "checkpoint-12"]
    one, other = (json.loads((folder / "result.json").read_text()) for folder in (run, finished.run))
    assert {**one, "minutes": 0} == {**other, "minutes": 0}
    weights, expected = (load_file(folder / "model" / "model.safetensors") for folder in (run, finished.run))
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())


def test_killed_before_the_final_model_of_a_longer_training_is_written(finished, small_recipe, monkeypatch):
    longer = small_recipe("training.max_steps=15")
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(training, "finish", lambda *_: 1 / 0)
        train(longer, finished.run, resume=True)
    monkeypatch.setattr(TranslationTask, "figure", lambda *_: 0.0)  # neither is better
    assert train(longer, finished.run, resume=True).step == 15
    assert json.loads((finished.run / "result.json").read_text())["step"] == 15
    newest = load_file(finished.run / "checkpoint-15" / "model.safetensors")
    other = load_file(finished.run / "checkpoint-10" / "model.safetensors")
    ours = load_file(finished.model / "model.safetensors")
    assert all(torch.allclose(ours[name], (newest[name] + other[name]) / 2, atol=1e-6) for name in ours)


@pytest.mark.parametrize("lost", ["result", "half a result", "model"])
def test_what_a_finished_run_has_lost_is_made_again(lost, finished, small_recipe):
    result = finished.run / "result.json"
    before = json.loads(result.read_text())
    if lost == "model":
        shutil.rmtree(finished.model)
    else:
        result.write_text(result.read_text()[:20]) if lost == "half a result" else result.unlink()
    train(small_recipe(), finished.run, resume=True)
    assert json.loads(result.read_text()) == before and (finished.model / "config.json").exists()


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_rate_that_falls_to_zero_has_one_length(schedule, small_recipe, tmp_path):
    settings = f"training.lr_scheduler_type={schedule}"
    run = train(small_recipe(settings), tmp_path / "run").run
    with pytest.raises(ValueError, match=r"max_steps was 12, now 20.*start anew.*with --from a checkpoint"):
        train(small_recipe(settings, "training.max_steps=20"), run, resume=True)
    with pytest.raises(ValueError, match=r"is finished, after 12 steps: start anew --from .*model to train on"):
        train(small_recipe(settings), run, resume=True)
    with pytest.raises(ValueError, match=r"dropout was .*or start anew in another folder$"):
        train(small_recipe(settings, "model.dropout=0.2"), run, resume=True)


def test_language_models_keep_the_weights_of_the_lower_loss():
    for name in ("causal-lm", "masked-lm"):
        assert TASKS[name].figure(None, {"loss": 1.5, "accuracy": 3.0}) == 1.5 and not TASKS[name].greater_is_better


class SeesTwo(training.Seq2SeqTrainingArguments):
    """Arguments of a process that sees two GPUs."""

    def __post_init__(self):
        super().__post_init__()
        self._n_gpu = 2


def test_of_several_gpus_one_is_used(warnings_of, small_recipe, tmp_path, monkeypatch):
    """As transformers would have it, DataParallel would divide each batch, and the number of its tokens."""
    monkeypatch.setattr(training, "Seq2SeqTrainingArguments", SeesTwo)
    assert train(small_recipe(), tmp_path / "run").step == 12
    assert any("one of 2 GPUs is used" in text for text in warnings_of())


def test_a_precision_that_is_not_the_recipes(finished, small_recipe, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    with pytest.raises(ValueError, match=r"told --mixed_precision fp16, and training.bf16=False means 'no' here"):
        train(small_recipe(), finished.run, overwrite=True)
    assert finished.model.is_dir()


@pytest.mark.parametrize("better", ["newest", "mean"])
def test_the_better_of_newest_weights_and_mean_is_kept(better, warnings_of, small_recipe, tmp_path, monkeypatch):
    bleu = iter([2.5, 1.5] if better == "newest" else [1.5, 1.5])
    scores = TranslationTask.scores

    def other(*args):
        found = scores(*args)
        return found | {"BLEU": found["BLEU"] | {"score": next(bleu)}}

    monkeypatch.setattr(TranslationTask, "scores", other)
    run = train(small_recipe(), tmp_path / "run").run
    told = json.loads((run / "result.json").read_text())
    assert told["weights"] == better and "loss_of_exchanged_sources" in told["validation"][better]
    folders = checkpoints(run)[-1:] if better == "newest" else [run / name for name in told["mean_of"]]
    ours, expected = load_file(run / "model" / "model.safetensors"), mean_weights(folders)
    assert all(torch.equal(ours[name], expected[name]) for name in ours)
    warned = [text for text in warnings_of() if "newest weights are kept" in text]
    assert ["bleu 1.5 against 2.5" in text for text in warned] == ([True] if better == "newest" else [])


def test_patience_that_is_spent_or_given_late(small_recipe, tmp_path):
    recipe = small_recipe("training.patience=1", "training.eval_steps=1", "training.learning_rate=1e-9")
    stopped = train(recipe, tmp_path / "run")
    assert stopped.step < 12
    with pytest.raises(ValueError, match=f"is finished, after {stopped.step} steps: raise training.patience=1 to"):
        train(recipe, stopped.run, resume=True)
    train(small_recipe("training.max_steps=5"), tmp_path / "late")
    late = train(small_recipe("training.max_steps=10", "training.patience=3"), tmp_path / "late", resume=True)
    assert late.step == 10
    commands = json.loads((late.run / "provenance.json").read_text())["commands"]
    assert len(commands) == 2 and "max_steps: 10" in (late.run / "recipe.yaml").read_text()


@pytest.mark.parametrize(
    ("key", "value"), [("processes", 2), ("bf16", True), ("data", {"train": {"pairs": 120, "sha256": "another"}})]
)
def test_other_batches_are_not_gone_on_with(key, value, finished, small_recipe):
    file = finished.run / "provenance.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(ValueError, match=f"would not go on as it began .{key} was"):
        train(small_recipe("training.max_steps=20"), finished.run, resume=True)


def test_an_optimizer_that_is_missing_is_told_before_anything_is_deleted(finished, small_recipe, monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with pytest.raises(ValueError, match=r"optimizer=muon needs torch 2\.9"):
        train(small_recipe("training.optimizer=muon"), finished.run, overwrite=True)
    assert finished.model.is_dir()


def test_a_missing_tensorboard_is_told_before_anything_is_deleted(finished, small_recipe, monkeypatch):
    monkeypatch.setattr(training, "is_tensorboard_available", lambda: False)
    with pytest.raises(ImportError, match="report_to=tensorboard needs tensorboard: pip install"):
        train(small_recipe("training.report_to=tensorboard"), finished.run, overwrite=True)
    assert finished.model.is_dir()


def test_a_fine_tuning_resumes_too(finished, small_recipe, tmp_path, monkeypatch):
    recipe = small_recipe("model=null", "tokenizer=null", "corpus.seed=5")
    whole = train(recipe, tmp_path / "whole-tuning", from_model=str(finished.model))
    run = tmp_path / "broken-tuning"
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, 7)
        train(recipe, run, from_model=str(finished.model))
    ours, theirs = (load_file(r.model / "model.safetensors") for r in (train(recipe, run, resume=True), whole))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_the_same_seed_has_the_same_losses(small_recipe, tmp_path):
    settings = ("training.max_steps=20", "training.eval_steps=1", "training.eval_pairs=1")
    runs = [train(small_recipe(*settings), tmp_path / name).run for name in ("one", "two")]
    assert len(losses(runs[0])) == 20
    assert losses(runs[0]) == losses(runs[1])


@pytest.mark.parametrize("rate", [1e5, float("nan")])
def test_divergence_stops_and_says_what_to_change(rate, small_recipe, tmp_path, monkeypatch):
    if rate != rate:  # a loss that is no number, behind a whole checkpoint
        step, calls = RecipeTrainer.compute_loss, []

        def broken(self, *args, **kwargs):
            calls.append(1)
            return step(self, *args, **kwargs) * (float("nan") if len(calls) > 7 else 1.0)

        monkeypatch.setattr(RecipeTrainer, "compute_loss", broken)
    settings = [] if rate != rate else [f"training.learning_rate={rate}", "training.warmup_steps=1"]
    with pytest.raises(
        DivergenceError, match=r"step \d+ .* gradient norm of [\dni][\d.an+ef-]* at a learning rate of .*learning_rate"
    ) as error:
        train(small_recipe(*settings), tmp_path / "run")
    assert ("checkpoint-5, which is from before" in str(error.value)) == (rate != rate)


def test_gradients_that_are_no_numbers_never_reach_the_weights(small_recipe, tmp_path, monkeypatch):
    step, calls = RecipeTrainer.training_step, []

    def broken(self, model, *args):
        loss = step(self, model, *args)
        calls.append(1)
        if len(calls) == 10:  # whose weights are saved, evaluation or not
            next(model.parameters()).grad[0, 0] = float("inf")
        return loss

    monkeypatch.setattr(RecipeTrainer, "training_step", broken)
    with pytest.raises(DivergenceError, match=r"step 10 has a gradient norm of inf .*checkpoint-5, which is from"):
        train(small_recipe(), tmp_path / "run")
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-5"]


def test_what_was_learned_is_not_replaced_by_less_than_a_guess(small_recipe, tmp_path, monkeypatch):
    """Nor than the frequency of each token tells, which is below what a uniform guess does, log V nats."""
    frequencies = []

    def lost(trainer, *_):
        frequencies.append(trainer.frequencies)
        return [0.5, 0.95 * trainer.frequencies][len(frequencies) - 1]

    monkeypatch.setattr(RecipeTrainer, "nats_per_token", lost)
    message = r"step 10 has lost what it had learned: .* 0.5 to .*last gradient norm was [\d.]+\).*checkpoint-5,"
    with pytest.raises(DivergenceError, match=message):
        train(small_recipe(), tmp_path / "run")
    assert 1 < frequencies[0] < math.log(259)
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-5"]


def test_entropy():
    assert entropy([7, 7, 7, 7]) == pytest.approx(0)
    assert entropy([1, 2, 1, 3]) == pytest.approx(1.5 * math.log(2))


def test_weights_that_are_no_numbers_are_not_saved(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(RecipeTrainer, "nats_per_token", lambda *_: float("nan"))
    with pytest.raises(DivergenceError, match="a validation loss of nan"):
        train(small_recipe(), tmp_path / "run")
    assert not checkpoints(tmp_path / "run")


def test_a_warm_up_that_never_ends_is_told(warnings_of, small_recipe, tmp_path):
    train(small_recipe("training.max_steps=3", "training.eval_steps=3"), tmp_path / "run")
    assert any("warmup_steps=4 and training.max_steps=3: the learning rate rises to" in text for text in warnings_of())


def test_sources_are_exchanged_where_each_pair_is_a_batch():
    """With one pair to a batch there is no neighbour in it, whose source could be read instead."""

    def batch(*places: int) -> dict:
        ids = torch.tensor(places)[:, None].expand(-1, 4)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}

    batches = [batch(1), batch(2), batch(3, 4), batch(5)]
    read = [(b["labels"][:, 0].tolist(), b["input_ids"][:, 0].tolist()) for b in exchange_sources(batches)]
    assert read == [([2], [1]), ([3, 4], [4, 3]), ([5], [3])]


def test_a_model_that_does_not_read_its_source_is_told(warnings_of, small_recipe, tmp_path):
    run = train(small_recipe("training.max_steps=2"), tmp_path / "blind").run
    told = json.loads((run / "result.json").read_text())
    result = told["validation"][told["weights"]]
    assert abs(result["loss_of_exchanged_sources"] - result["loss"]) < 0.05
    assert any("does not read its source" in text for text in warnings_of())


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
    assert b"<svg" in draw_curves(finished.run, tmp_path / "curves.svg").read_bytes()
    with pytest.raises(FileNotFoundError, match="no whole checkpoint"):
        draw_curves(tmp_path, tmp_path / "none.png")


def test_tensorboard_on_request(small_recipe, tmp_path):
    run = train(small_recipe("training.report_to=tensorboard"), tmp_path / "run").run
    assert list(run.rglob("events.out.tfevents*"))
