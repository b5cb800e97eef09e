"""Whether a run folder may be written, and whether a training can go on in it: alone, with its recipe, its data, and
as many processes; and when it has come to its end."""

import json
import math
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import torch
from datasets import Dataset
from transformers import EarlyStoppingCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from ..data.whole_files import TMP, check_writable, held
from ..interop.loading import check_folder, check_tokenizer
from ..processor import processor
from ..translation.shares import processes_of_launch
from .checkpoints import PATTERN, checkpoints
from .recipe import Recipe, load_recipe
from .splits import files_of, fingerprint

PROVENANCE, RESULT, MEAN = "provenance.json", "result.json", "mean"
UNFINISHED = re.compile(rf"{TMP}(deleted-)?({PATTERN.pattern}|model|{MEAN}|recipe.yaml|{PROVENANCE}|{RESULT})")
PACKAGES = ("vanilla-transformer", "torch", "transformers", "tokenizers", "datasets", "accelerate", "sacrebleu")


Options = ParamSpec("Options")
Result = TypeVar("Result")
Training = Callable[Concatenate[Recipe, Path, Options], Result]


def one_at_a_time(train: Training[Options, Result]) -> Training[Options, Result]:
    """A training in a run folder that is `held` by the first process of its launch."""

    @wraps(train)
    def alone(recipe: Recipe, run: Path, *args: Options.args, **options: Options.kwargs) -> Result:
        busy = (
            f"another process is training in {run}: let it come to its end, or end it and go on with --resume, or "
            "choose another folder with -o"
        )
        with held(run, busy) if processes_of_launch().is_main_process else nullcontext():
            return train(recipe, run, *args, **options)

    return alone


def check_run(recipe: Recipe, run: Path, resume: bool, overwrite: bool, from_model: str | None) -> None:
    """Raise for a run folder that must not be written, before any work."""
    if resume:
        if from_model:
            raise ValueError("--from starts a new training and --resume goes on with one: give only one of them")
        if overwrite:
            raise ValueError("--overwrite deletes a training and --resume goes on with it: give only one of them")
        if not checkpoints(run):
            anew = "anew with --overwrite" if run.is_dir() and content(run) else "without --resume"
            raise ValueError(f"{run} has no whole checkpoint to resume from: start {anew}")
        check_same_recipe(recipe, run)
        state = state_of(checkpoints(run)[-1])
        if is_finished(run, state) and is_trained(recipe, state):
            longer = "raise training.max_steps or num_train_epochs"
            if not has_its_length(recipe, state):
                longer = f"raise training.patience={recipe.training.patience}"
            elif falls_to_zero(recipe):
                longer = f"start anew --from {run / 'model'}"
            raise ValueError(f"{run} is finished, after {state.global_step} steps: {longer} to train on")
        check_is_not_past(recipe, run, state)
        return
    if from_model:
        check_folder(Path(from_model))
        check_tokenizer(Path(from_model))
    tokenizer = recipe.tokenizer and recipe.tokenizer.path
    if tokenizer and tokenizer.count("/") > 1 and not Path(tokenizer).exists():  # and no id of the Hub
        raise FileNotFoundError(f"tokenizer.path={tokenizer} does not exist: name its folder")
    if run.exists() and not run.is_dir():
        raise FileExistsError(f"{run} is a file: name a folder for the run with -o")
    place = next(path for path in (run.absolute(), *run.absolute().parents) if path.exists())
    check_writable(place)
    if content(run):
        if not overwrite:
            hint = f"go on from {checkpoints(run)[-1].name} with --resume, or " if checkpoints(run) else ""
            raise FileExistsError(f"{run} exists: {hint}replace it with --overwrite, or choose another folder with -o")
        if Path.cwd().is_relative_to(run.resolve()):
            raise ValueError(f"{run} is where this command runs, and would be deleted: go out of it first")
        check_is_kept(recipe, run, from_model)
        if not (run / "recipe.yaml").exists():
            raise FileExistsError(f"{run} has no recipe.yaml, so it is no run, and is not deleted: choose another -o")


def check_is_kept(recipe: Recipe, deleted: Path, from_model: str | None = None) -> None:
    """Raise where what a training reads lies in a folder that is deleted before."""
    for read in (from_model, recipe.tokenizer and recipe.tokenizer.path, *files_of(recipe.corpus)):
        if read and Path(read).exists() and Path(read).resolve().is_relative_to(deleted.resolve()):
            raise ValueError(f"{deleted} holds {read} itself, which would be deleted: choose another -o")


def is_unfinished(path: Path) -> bool:
    """Whether this was half-written or half-deleted when a run was killed; others may have put something there too."""
    return UNFINISHED.fullmatch(path.name) is not None


def remove_unfinished(run: Path) -> None:
    for path in filter(is_unfinished, list(run.iterdir())):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def content(run: Path) -> bool:
    """Whether there is more in a run folder than what is unfinished."""
    return run.exists() and not all(map(is_unfinished, run.iterdir()))


def state_of(checkpoint: Path) -> TrainerState:
    return TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))


