"""Muon for the matrices of the layers, Adam for all else."""

import copy

import pytest
import torch
from tiny import random_ids, tiny_model
from transformers import TrainingArguments

from vanilla_transformer.training import muon
from vanilla_transformer.training.muon import Muon, muon_with_adam, orthogonal

RATE = 0.01


def arguments(folder, **other) -> TrainingArguments:
    return TrainingArguments(str(folder), learning_rate=RATE, adam_beta2=0.98, use_cpu=True, report_to="none", **other)


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


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch 2.9 brings it")
@pytest.mark.parametrize("dtype, allowed", [(torch.float32, 0.05), (torch.bfloat16, 0.01)])
@pytest.mark.parametrize("together", [1, 2**22])
def test_its_steps_are_those_of_torch(dtype, allowed, together, monkeypatch):
    """torch's are in bfloat16; shapes come in turns, so that those computed together do not stand together."""
    monkeypatch.setattr(muon, "TOGETHER", together)
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in [(8, 8), (24, 8), (8, 24), (8, 8), (24, 8)]]
    theirs = copy.deepcopy(ours)
    peer = torch.optim.Muon(theirs, RATE, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    optimizer = Muon(ours, RATE, dtype)
    for _ in range(3):
        before = copy.deepcopy(ours)
        for one, other in zip(ours[:-1], theirs[:-1], strict=True):  # the last has no gradient
            one.grad = torch.randn(one.shape)
            other.grad = one.grad.clone()
        optimizer.step()
        peer.step()
        for one, other, was in zip(ours[:-1], theirs[:-1], before[:-1], strict=True):
            assert (one - other).norm() < allowed * (other - was).norm()
        assert torch.equal(ours[-1], before[-1])


def test_a_closure_is_called_once_for_all_parts(tmp_path):
    model, ids, calls = tiny_model(dropout=0.0), random_ids(2, 5), []
    optimizer = muon_with_adam(model, arguments(tmp_path))

    def closure():
        optimizer.zero_grad()
        calls.append(model(input_ids=ids, labels=ids).loss)
        calls[-1].backward()
        return calls[-1]

    first, second = optimizer.step(closure), optimizer.step(closure)
    assert calls == [first, second] and second < first


def test_a_gradient_of_zeros_moves_nothing():
    assert orthogonal(torch.zeros(1, 3, 5)).tolist() == torch.zeros(1, 3, 5).tolist()


@pytest.mark.parametrize("bf16, able", [(True, True), (True, False), (False, True)])
def test_it_computes_in_bfloat16_where_the_training_and_the_machine_do(bf16, able, tmp_path, monkeypatch):
    dtypes = []
    monkeypatch.setattr(muon, "computes_in_bfloat16", lambda: able)
    monkeypatch.setattr(muon, "orthogonal", lambda x: dtypes.append(x.dtype) or orthogonal(x))
    model = tiny_model(dropout=0.0).train()
    learn(model, muon_with_adam(model, arguments(tmp_path, bf16=bf16)), 1)
    assert set(dtypes) == {torch.bfloat16 if bf16 and able else torch.float32}
