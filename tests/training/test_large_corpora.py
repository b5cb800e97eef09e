"""The recipes for WMT14, from a folder of its schema to a model that resumes: only sizes and places are changed."""

import json

import pytest
from datasets import Dataset, DatasetDict, Features, Translation
from tiny import SMALL

from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.training import train as training
from vanilla_transformer.training.checkpoints import checkpoints
from vanilla_transformer.training.recipe import load_recipe
from vanilla_transformer.training.train import train

SIZES = {"train": 200, "validation": 20, "test": 20}


@pytest.fixture(scope="module")
def wmt(tmp_path_factory):
    features = Features({"translation": Translation(languages=["fr", "en"])})
    folder = tmp_path_factory.mktemp("wmt")
    splits = {
        split: Dataset.from_list([{"translation": {"fr": p.target, "en": p.source}} for p in pairs], features=features)
        for split, pairs in phrasebook(0, **SIZES).items()
    }
    DatasetDict(splits).save_to_disk(folder / "wmt14")
    return folder / "wmt14"


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
    whole = train(recipe(name, wmt), tmp_path / "whole")
    for rows in (*whole.splits.values(), seen["train_dataset"], seen["eval_dataset"]):
        assert rows.cache_files, "held in memory, and not mapped into it"
    assert set(seen["train_dataset"].column_names) == {"input_ids", "labels", "length"}
    assert len(whole.splits["train"]) == SIZES["train"] and "test" in whole.splits
    provenance = json.loads((whole.run / "provenance.json").read_text())
    assert provenance["data"]["train"]["pairs"] == SIZES["train"]

    train(recipe(name, wmt, "training.max_steps=5"), tmp_path / "parts")
    train(recipe(name, wmt), tmp_path / "parts", resume=True)
    logs = [
        json.loads((checkpoints(tmp_path / run)[-1] / "trainer_state.json").read_text())["log_history"]
        for run in ("whole", "parts")
    ]
    losses = [{entry["step"]: entry["loss"] for entry in log if "loss" in entry} for log in logs]
    assert losses[0] == losses[1] and sorted(losses[0]) == [5, 10]


def test_a_subset_reads_no_further(wmt, tmp_path):
    few = train(recipe("wmt14-en-fr-subset", wmt, "corpus.max_pairs=50"), tmp_path / "few")
    assert len(few.splits["train"]) == 50 and len(few.splits["test"]) == SIZES["test"]
