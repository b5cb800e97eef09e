"""Ours beside its peers on one machine, in one run: speed as a ratio to MarianMT with the very same weights.

    python scripts/benchmark.py --size small                     # quick look: random weights, every measure
    python scripts/benchmark.py --all --tiny DIR --small DIR     # what the README's table is made of

Outputs are compared before anything is timed. Rounds are interleaved (ours, the peers, ours again, ...), so that a
machine whose speed drifts is as slow for all; numbers are medians, with the spread between the quartiles beside them.
The last line of each size is the floor: the rate of a plain matrix product on this machine.

Sizes: tiny (d_model 128, 4+4 layers, vocabulary 8,000), small (256, 3+3, 8,000), base (512, 6+6, 32,000, random
weights). Trained weights are asked for by --tiny and --small, since random ones never end a sentence.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM
from transformers.utils import logging

import vanilla_transformer
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForSeq2SeqLM
from vanilla_transformer.interop import to_marian

SIZES = {
    "tiny": VanillaTransformerConfig.preset("tiny", vocab_size=8000, dropout=0.1),
    "small": VanillaTransformerConfig.preset("small", vocab_size=8000, dropout=0.1),
    "base": VanillaTransformerConfig.preset("base", vocab_size=32000),
}
SOURCE, NEW = 25, 40  # tokens of each source, and of each output


@dataclass
class Row:
    """One measure of one size: each model's numbers, round by round."""

    size: str
    measure: str
    unit: str
    higher_is_better: bool
    values: dict[str, list[float]] = field(default_factory=dict)

    def median(self, name: str) -> float:
        return statistics.median(self.values[name])

    def ratio(self, name: str, to: str = "marian") -> float:
        """How many times better than `to`."""
        ratio = self.median(name) / self.median(to)
        return ratio if self.higher_is_better else 1 / ratio

    def text(self) -> str:
        cells = []
        for name, values in self.values.items():
            low, high = (sorted(values)[int(len(values) * q)] for q in (0.25, 0.75))
            ratio = f" ({self.ratio(name):.2f}x)" if name != "marian" and "marian" in self.values else ""
            cells.append(f"{name} {self.median(name):,.0f} [{low:,.0f}-{high:,.0f}]{ratio}")
        return f"{self.size:<6} {self.measure:<18} {self.unit:<10} " + "   ".join(cells)


