"""Matrices of 8 bits: nearly the same numbers, the same best tokens, and no token depends on its neighbours."""

import copy

import pytest
import torch
from tiny import random_ids, tiny_model

from vanilla_transformer.translation import load_translator, quantization
from vanilla_transformer.translation.quantization import Int8Head, Int8Linear, quantize


@pytest.fixture(autouse=True)
def small_matrices_too(monkeypatch):
    monkeypatch.setattr(quantization, "SMALLEST", 1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 64), (1, 64)])
def test_products_are_nearly_the_same(bias, shape):
    linear = torch.nn.Linear(64, 200, bias=bias)
    x = torch.randn(shape)
    exact = linear(x)
    y = Int8Linear(linear)(x)
    assert y.shape == exact.shape
    assert 0 < (y - exact).norm() < 0.02 * exact.norm()
    assert torch.equal(Int8Linear(linear)(torch.zeros(shape)), linear(torch.zeros(shape)).detach())


@pytest.mark.parametrize("bias", [True, False])
def test_the_best_logits_are_exact(bias):
    linear = torch.nn.Linear(64, 3000, bias=bias)
    x = torch.randn(2, 7, 64)
    values, tokens = linear(x).topk(4)
    found = Int8Head(linear)(x)
    torch.testing.assert_close(found.topk(4)[0], values)
    assert torch.equal(found.topk(4)[1], tokens)
    assert not torch.equal(found, linear(x))


def test_a_token_does_not_depend_on_its_batch():
    linear = Int8Linear(torch.nn.Linear(64, 200))
    x = torch.randn(9, 64)
    x[3] *= 1000
    for row in range(9):
        assert torch.equal(linear(x[row : row + 1]), linear(x)[row : row + 1])


def test_translations_of_a_quantized_model():
    model = tiny_model(vocab_size=300).eval()
    small = quantize(copy.deepcopy(model))
    kinds = [type(part) for part in small.modules()]
    assert kinds.count(Int8Head) == 1 and torch.nn.Linear not in kinds
    ids = random_ids(4, 9)
    logits = [m(input_ids=ids, decoder_input_ids=ids).logits for m in (model, small)]
    assert (logits[0] - logits[1]).norm() < 0.1 * logits[0].norm()
    for beams in (1, 4):
        roads = [small.generate(ids, num_beams=beams, max_new_tokens=20, fast=fast) for fast in (True, False)]
        assert torch.equal(*roads)


def test_what_cannot_be_rounded_is_said():
    with pytest.raises(ValueError, match="float32"):
        quantize(tiny_model().half())


def test_by_name(model_dir):
    texts = ["the cat sleeps", "a dog"]
    answers = [load_translator(str(model_dir), dtype=dtype)(texts, num_beams=2) for dtype in ("int8", "float32")]
    assert len(answers[0]) == len(answers[1]) == 2
