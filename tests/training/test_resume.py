"""A training that was stopped, killed or interrupted goes on as if it had not been."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import SMALL, held_elsewhere, losses
from transformers import TrainerCallback

from vanilla_transformer.training import train as training
from vanilla_transformer.training.checkpoints import checkpoints
from vanilla_transformer.training.tasks import TranslationTask
from vanilla_transformer.training.train import train
from vanilla_transformer.training.trainer import RecipeTrainer, StopOnInterrupt


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
        ("training.r_drop=3", "training.r_drop_after=7", "training.source_dropout=0.2"),
        ("training.optimizer=muon",),
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


def test_it_goes_on_without_the_folder_that_its_vocabulary_was_read_from(
    finished, small_recipe, tmp_path, monkeypatch
):
    """The run has its own copy."""
    folder = shutil.copytree(finished.run / "tokenizer", tmp_path / "vocabulary")
    recipe = small_recipe(f"tokenizer={{path: {folder}}}")
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, 9)
        train(recipe, tmp_path / "run")
    shutil.rmtree(folder)
    train(recipe, tmp_path / "run", resume=True)
    assert losses(tmp_path / "run") == losses(finished.run)


def test_early_stopping_goes_on_counting_when_it_resumes(small_recipe, tmp_path):
    common = ("training.patience=2", "training.eval_steps=1", "training.learning_rate=1e-9")
    whole = train(small_recipe(*common), tmp_path / "whole")
    train(small_recipe(*common, "training.max_steps=2"), tmp_path / "parts")
    assert train(small_recipe(*common), tmp_path / "parts", resume=True).step == whole.step == 3


def test_resume_needs_a_checkpoint_and_the_same_recipe(finished, small_recipe, tmp_path):
    with pytest.raises(ValueError, match="no whole checkpoint to resume from"):
        train(small_recipe(), tmp_path / "nothing", resume=True)
    with pytest.raises(ValueError, match=r"training.max_tokens was 256, now 128"):
        train(small_recipe("training.max_tokens=128"), finished.run, resume=True)
    with pytest.raises(ValueError, match=r"training.eval_pairs was 4, now 10"):  # another BLEU, for patience or best
        train(small_recipe("training.eval_pairs=10"), finished.run, resume=True)
    with pytest.raises(ValueError, match="--from starts a new training and --resume goes on"):
        train(small_recipe(), finished.run, resume=True, from_model="x")


def test_one_training_at_a_time_in_a_run_folder(finished, small_recipe, tmp_path):
    """Until it ends, however it does. Another name of the same folder is no way in, and another folder is free."""
    (tmp_path / "link").symlink_to(finished.run)
    longer = small_recipe("training.max_steps=14")
    with held_elsewhere(finished.run):
        for run in (finished.run, tmp_path / "link"):
            for options in ({"resume": True}, {"overwrite": True}):
                with pytest.raises(ValueError, match=rf"another process is training in {run}: .* with --resume"):
                    train(longer, run, **options)
        assert (finished.model / "model.safetensors").exists()
        assert checkpoints(finished.run)[-1].name == "checkpoint-12"
        assert train(small_recipe("training.max_steps=2"), tmp_path / "beside").step == 2
    assert train(longer, finished.run, resume=True).step == 14


def test_killed_before_the_first_checkpoint(small_recipe, tmp_path, monkeypatch):
    """What stands there can be replaced, and is told so."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, 2)
        train(small_recipe(), run)
    with pytest.raises(ValueError, match="no whole checkpoint to resume from: start anew with --overwrite"):
        train(small_recipe(), run, resume=True)
    with pytest.raises(ValueError, match="no whole checkpoint to resume from: start without --resume"):
        train(small_recipe(), tmp_path / "none", resume=True)
    shutil.rmtree(run / "tokenizer")
    (run / "provenance.json").unlink()  # which are written after the recipe, by which a run is known
    assert train(small_recipe(), run, overwrite=True).step == 12


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

def dies_before(event, arguments):  # a name is given, or taken away
    if event in ("os.rename", "shutil.rmtree"):
        if f"{event} {Path(str(arguments[event == 'os.rename'])).name}" == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGKILL)

def dies_in_step(self, *args):
    if f"step-{self.state.global_step + 1}" == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)
    return training_step(self, *args)

def dies(original):
    def call(what, where, *args, **kwargs):
        if str(where).endswith(sys.argv[1]):
            if not isinstance(what, Path):  # else it is the name that a whole one would have got
                Path(where).write_bytes(b"half of a file")
            os.kill(os.getpid(), signal.SIGKILL)
        return original(what, where, *args, **kwargs)
    return call

