"""Trainings that go wrong say so."""

import json
import math
import re
import signal
from types import SimpleNamespace

import pytest
import torch

from vanilla_transformer.inspection.curves import logged
from vanilla_transformer.training import train as training
from vanilla_transformer.training.checkpoints import checkpoints
from vanilla_transformer.training.finish import source_check
from vanilla_transformer.training.train import train
from vanilla_transformer.training.trainer import (
    DivergenceError,
    RecipeTrainer,
    entropy,
    exchange_sources,
)


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
    advised = f"in another folder (-o) --from {tmp_path / 'run' / 'checkpoint-5'}, which is from before"
    assert (advised in str(error.value)) == (rate != rate)


def test_what_r_drop_adds_is_no_divergence(small_recipe, tmp_path):
    settings = ("training.r_drop=100", "model.dropout=0.5", "training.learning_rate=0.001", "training.max_steps=2")
    assert train(small_recipe(*settings), tmp_path / "run").step == 2


def test_what_is_told_of_a_divergence_is_that_of_its_step(small_recipe, tmp_path, monkeypatch):
    settings = ("training.eval_steps=1", "training.learning_rate=0.25")
    log = logged(train(small_recipe(*settings), tmp_path / "whole").run)
    monkeypatch.setattr(RecipeTrainer, "guess", lambda trainer: 50.0 if trainer.state.global_step < 5 else 0.0)
    with pytest.raises(DivergenceError, match="step 6 has") as error:
        train(small_recipe(*settings), tmp_path / "run")
    [step] = [entry for entry in log if entry["step"] == 6 and "grad_norm" in entry]
    norm, rate = map(
        float, re.search(r"gradient norm of (\S+) at a learning rate of (\S+)\. ", str(error.value)).groups()
    )
    assert norm == pytest.approx(step["grad_norm"], rel=1e-3)
    assert rate == pytest.approx(0.25 * (4 / 5) ** 0.5, rel=1e-2)  # 5 updates are behind it, 4 of them the warm-up
    assert "lower training.learning_rate, or lengthen training.warmup_steps" in str(error.value)


@pytest.mark.parametrize("residual", ["post", "pre"])
def test_what_is_advised_can_be_done(residual, small_recipe, tmp_path, monkeypatch):
    """Pre-norm where there is none, and no model to start from where a recipe has teachers."""
    taught = [f"model.residual={residual}", "diversification={}"]
    with monkeypatch.context() as patch:
        patch.setattr(RecipeTrainer, "guess", lambda trainer: 50.0 if trainer.state.global_step < 5 else 0.0)
        for side in ("source", "target"):
            (tmp_path / side).write_text("A dog.\n")
        with pytest.raises(DivergenceError, match="step 6 has") as error:
            train(small_recipe(*taught), tmp_path / "run", further=(tmp_path / "source", tmp_path / "target"))
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-5"]
    assert "--from" not in str(error.value)
    assert ("set model.residual=pre" in str(error.value)) == (residual == "post")


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


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_what_was_learned_is_not_replaced_by_less_than_a_guess(share, small_recipe, tmp_path, monkeypatch):
    """Nor than the frequency of each token tells, which is below what a uniform guess does, log V nats."""
    frequencies = []

    def lost(trainer, *_):
        frequencies.append(trainer.frequencies)
        return [share, 0.95][len(frequencies) - 1] * trainer.frequencies

    monkeypatch.setattr(RecipeTrainer, "nats_per_token", lost)
    message = r"step 10 has lost what it had learned: .* went from [\d.]+ to .*norm was [\d.]+\).*checkpoint-5,"
    with pytest.raises(DivergenceError, match=message):
        train(small_recipe(), tmp_path / "run")
    assert 1 < frequencies[0] < math.log(259)
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-5"]


def test_overfitting_is_no_collapse(small_recipe, tmp_path, monkeypatch):
    """The training set is known well, and the validation set worse and worse."""
    losses, log = [0.2], RecipeTrainer.log

    def well(self, logs, *more):
        log(self, logs | ({"loss": 0.1} if "loss" in logs else {}), *more)

    monkeypatch.setattr(RecipeTrainer, "log", well)
    monkeypatch.setattr(
        RecipeTrainer, "nats_per_token", lambda self, *_, **__: (losses.pop() if losses else 0.95) * self.frequencies
    )
    assert train(small_recipe(), tmp_path / "run").step == 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_do_again_what_they_did_before(number, small_recipe, tmp_path, monkeypatch):
    """In a notebook, whose next Ctrl-C is not for this training."""
    before = signal.getsignal(number)
    monkeypatch.setattr(RecipeTrainer, "nats_per_token", lambda *_: float("nan"))
    with pytest.raises(DivergenceError):
        train(small_recipe(), tmp_path / "run")
    assert signal.getsignal(number) is before


def test_entropy():
    assert entropy([7, 7, 7, 7]) == pytest.approx(0)
    assert entropy([1, 2, 1, 3]) == pytest.approx(1.5 * math.log(2))


def test_weights_that_are_no_numbers_are_not_saved(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(RecipeTrainer, "nats_per_token", lambda *_: float("nan"))
    with pytest.raises(DivergenceError, match="a validation loss of nan"):
        train(small_recipe(), tmp_path / "run")
    assert not checkpoints(tmp_path / "run")


R_DROP = ["training.max_steps=null", "training.num_train_epochs=0.5", "training.r_drop=1", "training.r_drop_after=20"]


@pytest.mark.parametrize(
    ("settings", "told"), [(["training.max_steps=3"], ["warmup_steps"]), (R_DROP, ["warmup_steps", "r_drop_after"])]
)
def test_what_would_begin_behind_the_end_is_told(settings, told, warnings_of, small_recipe, tmp_path):
    recipe = small_recipe(*settings, "training.warmup_steps=20", "training.eval_steps=3")
    step = train(recipe, tmp_path / "run").step
    assert 1 < step < 20
    for name in ("warmup_steps", "r_drop_after"):
        text = f"training.{name}=20, and training has {step} updates"
        assert any(text in warning for warning in warnings_of()) == (name in told)


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


def test_the_loss_of_exchanged_sources_is_that_of_others(small_recipe, tmp_path, monkeypatch):
    """Of a copy, the first token of the target is that of its source."""
    kept = []
    monkeypatch.setattr(training, "finish", lambda task, run, trainer, *more: kept.append(trainer))
    train(small_recipe("training.max_steps=1"), tmp_path / "run")

    def mistakes(input_ids, labels, **more):
        return SimpleNamespace(loss=(input_ids[:, 0] != labels[:, 0]).sum())

    [trainer] = kept
    assert trainer.nats_per_token(mistakes, trainer.eval_dataset) == 0
    assert trainer.nats_per_token(mistakes, trainer.eval_dataset, exchanged=True) > 0.05


@pytest.mark.parametrize(("exchanged", "blind"), [(1.04, True), (1.06, False), (6.0, False)])
def test_a_model_that_reads_its_source_is_not_accused(exchanged, blind, warnings_of):
    losses_of = {True: exchanged}  # by whether they are exchanged
    trainer = SimpleNamespace(eval_dataset=None, nats_per_token=lambda *_, exchanged: losses_of[exchanged])
    assert source_check(trainer, None, 1.0) == {"loss_of_exchanged_sources": exchanged}
    assert bool(warnings_of()) == blind
