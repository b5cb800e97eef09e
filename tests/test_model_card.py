"""The model card of a finished run, made of nothing but its files."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tiny import ENGLISH, FRENCH, ROOT, SMALL

from vanilla_transformer.cli import main
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.training.checkpoints import checkpoints
from vanilla_transformer.training.recipe import load_recipe
from vanilla_transformer.training.start import architecture
from vanilla_transformer.training.train import train

CARD = ROOT / "scripts" / "make_model_card.py"
README = (ROOT / "README.md").read_text("utf-8")


def test_a_card_says_what_the_files_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = [word for setting in SMALL for word in ("--set", setting)]
    monkeypatch.setattr(sys, "argv", ["vanilla-transformer", "train", "copy", "-o", str(tmp_path / "run"), *settings])
    assert main(sys.argv[1:]) == 0
    for name, lines in (("test.en", ENGLISH), ("valid.fr", FRENCH)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    files = {"1": ("test.en", "valid.fr"), "2": ("valid.fr", "test.en")}
    for beams, pair in files.items():
        words = ["--beams", beams, "--moses", "fr", "--json", f"{beams}.json"]
        assert main(["evaluate", "run/model", *pair, *words]) == 0
    newest = checkpoints(tmp_path / "run")[-1]  # whose scores are told, and are not those of what is shared
    assert main(["evaluate", f"run/{newest.name}", *files["1"], "--beams", "1", "--json", "3.json"]) == 0
    shutil.copytree("run/model", "run/mean", dirs_exist_ok=True)
    of_the_mean = json.loads((tmp_path / "1.json").read_text()) | {"model": "run/mean"}
    of_the_mean["scores"][0]["score"] = 12.34  # which none of the others has
    (tmp_path / "4.json").write_text(json.dumps(of_the_mean))
    about = ["--source", "test.en", "--reference", "valid.fr"]
    assert main(["report", "run/model", *about, "--training", "valid.fr", "-o", "report.json"]) == 0
    words = ["run", "--name", "tiny-copy", "--dataset", "Copies", "--dataset-id", "me/copies"]
    words += ["--terms", "none of them", "--license", "mit"]
    words += ["--scores", "1.json", "2.json", "3.json", "4.json", "--report", "report.json"]
    done = subprocess.run([sys.executable, str(CARD), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "model_cards" / "tiny-copy.md").read_text("utf-8")
    assert (tmp_path / "model_cards" / "tiny-copy.png").exists()
    argv = [str(CARD), *words, "--name", "without-curves"]
    code = f"import runpy, sys\nsys.argv, sys.modules['matplotlib'] = {argv}, None\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "matplotlib" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "model_cards" / "without-curves.md").exists()
    head = yaml.safe_load(text.split("---")[1])
    assert head["library_name"] == "transformers" and head["pipeline_tag"] == "translation"
    assert (
        head["license"] == "mit" and head["language"] == ["letters", "letters"] and head["datasets"] == ["me/copies"]
    )
    assert head["metrics"] == ["bleu", "chrf", "ter"] and "translation" in head["tags"]
    metrics = [metric for result in head["model-index"][0]["results"] for metric in result["metrics"]]
    evaluations = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in "1234"}
    scores = [score for name in "12" for score in evaluations[name]["scores"]]
    assert sorted(m["value"] for m in metrics) == sorted(round(score["score"], 2) for score in scores)
    assert any(metric["type"] == "bleu" and metric["name"].startswith("BLEU-moses (") for metric in metrics)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert f"{result['parameters']:,}" in text and f"in {result['minutes']} minutes" in text
    assert "vanilla-transformer train copy -o run" in text
    for which, weights in (("newest", "newest weights"), ("mean", f"mean of {len(result['mean_of'])} checkpoints")):
        score = result["validation"][which]["BLEU"]["score"]
        searched = "beam {num_beams}, score / length ** {length_penalty}".format(**result["decoding"])
        assert f"| validation | {weights} | {searched}, float32 | {score:.2f} | " in text
    kept = {"newest": "newest weights", "mean": "mean of 2 checkpoints"}[result["weights"]]
    assert f"The\nweights are {kept}: checkpoint-1" in text
    rows = [line for line in text.splitlines() if line.startswith(("| test", "| valid"))]
    assert len(rows) == 6 and {len(re.split(r"(?<!\\)\|", line)) for line in rows} == {10}
    for score in scores:
        assert f"- {score['name']}: `{score['signature']}`\n" in text
    of_checkpoint = evaluations["3"]["scores"][0]["score"]
    assert f"| test.en | {newest.name} | greedy, float32 | {of_checkpoint:.2f} | " in text
    assert f"| test.en | mean of {len(result['mean_of'])} checkpoints | greedy, float32 | 12.34 | " in text
    for evaluation in evaluations.values():
        milliseconds = 1000 * evaluation["seconds"] / len(ENGLISH)
        assert f" | {milliseconds:.1f} ({evaluation['settings']['device']}, 1 x " in text
    provenance = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert provenance["machines"][0]["processor"] in text and "terms: none of them." in text
    assert f"\nproducts in {'bfloat16' if provenance['bf16'] else 'float32'}. " in text
    assert "](tiny-copy.png)" in text and "letters, built as in the paper:\n" in text
    shown = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    assert shown[0] == yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert shown[1]["encoder_attention_heads"] == config["encoder_attention_heads"]
    assert {shown[1][name] for name in ("norm", "residual")} == {"layernorm", "post"}
    assert shown[1].keys() <= config.keys()
    sets = [result["dataset"] for result in head["model-index"][0]["results"]]
    assert [(one["name"], one["split"]) for one in sets] == [
        ("Copies, test.en", "test"),
        ("Copies, valid.fr", "valid"),
    ]
    assert 'pipeline("translation", model="run/model")' in text
    first = evaluations["2"]["examples"][0]
    assert f'text = "{first["source"]}"\nprint(translator(text, num_beams=2, length_penalty=' in text
    assert f"# [{{'translation_text': {first['translation']!r}}}]\n" in text
    report = json.loads((tmp_path / "report.json").read_text())
    assert [line for line in text.splitlines() if line.startswith("  - ours: ")] == [
        f"  - ours: {sentence['output']}" for sentence in report["worst"][:5]
    ]
    for decoding in report["decodings"]:
        p = decoding["p_values"].get("BLEU")
        told = f"{'' if p is None else f'{p:.3f}'} | {decoding['ms_per_sentence']:.1f} |"
        assert f"| {decoding['num_beams']} | {decoding['scores'][0]['score']:.2f} | {told}" in text
    for fault, found in report["found"].items():
        assert f"| {fault} | {found['sentences']} | " in text
    for group in report["lengths"]:
        assert f"| {group['name']} | {group['size']} | {group['score']:.1f} |" in text

    for group in report["frequencies"]:
        assert f"| {group['name']} | {group['size']} | {group['score']:.0f} |" in text

    # Numbers that stand nowhere else: none can be taken for another.
    odd = json.loads((tmp_path / "run" / "result.json").read_text())
    for number, which in enumerate(("newest", "mean"), start=1):
        is_kept = which == odd["weights"]
        odd["validation"][which] |= {"loss": 1.111 * number, "loss_of_exchanged_sources": 7.777 if is_kept else 8.888}
    (tmp_path / "run" / "result.json").write_text(json.dumps(odd))
    about_run = json.loads(json.dumps(provenance))
    about_run["data"]["train"]["pairs"], about_run["processes"] = 104729, 89
    about_run["machines"][0]["threads"], about_run["packages"]["torch"] = 97, "9.8.7"
    (tmp_path / "run" / "provenance.json").write_text(json.dumps(about_run))
    assert subprocess.run([sys.executable, str(CARD), *words]).returncode == 0
    text = (tmp_path / "model_cards" / "tiny-copy.md").read_text("utf-8")
    assert (
        "Loss on the validation set: 1.111 nats a token,\n2.222 of the mean weights; 7.777 of the model when" in text
    )
    assert (
        f"\n{odd['step']} updates in {odd['minutes']} minutes on " in text and "(97 threads), processes: 89,\n" in text
    )
    assert ", 104,729 pairs, of which those\nwith more than 128 tokens on a side" in text and "torch 9.8.7" in text
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    (tmp_path / "run" / "provenance.json").write_text(json.dumps(provenance))

    of_a_checkpoint = [word for word in words if word not in ("1.json", "2.json")]
    done = subprocess.run([sys.executable, str(CARD), *of_a_checkpoint], capture_output=True, text=True)
    assert done.returncode == 1 and "none of the scores is of run/model, which is what is shared" in done.stderr

    (tmp_path / "report.json").write_text(json.dumps(report | {"training": None}))
    done = subprocess.run([sys.executable, str(CARD), *words], capture_output=True, text=True)
    assert done.returncode == 1 and "report.json does not know the training set: make it with" in done.stderr
    (tmp_path / "report.json").write_text(json.dumps(report)[:-1])
    done = subprocess.run([sys.executable, str(CARD), *words], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("report.json is damaged (Expecting ")
    (tmp_path / "report.json").write_text(json.dumps(report))

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


def test_a_finished_run_without_checkpoints_is_not_said_to_be_unfinished(tmp_path):
    """`--resume` would find none to go on from, and have it deleted."""
    run = train(load_recipe("copy", SMALL), tmp_path / "run").run
    for checkpoint in checkpoints(run):
        shutil.rmtree(checkpoint)
    for name in ("scores-1.json", "report.json"):
        (run / name).write_text("{}")
    words = [sys.executable, str(CARD), str(run), "--dataset", "x", "--terms", "x", "--license", "mit"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1 and "has no checkpoint-N" in done.stderr and "--resume" not in done.stderr


@pytest.mark.parametrize(
    ("network", "told"),
    [
        ({}, "built as in the paper"),
        ({"d_model": 64, "encoder_layers": 2, "dropout": 0.3}, "built as in the paper"),
        ({"residual": "pre", "norm": "rmsnorm"}, "with `norm: rmsnorm`, `residual: pre` instead of the paper's"),
        ({"positions": "rotary"}, "with `positions: rotary` instead of the paper's"),
    ],
)
def test_departures_from_the_paper(network, told, monkeypatch):
    monkeypatch.syspath_prepend(CARD.parent)
    import make_model_card

    assert make_model_card.departures(architecture(VanillaTransformerConfig(**network))) == told


def test_teachers_are_told(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(CARD.parent)
    import make_model_card

    minutes = {"forward teacher": 10.0, "forward translation": 1.0, "backward teacher": 1.5}
    (tmp_path / "teachers.json").write_text(
        json.dumps({"minutes": minutes, "pairs": {"corpus": 29000, "teachers": 47732}})
    )
    asked = {"forward_teachers": 2}
    told = make_model_card.told_of_teachers(tmp_path, asked)
    assert "3 teachers" in told and "took 12.5 minutes" in told and told.endswith("47,732 further pairs.")


def test_commands_and_machines_of_teachers_are_those_of_the_run(monkeypatch):
    monkeypatch.syspath_prepend(CARD.parent)
    import make_model_card

    before = {"commands": [["first"], ["second"]], "machines": ["a", "b"], "data": {"train": {"pairs": 2}}}
    run = {"commands": [["second"], ["third"]], "machines": ["b"], "data": {"train": {"pairs": 5}}, "bf16": True}
    told = make_model_card.with_teachers(run, before)
    assert told["commands"] == [["first"], ["second"], ["third"]] and told["machines"] == ["a", "b"]
    assert told["data"]["train"]["pairs"] == 2 and told["bf16"] is True


@pytest.mark.parametrize(
    "text", ["A man's hat.", 'He said "stop".', "It's a \"hat\", isn't it?", "A \\ and Österreich.", "word " * 60]
)
def test_the_example_is_as_formatters_have_it(text, tmp_path, monkeypatch):
    """Cards are committed, and linted with the rest; the text may be of any length."""
    monkeypatch.syspath_prepend(CARD.parent)
    import make_model_card

    settings = {"num_beams": 5, "length_penalty": 1.6, "dtype": "float32", "packed": None}
    scored = {"model": "run/model", "settings": settings, "examples": [{"source": text, "translation": text}]}
    example = make_model_card.example([scored])
    values = {"translator": lambda *given, **_: values.setdefault("given", given)}
    exec(example, values)
    assert values["given"] == (text,)
    (tmp_path / "example.py").write_text(f"{example}\n", "utf-8")
    words = ["format", "--check", "--config", str(ROOT / "pyproject.toml"), str(tmp_path / "example.py")]
    done = subprocess.run([sys.executable, "-m", "ruff", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_is_one_of_the_model_as_it_is_loaded(monkeypatch):
    """Before one of a wider search of what is packed or rounded."""
    monkeypatch.syspath_prepend(CARD.parent)
    import make_model_card

    def scored(beams: int, text: str, **changes) -> dict:
        settings = {"num_beams": beams, "length_penalty": 1.6, "dtype": "float32", "packed": None, **changes}
        return {"model": "run/model", "settings": settings, "examples": [{"source": "a", "translation": text}]}

    packed, rounded = scored(5, "packed", packed="int8"), scored(5, "rounded", dtype="bfloat16")
    example = make_model_card.example([packed, rounded, scored(1, "greedy"), scored(4, "beams")])
    assert "num_beams=4" in example and "'beams'" in example
    assert "'packed'" in make_model_card.example([packed])


def test_sets_of_one_name_are_told_apart(monkeypatch):
    monkeypatch.syspath_prepend(CARD.parent)
    import make_model_card

    def names(*sources: str) -> list[str]:
        return list(make_model_card.names_of([{"source": source} for source in sources]).values())

    assert names("data/a/test.en", "data/b/test.en", "data/a/test.en") == ["a/test.en", "b/test.en"]
    assert names("data/a/test.en", "data/b/val.en.gz") == ["test.en", "val.en.gz"]
    assert make_model_card.split_of("b/test_2016.en.gz") == "b/test_2016"


def test_commands_that_went_on_say_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(CARD.parent)
    import make_model_card

    train = ["/bin/vanilla-transformer", "train", "copy"]
    begun, moved = [*train, "-o", str(tmp_path / "run")], [*train, "--output=elsewhere/run", "--resume"]
    provenance = {"commands": [begun, [*begun, "--resume"], moved], "processes": 1}
    assert make_model_card.commands_of(provenance, Path("run")) == [
        "vanilla-transformer train copy -o run",
        "# it went on with vanilla-transformer train copy -o run --resume",
        "# it went on with vanilla-transformer train copy --output=run --resume",
    ]


@pytest.mark.parametrize("card", sorted((ROOT / "model_cards").glob("*.md")), ids=lambda path: path.stem)
def test_what_is_told_of_our_models_is_what_their_cards_say(card):
    """The metadata is the table, and README's row is the card."""
    text = card.read_text("utf-8")
    head, body = yaml.safe_load(text.split("---")[1]), text.split("---", 2)[2]
    told = {}
    for result in head["model-index"][0]["results"]:
        for metric in result["metrics"]:
            assert re.search(rf"\| {metric['value']:.2f} \|", body), metric
            name, how = metric["name"].split(" (", 1)
            told[result["dataset"]["split"], name, "greedy" if how.startswith("greedy") else "beam 5"] = metric[
                "value"
            ]
    [row] = [
        line for line in README.splitlines() if f"`vanilla-transformer train {card.stem}`" in line and "|" in line
    ]
    for name in ("BLEU", "BLEU-moses"):
        assert f"{told['test_2016_flickr', name, 'beam 5']:.1f}" in row, (name, row)
    parameters = int(re.search(r"([\d,]+) parameters, trained by", body)[1].replace(",", ""))
    assert f"{parameters / 1e6:.1f} M parameters" in row
    minutes = float(re.search(r"updates in ([\d.]+) minutes on", body)[1])
    teachers = re.search(r"took ([\d.]+) minutes", body)
    assert f"{minutes + float(teachers[1]) if teachers else minutes:.0f} minutes" in row
