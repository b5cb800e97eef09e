"""Draws the corpus: each family its share, training without the combinations that the other splits are made of."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from . import templates_actions as actions
from . import templates_facts as facts
from .sampler import Sampler, is_held_out
from .syntax import Sentence

# Shares of the corpus in thousandths; none above 150.
_SHARES: dict[str, tuple[int, Callable[[Sampler], Sentence]]] = {
    "statement": (115, actions.statement),
    "negation": (75, actions.negation),
    "question": (65, actions.question),
    "open question": (70, actions.open_question),
    "number": (120, facts.number),
    "time": (65, facts.time),
    "date": (70, facts.dated),
    "description": (60, facts.description),
    "profession": (15, facts.profession),
    "comparison": (50, facts.compared),
    "existence": (55, facts.existence),
    "possession": (40, facts.possession),
    "weather": (15, facts.weather),
    "motion": (65, actions.motion),
    "pronoun": (30, actions.personal),
    "modal": (45, actions.modal),
    "order": (55, actions.order),
    "joined": (45, actions.joined),
    "meal": (35, actions.meal),
    "reported": (30, actions.reported),
    "daily": (30, actions.daily),
}
FAMILIES: tuple[str, ...] = tuple(_SHARES)
LARGEST = 1_000_000  # pairs in all that the smallest families still fill
# A family counts as exhausted when so many draws in a row bring nothing new.
_PATIENCE = 5_000
_SPARE = 1.25  # held-out pairs drawn for each one used, so that those with a word unknown to training can be left


@dataclass(frozen=True, slots=True)
class PhrasePair:
    source: str  # English
    target: str  # French
    family: str
    links: tuple[tuple[int, int], ...]  # (source word, target word), sorted, indexes into words(...)


def words(text: str) -> list[str]:
    """The words that links count: between plain spaces, so that U+00A0 keeps its ? with the word before it."""
    return text.split(" ")


def phrasebook(
    seed: int = 0, train: int = 120_000, validation: int = 1_000, test: int = 2_000
) -> dict[str, list[PhrasePair]]:
    """The splits "train", "validation" and "test", the same for the same arguments everywhere.

    About one combination in fourteen (a noun with an adjective, a verb with its object, a number, a time, a date ...)
    is held out whatever the seed: training never shows it, and every validation and test pair holds at least one.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    for split, size in sizes.items():
        if size < 0:
            raise ValueError(f"got {split}={size}, expected 0 or more pairs; remedy: give a size that is not negative")
    if sum(sizes.values()) > LARGEST:
        raise ValueError(
            f"got {sum(sizes.values())} pairs in all, expected at most {LARGEST}, beyond which they are not distinct; "
            "remedy: ask for fewer"
        )
    rng = random.Random(seed)
    quotas = {split: _quotas(size) for split, size in sizes.items()}
    shown: list[PhrasePair] = []
    kept_back: dict[str, list[PhrasePair]] = {}
    seen: set[str] = set()
    for family in FAMILIES:
        wanted = quotas["validation"][family] + quotas["test"][family]
        spare = wanted + int(wanted * (_SPARE - 1) + 1) if wanted else 0
        pairs, kept_back[family] = _draw(
            family, random.Random(rng.getrandbits(64)), quotas["train"][family], spare, seen
        )
        shown += pairs
    rng.shuffle(shown)
    known = _vocabulary(shown)
    held: dict[str, list[PhrasePair]] = {"validation": [], "test": []}
    for family, pairs in kept_back.items():
        # a stable sort: pairs whose words training shows come first
        pairs.sort(key=lambda pair: not _vocabulary([pair]) <= known)
        n, m = quotas["validation"][family], quotas["test"][family]
        held["validation"] += pairs[:n]
        held["test"] += pairs[n : n + m]
    for pairs in held.values():
        rng.shuffle(pairs)
    return {"train": shown, **held}


def _quotas(size: int) -> dict[str, int]:
    """Shares by largest remainder: they add up to the size."""
    total = sum(share for share, _ in _SHARES.values())
    exact = {family: size * share / total for family, (share, _) in _SHARES.items()}
    quotas = {family: int(value) for family, value in exact.items()}
    by_remainder = sorted(FAMILIES, key=lambda family: quotas[family] - exact[family])
    for family in by_remainder[: size - sum(quotas.values())]:
        quotas[family] += 1
    return quotas


def _draw(
    family: str, rng: random.Random, shown: int, held: int, seen: set[str]
) -> tuple[list[PhrasePair], list[PhrasePair]]:
    """So many new pairs without, and with, a combination that is held out; adds their sources to `seen`."""
    make = _SHARES[family][1]
    sampler = Sampler(rng)
    pairs: tuple[list[PhrasePair], list[PhrasePair]] = ([], [])
    sizes = (shown, held)
    idle = 0
    while len(pairs[0]) < shown or len(pairs[1]) < held:
        sampler.keys.clear()
        source, target, links = make(sampler)
        side = any(map(is_held_out, sampler.keys))
        if len(pairs[side]) < sizes[side] and source not in seen:
            seen.add(source)
            pairs[side].append(PhrasePair(source, target, family, links))
            idle = 0
            continue
        idle += 1
        if idle > _PATIENCE:
            raise ValueError(
                f"got {len(pairs[0]) + len(pairs[1])} distinct pairs of the family {family!r}, expected "
                f"{shown + held}; remedy: ask for a smaller corpus"
            )
    return pairs


def _vocabulary(pairs: list[PhrasePair]) -> set[str]:
    """The words of both languages, without punctuation; an elided article is a word of its own."""
    vocabulary: set[str] = set()
    for pair in pairs:
        for text in (pair.source, pair.target):
            vocabulary.update(
                text.lower().rstrip(".?!").replace(",", "").replace("\u00a0", "").replace("'", "' ").split()
            )
    return vocabulary
