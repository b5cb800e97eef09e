"""The demo: a translator from nothing to translations, on the embedded phrasebook."""

import json
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from shlex import quote

from datasets import Dataset

from ..evaluation import exact_match, translation_scores
from ..evaluation.alignments import score_alignments
from ..translation import load_translator
from .checkpoints import checkpoints
from .recipe import load_recipe
from .run_folder import check_same_recipe, is_finished, state_of
from .splits import load_splits
from .train import TrainingResult, train

SHOWN = 8  # held-out sentences shown with their translations


def demo(run: Path, *, resume: bool = False, overwrite: bool = False) -> int:
    """Train the recipe `phrasebook`, score its test set by beam search, show translations; the exit code is 0, or 130
    when it was interrupted.

    `run`/demo.json holds the scores: BLEU and exact match in percent, over all and per family of templates;
    `run`/test.en and test.fr the test set.

    Args:
        resume: go on wherever it stopped: with the training, or with what comes after it.

    Raises:
        FileExistsError, ValueError: those of `train`.
    """
    start = time.perf_counter()
    result = trained(run, resume, overwrite)
    if result.model is None:
        print(f"interrupted; go on with: vanilla-transformer demo -o {quote(str(run))} --resume")
        return 130
    test = result.splits["test"]
    translator = load_translator(result.model)
    sources, references = list(test["source"]), list(test["target"])
    for name, lines in (("test.en", sources), ("test.fr", references)):
        (run / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    print(f"translating {len(test)} held-out sentences by beam search and greedily ...")
    beam = [t.text for t in translator(sources, progress=True)]
    greedy = [t.text for t in translator(sources, num_beams=1)]

    scores = {
        name: {
            "BLEU": translation_scores(texts, references, ["BLEU"])[0].score,
            "exact": exact_match(texts, references),
        }
        for name, texts in (("beam", beam), ("greedy", greedy))
    }
    families = exact_by_family(test, beam)
    show(sources, references, greedy, beam)
    print(f"\n{'exact match by family':<24} {'sentences':>9} {'percent':>8}")
    for family, (count, percent) in sorted(families.items(), key=lambda item: item[1][1]):
        print(f"{family:<24} {count:>9} {percent:>8.1f}")
    for name, score in scores.items():
        print(f"{name + ' search':<24} BLEU {score['BLEU']:.2f}, exact match {score['exact']:.1f} %")
    links = score_alignments(translator, sources, references, test["links"])
    print(f"{'words':<24} {links}")
    seconds = time.perf_counter() - start
    begun = "where it stopped" if resume else "corpus"
    print(f"{seconds:.0f} s from {begun} to scores. Use the checkpoint in three lines of Python:\n")
    print("    import vanilla_transformer")
    print("    from transformers import pipeline")
    print(f'    print(pipeline("translation", model="{result.model}")("{sources[0]}"))\n')
    facts = {
        "seconds": seconds,
        **scores,
        "alignments": asdict(links),
        "families": {name: percent for name, (_, percent) in families.items()},
    }
    (run / "demo.json").write_text(json.dumps(facts, indent=2), "utf-8")
    return 0


def trained(run: Path, resume: bool, overwrite: bool) -> TrainingResult:
    recipe = load_recipe("phrasebook")
    whole = checkpoints(run) if resume and not overwrite else []
    if whole and is_finished(run, state := state_of(whole[-1])):
        check_same_recipe(recipe, run)
        return TrainingResult(run, run / "model", state.global_step, load_splits(recipe.corpus))
    return train(recipe, run, resume=resume, overwrite=overwrite)


def exact_by_family(test: Dataset, translations: list[str]) -> dict[str, tuple[int, float]]:
    """Family of templates -> number of its test sentences, and percent of them translated to the letter."""
    pairs = defaultdict(list)
    for family, translation, reference in zip(test["family"], translations, test["target"], strict=True):
        pairs[family].append((translation, reference))
    return {family: (len(rows), exact_match(*zip(*rows, strict=True))) for family, rows in pairs.items()}


def show(sources: list[str], references: list[str], greedy: list[str], beam: list[str]) -> None:
    """Some translations that are right, and first those where the two searches or the reference differ."""
    rows = list(zip(sources, references, greedy, beam, strict=True))
    rows.sort(key=lambda row: len(set(row[1:])) == 1)  # stable: those that differ come first
    half = SHOWN // 2
    for source, reference, by_greedy, by_beam in rows[:half] + rows[-half:]:
        print(f"\n     source  {source}\n  reference  {reference}\n     greedy  {by_greedy}\n       beam  {by_beam}")
