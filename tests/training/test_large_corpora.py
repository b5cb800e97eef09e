"""The recipes for WMT14, from a folder of its schema to a model that resumes: only sizes and places are changed."""

import json
import os
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict, Features, Translation
from tiny import SMALL, losses

from vanilla_transformer.cli import main
from vanilla_transformer.data.corpora import read_lines
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.evaluation.metrics import moses_bleu, translation_scores
from vanilla_transformer.training import train as training
from vanilla_transformer.training.recipe import load_recipe
from vanilla_transformer.training.tasks import TranslationTask
from vanilla_transformer.training.train import train

SIZES = {"train": 200, "validation": 20, "test": 20}
NEWS = Path(os.environ.get("VANILLA_TRANSFORMER_DATA", "../shared/data")) / "wmt14"


def save_wmt(folder: Path, target: str, splits: dict[str, list[tuple[str, str]]]) -> Path:
    """English and its translations as the Hub's `wmt/wmt14` has them."""
    features = Features({"translation": Translation(languages=[target, "en"])})
    DatasetDict(
        {
            split: Dataset.from_list([{"translation": {target: t, "en": s}} for s, t in pairs], features=features)
            for split, pairs in splits.items()
        }
    ).save_to_disk(folder)
    return folder


@pytest.fixture
def wmt(tmp_path):
    splits = {split: [(p.source, p.target) for p in pairs] for split, pairs in phrasebook(0, **SIZES).items()}
    return save_wmt(tmp_path / "wmt14", "fr", splits)


def recipe(name, wmt, *more):
    places = [f"corpus.{split}=[{wmt}]" for split in SIZES]
    small = [setting for setting in SMALL if not setting.startswith("corpus")]
    return load_recipe(name, [*small, *places, "tokenizer.vocab_size=400", "training.max_tokens=512", *more])


@pytest.mark.parametrize("name", ["wmt14-en-fr-base", "wmt14-en-fr-subset"])
def test_from_the_hubs_schema_to_a_model(name, wmt, tmp_path, monkeypatch):
    seen = {}
    original = training.RecipeTrainer.__init__

    def spy(self, *args, **kwargs):
        seen.update(kwargs)
        original(self, *args, **kwargs)

    monkeypatch.setattr(training.RecipeTrainer, "__init__", spy)
    encode, encoded = TranslationTask.encode, []

    def counted(self, batch, tokenizer):
        encoded.extend(batch["source"])
        return encode(self, batch, tokenizer)

    monkeypatch.setattr(TranslationTask, "encode", counted)
    whole = train(recipe(name, wmt), tmp_path / "whole")
    for rows in (*whole.splits.values(), seen["train_dataset"], seen["eval_dataset"]):
        assert rows.cache_files, "held in memory, and not mapped into it"
    assert set(seen["train_dataset"].column_names) == {"input_ids", "labels", "length"}
    sides = [(len(row["input_ids"]), len(row["labels"])) for row in seen["train_dataset"]]
    assert [max(pair) for pair in sides] == list(seen["train_dataset"]["length"])
    assert any(a < b for a, b in sides) and any(a > b for a, b in sides)
    assert len(whole.splits["train"]) == SIZES["train"] and "test" in whole.splits
    provenance = json.loads((whole.run / "provenance.json").read_text())
    assert provenance["data"]["train"]["pairs"] == SIZES["train"]

    train(recipe(name, wmt, "training.max_steps=5"), tmp_path / "parts")
    train(recipe(name, wmt), tmp_path / "parts", resume=True)
    assert len(encoded) == SIZES["train"] + SIZES["validation"], "tokenised more than once"
    whole_run, parts = losses(whole.run), losses(tmp_path / "parts")
    assert whole_run == parts and sorted(whole_run) == [5, 10]


def test_a_subset_reads_no_further(wmt, tmp_path):
    few = train(recipe("wmt14-en-fr-subset", wmt, "corpus.max_pairs=50"), tmp_path / "few")
    assert len(few.splits["train"]) == 50 and len(few.splits["test"]) == SIZES["test"]


@pytest.mark.skipif(not NEWS.is_dir(), reason=f"needs the news of WMT14 in {NEWS}")
def test_news_is_read_and_scored(tmp_path, capsys):
    """Sentences as long and as odd as they come, German for French; scored from files as newstest2014 is."""

    def lines(name: str) -> list[str]:
        return list(read_lines(NEWS / f"{name}.gz"))

    pairs = list(zip(lines("newstest2013.en"), lines("newstest2013.de"), strict=True))
    news = save_wmt(
        tmp_path / "wmt14", "de", {"train": pairs[:400], "validation": pairs[400:420], "test": pairs[420:440]}
    )
    run = train(recipe("wmt14-en-fr-base", news, "corpus.target_lang=de"), tmp_path / "run")
    files = []
    for language in ("en", "de"):
        files.append(tmp_path / f"newstest2014.{language}")
        files[-1].write_text("\n".join(lines(f"newstest2014.{language}")[:40]) + "\n", encoding="utf-8")
    scores = tmp_path / "scores.json"
    command = ["evaluate", str(run.model), *map(str, files), "--moses", "de", "--beams", "2", "--json", str(scores)]
    assert main(command) == 0
    told = json.loads(scores.read_text())
    assert told["pairs"] == 40 and "tok:13a" in capsys.readouterr().out
    outputs, references = ([example[side] for example in told["examples"]] for side in ("translation", "reference"))
    assert references == lines("newstest2014.de")[:40]
    expected = [*translation_scores(outputs, references), moses_bleu(outputs, references, "de")]
    assert [(score["name"], score["score"]) for score in told["scores"]] == [(s.name, s.score) for s in expected]
