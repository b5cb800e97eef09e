"""A model card for a finished run, every number of it read from files: `model_cards/NAME.md`, with the run's curves.

    vanilla-transformer evaluate RUN/model test.en test.de --moses de --beams 1 --json RUN/scores-greedy.json
    vanilla-transformer evaluate RUN/model test.en test.de --moses de --beams 5 --json RUN/scores-beam.json
    vanilla-transformer report RUN/model --source val.en --reference val.de --training train.de -o RUN/report.json
    python scripts/make_model_card.py RUN --dataset "Multi30k task 1" --dataset-id romrawinjp/multi30k \\
        --terms "non-commercial research and education" --license cc-by-nc-4.0
"""

import argparse
import json
import math
import re
import sys
from itertools import pairwise
from pathlib import Path

import yaml
from huggingface_hub import EvalResult, ModelCardData

from vanilla_transformer.evaluation.evaluate_files import search_of
from vanilla_transformer.inspection.curves import draw_curves
from vanilla_transformer.interop.loading import digest_of_weights
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.training.checkpoints import checkpoints
from vanilla_transformer.training.diversification import SUMMARY, folder_of_teachers
from vanilla_transformer.training.run_folder import MEAN, PROVENANCE, RESULT, is_finished, provenance_of, state_of
from vanilla_transformer.training.start import architecture
from vanilla_transformer.translation.shares import command_line

WORST = 5  # translations shown as failures
MOST = 4  # words named of each fault
ON_THE_HUB = {"BLEU": "bleu", "BLEU-moses": "bleu", "chrF2": "chrf", "TER": "ter"}  # what the Hub calls a metric
# What is a matter of size, and no departure from the paper; and what follows from `positions`.
SIZES = re.compile("d_model|.*_(layers|heads|ffn_dim)|.*dropout|rope_parameters")
OF_EVERY_SHELL = {"HOME", "USER", "PWD"}
WEIGHTS = {"newest": "newest weights", "mean": "mean of {} checkpoints"}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("--name", help="of the model, and of the card (default: that of the folder)")
    parser.add_argument(
        "--scores", type=Path, nargs="+", metavar="JSON", help="of `evaluate --json` (default: RUN/scores-*.json)"
    )
    parser.add_argument("--report", type=Path, metavar="JSON", help="of `report -o JSON` (default: RUN/report.json)")
    parser.add_argument("--dataset", required=True, help="what the data are called")
    parser.add_argument("--hub-id", help="of the model, where its weights are published (default: the path RUN/model)")
    parser.add_argument("--dataset-id", help="their id on the Hub, if they have one")
    parser.add_argument("--terms", required=True, help="on which the data may be used")
    parser.add_argument("--license", required=True, help="of the model, as the Hub names it: mit, cc-by-nc-4.0")
    parser.add_argument("-o", "--output", type=Path, default=Path("model_cards"), metavar="DIR")
    arguments = parser.parse_args()
    run = arguments.run
    arguments.name = arguments.name or run.resolve().name
    arguments.scores = arguments.scores or sorted(run.glob("scores-*.json"))
    arguments.report = arguments.report or run / "report.json"
    return arguments


def metadata(arguments, recipe: dict, evaluations: list[dict]) -> ModelCardData:
    """What the Hub reads: language, licence, task, data and scores."""
    names = names_of(evaluations)
    results = [
        EvalResult(
            task_type="translation",
            dataset_type=arguments.dataset_id or arguments.dataset,
            dataset_name=f"{arguments.dataset}, {names[evaluation['source']]}",
            dataset_split=split_of(names[evaluation["source"]]),  # by which results are told apart
            metric_type=ON_THE_HUB[score["name"]],
            metric_name=f"{score['name']} ({how(evaluation)}; {score['signature']})",
            metric_value=round(score["score"], 2),
        )
        for evaluation in evaluations
        for score in evaluation["scores"]
        if is_of_the_model(evaluation)
    ]
    return ModelCardData(
        language=[recipe["corpus"]["source_lang"], recipe["corpus"]["target_lang"]],
        license=arguments.license,
        library_name="transformers",
        pipeline_tag="translation",
        tags=["translation", "vanilla_transformer", "attention-is-all-you-need"],
        datasets=[arguments.dataset_id] if arguments.dataset_id else None,
        metrics=sorted({result.metric_type for result in results}),
        model_name=arguments.name,
        eval_results=results,
    )


def split_of(name: str) -> str:
    """test_2016.en.gz -> test_2016"""
    return str(Path(name.removesuffix(".gz")).with_suffix(""))


