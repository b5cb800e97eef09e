"""The model card of a finished run, made of nothing but its files."""

import json
import re
import subprocess
import sys

import yaml
from tiny import ENGLISH, FRENCH, ROOT, SMALL

from vanilla_transformer.cli import main

CARD = ROOT / "scripts" / "make_model_card.py"


def test_a_card_says_what_the_files_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = [word for setting in SMALL for word in ("--set", setting)]
    monkeypatch.setattr(sys, "argv", ["vanilla-transformer", "train", "copy", "-o", "run", *settings])
    assert main(sys.argv[1:]) == 0
    for name, lines in (("test.en", ENGLISH), ("test.fr", FRENCH)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    files = {"1": ("test.en", "test.fr"), "2": ("test.fr", "test.en")}
    for beams, pair in files.items():
        assert main(["evaluate", "run/model", *pair, "--beams", beams, "--json", f"{beams}.json"]) == 0
    about = ["--source", "test.en", "--reference", "test.fr"]
    assert main(["report", "run/model", *about, "--training", "test.fr", "-o", "report.json"]) == 0
    words = ["run", "--name", "tiny-copy", "--dataset", "Copies", "--dataset-id", "me/copies"]
    words += ["--terms", "none", "--license", "mit", "--scores", "1.json", "2.json", "--report", "report.json"]
    done = subprocess.run([sys.executable, str(CARD), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "model_cards" / "tiny-copy.md").read_text("utf-8")
    assert (tmp_path / "model_cards" / "tiny-copy.png").exists()
    head = yaml.safe_load(text.split("---")[1])
    assert head["library_name"] == "transformers" and head["pipeline_tag"] == "translation"
    assert (
        head["license"] == "mit" and head["language"] == ["letters", "letters"] and head["datasets"] == ["me/copies"]
    )
    assert head["metrics"] == ["bleu", "chrf2", "ter"] and "translation" in head["tags"]
    metrics = [metric for result in head["model-index"][0]["results"] for metric in result["metrics"]]
    scores = [score for beams in (1, 2) for score in json.loads((tmp_path / f"{beams}.json").read_text())["scores"]]
    assert sorted(m["value"] for m in metrics) == sorted(round(score["score"], 2) for score in scores)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert f"{result['parameters']:,}" in text and f"in {result['minutes']} minutes" in text
    assert "vanilla-transformer train copy -o run" in text
    for which, weights in (("newest", "newest weights"), ("mean", f"mean of {len(result['mean_of'])} checkpoints")):
        score = result["validation"][which]["BLEU"]["score"]
        searched = "beam {num_beams}, score / length ** {length_penalty}".format(**result["decoding"])
        assert f"| validation | {weights} | {searched}, float32 | BLEU | {score:.2f} | " in text
    kept = {"newest": "newest weights", "mean": "mean of 2 checkpoints"}[result["weights"]]
    assert f"The\nweights are {kept}: checkpoint-1" in text
    rows = [line for line in text.splitlines() if line.startswith(("| test", "| validation"))]
    assert len(rows) == 12 and {len(re.split(r"(?<!\\)\|", line)) for line in rows} == {9}
    sets = [result["dataset"]["config"] for result in head["model-index"][0]["results"]]
    assert sets == ["test.en", "test.fr"] and 'pipeline("translation", model="run/model")' in text
    report = json.loads((tmp_path / "report.json").read_text())
    assert [line for line in text.splitlines() if line.startswith("  - ours: ")] == [
        f"  - ours: {sentence['output']}" for sentence in report["worst"][:5]
    ]
    for decoding in report["decodings"]:
        assert f"| {decoding['num_beams']} | {decoding['scores'][0]['score']:.2f} | " in text
    for fault, found in report["found"].items():
        assert f"| {fault} | {found['sentences']} | " in text
    for group in report["lengths"]:
        assert f"| {group['name']} | {group['size']} | {group['score']:.1f} |" in text

    old = {key: value for key, value in result.items() if key != "weights"}
    (tmp_path / "run" / "result.json").write_text(json.dumps(old))
    done = subprocess.run([sys.executable, str(CARD), *words], capture_output=True, text=True)
    assert done.returncode == 1 and "the files do not tell 'weights': expected a translator" in done.stderr

    before = json.loads((tmp_path / "2.json").read_text())
    (tmp_path / "2.json").write_text(json.dumps(before | {"weights": "others"}))
    done = subprocess.run([sys.executable, str(CARD), *words], capture_output=True, text=True)
    assert done.returncode == 1 and "2.json has the scores of what run/model was before: score it again" in done.stderr

    (tmp_path / "run" / "result.json").write_text(json.dumps(result | {"step": 1}))  # of a training that goes on
    done = subprocess.run([sys.executable, str(CARD), *words], capture_output=True, text=True)
    assert done.returncode == 1 and "run is not finished: train on with --resume" in done.stderr
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))

    elsewhere = json.loads((tmp_path / "1.json").read_text()) | {"model": "another/model"}
    (tmp_path / "1.json").write_text(json.dumps(elsewhere))
    done = subprocess.run([sys.executable, str(CARD), *words], capture_output=True, text=True)
    assert done.returncode == 1 and "1.json has the scores of another/model, which is not in run" in done.stderr


def test_what_stands_in_the_run_need_not_be_named(tmp_path):
    """Name of the card, scores and report; told where they are not there."""
    run = tmp_path / "my-run"
    run.mkdir()
    for name in ("recipe.yaml", "provenance.json", "result.json"):
        (run / name).write_text("{}")
    words = [sys.executable, str(CARD), str(run), "--dataset", "x", "--terms", "x", "--license", "mit"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1 and f"{run} has no scores-*.json, report.json: make them with `evaluate" in done.stderr


def test_a_folder_that_is_no_run_is_told(tmp_path):
    options = ("--name", "--scores", "--report", "--dataset", "--terms", "--license")
    words = [str(tmp_path), *(word for option in options for word in (option, "x"))]
    done = subprocess.run([sys.executable, str(CARD), *words], capture_output=True, text=True)
    assert done.returncode == 1 and "expected the folder of a finished run" in done.stderr
