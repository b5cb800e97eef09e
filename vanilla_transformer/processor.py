"""What computes here, and which numbers it has units for: other ones are emulated, which takes many times as long."""

import platform
import re
from pathlib import Path

import torch

CPUINFO = Path("/proc/cpuinfo")  # of Linux
OF_ONEDNN = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}


def processor(device: str) -> str:
    """The name of what computes, of a GPU or of the CPU."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    names = re.findall(r"^model name\s*: (.*)$", CPUINFO.read_text(), re.M) if CPUINFO.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def has_units(kind: str) -> bool:
    """Whether this CPU has units of x86 by the name that torch has for them: "vnni", which is that of AVX-512,
    "avx512_bf16", "amx_tile". A torch that cannot tell has them not."""
    return getattr(torch.cpu, f"_is_{kind}_supported", lambda: False)()


def computes_in_bfloat16() -> bool:
    """Whether products in bfloat16 are known to be faster here than in float32: on GPUs that have them, on CPUs with
    AMX, and on AMD's with AVX-512 BF16. Intel's have that too, and where a hypervisor hid the AMX of a Xeon, products
    took twice as long by it as in float32."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return has_units("amx_tile") or (has_units("avx512_bf16") and "intel" not in processor("cpu").lower())


def emulates(dtype: torch.dtype) -> bool:
    """Whether products of this type are known to be emulated on this CPU: what torch can tell of x86 alone."""
    if dtype not in OF_ONEDNN or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    return not (torch.backends.mkldnn.is_available() and getattr(torch.ops.mkldnn, OF_ONEDNN[dtype])())
