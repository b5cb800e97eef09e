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

    def cells(self) -> list[str]:
        cells = []
        for name, values in self.values.items():
            low, high = (sorted(values)[int((len(values) - 1) * q)] for q in (0.25, 0.75))
            ratio = f" = {self.ratio(name):.2f} x" if name != "marian" and "marian" in self.values else ""
            digits = 0 if self.median(name) >= 100 else 1 if self.median(name) >= 10 else 2
            cells.append(f"{name} {self.median(name):,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]{ratio}")
        return cells

    def text(self) -> str:
        return f"{self.size:<6} {self.measure:<34} {self.unit:<12} {'   '.join(self.cells())} {self.note}".rstrip()


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
    """One line a measure: every contender's median, as a multiple of MarianMT's."""
    lines = [
        f"Medians, {mode}.",
        "",
        "| size | threads | measure | unit | medians [quartiles] = multiple of MarianMT |",
    ]
    lines += ["|---|---|---|---|---|"]
    for row in rows:
        cells = [*row.cells(), *([row.note] if row.note else [])]
        lines.append(f"| {row.size} | {row.threads} | {row.measure} | {row.unit} | {'; '.join(cells)} |")
    return "\n".join(lines)
