import pytest
import torch
from tiny import losses
from torch import nn

from vanilla_transformer.model.loss import IGNORED_LABEL, cross_entropy
from vanilla_transformer.training import r_drop
from vanilla_transformer.training.r_drop import r_drop_loss
from vanilla_transformer.training.train import train


def written_out(head, x, labels, label_smoothing, alpha):
    """The formula over logits that are all held."""
    p, q = head(x).log_softmax(-1).chunk(2)
    kept = labels != IGNORED_LABEL
    right = dict(target=labels[kept], label_smoothing=label_smoothing, reduction="sum")
    cross = sum(nn.functional.cross_entropy(half[kept], **right) for half in (p, q))
    apart = sum(nn.functional.kl_div(b[kept], a[kept], reduction="sum", log_target=True) for a, b in ((p, q), (q, p)))
    return cross / 2 + alpha / 4 * apart


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("label_smoothing", "alpha"), [(0.0, 0.0), (0.1, 0.0), (0.1, 5.0)])
def test_loss_and_gradients(bias, label_smoothing, alpha, monkeypatch):
    """Of several chunks, the last one shorter."""
    monkeypatch.setattr(r_drop, "rows_of_a_chunk", lambda *_: 64)
    torch.manual_seed(0)
    head = nn.Linear(6, 30, bias=bias, dtype=torch.float64)
    labels = torch.randint(30, (4, 50))
    labels[1, 20:] = IGNORED_LABEL
    found = []
    for loss in (r_drop_loss, written_out):
        x = torch.randn(8, 50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        head.zero_grad()
        total = loss(head, x, labels, label_smoothing, alpha)
        (3 * total).backward()
        found.append([total, x.grad, *(parameter.grad for parameter in head.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_alike_distributions_are_not_apart():
    head, x = nn.Linear(6, 30), torch.randn(1, 5, 6)
    labels = torch.arange(5)[None]
    twice = torch.cat([x, x])
    assert torch.equal(r_drop_loss(head, twice, labels, 0.1, 5.0), r_drop_loss(head, twice, labels, 0.1, 0.0))
    expected = cross_entropy(head(x), labels, 0.1, 1)
    torch.testing.assert_close(r_drop_loss(head, twice, labels, 0.1, 5.0), expected)


def test_in_bfloat16():
    """Logits and probabilities are rounded to 8 bits; what they add up to is not."""
    torch.manual_seed(0)
    head, labels = nn.Linear(32, 300), torch.randint(300, (4, 50))
    found = []
    for loss, dtype in ((r_drop_loss, torch.bfloat16), (written_out, None)):
        x = torch.randn(8, 50, 32, generator=torch.Generator().manual_seed(1)).requires_grad_()
        head.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            total = loss(head, x, labels, 0.1, 5.0)
        total.backward()
        found.append([total, x.grad, *(parameter.grad for parameter in head.parameters())])
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).norm() < 0.01 * theirs.norm()


def test_a_label_whose_chance_is_too_small_for_a_number():
    """exp(-200) is 0, and its logarithm no number."""
    head, x = nn.Linear(1, 3, bias=False), torch.tensor([[[1.0], [1.0]], [[1.1], [0.9]]])
    head.weight.data = torch.tensor([[100.0], [0.0], [-100.0]])
    labels = torch.tensor([[2, 0]])
    torch.testing.assert_close(r_drop_loss(head, x, labels, 0.1, 5.0), written_out(head, x, labels, 0.1, 5.0))


def test_it_begins_after_so_many_updates(small_recipe, tmp_path):
    def of(*settings) -> dict[int, float]:
        every = ("training.max_steps=4", "training.eval_steps=1", *settings)
        return losses(train(small_recipe(*every), tmp_path / "-".join(["run", *settings])).run)

    without, always = of(), of("training.r_drop=5")
    late = of("training.r_drop=5", "training.r_drop_after=2")
    assert [late[step] == without[step] for step in (1, 2, 3)] == [True, True, False] and always[1] != without[1]
