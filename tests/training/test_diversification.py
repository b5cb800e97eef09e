"""Teachers whose translations of the training set are further training pairs (Nguyen et al. 2020)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from tiny import SMALL, losses
from transformers import AutoTokenizer, TrainerCallback

from vanilla_transformer.data.corpora import read_lines
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.training import arguments, diversification
from vanilla_transformer.training import train as training
from vanilla_transformer.training.checkpoints import checkpoints
from vanilla_transformer.training.diversification import folder_of_teachers, train_recipe, write_further
from vanilla_transformer.training.recipe import load_recipe
from vanilla_transformer.training.run_folder import state_of
from vanilla_transformer.training.train import TrainingResult, train

SETTINGS = ("corpus.name=phrasebook", "corpus.source_lang=en", "corpus.target_lang=fr", "decoding.max_length=20")
TAUGHT = (*SETTINGS, "diversification.training={max_steps: 8, eval_steps: 4}", "diversification.model={d_model: 8}")
SEVERAL = (*TAUGHT, "diversification.forward_teachers=2")


class Stop(Exception):
    pass


def stop_at(monkeypatch, where: str, step: int) -> None:
    """In the training whose folder has this name, or, at step 0, instead of a translation by this teacher."""

    class StopCallback(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if (Path(args.output_dir).name, state.global_step) == (where, step):
                raise Stop

    def translate(model, *arguments, **options):
        if step == 0 and Path(model).parent.name == where:
            raise Stop
        translate_files(model, *arguments, **options)

    translate_files = diversification.translate_files
    monkeypatch.setattr(training, "early_stopping", lambda recipe: [StopCallback()])
    monkeypatch.setattr(diversification, "translate_files", translate)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with teachers that was never interrupted."""
    return train_recipe(load_recipe("copy", [*SMALL, *TAUGHT]), tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """One with two teachers from source to target."""
    return train_recipe(load_recipe("copy", [*SMALL, *SEVERAL]), tmp_path_factory.mktemp("several") / "run")


def lines(file: Path) -> list[str]:
    return list(read_lines(file))


def test_what_teachers_write_is_trained_on(whole, small_recipe, tmp_path):
    folder = whole.run.with_name("run.teachers")
    source, target = (lines(folder / f"train.{side}") for side in ("source", "target"))
    corpus = list(zip(source, target, strict=True))
    assert corpus == [(pair.source, pair.target) for pair in phrasebook(0, train=120, validation=20, test=10)["train"]]
    forward, backward = lines(folder / "forward.target"), lines(folder / "backward.source")
    added = list(zip(*(lines(folder / f"further.{side}") for side in ("source", "target")), strict=True))
    assert set(added) == {
        (x, y)
        for x, y in {*zip(source, forward, strict=True), *zip(backward, target, strict=True)} - set(corpus)
        if x.strip() and y.strip()
    }

    trained_on = whole.splits["train"]
    pairs = list(zip(trained_on["source"], trained_on["target"], strict=True))
    assert pairs == corpus + added and added
    without = train(small_recipe(*SETTINGS, "training.max_steps=1"), tmp_path / "without")
    ours, theirs = (AutoTokenizer.from_pretrained(run / "model") for run in (whole.run, without.run))
    assert ours.get_vocab() == theirs.get_vocab()  # no word of the teachers in it


def test_teachers_of_both_directions(whole):
    folder = whole.run.with_name("run.teachers")
    for name, languages, width, steps in (
        ("forward", ("en", "fr"), 8, 8),
        ("backward", ("fr", "en"), 8, 8),
        ("../run", ("en", "fr"), 16, 12),
    ):
        recipe = load_recipe(str(folder / name / "recipe.yaml"))
        assert (recipe.corpus.source_lang, recipe.corpus.target_lang) == languages
        assert json.loads((folder / name / "model" / "config.json").read_text())["d_model"] == width
        assert state_of(checkpoints(folder / name)[-1]).global_step == steps
    assert recipe.diversification.training == {"max_steps": 8, "eval_steps": 4}  # the model's tells of its teachers
    backward = load_recipe(str(folder / "backward" / "recipe.yaml")).corpus
    assert [Path(file).name for file in backward.train] == ["train.target", "train.source"]
    assert [Path(file).name for file in backward.validation] == ["validation.target", "validation.source"]
    told = json.loads((folder / "teachers.json").read_text())
    assert told["pairs"] == {"corpus": 120, "teachers": len(lines(folder / "further.source"))}
    minutes = told["minutes"]
    assert minutes.keys() == {
        f"{name} {what}" for name in ("forward", "backward") for what in ("teacher", "translation")
    }
    assert all(value >= 0 for value in minutes.values())
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["data"]["train"]["pairs"] == 120 and len(provenance["commands"]) == 1


def goes_on(where, step, never_stopped, settings, small_recipe, run, monkeypatch):
    """Stop it there, go on, and compare."""
    summary = run.with_name("run.teachers") / "teachers.json"
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, where, step)
        train_recipe(small_recipe(*settings), run)
    train_recipe(small_recipe(*settings), run, resume=True)
    assert losses(run) == losses(never_stopped.run)
    ours, theirs = (load_file(folder / "model" / "model.safetensors") for folder in (run, never_stopped.run))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    told = (never_stopped.run.with_name("run.teachers") / "teachers.json").read_text()
    assert json.loads(summary.read_text())["minutes"].keys() == json.loads(told)["minutes"].keys()


