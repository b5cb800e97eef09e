"""The command as a user meets it: what it prints, where it writes, and a line instead of a traceback for a mistake."""

import contextlib
import errno
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from tiny import ENGLISH, FRENCH, SMALL, held_elsewhere, tiny_model
from transformers import AutoTokenizer, BertConfig

from vanilla_transformer.cli import main
from vanilla_transformer.translation import Translator, files, load_translator, parts


def run(capsys, *arguments) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def error_of(capsys, *arguments) -> str:
    """The one line that a mistake is told in."""
    code, _, err = run(capsys, *arguments)
    assert code == 1 and "Traceback" not in err
    line = err.strip().splitlines()[-1]
    assert line.startswith(f"vanilla-transformer {arguments[0]}: error: ")
    return line


@pytest.fixture
def expected(model_dir):
    return [t.text for t in load_translator(model_dir)(ENGLISH, num_beams=2)]


def lines(path, texts):
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def test_translate_files_in_order_with_blank_lines(model_dir, tmp_path, capsys, expected):
    a, b = lines(tmp_path / "a", [*ENGLISH[:3], ""]), lines(tmp_path / "b", ["  ", *ENGLISH[3:]])
    code, out, _ = run(capsys, "translate", model_dir, a, b, "--beams", 2)
    assert code == 0
    assert out.splitlines() == [*expected[:3], "", "", *expected[3:]]


def test_translate_standard_input(model_dir, capsys, monkeypatch, expected):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(ENGLISH).encode())))
    assert run(capsys, "translate", model_dir, "--beams", 2)[1].splitlines() == expected


def test_the_mark_of_utf_8_is_no_text(model_dir, tmp_path, capsys, monkeypatch, expected):
    """At the beginning of a file or of standard input, as Windows writes it."""
    marked = "\n".join(ENGLISH).encode("utf-8-sig")
    (tmp_path / "in.txt").write_bytes(marked)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(marked)))
    for source in ([], [tmp_path / "in.txt"]):
        assert run(capsys, "translate", model_dir, *source, "--beams", 2)[1].splitlines() == expected


def test_translate_to_a_file_that_is_never_overwritten_unasked(model_dir, tmp_path, capsys, expected):
    source, output = lines(tmp_path / "a", ENGLISH), tmp_path / "out"
    assert run(capsys, "translate", model_dir, source, "-o", output, "--beams", 2)[0] == 0
    assert output.read_text(encoding="utf-8").splitlines() == expected
    output.write_text("precious")
    assert "exists: replace it with --overwrite" in error_of(capsys, "translate", model_dir, source, "-o", output)
    assert output.read_text() == "precious"
    assert run(capsys, "translate", model_dir, source, "-o", output, "--beams", 2, "--overwrite")[0] == 0
    assert output.read_text(encoding="utf-8").splitlines() == expected


def test_a_translation_that_was_killed_goes_on(model_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parts, "PART", 2)
    source, output, whole = lines(tmp_path / "a", [*ENGLISH, ""]), tmp_path / "out", tmp_path / "whole"
    assert run(capsys, "translate", model_dir, source, "-o", whole, "--beams", 2)[0] == 0
    command = ("translate", model_dir, source, "-o", output)
    original, asked = Translator.candidates, []

    def candidates(self, texts, **options):
        asked.append(list(texts))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return original(self, texts, **options)

    monkeypatch.setattr(Translator, "candidates", candidates)
    with contextlib.suppress(KeyboardInterrupt):
        run(capsys, *command, "--beams", 2)
    assert not output.exists()
    assert "parts of another translation, which differs in num_beams" in error_of(capsys, *command, "--beams", 3)
    source.write_text(source.read_text() + "more\n")
    assert "which differs in text" in error_of(capsys, *command, "--beams", 2)
    lines(source, [*ENGLISH, ""])
    code, out, _ = run(capsys, *command, "--beams", 2, "--max-tokens", 500)  # the size of batches decides nothing
    assert code == 0 and "2 of 4 parts are there already" in out
    assert asked == [ENGLISH[:2], ENGLISH[2:4], ENGLISH[4:], ENGLISH[4:], [""]]
    assert output.read_bytes() == whole.read_bytes() and output.read_text().count("\n") == 7
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == ["out"]


