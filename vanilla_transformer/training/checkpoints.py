"""Checkpoints on disk: whole or not there at all; which to keep, which to resume, and their mean."""

import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers.trainer import TRAINER_STATE_NAME

from ..data.whole_files import TMP, sync

PATTERN = re.compile(r"checkpoint-(\d+)")


def checkpoints(run: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first; what a crash left half-written is named `tmp-...`.

    Those of a plain `Seq2SeqTrainer` are written in place, and their state last of all.
    """
    if not run.is_dir():
        return []
    found = {int(match[1]): path for path in run.iterdir() if (match := PATTERN.fullmatch(path.name))}
    return [found[step] for step in sorted(found) if (found[step] / TRAINER_STATE_NAME).exists()]


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Say of a checkpoint or model that cannot be written how much room there was, and what a run can go on from.

    Raises:
        OSError: in place of what transformers, torch or safetensors raise.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if isinstance(error, RuntimeError) and not is_of_torch_save(error):
            raise  # of another process that is gone, say
        run = folder.parent
        good, free = checkpoints(run), shutil.disk_usage(run).free / 1e6  # torch does not say that a disk is full
        raise OSError(
            f"could not write {folder} with {free:.0f} MB of disk left: {error}. "
            + (f"{good[-1]} is whole: make room and go on with --resume" if good else "There is none before it")
        ) from error


def is_of_torch_save(error: RuntimeError) -> bool:
    """Which has no error of its own for a file that takes no more, and no message that tells."""
    return any(frame.filename == torch.serialization.__file__ for frame in extract_tb(error.__traceback__))


def publish(staged: Path, final: Path) -> None:
    """Make a written folder appear under its name at once: contents to disk first, then the name.

    After a crash or a power cut there is either the whole checkpoint or none of this name.
    """
    for path in [*staged.rglob("*"), staged]:
        sync(path)
    if final.exists():
        discard(final)  # of the same step, before a resume from an earlier one
    os.replace(staged, final)
    sync(final.parent)


def discard(folder: Path) -> None:
    """Delete a folder whose name is gone at once: none is left that looks whole and is not."""
    folder = folder.resolve()  # a link stays, and leads to none
    aside = folder.with_name(f"{TMP}deleted-{folder.name}")
    if aside.exists():
        shutil.rmtree(aside)  # of an earlier time that did not come to its end
    os.replace(folder, aside)
    shutil.rmtree(aside)


def metric_history(run: Path, metric: str) -> dict[int, float]:
    """Step -> value of `metric`, as the newest checkpoint's trainer state tells it."""
    newest = checkpoints(run)[-1]
    state = json.loads((newest / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    return {entry["step"]: entry[metric] for entry in state["log_history"] if metric in entry}


def select(run: Path, which: str, count: int, metric: str, greater_is_better: bool, every: int) -> list[Path]:
    """The `count` checkpoints that a mean is taken of, oldest first: of the newest, and those of evaluations.

    Args:
        which: `"last"`, or `"best"` by `metric`, such as `"bleu"` on the validation set.
        every: steps from one evaluation to the next.
    """
    paths = checkpoints(run)
    paths = [path for path in paths if step_of(path) % every == 0 or path == paths[-1]]  # without those of interrupts
    if which == "best":
        sign = 1 if greater_is_better else -1
        history = metric_history(run, f"eval_{metric}")
        paths = sorted(paths, key=lambda path: sign * history.get(step_of(path), -sign * math.inf))
    return sorted(paths[-count:], key=step_of)


def step_of(path: Path) -> int:
    match = PATTERN.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path} is no checkpoint folder: expected a name such as checkpoint-500")
    return int(match[1])


def rotate(run: Path, keep: list[Path]) -> None:
    """Delete all checkpoints but those to keep, and the newest, from which a run resumes."""
    for path in checkpoints(run)[:-1]:
        if path not in keep:
            discard(path)


def mean_weights(folders: list[Path]) -> dict[str, torch.Tensor]:
    """The mean of the weights of several checkpoints (section 6.1), summed in float64."""
    total: dict[str, torch.Tensor] = {}
    for folder in folders:
        weights = load_file(folder / "model.safetensors")
        for name, tensor in weights.items():
            total[name] = total.get(name, 0) + tensor.double()
    return {name: (tensor / len(folders)).to(weights[name].dtype) for name, tensor in total.items()}