def is_of_the_model(evaluation: dict) -> bool:
    """Or else of a checkpoint of its run, which the table of the card has beside it, and which is not shared."""
    return Path(evaluation["model"]).name == "model"


def is_plain(evaluation: dict) -> bool:
    """As the pipeline computes that is shown: not packed, nor rounded."""
    return evaluation["settings"]["dtype"] == "float32" and not evaluation["settings"]["packed"]


def names_of(evaluations: list[dict]) -> dict[str, str]:
    """What each test set is called, by its path: as much of its end as tells it from the others."""
    paths = {evaluation["source"]: Path(evaluation["source"]).absolute().parts for evaluation in evaluations}
    length = 1
    while len({parts[-length:] for parts in paths.values()}) < len(set(paths.values())):
        length += 1
    return {source: "/".join(parts[-length:]) for source, parts in paths.items()}


def example(evaluations: list[dict]) -> str:
    """The first sentence of a test set, and what the pipeline makes of it by the widest search that was scored."""
    of_the_model = filter(is_of_the_model, evaluations)
    evaluation = max(of_the_model, key=lambda scored: (is_plain(scored), scored["settings"]["num_beams"]))
    first, settings = evaluation["examples"][0], evaluation["settings"]
    search = ", ".join(f"{name}={settings[name]}" for name in ("num_beams", "length_penalty"))
    return (
        f"text = {literal(first['source'])}\nprint(translator(text, {search}))\n"
        f"# {[{'translation_text': first['translation']}]}"
    )


def literal(text: str) -> str:
    """Of Python, in those quotes that its formatters choose."""
    return repr(text) if text.count('"') > text.count("'") else json.dumps(text, ensure_ascii=False)


def departures(network: dict) -> str:
    """In what the network is not the paper's, the sizes left aside."""
    paper = architecture(VanillaTransformerConfig())
    others = [
        f"`{key}: {value}`" for key, value in sorted(network.items()) if value != paper[key] and not SIZES.match(key)
    ]
    return f"with {', '.join(others)} instead of the paper's" if others else "built as in the paper"


def how(evaluation: dict) -> str:
    settings = evaluation["settings"]
    return f"{search_of(settings)}, {settings['dtype']}" + (
        f", packed {settings['packed']}" if settings["packed"] else ""
    )


def table(head: str, rows: list[list]) -> str:
    def line(cells: list) -> str:  # a bar may be a part of a word
        return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"

    columns = head.split(" | ")
    return "\n".join([line(columns), "|---" * len(columns) + "|", *map(line, rows)])


MILLISECONDS = "ms a sentence, in batches (on, processes x threads)"


def table_of_scores(rows: list[tuple[list[str], list[dict], str]]) -> str:
    """A line for each (data, weights, decoding), a column for each metric, and what their numbers are by.

    Args:
        rows: those three; the scores, each with `name`, `signature` and `score`; and the milliseconds a sentence.
    """

    def metric(score: dict) -> tuple[str, str]:
        return score["name"], score["signature"]

    metrics = list(dict.fromkeys(metric(score) for _, scores, _ in rows for score in scores))
    lines = []
    for about, scores, milliseconds in rows:
        of = {metric(score): f"{score['score']:.2f}" for score in scores}
        lines.append([*about, *(of.get(each, "") for each in metrics), milliseconds])
    head = " | ".join(["data", "weights", "decoding", *(name for name, _ in metrics), MILLISECONDS])
    return "\n".join([table(head, lines), "", *(f"- {name}: `{signature}`" for name, signature in metrics)])


def searches(report: dict) -> str:
    """Greedy search against beams."""
    rows = []
    for decoding in report["decodings"]:
        bleu = next(score["score"] for score in decoding["scores"] if score["name"] == "BLEU")
        p = decoding["p_values"].get("BLEU")
        told = "" if p is None else f"{p:.3f}"
        rows.append([decoding["num_beams"], f"{bleu:.2f}", told, f"{decoding['ms_per_sentence']:.1f}"])
    return table("beams | BLEU | p (paired bootstrap against greedy) | ms a sentence", rows)


def failures(report: dict) -> str:
    """What the report counted, and the translations that are furthest from their references."""
    faults = [
        [fault, found["sentences"], ", ".join(list(found["words"])[:MOST])] for fault, found in report["found"].items()
    ]
    lengths = [[group["name"], group["size"], f"{group['score']:.1f}"] for group in report["lengths"]]
    rare = [[group["name"], group["size"], f"{group['score']:.0f}"] for group in report["frequencies"]]
    worst = [
        f"- {s['source']}\n  - ours: {s['output']}\n  - reference: {s['reference']}" for s in report["worst"][:WORST]
    ]
    return "\n\n".join(
        [
            f"Of the {report['pairs']:,} translations of {Path(report['source']).name}:",
            table("it | sentences | words, for instance", faults),
            table("reference of | sentences | BLEU", lengths),
            table("words that training has | in references | percent found", rare),
            f"The {len(worst)} translations that are furthest from their reference (chrF):",
            "\n".join(worst),
        ]
    )


