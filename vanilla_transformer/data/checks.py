"""What is looked at before a corpus is trusted: dropped pairs, equal or swapped sides, test text seen in training."""

from collections import Counter

from datasets import Dataset
from transformers.utils import logging

from .columns import rows

logger = logging.get_logger(__name__)

PROFILE_SENTENCES = 500  # enough for a profile of a language's character trigrams
CROSSED = 0.1  # more alike crosswise than straight by chance, where both sides are of one language
EXAMPLES = 3  # how many places a report names


class CorpusReport:
    """Counts what was dropped and where it stood first, so that it can be said aloud and be kept in a run folder."""

    def __init__(self):
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def drop(self, reason: str, where: str) -> None:
        self.counts[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < EXAMPLES:
            examples.append(where)

    def warn(self) -> None:
        for reason, count in self.counts.items():
            more = ", ..." if count > len(self.examples[reason]) else ""
            logger.warning(f"dropped {count} pairs ({reason}): {'; '.join(self.examples[reason])}{more}")


def check_equal_sides(pairs: Dataset, name: str) -> None:
    """Raise `ValueError` if most targets merely repeat their sources."""
    equal = sum(source == target for source, target in rows(pairs, "source", "target"))
    if equal > len(pairs) / 2:
        raise ValueError(
            f"{name}: {equal} of {len(pairs)} targets are equal to their sources: expected translations; were both "
            "sides read from one file?"
        )


def trigram_profile(sentences: list[str]) -> Counter[str]:
    """Relative frequencies of character trigrams, which tell languages apart (Cavnar and Trenkle 1994)."""
    counts: Counter[str] = Counter()
    for sentence in sentences:
        text = f"  {sentence.lower()} "
        counts.update(text[i : i + 3] for i in range(len(text) - 2))
    total = sum(counts.values())
    return Counter({gram: count / total for gram, count in counts.items()})  # type: ignore[misc]


def similarity(a: Counter[str], b: Counter[str]) -> float:
    """Cosine of two profiles, 0 to 1."""
    dot = sum(a[gram] * b[gram] for gram in a)
    return dot / (sum(x * x for x in a.values()) * sum(x * x for x in b.values())) ** 0.5


def check_swapped_sides(pairs: Dataset, like: Dataset, name: str, like_name: str) -> None:
    """Raise `ValueError` if the sources of `pairs` are written like the targets of `like`, and the other way round."""
    profiles = [
        trigram_profile(corpus[side][:PROFILE_SENTENCES]) for corpus in (pairs, like) for side in ("source", "target")
    ]
    source, target, like_source, like_target = profiles
    straight = similarity(source, like_source) + similarity(target, like_target)
    crossed = similarity(source, like_target) + similarity(target, like_source)
    if crossed > straight + CROSSED:
        raise ValueError(
            f"the two sides of {name} look swapped: its sources read like the targets of {like_name} (character "
            f"trigrams {crossed / 2:.2f} alike crosswise, {straight / 2:.2f} straight): exchange the two files"
        )


def overlap(train: Dataset, test: Dataset) -> int:
    """How many test pairs have a source that training shows as well."""
    asked = {source for (source,) in rows(test, "source")}
    seen = {source for (source,) in rows(train, "source") if source in asked}
    return sum(source in seen for (source,) in rows(test, "source"))
