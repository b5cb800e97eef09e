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
        sizes: number of pairs per split, where it is not that of `SPLITS`.
        min_length, max_length: of a sequence, in letters.
    """
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}: expected one of {', '.join(TASKS)}")
    sizes = SPLITS | (sizes or {})
    distinct = sum(len(ALPHABET) ** length for length in range(min_length, max_length + 1))
    if sum(sizes.values()) > distinct // 2 + 1:
        raise ValueError(
            f"got {sum(sizes.values())} pairs, but lengths {min_length} to {max_length} have {distinct} different "
            "sequences, of which at most half can be drawn: ask for fewer, or raise max_length"
        )
    rng, seen, splits = random.Random(seed), set[str](), {}
    for split, size in sizes.items():
        sources: list[str] = []
        while len(sources) < size:
            symbols = " ".join(rng.choices(ALPHABET, k=rng.randint(min_length, max_length)))
            if symbols not in seen:
                seen.add(symbols)
                sources.append(symbols)
        targets = [" ".join(TASKS[task](source.split())) for source in sources]
        splits[split] = Dataset.from_dict({"source": sources, "target": targets})
    return splits
