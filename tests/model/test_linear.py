"""x W^T + b by oneDNN: the same numbers, derivatives of any order, and only where it is meant."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny import random_ids, tiny_model
from torch.nn import functional as F

from vanilla_transformer.model import linear as module
from vanilla_transformer.model import steps
from vanilla_transformer.model.linear import Linear, OneDNNLinear, goes_to_onednn, linear, mkl_is_slow

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="a torch without oneDNN")


@pytest.fixture(autouse=True)
def onednn(monkeypatch):
    """Every product by oneDNN, whatever this processor is and however small the product."""
    monkeypatch.setattr(module, "MKL_IS_SLOW", True)
    monkeypatch.setattr(module, "FEWEST", 1)
    monkeypatch.setattr(steps, "PART", 64)


@pytest.fixture
def taken(monkeypatch):
    shapes = []
    forward = OneDNNLinear.forward

    def count(x, weight, bias):
        shapes.append(tuple(x.shape))
        return forward(x, weight, bias)

    monkeypatch.setattr(OneDNNLinear, "forward", staticmethod(count))
    return shapes


def parts(*shape, bias=True):
    x = torch.randn(*shape, 12, requires_grad=True)
    weight = torch.randn(20, 12, requires_grad=True)
    return x, weight, torch.randn(20, requires_grad=True) if bias else None


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (1,), (3, 4), (2, 3, 4), (0,)])
def test_the_same_numbers_and_gradients(shape, bias, taken):
    given = parts(*shape, bias=bias)
    wanted = [part for part in given if part is not None]
    here, there = linear(*given), F.linear(*given)
    assert bool(taken) == (0 not in shape)
    torch.testing.assert_close(here, there)
    weights = torch.randn_like(here)
    grads = [torch.autograd.grad((result * weights).sum(), wanted) for result in (here, there)]
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs)
        assert mine.stride() == theirs.stride() or mine.numel() == 0


@pytest.mark.parametrize(
    "change", [lambda x: x.transpose(0, 1), lambda x: x[:, ::2], lambda x: x[:1].expand(7, 6, 12)]
)
def test_any_strides(change, taken):
    x, weight, bias = parts(4, 6)
    results = [product(change(x), weight, bias) for product in (linear, F.linear)]
    torch.testing.assert_close(*results)
    grads = [torch.autograd.grad(result.sum(), (x, weight)) for result in results]  # of a sum, whose has no strides
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert taken


def test_derivatives_of_derivatives(taken):
    def penalty(product):
        x, weight, bias = (part.detach().requires_grad_() for part in given)
        grads = torch.autograd.grad(product(x, weight, bias).tanh().sum(), (x, weight), create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in grads), (x, weight, bias))

    given = parts(3, 4)
    for mine, theirs in zip(penalty(linear), penalty(F.linear), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)  # 4e-5 apart in torch 2.6
    assert len(taken) > 3


def test_functional_transforms(taken):
    x, weight, bias = (part.detach() for part in parts(3, 4))
    change = torch.randn_like(x), torch.randn_like(weight), torch.randn_like(bias)
    for transformed in (
        lambda product: torch.func.jvp(product, (x, weight, bias), change),
        lambda product: torch.func.jvp(lambda w: product(x, w), (weight,), change[1:2]),
        lambda product: torch.func.grad(lambda w: product(x, w, bias).tanh().sum())(weight),
        lambda product: torch.func.vmap(product, in_dims=(0, None, None))(x, weight, bias),
        lambda product: torch.func.vmap(torch.func.grad(lambda w, x: product(x, w).tanh().sum()), (None, 0))(
            weight, x
        ),
    ):
        torch.testing.assert_close(transformed(linear), transformed(F.linear))
    assert taken


@pytest.mark.filterwarnings("error::torch.jit.TracerWarning")
def test_what_is_left_to_torch(taken):
    x, weight, bias = parts(3, 4)
    with torch.backends.mkldnn.flags(enabled=False):
        linear(x, weight, bias)
    linear(x.double(), weight.double(), bias.double())
    linear(x[0, 0], weight, bias)
    linear(x.to("meta"), weight.to("meta"), bias.to("meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight, bias).dtype == torch.bfloat16
    for graph in (
        torch.jit.trace(Linear(12, 20), x.detach(), check_trace=False),
        torch.export.export(Linear(12, 20), (x.detach(),)),
    ):
        assert "mkldnn" not in str(graph.graph)
    assert not taken


def test_only_where_mkl_is_slow(monkeypatch):
    told = {"cpu_name": "AMD EPYC", "avx512_f": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: told, raising=False)
    assert mkl_is_slow()
    told["avx512_f"] = False
    assert not mkl_is_slow()
    told.update(avx512_f=True, cpu_name="Intel(R) Xeon(R)")
    assert not mkl_is_slow()
    monkeypatch.setattr(module, "MKL_IS_SLOW", False)
    assert not goes_to_onednn(torch.randn(4, 4), torch.randn(4, 4))
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert not mkl_is_slow()


@pytest.mark.parametrize("output_bias", [False, True])
@pytest.mark.parametrize("attn", ["eager", "sdpa"])
def test_a_step_of_training_and_a_search(attn, output_bias, taken):
    """Gradients to 1e-5 of what they are without, the same tokens."""
    model = tiny_model(vocab_size=300, attn_implementation=attn, output_bias=output_bias, dropout=0.0)
    ids, labels = random_ids(6, 9), random_ids(6, 7)
    found = []
    for enabled in (True, False):
        taken.clear()
        with torch.backends.mkldnn.flags(enabled=enabled):
            model.train().zero_grad()
            loss = model(input_ids=ids, labels=labels, label_smoothing=0.1, skip_logits=True).loss
            loss.backward()
            grads = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
            model.eval()
            searches = [dict(num_beams=1), dict(num_beams=4), dict(num_beams=4, fast=False)]
            tokens = [model.generate(ids, max_new_tokens=12, **search) for search in searches]
        assert bool(taken) == enabled
        found.append((loss, grads, tokens))
    (loss, grads, tokens), (plain_loss, plain_grads, plain_tokens) = found
    torch.testing.assert_close(loss, plain_loss)
    assert (grads - plain_grads).norm() <= 1e-5 * plain_grads.norm()
    assert all(torch.equal(a, b) for a, b in zip(tokens, plain_tokens, strict=True))


def test_adapters_stand_around_it(taken):
    model = get_peft_model(tiny_model(), LoraConfig(target_modules=["q_proj", "v_proj"], r=2))
    loss = model(input_ids=random_ids(3, 5), labels=random_ids(3, 4)).loss
    loss.backward()
    assert taken and all(p.grad is not None for n, p in model.named_parameters() if "lora_B" in n)
