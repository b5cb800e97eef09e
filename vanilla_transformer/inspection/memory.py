"""Peak memory of a piece of work, as Linux and CUDA count it."""

from pathlib import Path

import torch

from ..training.memory import c_function


class Peak:
    """`mb`: by how much the memory of this process, or of the GPU that is its `device`, grew at most within the block;
    `None` where the system does not tell."""

    mb: float | None = None

    def __init__(self, device: torch.device):
        self.on_gpu = device.type == "cuda"

    def __enter__(self) -> "Peak":
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
            self.before: float | None = torch.cuda.memory_allocated() / 1e6
        else:
            give_back()
            self.before = resident("VmRSS") if forget_peak() else None
        return self

    def __exit__(self, *exception) -> None:
        now = torch.cuda.max_memory_allocated() / 1e6 if self.on_gpu else resident("VmHWM")
        if now is not None and self.before is not None:
            self.mb = now - self.before


def give_back() -> None:
    """What was freed and is kept for later: work that found it there would seem to need no memory of its own."""
    if trim := c_function("malloc_trim"):  # of another library it is not known what it keeps
        trim(0)


def forget_peak() -> bool:
    """Linux counts the peak anew from here; whether it does."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def resident(field: str) -> float | None:
    """MB, of /proc/self/status, which counts in 1,024 bytes; `None` where there is no such file."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(f"{field}:")), None)
