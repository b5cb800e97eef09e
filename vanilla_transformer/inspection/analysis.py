"""What is wrong with translations, sentence by sentence and by groups, counted without a model."""

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu import sentence_chrf

from ..evaluation import translation_scores
from ..translation.alignments import split_words

LONGEST_LOOP = 4  # words that are looked at as one thing said again
SEEN = 0.1  # attention that a source word gets from all target words together, below which it counts as left out
LETTERS = 4  # of a word that is copied; shorter ones are often the same in two languages
LENGTHS = (5, 10, 15, 20, 30, 50, 100)  # words of a reference, ends of groups
COUNTS = (0, 1, 4, 19, 99)  # how often training has a word, ends of groups


@dataclass(frozen=True)
class Sentence:
    """One translation, and what was found in it."""

    number: int  # of the line, from 1 on
    source: str
    reference: str
    output: str
    chrf: float
    length_ratio: float  # of words, output by reference
    loops: int  # how often something is said again at once, and the reference does not
    copied: list[str]  # words of the source that the reference does not have
    left_out: list[str]  # source words that no word of the output looks at
    made_up: list[str] | None  # words that neither the training's targets have nor the source; None: not known


def words(text: str) -> list[str]:
    """Lower-cased, without the punctuation around them."""
    return [word for part in text.lower().split() if (word := part.strip(".,;:!?\"'()«»„“”’…-"))]


def examine_sentence(
    number: int,
    source: str,
    reference: str,
    output: str,
    attention: np.ndarray | None = None,
    known: Container[str] | None = None,
) -> Sentence:
    """attention: (target words, source words), where known; known: words of the training's targets, where known."""
    said, right = words(output), words(reference)
    return Sentence(
        number=number,
        source=source,
        reference=reference,
        output=output,
        chrf=sentence_chrf(output, [reference]).score,
        length_ratio=len(said) / max(1, len(right)),
        loops=max(0, repetitions(said) - repetitions(right)),
        copied=copied(words(source), said, right),
        left_out=left_out(source, attention if said else np.zeros((1, len(split_words(source))))),
        made_up=None if known is None else [word for word in said if word not in known and word not in words(source)],
    )


def repetitions(said: Sequence[str]) -> int:
    """How often some words, `LONGEST_LOOP` at most, are said again at once: 2 of "a b a b a b"."""
    most = 0
    for length in range(1, LONGEST_LOOP + 1):
        run = 0
        for place in range(length, len(said)):
            run = run + 1 if said[place] == said[place - length] else 0
            most = max(most, run // length)
    return most


def copied(source: Sequence[str], said: Sequence[str], right: Sequence[str]) -> list[str]:
    """Words of the source that stand in the output as they are, and not in the reference: untranslated ones."""
    untranslated = set(source) - set(right)
    return [word for word in said if word in untranslated and len(word) >= LETTERS and word.isalpha()]


def left_out(source: str, attention: np.ndarray | None) -> list[str]:
    """Source words that all target words together look at less than `SEEN`, and that are no punctuation."""
    if attention is None or not attention.size:
        return []
    seen = attention.sum(0)
    return [part for part, sum_ in zip(split_words(source), seen, strict=False) if sum_ < SEEN and words(part)]


def entropy(weights: np.ndarray) -> np.ndarray:
    """The mean over rows of -sum p log p, in nats: (L, H, queries, keys) -> (L, H). 0 where each row looks at one key
    alone, log(keys) where it looks at all of them alike."""
    return -(weights * np.log(np.maximum(weights, 1e-12))).sum(-1).mean(-1)


def coverage(weights: np.ndarray) -> np.ndarray:
    """The share of keys that all rows together look at by `SEEN` or more: (L, H, queries, keys) -> (L, H)"""
    return (weights.sum(-2) >= SEEN).mean(-1)


@dataclass(frozen=True)
class Group:
    """Sentences, or words, that have something in common."""

    name: str
    size: int
    score: float | None  # BLEU of sentences, percent of words found; None of an empty group


def grouped(
    values: Sequence[float], ends: Sequence[float], score: Callable[[list[int]], float], unit: str
) -> list[Group]:
    """Groups by `values`, each up to one of `ends`, the last beyond all of them, with the score of their members."""
    groups, low = [], None
    for high in [*ends, None]:
        members = [
            i for i, value in enumerate(values) if (low is None or value > low) and (high is None or value <= high)
        ]
        first = 0 if low is None else int(low) + 1
        name = (
            f"{first} {unit}"
            if first == high
            else f"over {low} {unit}"
            if high is None
            else f"{first} to {high} {unit}"
        )
        groups.append(Group(name, len(members), score(members) if members else None))
        low = high
    return [group for group in groups if group.size]


def by_length(outputs: Sequence[str], references: Sequence[str], longest: int | None = None) -> list[Group]:
    """BLEU by the length of the reference in words; the last group is beyond `longest`, that of training, if known."""
    ends: Sequence[int] = LENGTHS if longest is None else [*(end for end in LENGTHS if end < longest), longest]

    def bleu(members: list[int]) -> float:
        return translation_scores([outputs[i] for i in members], [references[i] for i in members], ["BLEU"])[0].score

    return grouped([len(reference.split()) for reference in references], ends, bleu, "words")


def by_frequency(outputs: Sequence[str], references: Sequence[str], training: Counter[str]) -> list[Group]:
    """Percent of the references' words that the outputs have too, by how often training has seen a word."""
    found: list[bool] = []
    seen: list[int] = []
    for output, reference in zip(outputs, references, strict=True):
        left = Counter(words(output))
        for word in words(reference):
            found.append(left[word] > 0)
            left[word] -= left[word] > 0
            seen.append(training[word])

    def percent(members: list[int]) -> float:
        return 100 * sum(found[i] for i in members) / len(members)

    return grouped(seen, COUNTS, percent, "times")
