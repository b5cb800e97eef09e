"""From a recipe's corpus to checked pairs, and from pairs to token ids."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..data.checks import CorpusReport, check_equal_sides, check_swapped_sides, overlap
from ..data.corpora import read_corpus
from ..data.phrasebook import phrasebook
from ..data.synthetic import symbol_task
from .recipe import CorpusRecipe, expand

logger = logging.get_logger(__name__)


def load_splits(corpus: CorpusRecipe) -> dict[str, Dataset]:
    """The splits `train`, `validation` and, where there is one, `test`, with the columns `source` and `target`.

    Says what was dropped and how many test sources training shows.

    Raises:
        ValueError: for what `read_corpus` refuses, for sides that are equal or swapped.
    """
    if corpus.name == "files":
        splits = read_splits(corpus)
    elif corpus.name == "phrasebook":
        pairs = phrasebook(corpus.seed, **(corpus.sizes or {}))
        splits = {
            split: Dataset.from_dict(
                {key: [getattr(pair, key) for pair in part] for key in ("source", "target", "family")}
            )
            for split, part in pairs.items()
        }
    else:
        splits = symbol_task(corpus.name, corpus.seed, corpus.sizes)
    for split in ("validation", "test"):
        shared = overlap(splits["train"], splits[split]) if split in splits else 0
        if shared:
            logger.warning(f"{shared} of {len(splits[split])} {split} sources also stand in the training set")
    return splits


def read_splits(corpus: CorpusRecipe) -> dict[str, Dataset]:
    splits = {}
    for split in ("train", "validation", "test"):
        where = getattr(corpus, split)
        if not where:
            continue
        report = CorpusReport()
        splits[split] = read_corpus(
            [located(place, corpus.folder) for place in where],
            corpus.source_lang,
            corpus.target_lang,
            split=split,
            config_name=corpus.config_name,
            max_pairs=corpus.max_pairs if split == "train" else None,
            report=report,
        )
        report.warn()
        check_equal_sides(splits[split], split)
    for split in splits.keys() - {"train"}:
        check_swapped_sides(splits[split], splits["train"], f"corpus.{split}", "corpus.train")
    return splits


def located(place: str, folder: str | None) -> str:
    """The file that `place` names, in `folder` unless it is absolute; a Hub id has neither folder nor file."""
    place = expand(place)
    return str(Path(expand(folder)) / place) if folder is not None else place


def fingerprint(pairs: Dataset) -> str:
    """SHA-256 over all pairs in their order, by which two runs can be told to have read the same text."""
    digest = hashlib.sha256()
    for source, target in zip(pairs["source"], pairs["target"], strict=True):
        digest.update(f"{source}\t{target}\n".encode())
    return digest.hexdigest()


def encode_pairs(batch: dict, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[list[int]]]:
    """Token ids of the columns `source` and `target`: `input_ids` and `labels`, each with `</s>` at its end."""
    encoded = tokenizer(batch["source"], text_target=batch["target"], verbose=False)
    return {"input_ids": encoded["input_ids"], "labels": encoded["labels"]}


def tokenize(pairs: Dataset, encode: Callable[[dict], dict], max_length: int | None, name: str) -> Dataset:
    """The columns of ids that `encode` gives for a batch of pairs, and `length` (of the longest, in tokens).

    Pairs with more than `max_length` tokens in any column are dropped, and counted aloud.
    """

    def with_lengths(batch):
        columns = encode(batch)
        return columns | {"length": [max(map(len, row)) for row in zip(*columns.values(), strict=True)]}

    encoded = pairs.map(with_lengths, batched=True, remove_columns=pairs.column_names, desc=f"tokenizing {name}")
    if max_length is None:
        return encoded
    report = CorpusReport()
    keep = []
    for index, length in enumerate(encoded["length"]):
        if length > max_length:
            report.drop(f"over {max_length} tokens", f"{name} pair {index + 1} with {length}")
        else:
            keep.append(index)
    report.warn()
    if not keep:
        raise ValueError(f"no pair of {name} is within corpus.max_length={max_length} tokens: raise it")
    return encoded.select(keep) if len(keep) < len(encoded) else encoded