def told_of_teachers(folder: Path, diversification: dict) -> str:
    """What a data diversification took before the training, and gave it."""
    told = json.loads((folder / SUMMARY).read_text("utf-8"))
    minutes, pairs = sum(told["minutes"].values()), told["pairs"]["teachers"]
    return (
        f" Before it, {diversification['forward_teachers'] + 1} teachers, one of them back from the target, and their "
        f"translations of the training set (data diversification, Nguyen et al. 2020) took {minutes:.1f} minutes: "
        f"{pairs:,} further pairs."
    )


def with_teachers(provenance: dict, before: dict) -> dict:
    """The provenance of a run with the commands and machines of its teachers, and the corpus without their pairs."""
    machines = [*before["machines"], *provenance["machines"]]
    return {
        **provenance,
        "commands": [*before["commands"][:-1], *provenance["commands"]],  # their last one is that which began the run
        "machines": [machine for number, machine in enumerate(machines) if machine not in machines[:number]],
        "data": before["data"],
    }


def commands_of(provenance: dict, run: Path) -> list[str]:
    """That which began the run, to be typed, and those with which it went on, which one that is finished refuses."""
    first, *further = [
        command_line(in_folder(words, run), provenance["processes"]) for _, *words in provenance["commands"]
    ]
    return [first, *(f"# it went on with {again}" for again in further)]


def in_folder(words: list[str], run: Path) -> list[str]:
    """A command of the run with the folder where that is now: it may have been moved since."""
    told = [str(run) if option in ("-o", "--output") else word for option, word in pairwise(["", *words])]
    return [f"--output={run}" if word.startswith("--output=") else word for word in told]


def card(arguments, recipe: dict, provenance: dict, result: dict, evaluations: list[dict], report: dict) -> str:
    source, target = recipe["corpus"]["source_lang"], recipe["corpus"]["target_lang"]
    data, count = provenance["data"], len(result["mean_of"])
    machines = " then ".join(f"{m['processor']} ({m['threads']} threads)" for m in provenance["machines"])
    kept = WEIGHTS[result["weights"]].format(count)
    called = {"model": kept, MEAN: WEIGHTS["mean"].format(count)}
    names = names_of(evaluations)
    scores = [
        (
            [names[e["source"]], called.get(folder := Path(e["model"]).name, folder), how(e)],
            e["scores"],
            "{:.1f} ({device}, {processes} x {threads})".format(1000 * e["seconds"] / e["pairs"], **e["settings"]),
        )
        for e in evaluations
    ]
    searched = how({"settings": {**result["decoding"], "dtype": "float32", "packed": None}})
    scores += [
        (
            ["validation", WEIGHTS[which].format(count), searched],
            [{"name": name, **score} for name, score in values.items() if isinstance(score, dict)],
            "",
        )
        for which, values in result["validation"].items()
    ]
    losses = {which: values["loss"] for which, values in result["validation"].items()}
    exchanged = result["validation"][result["weights"]].get("loss_of_exchanged_sources", math.nan)
    made_of = result["mean_of"] if result["weights"] == "mean" else [f"checkpoint-{result['step']}"]
    network = architecture(VanillaTransformerConfig.from_pretrained(arguments.run / "model"))
    told = yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).strip()
    variables = [
        f"export {name}=...  # the folder of the data that `corpus` names below"
        for name in sorted(set(re.findall(r"\$\{?(\w+)", told)) - OF_EVERY_SHELL)
    ]
    diversification = recipe.get("diversification")
    teachers = told_of_teachers(folder_of_teachers(arguments.run), diversification) if diversification else ""
    commands = commands_of(provenance, arguments.run)
    return f"""---
{metadata(arguments, recipe, evaluations).to_yaml()}
---

# {arguments.name}

A Transformer of "Attention Is All You Need" that translates {source} to {target}, {departures(network)}:
{result["parameters"]:,} parameters, trained by
vanilla_transformer, a plugin for transformers 5.

## Use

With the package (`pip install .` in a checkout of vanilla_transformer):

```python
import vanilla_transformer
from transformers import pipeline

translator = pipeline("translation", model="{arguments.hub_id or arguments.run / "model"}")
{example(evaluations)}
```

Without the package, `AutoModelForSeq2SeqLM.from_pretrained(..., trust_remote_code=True)` reads the code that stands
beside the weights.

## Scores

{table_of_scores(scores)}

Greedy search against beams, on {Path(report["source"]).name}:

{searches(report)}

Loss on the validation set: {losses["newest"]:.3f} nats a token,
{losses["mean"]:.3f} of the mean weights; {exchanged:.3f} of the model when each target gets another source.

## Training

```sh
{chr(10).join(variables + commands)}
```

{result["step"]} updates in {result["minutes"]} minutes on {machines}, processes: {provenance["processes"]},
products in {"bfloat16" if provenance["bf16"] else "float32"}.{teachers} The
weights are {kept}: {", ".join(made_of)}. Data: {arguments.dataset}, {data["train"]["pairs"]:,} pairs, of which those
with more than {recipe["corpus"]["max_length"]} tokens on a side are left out; terms: {arguments.terms}.
{", ".join(f"{name} {number}" for name, number in provenance["packages"].items())}.

![curves]({arguments.name}.png)

<details><summary>The recipe, and the network that it makes, with all that is left to defaults</summary>

```yaml
{told}
```

```yaml
{yaml.safe_dump(network).strip()}
```

</details>

## Known failures

{failures(report)}

It knows the words of its training data, and translates sentences like those: of other texts, of longer ones and of
names it makes what it has seen.
"""