@pytest.mark.parametrize(
    ("where", "step"),
    [("forward", 2), ("forward", 6), ("forward", 0), ("backward", 6), ("backward", 0), ("run", 2), ("run", 7)],
)
def test_stopped_anywhere_it_goes_on(where, step, whole, small_recipe, tmp_path, monkeypatch):
    goes_on(where, step, whole, TAUGHT, small_recipe, tmp_path / "run", monkeypatch)


@pytest.mark.parametrize(("where", "step"), [("forward-2", 6), ("forward-2", 0), ("run", 2), ("run", 7)])
def test_among_several_too(where, step, several, small_recipe, tmp_path, monkeypatch):
    goes_on(where, step, several, SEVERAL, small_recipe, tmp_path / "run", monkeypatch)


def test_several_teachers(several):
    """Of several seeds, whose translations are all added."""
    folder = several.run.with_name("run.teachers")
    teachers = [
        load_recipe(str(folder / name / "recipe.yaml")).training for name in ("forward", "forward-2", "backward")
    ]
    assert [teacher.seed for teacher in teachers] == [0, 1, 0]
    assert lines(folder / "forward.target") != lines(folder / "forward-2.target")
    source, target = (lines(folder / f"train.{side}") for side in ("source", "target"))
    added = zip(*(lines(folder / f"further.{side}") for side in ("source", "target")), strict=True)
    expected = {
        *(
            pair
            for name in ("forward", "forward-2")
            for pair in zip(source, lines(folder / f"{name}.target"), strict=True)
        ),
        *zip(lines(folder / "backward.source"), target, strict=True),
    } - set(zip(source, target, strict=True))
    assert set(added) == {(x, y) for x, y in expected if x.strip() and y.strip()}


@pytest.mark.parametrize("bf16, lacks, packed", [(True, None, "bfloat16"), (True, "AVX", None), (False, None, None)])
def test_translations_are_packed_where_training_has_bfloat16_and_the_processor_too(
    bf16, lacks, packed, small_recipe, tmp_path, monkeypatch
):
    options = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(diversification, "lacking", lambda packing: lacks)
    monkeypatch.setattr(diversification, "tell_minutes", lambda *of: None)
    monkeypatch.setattr(diversification, "translate_files", lambda *of, **given: options.append(given["packed"]))
    teacher = small_recipe(f"training.bf16={bf16}")
    teacher.corpus.train = ["train.source", "train.target"]
    diversification.translate_training_set(teacher, tmp_path, "forward")
    assert options == [packed]


