"""What tests build: tiny models, a few sentences, a recipe of seconds, a fresh process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForSeq2SeqLM
from vanilla_transformer.inspection.curves import curve, logged

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


# Settings that make the recipe `copy` one of seconds: 12 steps, with an epoch of about 7 batches.
SMALL = [
    "corpus.sizes={train: 120, validation: 20, test: 10}",
    "model.d_model=16",
    "model.encoder_attention_heads=2",
    "model.decoder_attention_heads=2",
    "model.encoder_ffn_dim=32",
    "model.decoder_ffn_dim=32",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "training.max_tokens=256",
    "training.max_steps=12",
    "training.warmup_steps=4",
    "training.eval_steps=5",
    "training.eval_pairs=4",
    "training.average_checkpoints=2",
    "decoding.num_beams=2",
]


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


HOLDS = """
import sys
from pathlib import Path
from vanilla_transformer.data.whole_files import held

with held(Path(sys.argv[1]), "busy"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(output: Path) -> Iterator[None]:
    """Another process writes to `output`, and is killed then."""
    command = [sys.executable, "-c", HOLDS, str(output)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        yield
        other.kill()


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


def losses(run: Path) -> dict[int, float]:
    """Step -> training loss, each time that a run has logged one."""
    return dict(curve(logged(run), "loss"))