def test_a_killed_translation_goes_on_wherever_its_model_is(model_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parts, "PART", 2)
    source, write = lines(tmp_path / "a", ENGLISH), files.write_whole
    shutil.copytree(model_dir, tmp_path / "here")
    monkeypatch.setattr(files, "write_whole", lambda part, text: (write(part, text), sys.exit("killed")))
    with pytest.raises(SystemExit):
        run(capsys, "translate", tmp_path / "here", source, "-o", tmp_path / "out", "--beams", 1)
    monkeypatch.setattr(files, "write_whole", write)
    os.rename(tmp_path / "here", tmp_path / "there")
    code, out, _ = run(capsys, "translate", f"{tmp_path}/there/", source, "-o", tmp_path / "out", "--beams", 1)
    assert code == 0 and "1 of 3 parts are there already" in out


def test_a_translation_on_a_full_disk(model_dir, tmp_path, capsys, monkeypatch):
    """It is told where room is missing, and what was written stays."""
    texts = lines(tmp_path / "in.txt", ENGLISH)
    monkeypatch.setattr(parts, "PART", 2)
    write, written = files.write_whole, []

    def while_there_is_room(part, text):
        if len(written) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(part, text)
        written.append(part)

    with monkeypatch.context() as full:
        full.setattr(files, "write_whole", while_there_is_room)
        told = error_of(capsys, "translate", model_dir, texts, "-o", tmp_path / "out.txt")
    assert "No space left on device (" in told and f"left in {tmp_path}, " in told
    assert "HF_DATASETS_CACHE=DIR, and give the same command again" in told
    code, out, _ = run(capsys, "translate", model_dir, texts, "-o", tmp_path / "out.txt")
    assert code == 0 and "1 of 3 parts are there already" in out
    assert len((tmp_path / "out.txt").read_text("utf-8").splitlines()) == len(ENGLISH)


def test_scores_on_a_full_disk(model_dir, tmp_path, capsys, monkeypatch):
    """The same command can be given again: nothing stands there by halves."""
    sides = lines(tmp_path / "a", ENGLISH), lines(tmp_path / "b", FRENCH)
    (tmp_path / "scores").mkdir()
    command = ("evaluate", model_dir, *sides, "--json", tmp_path / "scores" / "a.json")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        told = error_of(capsys, *command)
    assert f"left in {tmp_path / 'scores'}, " in told
    assert run(capsys, *command)[0] == 0 and json.loads((tmp_path / "scores" / "a.json").read_text())


def test_parts_of_which_nobody_knows_are_not_joined(model_dir, tmp_path, capsys):
    source, output = lines(tmp_path / "a", ENGLISH), tmp_path / "out"
    (tmp_path / "out.parts").mkdir()
    (tmp_path / "out.parts" / "000000.txt").write_text("of another model\n" * len(ENGLISH))
    assert "holds parts of another translation" in error_of(capsys, "translate", model_dir, source, "-o", output)
    assert not output.exists()


@pytest.mark.parametrize("foreign", ["notes.txt", "0.txt", "000000.txt.gz"])
def test_a_folder_of_the_name_of_parts_is_not_deleted(foreign, model_dir, tmp_path, capsys):
    source, output, folder = lines(tmp_path / "a", ENGLISH), tmp_path / "out", tmp_path / "out.parts"
    folder.mkdir()
    (folder / foreign).write_text("precious")
    told = error_of(capsys, "translate", model_dir, source, "-o", output)
    assert f"holds something else than parts of a translation ({foreign})" in told
    assert [path.name for path in folder.iterdir()] == [foreign] and not output.exists()


def test_what_comes_into_the_folder_of_parts_meanwhile_stays(model_dir, tmp_path, capsys, monkeypatch):
    source, output, folder = lines(tmp_path / "a", ENGLISH), tmp_path / "out", tmp_path / "out.parts"
    chunks = parts.Parts.chunks

    def with_notes(self, *arguments):
        yield from chunks(self, *arguments)
        (folder / "notes").write_text("precious")

    monkeypatch.setattr(parts.Parts, "chunks", with_notes)
    assert run(capsys, "translate", model_dir, source, "-o", output, "--beams", 1)[0] == 0
    assert output.exists() and [path.name for path in folder.iterdir()] == ["notes"]


