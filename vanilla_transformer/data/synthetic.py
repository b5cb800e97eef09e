"""Two tasks that a Transformer learns in seconds, for checking that a training works at all."""

import random

from datasets import Dataset

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
TASKS = {"copy": lambda symbols: symbols, "reverse": lambda symbols: symbols[::-1]}
SPLITS = {"train": 4000, "validation": 200, "test": 200}


def symbol_task(
    task: str, seed: int, sizes: dict[str, int] | None = None, min_length: int = 4, max_length: int = 12
) -> dict[str, Dataset]:
    """Random letters, separated by spaces, to be copied or reversed; no sequence stands in two splits.

    Args:
        task: `"copy"` or `"reverse"`.
        sizes: number of pairs per split.
        min_length, max_length: of a sequence, in letters.
    """
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}: expected one of {', '.join(TASKS)}")
    rng, seen, splits = random.Random(seed), set(), {}
    for split, size in (sizes or SPLITS).items():
        sources: list[str] = []
        while len(sources) < size:
            symbols = " ".join(rng.choices(ALPHABET, k=rng.randint(min_length, max_length)))
            if symbols not in seen:
                seen.add(symbols)
                sources.append(symbols)
        targets = [" ".join(TASKS[task](source.split())) for source in sources]
        splits[split] = Dataset.from_dict({"source": sources, "target": targets})
    return splits
