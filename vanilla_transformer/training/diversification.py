"""Data diversification (Nguyen et al. 2020, arXiv 1911.01986): translations of the training set by teachers, from
source to target and back, as further training pairs.

    (x, y)  ->  (x, y), (x, forward(x)), (backward(y), y)

RUN.teachers/provenance.json         what of the data, the machine and the commands a run tells of itself
RUN.teachers/train.*, validation.*   the corpus as text, .source and .target
RUN.teachers/forward/, backward/     the teachers, each a run folder of its own; more are forward-2/ and so on
RUN.teachers/forward.target          what they make of the training set, and
RUN.teachers/backward.source
RUN.teachers/further.*               the pairs that it adds
RUN.teachers/teachers.json           how long each step took (a translation that was killed: its last go), and how many
                                     pairs came of them
RUN/                                 the training on all pairs
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from datasets import Dataset
from tqdm.auto import tqdm

from ..data.corpora import SIDES, is_pair, read_lines
from ..data.whole_files import TMP, write_whole
from ..translation.files import translate_files
from ..translation.packing import Packing, lacking
from ..translation.parts import parts_of
from ..translation.shares import processes_of_launch
from .arguments import check_requirements, mixed_precision
from .checkpoints import checkpoints, discard, publish
from .recipe import CorpusRecipe, Recipe, load_recipe
from .run_folder import (
    PROVENANCE,
    RESULT,
    check_is_kept,
    check_is_not_past,
    check_run,
    check_same_data,
    check_same_recipe,
    content,
    is_finished,
    is_trained,
    one_at_a_time,
    provenance,
    provenance_of,
    result_of,
    state_of,
)
from .splits import load_splits
from .train import TrainingResult, train

SUMMARY, FORWARD, BACKWARD = "teachers.json", "forward", "backward"


def folder_of_teachers(run: Path) -> Path:
    run = by_name(run)
    return run.with_name(f"{run.name}.teachers")


def by_name(run: Path) -> Path:
    """Of `-o .` and `-o ..` as well, the folder of whose teachers is named after what that is."""
    return Path(os.path.abspath(run)) if run.name in ("", "..") else run


@one_at_a_time
def train_recipe(
    recipe: Recipe, run: Path, *, resume: bool = False, overwrite: bool = False, from_model: str | None = None
) -> TrainingResult:
    """`train`, after the teachers that the recipe's section `diversification` asks for.

    Args:
        resume: go on wherever it stopped: with a teacher, its translation, or the model.

    Raises:
        FileExistsError, FileNotFoundError, ValueError: see `train`; for teachers of another run or corpus, or that are
            gone, and for `from_model` with teachers.
    """
    if recipe.diversification is None:
        return train(recipe, run, resume=resume, overwrite=overwrite, from_model=from_model)
    if from_model:
        raise ValueError("--from goes on with one model, and diversification trains three: leave one of them out")
    run = by_name(run)
    folder, processes = folder_of_teachers(run), processes_of_launch()
    among_teachers = resume and not overwrite and (folder / PROVENANCE).exists() and not is_begun(run)
    for each in (recipe, recipe.teacher()):
        check_requirements(each)
    if processes.is_main_process:
        if among_teachers:
            go_on(folder, recipe)
        else:
            check_run(recipe, run, resume, overwrite, from_model)
            if not resume:
                begin(folder, run, recipe, overwrite)
            elif not folder.exists():
                raise FileNotFoundError(
                    f"{folder} is gone, whose pairs {run} is trained on: bring it back, or start anew with --overwrite"
                )
    processes.wait_for_everyone()
    if among_teachers or not resume:
        for name, teacher in teachers(recipe, folder).items():
            if stopped := train_teacher(teacher, folder, name):
                return stopped
            translate_training_set(teacher, folder, name)
        if processes.is_main_process:
            write_further(folder, list(teachers(recipe, folder)))
        processes.wait_for_everyone()
    further = folder / "further.source", folder / "further.target"
    begun = is_begun(run)
    return train(recipe, run, resume=resume and begun, overwrite=not begun, further=further)


def is_begun(run: Path) -> bool:
    """Whether there is anything of a training that cost time."""
    return bool(checkpoints(run)) or (run / "model").exists()


def begin(folder: Path, run: Path, recipe: Recipe, overwrite: bool) -> None:
    """The corpus as text, in a new folder for the teachers of `run`.

    Raises:
        FileExistsError: if there is one that is not to be deleted.
        ValueError: if what the teachers are to read lies in what is.
    """
    if folder.exists():
        if not overwrite:
            raise FileExistsError(
                f"{folder} exists: go on with --resume, replace it with --overwrite, or choose another run with -o"
            )
        if not (folder / SUMMARY).exists():
            raise FileExistsError(f"{folder} is not of a run's teachers, and is not deleted: choose another -o")
    for old in (folder, run):
        check_is_kept(recipe, old)
    splits = load_splits(recipe.corpus)
    for old in (folder, run):  # without its teachers a run does not go on
        if content(old):
            discard(old)  # only now that the corpus is known to be right
    aside = folder.with_name(f"{TMP}{folder.name}")
    aside.mkdir(parents=True, exist_ok=True)
    for split in ("train", "validation"):
        for side in SIDES:
            write_lines(aside / f"{split}.{side}", splits[split][side])
    write_whole(aside / SUMMARY, json.dumps({"minutes": {}}))
    write_whole(aside / PROVENANCE, json.dumps(provenance_now(recipe, splits, {}), indent=2))
    publish(aside, folder)


def go_on(folder: Path, recipe: Recipe) -> None:
    """Raise where the corpus is not the one that the teachers in `folder` have begun with."""
    before = provenance_of(folder)
    now = provenance_now(recipe, load_splits(recipe.corpus), before)
    check_same_data(before, now, folder)
    write_whole(folder / PROVENANCE, json.dumps(now, indent=2))


def provenance_now(recipe: Recipe, splits: dict[str, Dataset], before: dict) -> dict:
    return provenance(splits, processes_of_launch().num_processes, mixed_precision(recipe), before)


def teachers(recipe: Recipe, folder: Path) -> dict[str, Recipe]:
    """The recipes of all teachers, which read the text in `folder`; the last one translates back."""
    source, target = recipe.corpus.source_lang, recipe.corpus.target_lang

    def teacher(languages: tuple[str, str], sides: tuple[str, ...], number: int = 0) -> Recipe:
        corpus = CorpusRecipe(
            source_lang=languages[0],
            target_lang=languages[1],
            folder=str(folder),
            train=[f"train.{side}" for side in sides],
            validation=[f"validation.{side}" for side in sides],
            max_length=recipe.corpus.max_length,
        )
        alike = recipe.teacher()
        return replace(alike, corpus=corpus, training=replace(alike.training, seed=alike.training.seed + number))

    forward = {
        f"{FORWARD}-{number + 1}" if number else FORWARD: teacher((source, target), SIDES, number)
        for number in range(recipe.diversification.forward_teachers)  # type: ignore[union-attr]
    }
    return {**forward, BACKWARD: teacher((target, source), SIDES[::-1])}


def train_teacher(teacher: Recipe, folder: Path, name: str) -> TrainingResult | None:
    """Train it, or go on, unless it is finished; returns how it was stopped before its end."""
    run = folder / name
    if is_done(teacher, run):
        tell_minutes(folder, f"{name} teacher", result_of(run)["minutes"])
        return None
    if processes_of_launch().is_main_process:
        forget(written(folder, name))  # of a teacher that has been given more updates
    tqdm.write(f"the {name} teacher, {teacher.corpus.source_lang}-{teacher.corpus.target_lang}:")
    begun = is_begun(run)
    result = train(teacher, run, resume=begun, overwrite=not begun)
    if not result.model:
        return result
    tell_minutes(folder, f"{name} teacher", result_of(run)["minutes"])
    return None


def is_done(teacher: Recipe, run: Path) -> bool:
    """Whether a teacher has come to the end that its recipe gives it; with a model, it needs no checkpoint for that.

    Raises:
        FileNotFoundError: if its checkpoints are gone, from which it would have to go on.
        ValueError: if it is another recipe's, or has made more updates.
    """
    if not is_begun(run):
        return False
    check_same_recipe(teacher, run)
    if newest := checkpoints(run)[-1:]:
        state = state_of(newest[0])
        check_is_not_past(teacher, run, state)
        return is_finished(run, state) and is_trained(teacher, state)
    alike = (run / RESULT).exists() and load_recipe(str(run / "recipe.yaml")).training == teacher.training
    if alike and result_of(run)["step"] >= (teacher.training.max_steps or 0):
        return True
    raise FileNotFoundError(
        f"{run} has a model and no checkpoint, from which it would go on: bring its checkpoints back, or start anew "
        "with --overwrite"
    )


def forget(translation: Path) -> None:
    translation.unlink(missing_ok=True)
    parts = parts_of(translation)
    if parts.exists():
        discard(parts)


def written(folder: Path, name: str) -> Path:
    """What a teacher makes of the training set."""
    return folder / f"{name}.{'source' if name == BACKWARD else 'target'}"


def translate_training_set(teacher: Recipe, folder: Path, name: str) -> None:
    output, reads = written(folder, name), folder / teacher.corpus.train[0]  # type: ignore[index]
    if output.exists():
        return
    on_cpu = not torch.cuda.is_available()
    packed: Packing | None = "bfloat16" if on_cpu and mixed_precision(teacher) and not lacking("bfloat16") else None
    begin = time.monotonic()
    # A source that is cut is one that training drops, with what became of it.
    translate_files(str(folder / name / "model"), [reads], output, packed=packed, truncation=True, progress=True)
    tell_minutes(folder, f"{name} translation", (time.monotonic() - begin) / 60)


def write_further(folder: Path, names: list[str]) -> None:
    """The pairs that the teachers of these names add, without those that say what their own line says, or nothing.

    Raises:
        ValueError: if there are none.
    """
    counts = {"corpus": 0, "teachers": 0}
    files = [folder / "train.source", folder / "train.target", *(written(folder, name) for name in names)]

    def pairs() -> Iterator[tuple[str, str]]:
        counts.update(corpus=0, teachers=0)
        for source, target, *translations in zip(*map(read_lines, files), strict=True):
            others = {
                (text, target) if name == BACKWARD else (source, text)
                for name, text in zip(names, translations, strict=True)
            }
            others = {pair for pair in others - {(source, target)} if is_pair(*pair)}
            counts["corpus"] += 1
            counts["teachers"] += len(others)
            yield from sorted(others)

    for number, side in enumerate(SIDES):
        write_lines(folder / f"further.{side}", (pair[number] for pair in pairs()))
    if not counts["teachers"]:
        raise ValueError(
            f"the teachers in {folder} have written nothing but blanks and what the corpus says: give them more "
            "updates, with diversification.training, or train without them"
        )
    with summary(folder) as told:
        told["pairs"] = counts
    tqdm.write("{teachers} pairs of the teachers are added to {corpus} of the corpus".format(**counts))


def write_lines(file: Path, lines: Iterable[str]) -> None:
    write_whole(file, (" ".join(line.splitlines()) + "\n" for line in lines))


@contextmanager
def summary(folder: Path) -> Iterator[dict]:
    """What is told of the teachers, to be added to."""
    told = json.loads((folder / SUMMARY).read_text("utf-8"))
    yield told
    write_whole(folder / SUMMARY, json.dumps(told, indent=2))


def tell_minutes(folder: Path, what: str, minutes: float) -> None:
    if processes_of_launch().is_main_process:
        with summary(folder) as told:
            told["minutes"][what] = round(minutes, 1)