def told_in(path: Path):
    """Raises: ValueError, where a file is not what its name says, or half of it."""
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): make it again") from error


def read(arguments) -> tuple[dict, dict, dict, list[dict], dict]:
    """Recipe, provenance and result of the run, its scores and its report, which belong together.

    Raises:
        OSError: where one of the files is not there.
        ValueError: where one is damaged, or not of the model that is shared as it is now.
    """
    run = arguments.run
    if missing := [name for name in ("recipe.yaml", PROVENANCE, RESULT) if not (run / name).exists()]:
        raise FileNotFoundError(f"{run} has no {', '.join(missing)}: expected the folder of a finished run")
    missing = [] if arguments.scores else ["scores-*.json"]
    missing += [] if arguments.report.exists() else [arguments.report.name]
    if missing:
        raise FileNotFoundError(
            f"{run} has no {', '.join(missing)}: make them with `evaluate --json` and `report -o`, or name them with "
            "--scores and --report"
        )
    trained = checkpoints(run)
    if not trained:
        raise FileNotFoundError(
            f"{run} has no checkpoint-N, whose trainer_state.json tells of the training: bring back its newest one"
        )
    if not is_finished(run, state_of(trained[-1])):
        raise ValueError(f"{run} is not finished: train on with --resume")
    recipe = yaml.safe_load((run / "recipe.yaml").read_text("utf-8"))
    provenance, result = told_in(run / PROVENANCE), told_in(run / RESULT)
    if recipe.get("diversification"):
        folder = folder_of_teachers(run)
        if not folder.exists():
            raise FileNotFoundError(f"{folder} is gone, and what the card tells of the teachers: bring it back")
        provenance = with_teachers(provenance, provenance_of(folder))
    evaluations, report = [told_in(path) for path in arguments.scores], told_in(arguments.report)
    if report.get("training") is None:
        raise ValueError(f"{arguments.report} does not know the training set: make it with `report --training`")
    for path, evaluation in zip([*arguments.scores, arguments.report], [*evaluations, report], strict=True):
        if Path(evaluation["model"]).resolve().parent != run.resolve():
            raise ValueError(f"{path} has the scores of {evaluation['model']}, which is not in {run}")
        if evaluation.get("weights") != digest_of_weights(evaluation["model"]):
            raise ValueError(f"{path} has the scores of what {evaluation['model']} was before: score it again")
    if not any(map(is_of_the_model, evaluations)):
        raise ValueError(f"none of the scores is of {run / 'model'}, which is what is shared: score it")
    return recipe, provenance, result, evaluations, report


def main() -> int:
    arguments = parse()
    try:
        text = card(arguments, *read(arguments))
        arguments.output.mkdir(parents=True, exist_ok=True)
        draw_curves(arguments.run, arguments.output / f"{arguments.name}.png")
    except (ImportError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyError as missing:
        print(
            f"the files do not tell {missing}: expected a translator that this version has trained, evaluated and "
            "reported on",
            file=sys.stderr,
        )
        return 1
    path = arguments.output / f"{arguments.name}.md"
    path.write_text(text, "utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
