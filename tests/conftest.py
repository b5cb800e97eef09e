"""No test reaches a network; a tokenizer, a saved model and two parallel files are made once."""

import logging
import os
import shutil
import socket
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start; for this one see below
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="datasets-")  # the user's own is neither read nor filled

import pytest
import torch
from tiny import ENGLISH, FRENCH, tiny_model
from transformers.utils import logging as hf_logging

from vanilla_transformer.data.vocabulary import learn_tokenizer

# One thread for each of the processes that pytest-xdist starts, and bit-equal results in those that tests start.
torch.set_num_threads(1)


def pytest_unconfigure():
    shutil.rmtree(os.environ["HF_DATASETS_CACHE"], ignore_errors=True)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Any connection that is not within this machine fails."""
    connect = socket.socket.connect

    def guarded(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"a test tried to connect to {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def warnings_of(caplog, monkeypatch):
    """The warnings that transformers' logger and ours have given so far: call it for the list of texts."""
    monkeypatch.setattr(hf_logging.get_logger("transformers"), "propagate", True)
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture(scope="session")
def tokenizer():
    return learn_tokenizer(ENGLISH + FRENCH, 300, model_max_length=64, show_progress=False)


@pytest.fixture(scope="session")
def model_dir(tokenizer, tmp_path_factory) -> Path:
    """A saved tiny model with its tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    tiny_model(vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def parallel_files(tmp_path) -> tuple[Path, Path]:
    files = tmp_path / "train.en", tmp_path / "train.fr"
    for file, lines in zip(files, (ENGLISH, FRENCH), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines * 20), encoding="utf-8")
    return files
