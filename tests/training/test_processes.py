"""Two processes on a CPU (gloo), as `accelerate launch` starts them, do what one does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import SMALL

from vanilla_transformer.training.checkpoints import checkpoints

# Batches of half the size, of which a step takes two: of one process one after the other, of two processes one each.
SETTINGS = [*SMALL, "training.max_tokens=128", "corpus.max_length=64", "model.dropout=0.0", "training.eval_steps=1"]
SETTINGS += ["training.max_steps=8", "training.eval_pairs=5", "corpus.sizes={train: 120, validation: 21, test: 10}"]
TWO = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
TWO += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]


def run(*words: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def train(folder: Path, *how: str, settings=()) -> tuple[list[dict], dict]:
    words = [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
    out = run(*how, "-m", "vanilla_transformer", "train", "copy", "-o", str(folder), *words)
    assert out.count("the model is in") == 1
    state = json.loads((checkpoints(folder)[-1] / "trainer_state.json").read_text())
    return state["log_history"], json.loads((folder / "result.json").read_text())


def test_two_processes_have_the_losses_of_one(tmp_path):
    one, result = train(tmp_path / "one", settings=["training.gradient_accumulation_steps=2"])
    two, other = train(tmp_path / "two", *TWO)
    for name in ("loss", "grad_norm", "eval_loss"):
        values = [[entry[name] for entry in log if name in entry] for log in (one, two)]
        assert len(values[0]) == 8
        assert values[0] == pytest.approx(values[1], abs=1e-4)
    assert other["validation"]["mean"]["loss"] == pytest.approx(result["validation"]["mean"]["loss"], abs=1e-4)


SHARES = """
from accelerate import PartialState
from vanilla_transformer.translation.shares import in_shares
state = PartialState(cpu=True)
for count in range(6):
    seen = []
    found = in_shares(lambda share: [seen.append(i) or 10 * i for i in share], range(count))
    assert found == [10 * i for i in range(count)], found
    assert seen == list(range(state.process_index, count, 2)), seen
print(state.num_processes)
"""


def test_shares_are_put_together_in_order_whatever_remains(tmp_path):
    script = tmp_path / "shares.py"
    script.write_text(SHARES)
    assert run(*TWO, str(script)).split() == ["2", "2"]