def is_trained(recipe: Recipe, state: TrainerState) -> bool:
    """Whether a run in this state has come to the end that its recipe gives it."""
    in_vain = state.stateful_callbacks.get("Patience", {}).get("attributes", {}).get(COUNTER, 0)
    return has_its_length(recipe, state) or in_vain >= (recipe.training.patience or math.inf)


def has_its_length(recipe: Recipe, state: TrainerState) -> bool:
    t = recipe.training
    return state.global_step >= (t.max_steps or math.inf) or state.epoch >= (t.num_train_epochs or math.inf)


def is_past(recipe: Recipe, state: TrainerState) -> bool:
    """Whether a run has gone on behind the end that its recipe gives it: its weights are of another length."""
    before = state.global_step - 1  # an epoch may end within the last update, which is not divided
    return has_its_length(recipe, replace(state, global_step=before, epoch=state.epoch * before / state.global_step))


def check_is_not_past(recipe: Recipe, run: Path, state: TrainerState) -> None:
    if is_past(recipe, state):
        raise ValueError(
            f"{run} has made {state.global_step} updates, {state.epoch:g} epochs, and its length is to be "
            f"training.max_steps={recipe.training.max_steps} (num_train_epochs={recipe.training.num_train_epochs}): "
            "raise it to go on, or start anew in another folder"
        )


def is_finished(run: Path, state: TrainerState) -> bool:
    """Whether `model` is that of the run's last step: what a run writes last tells of which step it is."""
    if not ((run / RESULT).exists() and (run / "model").exists()):
        return False
    try:
        return result_of(run)["step"] == state.global_step
    except json.JSONDecodeError:  # half of one
        return False


def falls_to_zero(recipe: Recipe) -> bool:
    """Whether the learning rate of each step depends on how many there will be."""
    return recipe.training.lr_scheduler_type != "inverse_sqrt" and recipe.training.decay_steps is None


LENGTH = {"training.max_steps", "training.num_train_epochs"}


def may_change(recipe: Recipe) -> set[str]:
    """What of a recipe need not be the same when a training goes on."""
    free = {"training.patience", "corpus.folder"}  # what stands in it is compared by itself: see `check_same_data`
    return free if falls_to_zero(recipe) else free | LENGTH


def check_same_recipe(recipe: Recipe, run: Path) -> None:
    before = load_recipe(str(run / "recipe.yaml")).to_dict()  # with defaults for what an older version did not know
    now = recipe.to_dict()
    free = may_change(recipe)
    changed: dict[str, str] = {}
    for section in now:
        if not isinstance(before.get(section), dict) or not isinstance(now[section], dict):
            pairs = [(section, before.get(section), now[section])]
        else:
            keys = sorted({*before[section], *now[section]})
            pairs = [(f"{section}.{k}", before[section].get(k), now[section].get(k)) for k in keys]
        changed |= {
            key: f"{key} was {old!r}, now {new!r}" for key, old, new in pairs if old != new and key not in free
        }
    if changed:
        raise ValueError(
            f"{run} was started with another recipe ({'; '.join(changed.values())}): resume with the same one "
            f"({run / 'recipe.yaml'}), or start anew in another folder"
            + (", with --from a checkpoint of this one" if changed.keys() <= LENGTH else "")
        )


COUNTER = "early_stopping_patience_counter"


class Patience(EarlyStoppingCallback):
    """Goes on counting where a run that resumes had stopped; transformers begin anew."""

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        before = state.stateful_callbacks.setdefault(type(self).__name__, self.state())  # a run may be given one late
        self.early_stopping_patience_counter = before["attributes"].get(COUNTER, 0)


def early_stopping(recipe: Recipe) -> list:
    return [Patience(recipe.training.patience)] if recipe.training.patience else []


def result_of(run: Path) -> dict:
    return json.loads((run / RESULT).read_text("utf-8"))


def provenance_of(run: Path) -> dict:
    return json.loads((run / PROVENANCE).read_text("utf-8"))


def provenance(splits: dict[str, Dataset], processes: int, bf16: bool, before: dict) -> dict:
    """What a run depends on beside its recipe; `before` is what was told of it when it was left."""
    machines, here = before.get("machines", []), machine()
    return {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "processes": processes,
        "bf16": bf16,
        "data": {name: {"pairs": len(split), "sha256": fingerprint(split)} for name, split in splits.items()},
        "commands": [*before.get("commands", []), sys.argv],
        "machines": machines if here in machines[-1:] else [*machines, here],
    }


def machine() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {"processor": processor(device), "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def check_same_data(before: dict, now: dict, run: Path) -> None:
    """Raise where the steps to come would be others than those of the run that goes on."""
    kept = ("processes", "bf16", "data")
    differences = [f"{name} was {before.get(name)}, now {now[name]}" for name in kept if before.get(name) != now[name]]
    if differences:
        raise ValueError(
            f"{run} would not go on as it began ({'; '.join(differences)}): give it the same corpus, as many "
            "processes and a machine of such a precision, or start anew in another folder, with --from a checkpoint "
            "of this one"
        )