def test_a_teacher_that_is_given_more_updates_translates_anew(small_recipe, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, "backward", 0)
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run")
    written = tmp_path / "run.teachers" / "forward.target"
    before = written.read_text()
    longer = small_recipe(*TAUGHT, "diversification.training={max_steps: 60, eval_steps: 4, learning_rate: null}")
    train_recipe(longer, tmp_path / "run", resume=True)
    assert written.read_text() != before
    wider = small_recipe(*TAUGHT, "diversification.model={d_model: 16}")
    with pytest.raises(ValueError, match=r"another recipe \(diversification.model was .*, now"):
        train_recipe(wider, tmp_path / "run", resume=True)


def test_a_teacher_that_is_given_fewer_updates_than_it_has_made_is_refused(small_recipe, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, "backward", 2)
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run")
    shorter = small_recipe(*TAUGHT, "diversification.training={max_steps: 4, eval_steps: 4}")
    with pytest.raises(ValueError, match=r"forward has made 8 updates.*its length is to be training.max_steps=4"):
        train_recipe(shorter, tmp_path / "run", resume=True)
    assert (tmp_path / "run.teachers" / "forward.target").exists()


def test_a_finished_teacher_needs_no_checkpoints(whole, small_recipe, tmp_path, monkeypatch):
    """Which are what one deletes where a disk is full."""
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, "run", 2)
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run")
    folder = tmp_path / "run.teachers"
    models = [folder / name / "model" / "model.safetensors" for name in ("forward", "backward")]
    for model in models:
        for checkpoint in checkpoints(model.parent.parent):
            shutil.rmtree(checkpoint)
    written = [model.stat().st_mtime_ns for model in models]
    longer = small_recipe(*TAUGHT, "diversification.training={max_steps: 12, eval_steps: 4}")
    with pytest.raises(FileNotFoundError, match=r"forward has a model and no checkpoint, from which it would go on"):
        train_recipe(longer, tmp_path / "run", resume=True)
    train_recipe(small_recipe(*TAUGHT), tmp_path / "run", resume=True)
    assert losses(tmp_path / "run") == losses(whole.run)
    assert [model.stat().st_mtime_ns for model in models] == written


def test_a_longer_teacher_forgets_parts_of_its_translation(small_recipe, tmp_path, monkeypatch):
    """Which are of another model: the translation would not go on with them."""

    def killed(self):
        raise Stop

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr("vanilla_transformer.translation.parts.Parts.join", killed)
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run")
    assert (tmp_path / "run.teachers" / "forward.target.parts" / "000000.txt").exists()
    longer = small_recipe(*TAUGHT, "diversification.training={max_steps: 12, eval_steps: 4}")
    train_recipe(longer, tmp_path / "run", resume=True)
    assert not list((tmp_path / "run.teachers").glob("*.parts"))


def test_one_process_alone_forgets(small_recipe, tmp_path, monkeypatch):
    """Two of them would be in each other's way."""
    monkeypatch.setattr(diversification, "train", lambda *_, **__: TrainingResult(tmp_path, None, 0, {}))
    translation, teacher = tmp_path / "forward.target", small_recipe(*TAUGHT).teacher()
    translation.touch()
    process = SimpleNamespace(is_main_process=False)
    monkeypatch.setattr(diversification, "processes_of_launch", lambda: process)
    diversification.train_teacher(teacher, tmp_path, "forward")
    assert translation.exists()
    process.is_main_process = True
    diversification.train_teacher(teacher, tmp_path, "forward")
    assert not translation.exists()


def test_a_resume_that_is_refused_keeps_the_translation(small_recipe, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, "backward", 0)
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run")
    other = small_recipe(*TAUGHT, "diversification.training={max_steps: 60, eval_steps: 4, learning_rate: 0.1}")
    with pytest.raises(ValueError, match="was started with another recipe"):
        train_recipe(other, tmp_path / "run", resume=True)
    assert (tmp_path / "run.teachers" / "forward.target").exists()


def test_teachers_go_on_with_their_corpus_only(small_recipe, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, "forward", 6)
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run")
    with pytest.raises(ValueError, match=r"run.teachers would not go on as it began \(data was"):
        train_recipe(small_recipe(*TAUGHT, "corpus.seed=1"), tmp_path / "run", resume=True)


