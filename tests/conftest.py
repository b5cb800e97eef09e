"""No test reaches a network; models are tiny; a tokenizer and two parallel files are made once."""

import os
import socket
import subprocess
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForSeq2SeqLM
from vanilla_transformer.data.vocabulary import learn_tokenizer

ROOT = Path(__file__).parent.parent

ENGLISH = [
    "The old man reads a book.",
    "The old woman reads a letter.",
    "A child eats an apple.",
    "The children eat the bread.",
    "My brother sees the black cat.",
    "My sister does not see the dog.",
]
FRENCH = [
    "Le vieil homme lit un livre.",
    "La vieille femme lit une lettre.",
    "Un enfant mange une pomme.",
    "Les enfants mangent le pain.",
    "Mon frère voit le chat noir.",
    "Ma sœur ne voit pas le chien.",
]


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


def tiny_config(**overrides) -> VanillaTransformerConfig:
    sizes = dict(vocab_size=50, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2)
    sizes |= dict(decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32)
    return VanillaTransformerConfig(**{**sizes, **overrides})


def tiny_model(**overrides) -> VanillaTransformerForSeq2SeqLM:
    """Random weights, large enough that outputs depend on inputs, in evaluation mode."""
    attn = overrides.pop("attn_implementation", None)
    model = VanillaTransformerForSeq2SeqLM._from_config(tiny_config(**overrides), attn_implementation=attn)
    return model.eval()


def random_ids(*shape, vocab_size=50) -> torch.Tensor:
    return torch.randint(3, vocab_size, shape)


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


def run_python(code: str, cwd: Path, *, without_package: bool = False, **environment) -> str:
    """Run `code` in a fresh process, which with `without_package` cannot import this package; returns its output."""
    block = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'vanilla_transformer':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r} (blocked)', name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
    )
    env = {**os.environ, "HF_MODULES_CACHE": str(cwd / "modules"), "OMP_NUM_THREADS": "1", **environment}
    result = subprocess.run(
        [sys.executable, "-c", (block if without_package else "") + code],
        cwd=cwd, env=env, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if result.returncode:
        raise RuntimeError(result.stderr[-4000:])
    return result.stdout
