"""Memory that a step frees is there for the next one."""

import sys

import pytest
from tiny import run_python

FAULTS = """
import resource, torch
from vanilla_transformer.training.memory import keep_freed_memory
{call}
def step():
    parts = [torch.ones(4_000_000) for _ in range(4)]  # 64 MB
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone can be told")
def test_pages_are_asked_for_once(tmp_path):
    asked_again = int(run_python(FAULTS.format(call=""), tmp_path))
    kept = int(run_python(FAULTS.format(call="assert keep_freed_memory()"), tmp_path))
    assert kept < asked_again / 10
