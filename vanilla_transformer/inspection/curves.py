"""The curves of a training as a picture: what `trainer_state.json` of its newest checkpoint has logged."""

import json
import math
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME

from ..training.checkpoints import checkpoints
from .figures import new_figure, save

# Panel -> the logged values that it shows, by their names in the log; a panel without values is left out.
PANELS = {
    "loss in nats a token": {"loss": "training, as it is minimised", "eval_loss": "validation"},
    "validation score": {"eval_bleu": "BLEU, greedy", "eval_accuracy": "hidden tokens found, %"},
    "learning rate": {"learning_rate": "learning rate"},
    "gradient norm": {"grad_norm": "gradient norm, before clipping"},
    "target tokens a second": {"tokens_per_second": "training, without evaluation"},
}


def logged(run: Path) -> list[dict]:
    """The log of a run, one dictionary for each time that something was logged.

    Raises:
        FileNotFoundError: if the run has no whole checkpoint.
    """
    whole = checkpoints(run)
    if not whole:
        raise FileNotFoundError(f"{run} has no whole checkpoint, where a run keeps its log: name a run folder")
    return json.loads((whole[-1] / TRAINER_STATE_NAME).read_text(encoding="utf-8"))["log_history"]


def draw_curves(run: Path, output: Path) -> Path:
    """Draw the curves of a run over its steps, as PNG or SVG by the name of `output`.

    Raises:
        FileNotFoundError: if the run has no whole checkpoint.
        ImportError: without matplotlib.
    """
    log = logged(run)
    panels = {
        title: found
        for title, lines in PANELS.items()
        if (found := {label: points for name, label in lines.items() if (points := curve(log, name))})
    }
    if not panels:
        raise ValueError(f"{run} has logged nothing yet: its curves begin with the first 100 steps, or an evaluation")
    figure = new_figure(4.5 * min(3, len(panels)), 3.2 * math.ceil(len(panels) / 3))
    figure.suptitle(str(run))
    for place, (title, lines) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(math.ceil(len(panels) / 3), min(3, len(panels)), place)
        for label, points in lines.items():
            axes.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < 40 else None)
        axes.set(title=title, xlabel="step")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    return save(figure, output)


def curve(log: list[dict], name: str) -> list[tuple[int, float]]:
    """(step, value) of each time that `name` was logged."""
    return [(entry["step"], entry[name]) for entry in log if name in entry]
