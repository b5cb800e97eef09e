"""Packed matrices: the same numbers, or nearly, the same best tokens, and no token depends on its neighbours."""

import copy

import pytest
import torch
from tiny import random_ids, tiny_model

from vanilla_transformer.model.linear import Linear
from vanilla_transformer.processor import emulates
from vanilla_transformer.translation import load_translator, packing
from vanilla_transformer.translation.packing import PACKINGS, Int8Linear, PackedHead, PackedLinear, pack

# How far the product of a random matrix may be away, in shares of its norm.
FAR = {"float32": 1e-6, "bfloat16": 0.006, "int8": 0.02}
ONEDNN = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
HALF = pytest.mark.skipif(emulates(torch.bfloat16), reason="oneDNN refuses bfloat16 on this processor")
EACH = [
    pytest.param("float32", marks=ONEDNN),
    pytest.param("bfloat16", marks=[ONEDNN, HALF]),
    pytest.param("int8", marks=ONEDNN),
]


@pytest.fixture(autouse=True)
def small_matrices_too(monkeypatch):
    """And whole numbers on every processor: without VNNI they are slow, and the same."""
    monkeypatch.setattr(packing, "PACKINGS", {name: makers._replace(smallest=1) for name, makers in PACKINGS.items()})
    monkeypatch.setattr(packing, "has_units", lambda kind: True)


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 64), (1, 64)])
def test_products_are_nearly_the_same(name, bias, shape):
    linear = torch.nn.Linear(64, 200, bias=bias)
    packed = PACKINGS[name].matrix(linear)
    x = torch.randn(shape)
    exact = linear(x).detach()
    y = packed(x).detach()
    assert y.shape == exact.shape and y.dtype == exact.dtype
    assert (y - exact).norm() < FAR[name] * exact.norm()
    assert name == "float32" or not torch.equal(y, exact)
    torch.testing.assert_close(packed(0 * x), linear(0 * x), atol=2e-3, rtol=0)


@pytest.mark.parametrize("bias", [True, False])
def test_the_best_logits_are_exact(bias):
    linear = torch.nn.Linear(64, 3000, bias=bias)
    x = torch.randn(2, 7, 64)
    values, tokens = linear(x).topk(4)
    found = PackedHead(linear)(x)
    torch.testing.assert_close(found.topk(4)[0], values)
    assert torch.equal(found.topk(4)[1], tokens)
    assert not torch.equal(found, linear(x))


def test_a_token_does_not_depend_on_its_batch():
    linear = Int8Linear(torch.nn.Linear(64, 200))
    x = torch.randn(9, 64)
    x[3] *= 1000
    for row in range(9):
        assert torch.equal(linear(x[row : row + 1]), linear(x)[row : row + 1])


@pytest.mark.parametrize("name", EACH)
def test_translations_of_a_packed_model(name):
    model = tiny_model(vocab_size=300).eval()
    small = pack(copy.deepcopy(model), name)
    kinds = [type(part) for part in small.modules()]
    assert Linear not in kinds
    assert kinds.count(PackedHead) == (name != "float32")
    ids = random_ids(4, 9)
    logits = [m(input_ids=ids, decoder_input_ids=ids).logits for m in (model, small)]
    assert (logits[0] - logits[1]).norm() < 10 * FAR[name] * logits[0].norm()
    for beams in (1, 4):
        settings = {"num_beams": beams, "max_new_tokens": 20}
        roads = [small.generate(ids, **settings, fast=fast) for fast in (True, False)]
        if name == "float32":
            roads.append(model.generate(ids, **settings))
        assert all(torch.equal(roads[0], road) for road in roads)


@ONEDNN
def test_small_matrices_stay(monkeypatch):
    monkeypatch.setattr(packing, "PACKINGS", PACKINGS)
    model = tiny_model()
    before = [type(part) for part in model.modules()]
    assert [type(part) for part in pack(model, "int8").modules()] == before


def test_what_cannot_be_packed_is_said(monkeypatch):
    with pytest.raises(ValueError, match="float32 models on a CPU"):
        pack(tiny_model().half(), "int8")
    with pytest.raises(ValueError, match="expected one of float32, bfloat16, int8"):
        pack(tiny_model(), "int4")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(packing, "has_units", lambda kind: kind != "vnni")
    for name in ("int8", "bfloat16"):  # whose logits are whole numbers too
        with pytest.raises(ValueError, match=f"'{name}' needs a processor with AVX-512 VNNI.*: take float32, or"):
            pack(tiny_model(), name)
    assert packing.lacking("float32") is None
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    for name in PACKINGS:
        with pytest.raises(ValueError, match="needs oneDNN, and this torch was built without it: leave it out"):
            pack(tiny_model(), name)


@ONEDNN
@HALF
def test_delicate_matrices_stay_exact():
    packed = {p: m for p, m in pack(tiny_model(), "bfloat16").named_modules() if isinstance(m, PackedLinear)}
    first = {p.partition("decoder.layers.0.")[2]: m.dtype for p, m in packed.items() if "decoder.layers.0." in p}
    exact = {path for path, dtype in first.items() if dtype == torch.float32}
    assert exact == {"self_attn.o_proj", "cross_attn.o_proj", "cross_attn.k_proj", "cross_attn.v_proj"}
    assert all(m.dtype == torch.float32 for path, m in packed.items() if "encoder" in path)
    assert exact != first.keys()


@pytest.mark.parametrize("name", EACH)
def test_by_name(model_dir, name):
    texts = ["the cat sleeps", "a dog"]
    translators = [load_translator(str(model_dir), packed=packed) for packed in (name, None)]
    kinds = [{type(part) for part in translator.model.modules()} for translator in translators]
    assert Linear in kinds[1] and Linear not in kinds[0]
    answers = [translator(texts, num_beams=2) for translator in translators]
    assert len(answers[0]) == len(answers[1]) == 2
    if name == "float32":
        assert answers[0] == answers[1]
