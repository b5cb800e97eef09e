"""What a machine has units for, by what torch can tell."""

import platform

import pytest
import torch

from vanilla_transformer import processor
from vanilla_transformer.processor import computes_in_bfloat16, emulates, has_units


@pytest.fixture(autouse=True)
def a_cpu_of_x86(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.mark.parametrize(
    "name, units, able",
    [
        ("AMD EPYC 9R14", {"avx512_bf16"}, True),
        ("Intel(R) Xeon(R) Processor", {"avx512_bf16", "amx_tile", "vnni"}, True),
        ("Intel(R) Xeon(R) Processor", {"avx512_bf16", "vnni"}, False),
        ("AMD EPYC 7R13", {"vnni"}, False),
    ],
)
def test_bfloat16_is_known_to_be_faster_where_units_of_it_are(name, units, able, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(f"model name\t: {name}\n")
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    for kind in ("avx512_bf16", "amx_tile", "vnni"):
        monkeypatch.setattr(torch.cpu, f"_is_{kind}_supported", lambda kind=kind: kind in units, raising=False)
    assert computes_in_bfloat16() is able
    assert has_units("vnni") is ("vnni" in units)


def test_a_torch_that_cannot_tell_has_none(monkeypatch):
    for kind in ("avx512_bf16", "amx_tile"):
        monkeypatch.delattr(torch.cpu, f"_is_{kind}_supported", raising=False)
    assert not computes_in_bfloat16()


def test_products_that_are_emulated(monkeypatch):
    """A torch without oneDNN has no such functions at all; of other processors than those of x86 they say nothing."""

    class OfOneDNN:
        @staticmethod
        def _is_mkldnn_bf16_supported():
            return True

        @staticmethod
        def _is_mkldnn_fp16_supported():
            return False

    monkeypatch.setattr(processor.torch.ops, "mkldnn", OfOneDNN)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    asked = (torch.float32, torch.bfloat16, torch.float16)
    assert [emulates(dtype) for dtype in asked] == [False, False, True]
    monkeypatch.delattr(OfOneDNN, "_is_mkldnn_bf16_supported")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert [emulates(dtype) for dtype in asked] == [False, True, True]
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert [emulates(dtype) for dtype in asked] == [False, False, False]


def test_a_name_without_cpuinfo(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "none")
    assert processor.processor("cpu")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n")
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    assert processor.processor("cpu") == "Some CPU @ 2 GHz"
