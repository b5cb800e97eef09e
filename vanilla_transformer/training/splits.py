"""From a recipe's corpus to checked pairs, and from pairs to token ids."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from datasets import Dataset
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..data.checks import CorpusReport, check_equal_sides, check_swapped_sides, overlap
from ..data.columns import rows
from ..data.corpora import SIDES, read_corpus
from ..data.phrasebook import phrasebook
from ..data.synthetic import symbol_task
from .recipe import CorpusRecipe, expand

logger = logging.get_logger(__name__)

SPLITS = ("train", "validation", "test")


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
                {key: [getattr(pair, key) for pair in part] for key in ("source", "target", "family", "links")}
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
    for split in SPLITS:
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


def files_of(corpus: CorpusRecipe) -> list[str]:
    """The files, folders and Hub ids that `load_splits` reads, none for a corpus that is embedded."""
    if corpus.name != "files":
        return []
    return [located(place, corpus.folder) for where in SPLITS for place in getattr(corpus, where) or ()]


def located(place: str, folder: str | None) -> str:
    """The file that `place` names, in `folder` unless it is absolute; a Hub id has neither folder nor file."""
    place = expand(place)
    return str(Path(expand(folder)) / place) if folder is not None else place


def fingerprint(pairs: Dataset) -> str:
    """SHA-256 over all pairs in their order, by which two runs can be told to have read the same text."""
    digest = hashlib.sha256()
    for source, target in rows(pairs, *SIDES):
        digest.update(f"{source}\t{target}\n".encode())
    return digest.hexdigest()


def encode_pairs(batch: dict, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[list[int]]]:
    """Token ids of the columns `source` and `target`: `input_ids` and `labels`, each with `</s>` at its end."""
    encoded = tokenizer(batch["source"], text_target=batch["target"], verbose=False)
    return {"input_ids": encoded["input_ids"], "labels": encoded["labels"]}


def version_of(tokenizer: PreTrainedTokenizerBase, *more: str) -> str:
    """Equal where a tokenizer (and what else is told) cuts texts into the same ids."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    words = fast.to_str() if fast is not None else sorted(tokenizer.get_vocab().items())
    return Hasher.hash([type(tokenizer).__name__, words, *more])


def tokenize(
    pairs: Dataset, encode: Callable[[dict], dict], max_length: int | None, name: str, version: str
) -> Dataset:
    """The columns of ids that `encode` gives for a batch of pairs, and `length` (of the longest, in tokens).

    Pairs that are in a file go to a file; those that an equal `version` of `encode` has written are read again. Pairs
    with more than `max_length` tokens in any column are dropped, and counted aloud.
    """

    def with_lengths(batch):
        columns = encode(batch)
        return columns | {"length": [max(map(len, row)) for row in zip(*columns.values(), strict=True)]}

    encoded = pairs.map(
        with_lengths,
        batched=True,
        remove_columns=pairs.column_names,
        new_fingerprint=Hasher.hash([pairs._fingerprint, version]),
        desc=f"tokenizing {name}",
    )
    if max_length is None:
        return encoded
    report = CorpusReport()
    lengths = lengths_of(encoded)
    for index in np.flatnonzero(lengths > max_length).tolist():
        report.drop(f"over {max_length} tokens", f"{name} pair {index + 1} with {lengths[index]}")
    report.warn()
    short = np.flatnonzero(lengths <= max_length)
    if not len(short):
        raise ValueError(f"no pair of {name} is within max_length={max_length} tokens: raise it")
    return encoded.select(short) if len(short) < len(encoded) else encoded


def lengths_of(encoded: Dataset) -> np.ndarray:
    return encoded.with_format("numpy")["length"][:]
