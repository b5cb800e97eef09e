"""Measures as rows of numbers, and rows as a table."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass
class Row:
    """One measure of one size: every contender's numbers, round by round."""

    size: str
    measure: str
    unit: str
    more_is_better: bool
    values: dict[str, list[float]]
    threads: int = field(default_factory=torch.get_num_threads)
    flops: float = 0.0  # of one unit of work
    note: str = ""

    def median(self, name: str) -> float:
        return statistics.median(self.values[name])

    def ratio(self, name: str, to: str = "marian") -> float:
        """How many times as much of the unit as `to`."""
        return self.median(name) / self.median(to)

    def best_of_ours(self, plain: bool) -> float:
        """The median of ours in its plain mode, or the largest of all its modes."""
        modes = ["ours"] if plain else [name for name in self.values if name.startswith("ours")]
        return max(map(self.median, modes))

    def number(self, name: str) -> str:
        """Median and spread: half of what lies between the quartiles."""
        values, median = self.values[name], self.median(name)
        low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (median, median, median)
        digits = 0 if median >= 100 else 1 if median >= 10 else 2
        spread = f" ±{(high - low) / 2 / median:.0%}" if len(values) > 1 else ""
        return f"{median:,.{digits}f}{spread}"

    def cell(self, name: str) -> str:
        if name not in self.values:
            return ""
        ratio = f" ({self.ratio(name):.2f})" if name != "marian" and "marian" in self.values else ""
        return self.number(name) + ratio

    def text(self) -> str:
        cells = "   ".join(f"{name} {self.cell(name)}" for name in self.values)
        return f"{self.size:<6} {self.measure:<34} {self.unit:<12} {cells}   {self.note}".rstrip()


def interleaved(runs: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each of the runs in turn, `rounds` times, after one round of warm-up that is not counted."""
    values: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            value = run()
            if number:
                values[name].append(value)
    return values


def timed(work: Callable[[], float]) -> Callable[[], float]:
    """A run that gives units of work per second."""

    def run() -> float:
        wait()
        start = time.perf_counter()
        amount = work()
        wait()
        return amount / (time.perf_counter() - start)

    return run


def wait() -> None:
    """For what a GPU was given to do."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def markdown(rows: list[Row], mode: str) -> str:
    """A table for each number of threads and kind of measure: a line a measure, a column a contender."""
    lines = [f"Medians ± half the distance between the quartiles; in brackets the ratio to MarianMT; {mode}."]
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault((row.threads, row.unit, row.measure == "training step"), []).append(row)
    for (threads, unit, _), group in groups.items():
        names = list(dict.fromkeys(name for row in group for name in row.values))
        lines += ["", f"| {unit}, {threads} thread{'s' if threads > 1 else ''} | {' | '.join(names)} |"]
        lines += ["|---" * (1 + len(names)) + "|"]
        lines += [
            f"| {f'{row.size}: ' if row.size != '-' else ''}{row.measure} | {' | '.join(map(row.cell, names))} |"
            for row in group
        ]
    notes = dict.fromkeys(f"- {row.size}, {row.measure}: {row.note}" for row in rows if row.note)
    return "\n".join([*lines, "", *notes])
