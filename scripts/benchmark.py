"""Ours beside its peers on one machine, in one run: speed and memory as ratios to MarianMT with the very same weights.

    python scripts/benchmark.py --size small                       # a quick look, with random weights
    python scripts/benchmark.py --all --tiny RUN --small RUN       # all that the README's tables are made of

Outputs are compared before anything is timed. Rounds are interleaved (ours, the peers, ours again, ...), so that a
machine whose speed drifts is as slow for all; numbers are medians, with the quartiles beside them. All rows of a run
are taken in one mode: `--dtype`, `--device`, `--compile` and `--threads` hold for every contender.

Sizes: tiny (d_model 128, 4+4 layers, vocabulary 8,000), small (256, 3+3, 8,000), base (512, 6+6, 32,000). `--tiny` and
`--small` name the folders of models trained on Multi30k, which then translate its test sentences to their ends; random
weights never end a sentence, and get sources of 25 random tokens and exactly 40 new ones. Training steps take pairs of
that test set, too, or random pairs of 32 tokens. On a GPU:

    python scripts/benchmark.py --size base --measure train --device cuda --compile --tokens 25600
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from benchmarking.bench import SIZES, Bench, gemm
from benchmarking.memory import LONG, memory, peak
from benchmarking.table import Row, interleaved, markdown
from transformers.utils import logging

import vanilla_transformer
from vanilla_transformer.processor import processor

README, BEGIN, END = Path(__file__).parents[1] / "README.md", "<!-- benchmark -->", "<!-- /benchmark -->"


def importing() -> Row:
    """Seconds from the start of Python: the package, and what of transformers it is made of."""
    classes = "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationMixin, PreTrainedModel"
    code = {"ours": f"{classes}; import vanilla_transformer", "transformers": classes}

    def run(name: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code[name]], check=True)
        return time.perf_counter() - start

    values = interleaved({name: lambda name=name: run(name) for name in code}, 7)
    row = Row("-", "import", "s", False, values, threads=1)
    row.note = f"{row.median('ours') - row.median('transformers'):+.2f} s"
    return row


MEASURES: dict[str, Callable[[Bench], Row]] = {
    "greedy-1": lambda bench: bench.decoding(1, 1),
    "greedy-32": lambda bench: bench.decoding(32, 1),
    "beam-32": lambda bench: bench.decoding(32, 4),
    "train": Bench.training,
    "memory-beam": lambda bench: memory(bench, "beam", "beam 4, batch 32, source 100"),
    "memory-train": lambda bench: memory(bench, "train", "training, 8k tokens"),
    **{name: lambda bench, name=name: memory(bench, name, f"source of {LONG[name]:,} tokens") for name in LONG},
}
ONCE = {"memory-beam", "memory-train", *LONG}  # more threads need no more memory
CORPORA = [("Multi30k", 1), ("Multi30k", 4), ("newstest2014", 1), ("newstest2014", 4)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every size, measure and corpus, one thread and two")
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["small"])
    parser.add_argument("--measure", nargs="+", choices=MEASURES, default=list(MEASURES), metavar="NAME",
                        help=f"of {', '.join(MEASURES)}")  # fmt: skip
    parser.add_argument("--corpora", action="store_true", help="translate whole test sets with --small")
    parser.add_argument("--tiny", type=Path, metavar="DIR", help="run or model of the size tiny, trained on Multi30k")
    parser.add_argument("--small", type=Path, metavar="DIR", help="the same of the size small")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--compile", action="store_true", help="training steps by torch.compile, too")
    parser.add_argument("--tokens", type=int, default=2048, metavar="N", help="of a training batch, a side (2,048)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--readme", action="store_true", help="write the tables into README.md")
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "WORK"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.all:
        arguments.size, arguments.threads, arguments.corpora = list(SIZES), [1, 2], True
    if arguments.tokens < 32:
        parser.error(f"--tokens {arguments.tokens} has no room for one pair of 32 tokens: give at least 32")
    if arguments.corpora and not arguments.small:
        parser.error("whole test sets are translated by a trained model: name one by --small DIR")
    return arguments


def main() -> int:
    arguments = parse()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if arguments.child:
        torch.set_num_threads(1)
        size = arguments.size[0]
        print(peak(Bench(size, getattr(arguments, size, None), arguments), *arguments.child))
        return 0
    rows: list[Row] = []
    mode = f"torch {torch.__version__}, {arguments.dtype}, {processor(arguments.device)}"

    def add(row: Row) -> None:
        rows.append(row)
        print(row.text(), flush=True)
        write(rows, mode, arguments)

    print(f"vanilla-transformer {vanilla_transformer.__version__}, {mode}")
    if arguments.all:
        add(importing())
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        print(f"--- {threads} thread{'s' if threads > 1 else ''}")
        for size in arguments.size:
            bench = Bench(size, getattr(arguments, size, None), arguments)
            for measure in arguments.measure:
                if threads == arguments.threads[0] or measure not in ONCE:
                    add(MEASURES[measure](bench))
            floor = gemm(bench.models["ours"].config.d_model, bench)
            best = 1e9 * max(floor.median(name) for name in floor.values)
            share = [f"{r.measure} {r.flops * r.best_of_ours(bench.plain()) / best:.0%}"
                     for r in rows if r.flops and r.size == size and r.threads == threads]  # fmt: skip
            floor.note = f"of which ours uses: {', '.join(share)}" if share else ""
            add(floor)
    if arguments.corpora:
        torch.set_num_threads(arguments.threads[0])
        bench = Bench("small", arguments.small, arguments)
        for name, beams in CORPORA:
            add(bench.corpus(name, beams))
    return 0


def write(rows: list[Row], mode: str, arguments: argparse.Namespace) -> None:
    """What there is so far: a run that is stopped leaves that."""
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", "utf-8")
    if arguments.readme:
        text = README.read_text("utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        README.write_text(f"{before}{BEGIN}\n{markdown(rows, mode)}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
