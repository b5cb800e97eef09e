"""Checkpoints are whole, or not there: their choice and their mean, and disks that are full."""

import json
import resource
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny import losses
from transformers import TrainerCallback

from vanilla_transformer.training import finish as finishing
from vanilla_transformer.training import train as training
from vanilla_transformer.training.checkpoints import checkpoints, discard, mean_weights, rotate, select, writing
from vanilla_transformer.training.run_folder import content, remove_unfinished
from vanilla_transformer.training.train import train
from vanilla_transformer.training.trainer import RecipeTrainer


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


def test_only_what_a_run_writes_itself_counts_as_unfinished(tmp_path):
    for name in ("tmp-model", "tmp-deleted-checkpoint-5", "tmp-checkpoint-10", "tmp-mydata"):
        (tmp_path / name).mkdir()
    for name in ("tmp-result.json", "tmp-result.json.old"):
        (tmp_path / name).write_text("")
    assert content(tmp_path)
    remove_unfinished(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"tmp-mydata", "tmp-result.json.old"}


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
    assert (run / "tmp-checkpoint-10").exists()
    monkeypatch.undo()
    write = training.write_whole

    def where_there_is_room(file, text):
        assert not (run / "tmp-checkpoint-10").exists()
        write(file, text)

    monkeypatch.setattr(training, "write_whole", where_there_is_room)
    assert train(small_recipe(), run, resume=True).step == 12


def test_what_is_no_matter_of_disks_is_told_as_it_is(tmp_path):
    with pytest.raises(RuntimeError, match=r"^Connection closed by peer$"), writing(tmp_path / "checkpoint-10"):
        raise RuntimeError("Connection closed by peer")


@pytest.mark.parametrize("part", ["model.safetensors", "optimizer.pt"])
def test_a_disk_that_takes_no_more_of_a_file(part, finished, small_recipe, tmp_path, monkeypatch):
    """The errors of safetensors and of torch themselves, at the limit that the system sets to the size of a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    sizes = {file.name: file.stat().st_size for file in checkpoints(finished.run)[0].iterdir()}
    assert sizes["optimizer.pt"] > sizes["model.safetensors"] + 8192  # which is written before it

    class Full(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 10:
                resource.setrlimit(resource.RLIMIT_FSIZE, (sizes[part] - 4096, limits[1]))

    run = tmp_path / "run"
    monkeypatch.setattr(training, "early_stopping", lambda recipe: [Full()])
    try:
        with pytest.raises(
            OSError, match=r"(?s)could not write .*checkpoint-10 with [0-9]+ MB.*checkpoint-5 is whole"
        ):
            train(small_recipe(), run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in checkpoints(run)] == ["checkpoint-5"]
    monkeypatch.undo()
    train(small_recipe(), run, resume=True)
    assert losses(run) == losses(finished.run)


def test_a_disk_that_is_full_before_the_final_model(small_recipe, tmp_path, monkeypatch):
    run = tmp_path / "run"
    rename = finishing.publish

    def full(aside, folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(finishing, "publish", full)
    with pytest.raises(OSError, match=r"could not write .*model with .*No space.*checkpoint-12 is whole: make room"):
        train(small_recipe(), run)
    monkeypatch.setattr(finishing, "publish", rename)
    assert train(small_recipe(), run, resume=True).model == run / "model"