def test_one_translation_at_a_time_into_a_file(model_dir, tmp_path, capsys):
    """Two of them would be mixed in its parts."""
    source, output = lines(tmp_path / "a", ENGLISH), tmp_path / "out"
    with held_elsewhere(output):
        told = error_of(capsys, "translate", model_dir, source, "-o", output, "--beams", 1)
        assert f"another process is writing {output}: let it come to its end" in told and not output.exists()
    assert run(capsys, "translate", model_dir, source, "-o", output, "--beams", 1)[0] == 0 and output.exists()


def test_standard_input_is_read_but_once(model_dir, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"A dog.\n")))
    assert "got - 2 times, expected it once" in error_of(capsys, "translate", model_dir, "-", "-")


def test_a_line_that_is_too_long_is_told_before_any_work(model_dir, tokenizer, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parts, "PART", 2)
    monkeypatch.setattr(files, "PART", 2)
    model = tiny_model(vocab_size=len(tokenizer), positions="learned", max_position_embeddings=20)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    first, second = lines(tmp_path / "a", ["A dog."] * 3), lines(tmp_path / "b", ["A cat.", "", "cat " * 50])
    command = ("translate", tmp_path / "model", first, second, "-o", tmp_path / "out", "--beams", 1)
    assert f"{second}, line 3 has" in error_of(capsys, *command)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "a", "b"}
    assert run(capsys, *command, "--truncate")[0] == 0
    evaluate = ("evaluate", tmp_path / "model", second, lines(tmp_path / "c", ["Un chat."] * 3))
    assert f"{second}, line 3 has" in error_of(capsys, *evaluate)


def test_one_warning_for_all_parts_of_a_file(model_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parts, "PART", 2)
    messages = []
    monkeypatch.setattr("vanilla_transformer.translation.translate.logger.warning", messages.append)
    source = lines(tmp_path / "a", ["cat " * 200, "A cat."] * 3)
    assert run(capsys, "translate", model_dir, source, "-o", tmp_path / "out", "--beams", 1)[0] == 0
    assert [message[:30] for message in messages if "longer than" in message] == ["3 of 6 sources are longer than"]
    assert len(messages) == len({message[-20:] for message in messages})


def test_a_pipe_is_read_but_once(model_dir, tmp_path, capsys, expected):
    pipe, output = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lines, args=(pipe, ENGLISH))
    writer.start()
    code = run(capsys, "translate", model_dir, pipe, "-o", output, "--beams", 2)[0]
    writer.join()
    assert code == 0 and output.read_text(encoding="utf-8").splitlines() == expected


def test_a_pipe_is_refused_where_it_would_be_read_again(model_dir, tmp_path, capsys):
    pipe, reference = tmp_path / "pipe", lines(tmp_path / "b", FRENCH)
    os.mkfifo(pipe)
    for command, *words in (("evaluate", pipe, reference), ("report", "--source", pipe, "--reference", reference)):
        assert f"{pipe} is a pipe, say, and can be read but once" in error_of(capsys, command, model_dir, *words)


