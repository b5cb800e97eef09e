"""The benchmark on random weights, as short as it goes: its rows are there, and its measures do not disturb others."""

import json
import subprocess
import sys

import torch
from tiny import ROOT

from vanilla_transformer.inspection.memory import Peak


def test_rows(tmp_path):
    command = [sys.executable, str(ROOT / "scripts/benchmark.py"), "--size", "tiny", "--rounds", "1"]
    # Training first: what is measured after it compares outputs, which training must not have changed.
    with Peak(torch.device("cpu")) as peak:
        pass
    memory = {} if peak.mb is None else {"long-1k": "memory, source of 1,000 tokens"}  # not every system tells it
    command += ["--measure", "train", "greedy-1", *memory, "--json", str(tmp_path / "rows.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row["measure"]: row for row in json.loads((tmp_path / "rows.json").read_text("utf-8"))}
    assert list(rows) == ["training step", "greedy, batch 1", *memory.values(), "matrix product"]
    assert {"ours", "marian"} <= set(rows["greedy, batch 1"]["values"])
    assert {"ours", "marian", "torch.nn"} <= set(rows["training step"]["values"])
    assert all(value > 0 for row in rows.values() for values in row["values"].values() for value in values)