def interleaved(runs: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each of the runs in turn, `rounds` times, after one round of warm-up that is not counted."""
    values: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            value = run()
            if number:
                values[name].append(value)
    return values


def timed(work: Callable[[], int]) -> Callable[[], float]:
    """A run that gives units of work per second."""

    def run() -> float:
        start = time.perf_counter()
        amount = work()
        return amount / (time.perf_counter() - start)

    return run


def sources(model, batch: int, length: int = SOURCE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, model.config.vocab_size, (batch, length), generator=generator)
    ids[:, -1] = model.config.eos_token_id
    return ids


def decoding(ours, marian, size: str, batch: int, beams: int, rounds: int) -> Row:
    """Exactly `NEW` tokens behind each of `batch` sources: generated tokens a second."""
    ids = sources(ours, batch)
    settings = dict(num_beams=beams, do_sample=False, max_new_tokens=NEW, early_stopping=True)
    settings = {name: value for name, value in settings.items() if beams > 1 or name != "early_stopping"}
    mask = torch.ones_like(ids)
    models = {"ours": ours, "marian": marian}
    for model in models.values():  # nothing ends before its time, and no processor has to see to it
        model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    outputs = {name: model.generate(ids, attention_mask=mask, **settings) for name, model in models.items()}
    check_equal(outputs["ours"], outputs["marian"], f"{size}, batch {batch}, {beams} beams")
    runs = {
        name: timed(lambda model=model: model.generate(ids, attention_mask=mask, **settings).shape[0] * NEW)
        for name, model in models.items()
    }
    row = Row(size, f"{'greedy' if beams == 1 else f'beam {beams}'}, batch {batch}", "tokens/s", True)
    row.values = interleaved(runs, rounds)
    return row


def check_equal(one: torch.Tensor, other: torch.Tensor, where: str) -> None:
    """Same tokens, but for ties: in float32 two hypotheses may differ by the last bit."""
    rows = (one != other).any(-1).sum().item() if one.shape == other.shape else len(one)
    if rows > 0.05 * len(one):
        raise SystemExit(f"{where}: {rows} of {len(one)} outputs differ: nothing to be compared")


def training(ours, marian, size: str, rounds: int) -> Row:
    """One step of forward, backward and fused AdamW on 2,048 tokens a side: target tokens a second."""
    rows, length = 64, 32
    ids = sources(ours, rows, length)
    labels = sources(ours, rows, length).roll(1, 0)

    def step(model, **options):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

        def work() -> int:
            model.train()
            optimizer.zero_grad()
            model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels, **options).loss.backward()
            optimizer.step()
            return labels.numel()

        return timed(work)

    row = Row(size, "training step", "tokens/s", True)
    row.values = interleaved({"ours": step(ours, skip_logits=True), "marian": step(marian)}, rounds)
    ours.eval(), marian.eval()
    return row


def memory(size: str, folder: Path | None, work: str) -> Row:
    """Peak memory beyond the weights, each model in a process of its own: MB of resident memory."""
    row = Row(size, f"memory, {work}", "MB", False)
    for name in ("ours", "marian"):
        command = [sys.executable, __file__, "--child", name, work, "--size", size]
        command += [f"--{size}", str(folder)] if folder else []
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        row.values[name] = [float(out.split()[-1])]
    return row


def peak_of(model, work: str) -> float:
    """MB by which the resident memory of this process grows at most while `model` works."""
    rows, length = (32, 100) if work == "beam" else (256, 32)
    ids = sources(model, rows, length)
    mask = torch.ones_like(ids)
    if work == "beam":
        model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None

        def run(rows: int):
            model.generate(ids[:rows], attention_mask=mask[:rows], num_beams=4, max_new_tokens=NEW, do_sample=False)
    else:
        model.train()
        options = {"skip_logits": True} if isinstance(model, VanillaTransformerForSeq2SeqLM) else {}

        def run(rows: int):
            model(input_ids=ids[:rows], attention_mask=mask[:rows], labels=ids[:rows], **options).loss.backward()
            model.zero_grad()

    run(1)  # what is made once
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = resident("VmRSS")
    run(rows)
    return (resident("VmHWM") - before) / 1e3


def resident(field: str) -> int:
    """kB, of /proc/self/status."""
    return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if field in line).split()[1])


def gemm(size: str, d_model: int, rounds: int) -> Row:
    """The floor: 128 rows times a square matrix, in GFLOP/s."""
    x, w = torch.randn(128, d_model), torch.randn(d_model, 4 * d_model)
    row = Row(size, "matrix product", "MFLOP/s", True)

    def work() -> int:
        for _ in range(50):
            x @ w
        return 50 * 2 * 128 * d_model * 4 * d_model // 10**6

    row.values = {"torch": interleaved({"torch": timed(work)}, rounds)["torch"]}
    return row


MEMORY = {"memory-beam": "beam", "memory-train": "train"}
MEASURES = {
    "greedy-1": lambda *models, rounds: decoding(*models, 1, 1, rounds),
    "greedy-32": lambda *models, rounds: decoding(*models, 32, 1, rounds),
    "beam-32": lambda *models, rounds: decoding(*models, 32, 4, rounds),
    "train": lambda *models, rounds: training(*models, rounds),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every size and every measure")
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["small"])
    parser.add_argument("--measure", nargs="+", choices=[*MEASURES, *MEMORY], default=[*MEASURES, *MEMORY])
    parser.add_argument("--tiny", type=Path, metavar="DIR", help="trained weights of the size tiny")
    parser.add_argument("--small", type=Path, metavar="DIR", help="trained weights of the size small")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "WORK"), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def load(size: str, folder: Path | None):
    torch.manual_seed(0)
    if folder is not None:
        return AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return VanillaTransformerForSeq2SeqLM(SIZES[size]).eval()


def main() -> int:
    arguments = parse()
    logging.set_verbosity_error()
    sizes = list(SIZES) if arguments.all else arguments.size
    if arguments.child:
        model = load(sizes[0], getattr(arguments, sizes[0], None))
        model = model if arguments.child[0] == "ours" else to_marian(model)
        torch.set_num_threads(1)
        print(peak_of(model, arguments.child[1]))
        return 0
    rows = []
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        print(f"{threads} thread(s), torch {torch.__version__}, vanilla-transformer {vanilla_transformer.__version__}")
        for size in sizes:
            ours = load(size, getattr(arguments, size, None))
            marian = to_marian(ours).eval()
            for measure in arguments.measure:
                if measure in MEMORY:
                    rows.append(memory(size, getattr(arguments, size, None), MEMORY[measure]))
                else:
                    rows.append(MEASURES[measure](ours, marian, size, rounds=arguments.rounds))
                print(rows[-1].text(), flush=True)
            rows.append(gemm(size, ours.config.d_model, arguments.rounds))
            print(rows[-1].text(), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