training_step = trainer.RecipeTrainer.training_step
trainer.RecipeTrainer.training_step = dies_in_step
trainer.publish, torch.save = dies(trainer.publish), dies(torch.save)
transformers.modeling_utils.safe_save_file = dies(transformers.modeling_utils.safe_save_file)
sys.addaudithook(dies_before)
sys.exit(main(sys.argv[2:]))
"""


FIVE, LAST = ["checkpoint-5"], ["checkpoint-10", "checkpoint-12"]


@pytest.mark.parametrize(
    ("moment", "whole", "unfinished"),
    [
        ("step-9", FIVE, []),  # in the middle of the second epoch, four updates after a checkpoint
        ("checkpoint-10/model.safetensors", FIVE, ["tmp-checkpoint-10"]),
        ("checkpoint-10/optimizer.pt", FIVE, ["tmp-checkpoint-10"]),
        ("checkpoint-10", FIVE, ["tmp-checkpoint-10"]),
        ("os.rename checkpoint-10", FIVE, ["tmp-checkpoint-10"]),
        ("os.rename tmp-deleted-checkpoint-5", [*FIVE, *LAST], []),
        ("shutil.rmtree tmp-deleted-checkpoint-5", LAST, ["tmp-deleted-checkpoint-5"]),
        ("os.rename model", LAST, ["tmp-model"]),
        ("os.rename result.json", LAST, ["tmp-result.json"]),
    ],
)
def test_killed_at_any_moment(moment, whole, unfinished, finished, tmp_path):
    """Whatever was written, the run goes on from the last whole checkpoint, and ends as if never killed."""
    run = tmp_path / "killed"
    words = ["train", "copy", "-o", str(run), *(part for setting in SMALL for part in ("--set", setting))]
    kill = [sys.executable, "-c", KILLED, moment, *words]
    done = subprocess.run(kill, capture_output=True, text=True, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert [path.name for path in checkpoints(run)] == whole
    assert [path.name for path in run.glob("tmp-*")] == unfinished
    again = [sys.executable, "-m", "vanilla_transformer", *words, "--resume"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert losses(run) == losses(finished.run)
    for name in ("checkpoint-10", "checkpoint-12", "model"):
        ours, theirs = (load_file(folder / name / "model.safetensors") for folder in (run, finished.run))
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert not list(run.glob("tmp-*"))


WATCHED = """
import sys
from pathlib import Path
from vanilla_transformer.cli import main

run, seen, looks = Path(sys.argv[1]), {}, []
MOMENTS = {"open", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "shutil.copyfile"}

def look(event, arguments):  # before anything is opened, renamed or deleted
    if event in MOMENTS and True not in looks[-1:]:
        looks.append(True)
        for folder in run.glob("checkpoint-*"):
            files = {path.name: path.stat().st_size for path in folder.iterdir()}
            assert seen.setdefault(folder.name, files) == files, (event, arguments, files)
        looks[-1] = False

sys.addaudithook(look)
code = main(sys.argv[2:])
print(sorted(seen), len(looks))
sys.exit(code)
"""


def test_a_checkpoint_is_whole_from_the_moment_that_it_has_its_name(tmp_path):
    words = ["train", "copy", "-o", str(tmp_path / "run"), *(w for setting in SMALL for w in ("--set", setting))]
    command = [sys.executable, "-c", WATCHED, str(tmp_path / "run"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "['checkpoint-10', 'checkpoint-12', 'checkpoint-5']" in done.stdout
    assert int(done.stdout.split()[-1]) > 100  # so often was it looked


def test_a_finished_run_has_nothing_to_resume(finished, small_recipe):
    with pytest.raises(ValueError, match=r"is finished, after 12 steps: raise training\.max_steps"):
        train(small_recipe(), finished.run, resume=True)


@pytest.mark.parametrize("length", ["training.max_steps=8", "training.num_train_epochs=0.5"])
def test_a_run_that_has_gone_further_is_not_said_to_be_shorter(length, small_recipe, tmp_path, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(training, "finish", lambda *_: 1 / 0)
        train(small_recipe(), run)
    shorter = [length] if "steps" in length else [length, "training.max_steps=null"]
    with pytest.raises(ValueError, match=rf"has made 12 updates, .* is to be .*{length.split('.', 1)[1]}.*raise it"):
        train(small_recipe(*shorter), run, resume=True)
    assert "max_steps: 12" in (run / "recipe.yaml").read_text() and not (run / "model").exists()


def test_a_length_in_epochs_that_ends_within_an_update(small_recipe, tmp_path, monkeypatch):
    """Its last update is made in whole, and is not too many."""
    recipe, run = small_recipe("training.max_steps=null", "training.num_train_epochs=0.9"), tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(training, "finish", lambda *_: 1 / 0)
        train(recipe, run)
    [*_, newest] = checkpoints(run)
    assert json.loads((newest / "trainer_state.json").read_text())["epoch"] > 0.9
    assert train(recipe, run, resume=True).model.exists()


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


def test_a_fine_tuning_resumes_too(finished, small_recipe, tmp_path, monkeypatch):
    recipe = small_recipe("model=null", "tokenizer=null", "corpus.seed=5")
    whole = train(recipe, tmp_path / "whole-tuning", from_model=str(finished.model))
    run = tmp_path / "broken-tuning"
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, 7)
        train(recipe, run, from_model=str(finished.model))
    ours, theirs = (load_file(r.model / "model.safetensors") for r in (train(recipe, run, resume=True), whole))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