def test_teachers_in_a_folder_that_was_moved(whole, small_recipe, tmp_path, monkeypatch):
    (tmp_path / "before").mkdir()
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, "forward", 6)
        train_recipe(small_recipe(*TAUGHT), tmp_path / "before" / "run")
    (tmp_path / "before").rename(tmp_path / "after")
    train_recipe(small_recipe(*TAUGHT), tmp_path / "after" / "run", resume=True)
    assert losses(tmp_path / "after" / "run") == losses(whole.run)


def test_teachers_are_those_of_the_recipe(small_recipe, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, "backward", 6)
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run")
    with pytest.raises(ValueError, match=r"another recipe .*training.seed was 0, now 1"):
        train_recipe(small_recipe(*TAUGHT, "training.seed=1"), tmp_path / "run", resume=True)


def test_folders_that_are_there(whole, small_recipe, tmp_path):
    folder = tmp_path / "run.teachers"
    with pytest.raises(ValueError, match="no whole checkpoint to resume from: start without --resume"):
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run", resume=True)
    folder.mkdir()
    with pytest.raises(FileExistsError, match=r"run.teachers exists: go on with --resume"):
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run")
    with pytest.raises(FileExistsError, match="is not of a run's teachers, and is not deleted"):
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run", overwrite=True)
    with pytest.raises(ValueError, match="give only one of them"):
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run", overwrite=True, resume=True)
    with pytest.raises(FileExistsError, match="run exists: go on from checkpoint-12 with --resume"):
        train_recipe(small_recipe(*TAUGHT), whole.run)
    with pytest.raises(ValueError, match="is finished, after 12 steps"):
        train_recipe(small_recipe(*TAUGHT), whole.run, resume=True)


def test_a_finished_model_without_checkpoints_is_not_trained_anew(whole, small_recipe, tmp_path):
    for name in ("run", "run.teachers"):
        shutil.copytree(whole.run.with_name(name), tmp_path / name)
    for checkpoint in checkpoints(tmp_path / "run"):
        shutil.rmtree(checkpoint)
    with pytest.raises(ValueError, match="no whole checkpoint to resume from: start anew with --overwrite"):
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "model").exists()


def test_teachers_that_are_gone(whole, small_recipe, tmp_path):
    shutil.copytree(whole.run, tmp_path / "run")
    with pytest.raises(FileNotFoundError, match=r"run.teachers is gone, whose pairs .* is trained on: bring it back"):
        train_recipe(small_recipe(*TAUGHT, "training.max_steps=14"), tmp_path / "run", resume=True)


def test_what_is_missing_is_told_before_anything_is_deleted(whole, small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(arguments, "is_tensorboard_available", lambda: False)
    for name in ("run", "run.teachers"):
        shutil.copytree(whole.run.with_name(name), tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    for settings in (["tokenizer={path: /nowhere/at/all}"], ["diversification.training={report_to: tensorboard}"]):
        with pytest.raises((FileNotFoundError, ImportError)):
            train_recipe(small_recipe(*TAUGHT, *settings), tmp_path / "run", overwrite=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_overwriting_forgets_the_run_before_its_teachers_begin(whole, small_recipe, tmp_path, monkeypatch):
    """Or a run that is killed among its teachers would go on with the model of another one."""
    for name in ("run", "run.teachers"):
        shutil.copytree(whole.run.with_name(name), tmp_path / name)
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, "forward", 2)
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["run.teachers"]
    assert not (tmp_path / "run.teachers" / "forward.target").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["diversification.training={max_stps: 8}"], "diversification: unknown key 'training.max_stps': did you mean"),
        (
            ["diversification.model={d_modl: 8}"],
            "diversification: invalid recipe: unknown key 'model.d_modl': did you mean",
        ),
        (
            ["diversification={}", "model=null"],
            "diversification trains from the start: give the recipe sections model",
        ),
        (["diversification.decoding={}"], "unknown key 'diversification.decoding'"),
        (["diversification.forward_teachers=0"], "forward_teachers=0: expected a number of teachers, at least 1"),
        (
            ["diversification={}", "task=causal-lm"],
            "diversification is for task=translation, and the task is causal-lm",
        ),
    ],
)
def test_recipes_that_are_refused(settings, message, small_recipe):
    with pytest.raises(ValueError, match=message):
        small_recipe(*settings)


