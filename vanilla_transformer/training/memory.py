"""What the C library does with memory that a step of training has freed."""

import ctypes
from collections.abc import Callable, Mapping
from typing import Final

# Of glibc's malloc.h: how much free memory at the end of the heap goes back to the system, how much more than needed
# is asked for, and from which size on a block is the system's own, that goes back as soon as it is free.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
KEPT: Final[Mapping[int, int]] = {M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 2**28}
BLOCKS = (2**30, 2**25)  # glibc before 2.35 takes no more than the second


def c_function(name: str) -> Callable | None:
    """A function of glibc, `None` where there is another C library or none of that name."""
    try:
        return getattr(ctypes.CDLL("libc.so.6"), name)
    except (OSError, AttributeError):
        return None


def keep_freed_memory() -> bool:
    """From here on this process keeps what it frees, for the next step of the same size: else each step on a CPU asks
    the system again, page by page, for the same activations, which took a tenth of its time.

    Returns:
        Whether the C library is one that can be told so (glibc); others go on as they do.
    """
    mallopt = c_function("mallopt")
    # This first: to set any of the others ends the rule by which the size of such blocks grows by itself.
    if mallopt is None or not any(mallopt(M_MMAP_THRESHOLD, size) == 1 for size in BLOCKS):
        return False
    return all([mallopt(name, value) == 1 for name, value in KEPT.items()])
