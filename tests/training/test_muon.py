"""Muon for the matrices of the layers, Adam for all else."""

import copy

import pytest
import torch
from tiny import needs_muon, random_ids, tiny_model
from transformers import TrainingArguments

from vanilla_transformer.training.muon import muon_with_adam

RATE = 0.01


def arguments(folder) -> TrainingArguments:
    return TrainingArguments(str(folder), learning_rate=RATE, adam_beta2=0.98, use_cpu=True, report_to="none")


def learn(model, optimizer, steps: int) -> list[float]:
    torch.manual_seed(1)
    found = []
    for _ in range(steps):
        loss = model(input_ids=random_ids(16, 12), labels=random_ids(16, 12)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


@needs_muon
def test_matrices_move_in_all_directions_alike_and_others_as_adam_moves_them(tmp_path):
    model = tiny_model(dropout=0.0).train()
    twin = copy.deepcopy(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    learn(model, muon_with_adam(model, arguments(tmp_path)), 1)
    learn(twin, torch.optim.AdamW(twin.parameters(), RATE, (0.9, 0.98), 1e-8, weight_decay=0.0), 1)
    by_adam = dict(twin.named_parameters())
    matrices = 0
    for name, parameter in model.named_parameters():
        step = parameter.detach() - before[name]
        if parameter.dim() == 2 and "embed" not in name:
            sizes = torch.linalg.svdvals(step) / (RATE * 0.2 * max(step.shape) ** 0.5)
            assert sizes.median() > 0.6 and sizes.max() < 1.3, name
            matrices += 1
        else:
            torch.testing.assert_close(parameter, by_adam[name])
    assert matrices == sum(type(part).__name__ == "Linear" for part in model.model.modules())


@needs_muon
def test_its_state_goes_into_a_checkpoint_and_comes_back(tmp_path):
    model = tiny_model(dropout=0.0).train()
    optimizer = muon_with_adam(model, arguments(tmp_path))
    learn(model, optimizer, 3)
    twin = copy.deepcopy(model)
    resumed = muon_with_adam(twin, arguments(tmp_path))
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    resumed.load_state_dict(torch.load(tmp_path / "optimizer.pt"))
    for group in [*optimizer.param_groups, *resumed.param_groups]:
        group["lr"] = RATE / 2  # as a schedule does
    assert learn(model, optimizer, 3) == learn(twin, resumed, 3)


def test_an_older_torch_has_none(monkeypatch, tmp_path):
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with pytest.raises(ValueError, match=r"training.optimizer=muon needs torch 2.9, and this is .*: get a newer one"):
        muon_with_adam(tiny_model(), arguments(tmp_path))