def test_epochs_of_teachers_stand_for_the_updates_of_the_model(small_recipe):
    teacher = small_recipe("diversification.training={num_train_epochs: 2}").teacher()
    assert (teacher.training.max_steps, teacher.training.num_train_epochs) == (None, 2)
    assert teacher.diversification is None
    falling = ("training.lr_scheduler_type=linear", "training.decay_steps=20")
    shorter = small_recipe(*falling, "diversification.training={max_steps: 5}").teacher()
    assert (shorter.training.max_steps, shorter.training.decay_steps) == (5, None)
    alike = small_recipe("diversification={}")
    assert alike.teacher() == small_recipe()


def test_calls_that_are_refused(small_recipe, tmp_path):
    with pytest.raises(ValueError, match="call `train_recipe`, which trains its teachers"):
        train(small_recipe(*TAUGHT), tmp_path / "run")
    with pytest.raises(ValueError, match="--from goes on with one model"):
        train_recipe(small_recipe(*TAUGHT), tmp_path / "run", from_model="somewhere")
    assert not list(tmp_path.iterdir())


def test_further_pairs_say_what_the_corpus_does_not(tmp_path):
    texts = {"train.source": "abcd", "train.target": "ABCD", "backward.source": "axc ", "forward.target": "ABZD"}
    for name, text in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in text))
    (tmp_path / "teachers.json").write_text("{}")
    write_further(tmp_path, ["forward", "backward"])
    sides = [lines(tmp_path / f"further.{side}") for side in ("source", "target")]
    assert list(zip(*sides, strict=True)) == [("x", "B"), ("c", "Z")]
    assert json.loads((tmp_path / "teachers.json").read_text()) == {"pairs": {"corpus": 4, "teachers": 2}}
    for name in ("backward.source", "forward.target"):
        (tmp_path / name).write_text("\n" * 4)
    with pytest.raises(ValueError, match="have written nothing but blanks and what the corpus says: give them more"):
        write_further(tmp_path, ["forward", "backward"])


def test_a_run_in_the_folder_where_one_is(tmp_path, monkeypatch):
    """`-o .`: the teachers are beside it, under its name."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    result = train_recipe(load_recipe("copy", [*SMALL, *TAUGHT]), Path("."))
    assert result.model == tmp_path / "here" / "model" and (tmp_path / "here.teachers" / "teachers.json").exists()
    assert folder_of_teachers(Path(".")) == tmp_path / "here.teachers"  # as the script of the card asks for it


@pytest.mark.parametrize("owner", ["run", "run.teachers/backward"])
def test_a_vocabulary_that_would_be_deleted_is_refused(owner, tmp_path):
    run = tmp_path / "run"
    train_recipe(load_recipe("copy", [*SMALL, *TAUGHT]), run)
    tokenizer = tmp_path / owner / "tokenizer"
    again = load_recipe("copy", [*SMALL, *TAUGHT, f"tokenizer={{path: {tokenizer}}}"])
    with pytest.raises(ValueError, match=f"holds {tokenizer} itself, which would be deleted: choose another -o"):
        train_recipe(again, run, overwrite=True)
    assert (run / "model").exists() and tokenizer.exists()


def test_a_run_is_the_same_whatever_the_order_of_words_in_a_set(tmp_path):
    """Which differs from process to process."""
    settings = [*SMALL, *TAUGHT, "tokenizer.vocab_size=300"]
    words = ["train", "copy", "-o", "run", *(word for setting in settings for word in ("--set", setting))]
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "vanilla_transformer", *words],
            cwd=tmp_path / seed,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr[-2000:]
    one, other = tmp_path / "1", tmp_path / "2"
    for name in ("further.source", "further.target", "forward/tokenizer/tokenizer.json"):
        assert (one / "run.teachers" / name).read_bytes() == (other / "run.teachers" / name).read_bytes()
    assert losses(one / "run") == losses(other / "run")