def test_a_vocabulary_is_not_learned_for_a_folder_that_is_taken(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("vanilla_transformer.data.vocabulary.learn_tokenizer", lambda *args: pytest.fail("learned"))
    source = lines(tmp_path / "a", ENGLISH)
    for output, told in ((tmp_path, "exists: replace it with --overwrite"), (source, "is a file: name a folder")):
        assert told in error_of(capsys, "tokenizer", source, "--vocab-size", 300, "-o", output)


@pytest.mark.parametrize("more", ["config.json", "vocab.json"])
def test_a_vocabulary_takes_the_place_of_no_model(more, tmp_path, capsys):
    """Nor does another one stay beside it, by halves."""
    source, folder = lines(tmp_path / "a", ENGLISH), tmp_path / "folder"
    command = ("tokenizer", source, "--vocab-size", 300, "-o", folder, "--overwrite")
    assert run(capsys, *command)[0] == 0 and run(capsys, *command)[0] == 0
    (folder / more).write_text("{}")
    assert f"holds more than a tokenizer ({more}): choose another folder" in error_of(capsys, *command)


def test_devices_and_links_stay_what_they_are(model_dir, tmp_path, capsys, expected):
    source, link, target = lines(tmp_path / "a", ENGLISH), tmp_path / "link", tmp_path / "target"
    device = ("translate", model_dir, source, "-o", "/dev/null", "--overwrite")
    assert "/dev/null is not a file of its own" in error_of(capsys, *device)
    os.mkfifo(tmp_path / "pipe")
    pipe = ("translate", model_dir, source, "-o", tmp_path / "pipe", "--overwrite")
    assert "is a device or a pipe" in error_of(capsys, *pipe)
    target.write_text("old")
    link.symlink_to(target)
    assert run(capsys, "translate", model_dir, source, "-o", link, "--overwrite", "--beams", 2)[0] == 0
    assert link.is_symlink() and target.read_text(encoding="utf-8").splitlines() == expected
    elsewhere = tmp_path / "elsewhere"
    link.unlink()
    link.symlink_to(elsewhere / "target")
    command = ("translate", model_dir, source, "-o", link)
    assert f"{elsewhere} is no folder" in error_of(capsys, *command)
    elsewhere.mkdir()
    alone = SimpleNamespace(is_main_process=True, wait_for_everyone=lambda: None, process_index=0, num_processes=1)
    assert parts.Parts(link, {}, 3, alone).folder == elsewhere / "target.parts"  # which may be another file system


def test_several_processes_divide_files_into_one(model_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(files, "processes_of_launch", lambda: SimpleNamespace(num_processes=2, process_index=0))
    source = lines(tmp_path / "a", ENGLISH)
    missing = ("translate", model_dir, source.with_name("b"), "-o", tmp_path / "out")
    assert "b does not exist" in error_of(capsys, *missing)
    assert "an output with -o" in error_of(capsys, "translate", model_dir, source)
    assert "name the files" in error_of(capsys, "translate", model_dir, "-o", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_start_that_failed_leaves_nothing_in_the_way(model_dir, tmp_path, capsys):
    source, output = lines(tmp_path / "a", ENGLISH), tmp_path / "out"
    assert "n_best=8" in error_of(capsys, "translate", model_dir, source, "-o", output, "--beams", 2, "--n-best", 8)
    assert run(capsys, "translate", model_dir, source, "-o", output, "--beams", 2)[0] == 0


def test_n_best_and_scores(model_dir, tmp_path, capsys):
    source = lines(tmp_path / "a", [ENGLISH[0], "", ENGLISH[1]])
    out = run(capsys, "translate", model_dir, source, "--beams", 3, "--n-best", 2, "--scores")[1].splitlines()
    assert len(out) == 6 and out[2:4] == ["\t", "\t"]
    scores = [float(line.split("\t")[1]) for line in out[:2]]
    assert scores == sorted(scores, reverse=True) and scores[0] < 0


def test_evaluate_prints_a_table_and_writes_json(model_dir, tmp_path, capsys):
    source, reference = lines(tmp_path / "a.en", ENGLISH), lines(tmp_path / "a.fr", FRENCH)
    json_file = tmp_path / "scores.json"
    arguments = ("evaluate", model_dir, source, reference, "--beams", 2, "--json", json_file, "--show", 1)
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert "BLEU" in out and "chrF2" in out and "TER" in out and "tok:13a" in out and f"source: {ENGLISH[0]}" in out
    scores = {score["name"]: score for score in json.loads(json_file.read_text(encoding="utf-8"))["scores"]}
    assert f"{scores['BLEU']['score']:6.2f}" in out


def test_tokenizer(tmp_path, capsys):
    a, b, output = lines(tmp_path / "a", ENGLISH), lines(tmp_path / "b", FRENCH), tmp_path / "tokenizer"
    assert "290 tokens" in run(capsys, "tokenizer", a, b, "--vocab-size", 290, "-o", output)[1]
    learned = AutoTokenizer.from_pretrained(output)
    assert learned.decode(learned("Été")["input_ids"], skip_special_tokens=True) == "Été"
    assert "exists: replace it" in error_of(capsys, "tokenizer", a, b, "--vocab-size", 290, "-o", output)
    assert "expected at least 259" in error_of(capsys, "tokenizer", a, "--vocab-size", 9, "-o", tmp_path / "x")


def test_train_and_translate(tmp_path, capsys):
    settings = [part for setting in [*SMALL, "training.max_steps=2"] for part in ("--set", setting)]
    folder = tmp_path / "the run"
    code, out, _ = run(capsys, "train", "copy", "-o", folder, *settings)
    assert code == 0 and '"step": 2' in out and "the model is in" in out
    source = lines(tmp_path / "a", ["a b c"])
    *_, command, model = shlex.split(out.rpartition("; try: ")[2])  # to be typed as it stands there
    assert run(capsys, command, model, source)[0] == 0
    assert "exists: go on from checkpoint-2 with --resume" in error_of(
        capsys, "train", "copy", "-o", folder, *settings
    )
    assert "has no config.json" in error_of(capsys, "translate", folder, source)


def files_recipe(tmp_path, source, target, *more):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f"corpus: {{train: [{source}, {target}], validation: [{source}, {target}]}}\n"
        "tokenizer: {vocab_size: 300}\n"
        "model: {preset: tiny, d_model: 16, encoder_ffn_dim: 16, decoder_ffn_dim: 16}\n"
        "training: {max_steps: 1, eval_steps: 1, eval_pairs: 2, warmup_steps: 2, max_tokens: 256}\n"
    )
    return ("train", recipe, "-o", tmp_path / "run", *more)


def test_ones_own_text(tmp_path, parallel_files, capsys):
    code, _, _ = run(capsys, *files_recipe(tmp_path, *parallel_files))
    assert code == 0 and (tmp_path / "run" / "model" / "model.safetensors").exists()


def with_sides(source, target):
    """A training on two files, `x.en` and `x.fr` or the other way round, with these lines."""
    return lambda folder: files_recipe(
        folder, lines(folder / source[0], source[1]), lines(folder / target[0], target[1])
    )


MISTAKES = {
    "one side shorter": (with_sides(("x.en", ENGLISH), ("x.fr", FRENCH[:4])), "has 6 lines, but"),
    "empty": (with_sides(("x.en", []), ("x.fr", [])), "the corpus is empty"),
    "swapped": (with_sides(("x.fr", FRENCH), ("x.en", ENGLISH)), "look swapped"),
    "equal": (with_sides(("x.en", ENGLISH), ("x.fr", ENGLISH)), "equal to their sources"),
    "directory": (lambda folder: files_recipe(folder, folder, folder), "is a directory"),
    "missing": (lambda folder: files_recipe(folder, folder / "no.en", folder / "no.fr"), "no.en does not exist"),
    "unknown recipe": (lambda folder: ("train", "phrasbook"), "did you mean 'phrasebook'"),
    "misspelt": (lambda folder: ("train", "copy", "--set", "model.d_modle=99"), "did you mean 'model.d_model'"),
    "variable": (lambda folder: ("train", "multi30k-en-de", "-o", folder / "r"), "environment variable is not set"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_training(mistake, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("VANILLA_TRANSFORMER_DATA", raising=False)
    arguments, message = MISTAKES[mistake]
    assert message in error_of(capsys, *arguments(tmp_path))


def test_not_utf8(tmp_path, capsys, parallel_files):
    with open(parallel_files[1], "ab") as file:
        file.write(b"\xff\n")
    with open(parallel_files[0], "ab") as file:
        file.write(b"x\n")
    assert "train.fr, line 121 is not UTF-8" in error_of(capsys, *files_recipe(tmp_path, *parallel_files))


def test_over_long_pairs_are_dropped_and_counted(tmp_path, parallel_files):
    for file in parallel_files:
        with open(file, "a", encoding="utf-8") as handle:
            handle.write("word " * 300 + "\n")
    command = [sys.executable, "-m", "vanilla_transformer", *map(str, files_recipe(tmp_path, *parallel_files))]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "dropped 1 pairs (over 128 tokens): train pair 121" in result.stderr
    assert "121 of 121 validation sources also stand in the training set" in result.stderr


def test_mistakes_with_a_model(model_dir, tmp_path, capsys, tokenizer):
    source = lines(tmp_path / "a", ENGLISH)
    empty = tmp_path / "bare"
    tiny_model(vocab_size=len(tokenizer)).save_pretrained(empty)
    assert "has a model but no tokenizer" in error_of(capsys, "translate", empty, source)
    tokenizer.save_pretrained(empty)
    weights = empty / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "are damaged" in error_of(capsys, "translate", empty, source)
    tiny_model(vocab_size=len(tokenizer)).save_pretrained(empty)
    for damaged in ("{", "{}"):
        (empty / "tokenizer.json").write_text(damaged)
        assert f"the tokenizer beside the model in {empty} is damaged" in error_of(capsys, "translate", empty, source)
    BertConfig().save_pretrained(empty)
    assert "'bert': expected an encoder-decoder" in error_of(capsys, "translate", empty, source)
    assert "does not exist" in error_of(capsys, "translate", tmp_path / "nowhere", source)
    assert "nowhere does not exist" in error_of(capsys, "translate", model_dir, tmp_path / "nowhere")
    assert "n_best=3 with num_beams=2" in error_of(capsys, "translate", model_dir, source, "--beams", 2, "--n-best", 3)
    assert "hypotheses" not in error_of(capsys, "evaluate", model_dir, source, lines(tmp_path / "b", FRENCH[:2]))


@pytest.mark.parametrize(
    "field, value, told",
    [
        ("decoder_layers", 3, "lack 26 tensors"),
        ("decoder_layers", 1, "have 26 tensors that its config.json has no place for"),
        ("encoder_ffn_dim", 24, "do not fit its config.json: model.encoder.layers.0.feed_forward.fc1.bias is (32,)"),
    ],
)
def test_weights_of_another_model_are_neither_filled_up_with_noise_nor_left_out(
    field, value, told, tmp_path, capsys, tokenizer
):
    folder = tmp_path / "m"
    tiny_model(vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {field: value}))
    assert told in error_of(capsys, "translate", folder, lines(tmp_path / "a", ENGLISH))


@pytest.mark.parametrize("arguments", [("--beams", "0"), ("--beams", "-1"), ("--max-tokens", "0"), ("--threads", "0")])
def test_numbers_below_one_are_refused(arguments, model_dir, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["translate", str(model_dir), *arguments])
    assert stop.value.code == 2
    assert "expected at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "translate", "evaluate", "tokenizer", "demo"])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert len(capsys.readouterr().out) > 200


def test_traceback_on_request(tmp_path):
    with pytest.raises(FileNotFoundError):
        main(["train", "phrasbook", "--traceback"])


def test_the_reader_of_a_pipe_may_leave(model_dir, tmp_path):
    source = lines(tmp_path / "a", ENGLISH * 50)
    command = (
        f"{sys.executable} -m vanilla_transformer translate {model_dir} {source} --beams 1 --n-best 1 | head -n 1"
    )
    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=120)
    assert "Traceback" not in result.stderr and "BrokenPipe" not in result.stderr


@pytest.mark.parametrize("command", ["evaluate", "doctor"])
def test_numbers_are_written_whoever_has_seen_enough(command, model_dir, tmp_path):
    """`| head -0` ends the process when it prints; exit code 0 means that all was done."""
    sides = [lines(tmp_path / "a.en", ENGLISH), lines(tmp_path / "a.fr", FRENCH)] if command == "evaluate" else []
    words = [sys.executable, "-m", "vanilla_transformer", command, str(model_dir), *map(str, sides)]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        ended = subprocess.run(
            [*words, "--json", str(tmp_path / "scores.json")], stdout=closed, stderr=subprocess.PIPE
        )
    assert ended.returncode == 0, ended.stderr.decode()
    assert json.loads((tmp_path / "scores.json").read_text())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_behind_standard_output(model_dir, tmp_path):
    source = lines(tmp_path / "a", ENGLISH[:1])
    words = [sys.executable, "-m", "vanilla_transformer", "translate", str(model_dir), str(source)]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, env=buffered)
    assert ended.returncode == 1 and "error: [Errno 28] No space left on device" in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_scores_behind_a_link(model_dir, tmp_path, capsys):
    """The link stays one; what leads to standard output is not replaced, whatever stands behind it."""
    sides, link = (lines(tmp_path / "a.en", ENGLISH), lines(tmp_path / "a.fr", FRENCH)), tmp_path / "link"
    link.symlink_to(lines(tmp_path / "scores.json", ["old"]))
    assert run(capsys, "evaluate", model_dir, *sides, "--json", link, "--overwrite")[0] == 0
    assert link.is_symlink() and json.loads((tmp_path / "scores.json").read_text())
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        told = error_of(capsys, "evaluate", model_dir, *sides, "--json", name, "--overwrite")
        assert f"{name} is not a file of its own" in told or "is a folder" in told


def test_evaluate_looks_at_its_output_before_it_works(model_dir, tmp_path, capsys):
    source, reference = lines(tmp_path / "a.en", ENGLISH), lines(tmp_path / "a.fr", FRENCH)
    scores = lines(tmp_path / "scores.json", ["precious"])
    evaluate = ("evaluate", model_dir, source, reference, "--json")
    assert "exists: replace it with --overwrite" in error_of(capsys, *evaluate, scores)
    assert scores.read_text() == "precious\n"
    assert "is no folder" in error_of(capsys, *evaluate, tmp_path / "none" / "scores.json")
    assert "is a folder: name a file" in error_of(capsys, *evaluate, tmp_path)
    assert "nothing can be written into /sys, choose another -o" in error_of(capsys, *evaluate, "/sys/scores.json")


def test_errors_are_one_line(tmp_path, capsys, model_dir):
    line = error_of(capsys, "train", "copy", "--set", "model.d_model=17", "--set", "model.encoder_attention_heads=4")
    assert line.endswith("choose an even d_model or positions='learned'") and "validate_architecture" not in line
    source = lines(tmp_path / "a", ENGLISH)
    assert "there is no folder 'nosuch', and the Hub gives no such model" in error_of(
        capsys, "translate", "nosuch", source
    )
    assert "is a file: expected the folder" in error_of(capsys, "translate", source, source)
    assert "length_penalty=nan" in error_of(capsys, "translate", model_dir, source, "--length-penalty", "nan")
    flash = (
        "--set",
        "training.attn_implementation=flash_attention_2",
        "--set",
        "corpus.sizes={train: 50, validation: 5}",
    )
    assert "flash" in error_of(capsys, "train", "copy", "-o", tmp_path / "r", *flash).lower()
    (tmp_path / "empty").touch()
    tokenizer = ("tokenizer", tmp_path / "empty", "--vocab-size", 300, "-o", tmp_path / "t")
    assert "no text to learn a vocabulary from" in error_of(capsys, *tokenizer)


@pytest.mark.parametrize("typo, meant", [("--lenght-penalty", "--length-penalty"), ("--beam-s", "--beams")])
def test_misspelt_option(typo, meant, model_dir, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["translate", str(model_dir), typo, "1"])
    assert stop.value.code == 2 and f"did you mean {meant} instead of {typo}" in capsys.readouterr().err


def test_option_of_another_command_is_not_suggested(capsys):
    with pytest.raises(SystemExit):
        main(["evaluate", "model", "a.en", "a.de", "--source", "a.en"])  # which `report` has
    error = capsys.readouterr().err
    assert "unrecognized arguments: --source" in error and "instead of" not in error
    assert error.startswith("usage: vanilla-transformer evaluate")


def test_files_may_stand_behind_options(model_dir, tmp_path, capsys, expected):
    a, b = lines(tmp_path / "a", ENGLISH[:3]), lines(tmp_path / "b", ENGLISH[3:])
    assert run(capsys, "translate", model_dir, "--beams", 2, a, b)[1].splitlines() == expected
    assert run(capsys, "translate", model_dir, a, "--beams", 2, b)[1].splitlines() == expected
