"""Memory that a step frees is there for the next one."""

import sys

import pytest
from tiny import run_python

from vanilla_transformer.training import memory
from vanilla_transformer.training.memory import c_function

# Asked of glibc itself (malloc.h): not every system counts page faults.
FREE = """
import ctypes, torch
from vanilla_transformer.training.memory import c_function, keep_freed_memory

class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
    )]

mallinfo2 = c_function("mallinfo2")
mallinfo2.restype = Mallinfo2
{call}
parts = [torch.ones(4_000_000) for _ in range(4)]  # 64 MB
del parts
print(mallinfo2().fordblks)  # bytes that the program has freed and the system has not got back
"""


@pytest.mark.skipif(sys.platform != "linux" or not c_function("mallinfo2"), reason="glibc from 2.33 on can be asked")
def test_what_a_step_frees_is_kept(tmp_path):
    given_back = int(run_python(FREE.format(call=""), tmp_path))
    kept = int(run_python(FREE.format(call="assert keep_freed_memory()"), tmp_path))
    assert given_back < 64e6 <= kept


@pytest.mark.parametrize("largest", [2**31, 2**25, 0])
def test_an_older_glibc_gets_what_it_takes_or_is_left_alone(largest, monkeypatch):
    """Before 2.35 it takes blocks of up to 32 MiB; any setting ends the rule by which their size grows by itself."""
    taken = {}

    def mallopt(name, value):
        if name == memory.M_MMAP_THRESHOLD and value > largest:
            return 0
        taken[name] = value
        return 1

    monkeypatch.setattr(memory, "c_function", lambda name: mallopt)
    assert memory.keep_freed_memory() == (largest > 0)
    assert taken.get(memory.M_MMAP_THRESHOLD) == {2**31: 2**30, 2**25: 2**25, 0: None}[largest]
    assert len(taken) == (3 if largest else 0)
