"""The words of the phrasebook, read from nouns.tsv, adjectives.tsv and verbs.tsv beside this file.

One English word has one French word. Light classes of nouns (food, vehicle, person ...) say which adjectives may
stand beside a noun and which verbs may take it, so that sentences stay plausible.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from . import english, french


@dataclass(frozen=True, eq=False)
class Noun:
    english: str
    english_plural: str  # of a mass noun, its singular
    french: str
    french_plural: str
    gender: str
    is_mass: bool
    is_plural_only: bool  # in French: les échecs
    classes: frozenset[str]


@dataclass(frozen=True, eq=False)
class Adjective:
    english: str
    french: str
    place: str  # before, ordinal, after
    comparison: str  # er, more or nothing
    forms: tuple[str, str, str, str]  # m, f, m plural, f plural
    classes: tuple[str, ...]

    @property
    def is_before(self) -> bool:
        return self.place != "after"

    def form(self, gender: str, is_plural: bool) -> str:
        return self.forms[(gender == "f") + 2 * is_plural]


@dataclass(frozen=True, eq=False)
class Verb:
    english: str
    past: str
    french: str  # the infinitive without se
    preposition: str  # à, de or nothing
    kinds: frozenset[str]
    subjects: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()

    @property
    def is_stative(self) -> bool:
        return "stative" in self.kinds

    @property
    def has_progressive(self) -> bool:
        return not self.kinds & {"simple", "stative"}

    @property
    def is_reflexive(self) -> bool:
        return "reflexive" in self.kinds

    @property
    def takes_etre(self) -> bool:
        return "être" in self.kinds or "reflexive" in self.kinds


# Adjectives that say what a thing is rather than how it is: not after "is".
NOT_PREDICATES = frozenset({
    "former", "real", "false", "wooden", "final", "annual", "national", "public", "little", "official", "natural",
    "mad", "high", "brief",
})  # fmt: skip


class Lexicon:
    """All words, by their English, with the lists that sampling needs in the order of the files."""

    def __init__(self) -> None:
        self.nouns = {noun.english: noun for noun in _nouns()}
        self.adjectives = {adjective.english: adjective for adjective in _adjectives()}
        self.verbs = {verb.english: verb for verb in _verbs()}
        self.by_class: dict[str, list[Noun]] = {}
        for noun in self.nouns.values():
            for name in sorted(noun.classes):
                self.by_class.setdefault(name, []).append(noun)
        self.attributes: dict[Noun, list[Adjective]] = {noun: [] for noun in self.nouns.values()}
        for adjective in self.adjectives.values():
            for noun in self.select(adjective.classes):
                self.attributes[noun].append(adjective)
        self.predicates = {
            noun: [a for a in adjectives if a.place != "ordinal" and a.english not in NOT_PREDICATES]
            for noun, adjectives in self.attributes.items()
        }
        self.subjects = {verb: self.select(verb.subjects or ("person",)) for verb in self.verbs.values()}
        self.objects = {verb: self.select(verb.objects) for verb in self.verbs.values()}

    def select(self, names: tuple[str, ...]) -> list[Noun]:
        """The nouns of any of the classes, or named themselves, but none of a class behind a minus; in file order."""
        known = self.by_class.keys() | self.nouns.keys()
        unknown = [name for name in names if name.removeprefix("-") not in known]
        if unknown:
            raise ValueError(f"got {unknown}, expected classes or nouns of nouns.tsv; remedy: correct the row")
        wanted = {name for name in names if not name.startswith("-")}
        unwanted = {name.removeprefix("-") for name in names if name.startswith("-")}
        return [
            noun
            for noun in self.nouns.values()
            if (noun.english in wanted or noun.classes & wanted) and not noun.classes & unwanted
        ]


@cache
def lexicon() -> Lexicon:
    return Lexicon()


def _rows(name: str, columns: int) -> Iterator[list[str]]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            continue
        row = line.split("\t")
        if len(row) != columns:
            raise ValueError(
                f"got {len(row)} columns in {name} line {number}, expected {columns}; remedy: mend the row"
            )
        yield row


def _nouns() -> Iterator[Noun]:
    for source, plural, target, gender, pluriel, classes in _rows("nouns.tsv", 6):
        is_mass = plural == "-"
        yield Noun(
            english=source,
            english_plural=source if is_mass else plural or english.plural(source),
            french=target,
            french_plural=pluriel or french.plural(target),
            gender=gender[0],
            is_mass=is_mass,
            is_plural_only=gender.endswith("p"),
            classes=frozenset(classes.split()),
        )


def _adjectives() -> Iterator[Adjective]:
    for source, target, place, comparison, classes in _rows("adjectives.tsv", 5):
        forms = (target, french.feminine(target), french.plural(target), french.agree(target, "f", True))
        yield Adjective(source, target, place, comparison, forms, tuple(classes.split()))


def _verbs() -> Iterator[Verb]:
    for source, past, target, kinds, subjects, objects in _rows("verbs.tsv", 6):
        infinitive, _, preposition = target.partition(" ") if not target.startswith("se ") else (target, "", "")
        infinitive = infinitive.removeprefix("se ").removeprefix("s'")
        yield Verb(
            english=source,
            past=past or english.past(source),
            french=infinitive,
            preposition=preposition,
            kinds=frozenset(kinds.split()),
            subjects=tuple(subjects.split()),
            objects=tuple(objects.split()),
        )
