"""Peak memory, each contender in a process of its own."""

import subprocess
import sys
from collections.abc import Callable

import torch

from vanilla_transformer.inspection.memory import Peak, give_back, resident
from vanilla_transformer.translation.packing import pack

from .bench import NEW, PACKED, Bench, endless, random_sources
from .table import Row

LONG = {f"long-{k}k": k * 1000 for k in (1, 2, 4, 8)}  # tokens of one source


def memory(bench: Bench, work: str, what: str) -> Row:
    """Peak beyond the weights as they are in the file, each contender in a process of its own: MB of a CPU's memory or
    a GPU's. What packed weights are larger or smaller counts."""
    names = ["ours"] if work in LONG else ["ours", "marian"]  # whose table of positions ends at 512
    if work == "beam":
        names += [f"{PACKED}{name}" for name in bench.packings()]
    values: dict[str, list[float]] = {name: [] for name in names}
    for name in names * bench.rounds:
        command = [sys.executable, sys.argv[0], "--child", name, work, "--size", bench.size]
        command += ["--device", bench.arguments.device, "--dtype", bench.arguments.dtype]
        command += [f"--{bench.size}", str(bench.folder)] if bench.folder else []
        out = subprocess.run(command, capture_output=True, text=True)
        if out.returncode:
            raise SystemExit(out.stderr)
        values[name].append(float(out.stdout.split()[-1]))
    return Row(bench.size, f"memory, {what}", "MB", False, values, threads=1)


def peak(bench: Bench, name: str, work: str) -> float:
    """MB by which the memory of this process grows at most while the contender works."""
    packing = name.removeprefix(PACKED) if name.startswith(PACKED) else None
    model = bench.models["ours" if packing else name]
    bench.models = {name: model}
    if work in LONG:
        rows = LONG[work]
        ids = random_sources(model.config, 1, rows).to(bench.device)

        def run(rows: int):
            model.generate(ids[:, :rows], num_beams=4, max_new_tokens=8, do_sample=False)

    elif work == "beam":
        rows = 32
        ids = random_sources(model.config, rows, 100).to(bench.device)

        def run(rows: int):
            mask = torch.ones_like(ids[:rows])
            model.generate(ids[:rows], attention_mask=mask, num_beams=4, max_new_tokens=NEW, do_sample=False)
    else:
        rows = 256
        ids = random_sources(model.config, rows, 32).to(bench.device)
        model.train()
        options = {"skip_logits": True} if name == "ours" else {}

        def run(rows: int):
            part = ids[:rows]
            model(input_ids=part, attention_mask=torch.ones_like(part), labels=part, **options).loss.backward()
            model.zero_grad()

    with endless([model]):
        warm_up(run)
        before = resident("VmRSS") if packing else 0.0
        if packing:
            pack(model, packing)
            warm_up(run)
        packed = resident("VmRSS") - before if packing else 0.0  # MB by which packed weights are larger
        with Peak(bench.device) as growth:
            run(rows)
        if growth.mb is None:
            raise SystemExit("this system does not tell the peak of a process's memory")
        return growth.mb + packed


def warm_up(run: Callable[[int], None]) -> None:
    run(1)  # what is made once
    give_back()  # what was freed counts for nobody
