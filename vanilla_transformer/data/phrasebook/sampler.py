"""Random choices of words, and the record of the combinations that a sentence holds.

`keys` collects every combination that may be held out of training: a noun with an adjective, a verb with its object,
a number, a time, a date, a year, a place. `is_held_out` says which are, by a checksum that does not know the seed.
"""

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar
from zlib import crc32

from . import numerals, syntax
from .lexicon import NOT_PREDICATES, Adjective, Noun, Verb, lexicon
from .syntax import Phrase, concat, fixed, noun_phrase, pairwise, prepositional, pronoun, rows

_split = str.split
T = TypeVar("T")
Key = tuple[str | int, ...]
HELD_OUT = 0.07  # of the combinations

MEN = ("Paul", "Pierre", "Louis", "Henri", "Antoine", "Thomas")
WOMEN = ("Marie", "Anne", "Julie", "Sophie", "Alice", "Claire")
MONTHS = dict(
    zip(
        _split("January February March April May June July August September October November December"),
        _split("janvier février mars avril mai juin juillet août septembre octobre novembre décembre"),
        strict=True,
    )
)
DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
WEEKDAYS = dict(
    zip(
        _split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
        _split("lundi mardi mercredi jeudi vendredi samedi dimanche"),
        strict=True,
    )
)
CITIES = {
    "Paris": "Paris", "London": "Londres", "Rome": "Rome", "Berlin": "Berlin", "Madrid": "Madrid", "Lyon": "Lyon",
    "Brussels": "Bruxelles", "Geneva": "Genève", "Vienna": "Vienne", "Athens": "Athènes", "Lisbon": "Lisbonne",
    "Amsterdam": "Amsterdam",
}  # fmt: skip
COUNTRIES = {
    "France": ("la", "France"), "Italy": ("la", "Italie"), "Spain": ("la", "Espagne"), "Germany": ("la", "Allemagne"),
    "Greece": ("la", "Grèce"), "Belgium": ("la", "Belgique"), "England": ("la", "Angleterre"),
    "Holland": ("la", "Hollande"), "Canada": ("le", "Canada"), "Japan": ("le", "Japon"),
    "Portugal": ("le", "Portugal"), "Brazil": ("le", "Brésil"), "Mexico": ("le", "Mexique"),
    "Morocco": ("le", "Maroc"), "the United States": ("les", "États-Unis"),
}  # fmt: skip
# Time adverbs that agree with each English tense.
WHEN = {
    "present": (("every day", "tous les jours"), ("every week", "toutes les semaines"), ("on Sundays", "le dimanche"),
                ("every morning", "tous les matins"), ("every evening", "tous les soirs")),
    "progressive": (("now", "maintenant"), ("at the moment", "en ce moment"), ("today", "aujourd'hui")),
    "past": (("yesterday", "hier"), ("last week", "la semaine dernière"), ("last year", "l'année dernière"),
             ("yesterday evening", "hier soir"), ("this morning", "ce matin"), ("two days ago", "il y a deux jours")),
    "imperfect": (("yesterday evening", "hier soir"), ("at that moment", "à ce moment-là"),
                  ("yesterday", "hier")),
    "future": (("tomorrow", "demain"), ("next week", "la semaine prochaine"), ("next year", "l'année prochaine"),
               ("tomorrow morning", "demain matin"), ("this evening", "ce soir"), ("soon", "bientôt")),
    "stative": (("in the past", "autrefois"), ("at that time", "à cette époque"), ("last year", "l'année dernière")),
}  # fmt: skip
OWNERS = ("my", "your", "his", "her", "our", "their")
# For a time of day: adverbs that name days, not weeks or years.
DAYS = {
    "present": (("every day", "tous les jours"), ("every morning", "tous les matins"), ("on Sundays", "le dimanche")),
    "past": (("yesterday", "hier"), ("this morning", "ce matin"), ("two days ago", "il y a deux jours")),
    "future": (("tomorrow", "demain"), ("this evening", "ce soir"), ("tomorrow morning", "demain matin")),
}  # fmt: skip
# Nobody's own, and those of whom one person has one.
_UNOWNED = frozenset({"beast", "wildlife", "nature", "way", "public", "town", "role", "law"})
_SINGLE = frozenset({"father", "mother", "husband", "wife", "king", "queen", "mayor"})
_SPOUSES = {"wife": ("my", "your", "his"), "husband": ("my", "your", "her")}


@cache
def is_held_out(key: Key) -> bool:
    return crc32(repr(key).encode()) % 10_000 < HELD_OUT * 10_000


def country(source: str, preposition: str | None = None) -> Phrase:
    """Behind nothing, in, to, from or for: la France, en France, au Japon, aux États-Unis, de France, du Japon."""
    article, target = COUNTRIES[source]
    place = fixed(source, target)
    with_article = Phrase(place.english, ((article, place.french[0][1]), *place.french))
    if preposition is None:
        return with_article
    if preposition == "for":
        return concat(fixed("for", "pour"), with_article)
    if article == "la":
        return concat(fixed(preposition, "de" if preposition == "from" else "en"), place)
    return concat(fixed(preposition, "de" if preposition == "from" else "à"), with_article)


def city(source: str, preposition: str) -> Phrase:
    return pairwise((preposition, {"from": "de", "for": "pour"}.get(preposition, "à")), (source, CITIES[source]))


class Sampler:
    """Draws words and phrases from `rng` and notes the combinations in `keys`."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng.random
        self.words = lexicon()
        self.keys: list[Key] = []
        verbs = self.words.verbs.values()
        self.transitive = [verb for verb in verbs if verb.objects and not verb.takes_etre]
        self.direct = [verb for verb in self.transitive if not verb.preposition]
        self.dynamic = [verb for verb in self.transitive if not verb.is_stative]
        self.ongoing = [verb for verb in self.dynamic if verb.has_progressive]
        self.reflexive = [verb for verb in verbs if verb.is_reflexive]
        self.activities = [
            self.words.verbs[v] for v in _split("sleep work run walk swim dance smile laugh cry jump shout")
        ]
        self.towards_people = [
            verb for verb in self.transitive
            if sum("person" in noun.classes for noun in self.words.objects[verb]) > 2 and verb.preposition != "de"
            and verb.french != "penser"
        ]  # fmt: skip
        self.comparable = [
            a for a in self.words.adjectives.values() if a.comparison and a.english not in NOT_PREDICATES
        ]
        self.comparable += [a for a in self.comparable if a.comparison == "er"]  # older must be learnt for itself
        self.qualities = [a for a in self.words.adjectives.values() if a.place != "ordinal"
                          and a.english not in NOT_PREDICATES]  # fmt: skip
        self.nouns = list(self.words.nouns.values())
        self.common = [noun for noun in self.nouns if len(self.words.attributes[noun]) > 2]

    def choice(self, items: Sequence[T]) -> T:
        return items[int(self.random() * len(items))]

    def chance(self, p: float) -> bool:
        return self.random() < p

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def noun(self, *classes: str) -> Noun:
        return self.choice(self.select(classes))

    @cache  # noqa: B019 -- a sampler lives as long as the process that draws from it
    def select(self, classes: tuple[str, ...]) -> list[Noun]:
        return self.words.select(classes)

    def verb(self, *names: str) -> Verb:
        return self.words.verbs[self.choice(names)]

    def adjective(self, noun: Noun, definite: bool = True, p: float = 1.0) -> Adjective | None:
        """An adjective that suits the noun, or none; ordinals, best and only stand behind "the" alone."""
        options = self.words.attributes[noun]
        if not options or self.random() >= p:
            return None
        adjective = self.choice(options)
        if adjective.place == "ordinal" and (not definite or noun.english in _SINGLE):
            return None
        self.qualify(noun, adjective)
        return adjective

    def qualify(self, noun: Noun, adjective: Adjective) -> None:
        """Note a noun with its adjective, unless the noun has so few that training would hardly show it."""
        if len(self.words.attributes[noun]) > 4:
            self.keys.append(("noun adjective", noun.english, adjective.english))

    def forget(self, noted: int) -> None:
        """Drop the combinations noted since there were so many: their words did not enter the sentence."""
        del self.keys[noted:]

    def pair_up(self, verb: Verb, noun: Noun) -> None:
        """Note a verb with its object, unless the verb has very few."""
        if len(self.words.objects[verb]) > 4:
            self.keys.append(("verb object", verb.english, noun.english))

    def described(
        self,
        noun: Noun,
        dets: Sequence[str] = ("the",),
        p: float = 0.4,
        plural: bool | None = None,
        ages: bool = False,
    ) -> Phrase:
        """A noun phrase with one of the determiners, an adjective with probability p, plural at times if unsaid.

        With `ages`, the adjective is old, new or young at most: nothing that a predicate could contradict.
        """
        det = self.choice(dets)
        if det in OWNERS:
            if noun.english in _SPOUSES:
                det = self.choice(_SPOUSES[noun.english])
            elif noun.classes & _UNOWNED and not noun.classes & {"kin", "known"}:
                det = "our" if det == "our" and "town" in noun.classes else "the"
        if noun.is_mass or noun.english in _SINGLE:
            plural = False
            det = det if noun.english in _SINGLE or det not in ("a", "several") else "bare"
            det = (
                "the"
                if noun.english in _SINGLE and det in ("a", "bare", "some", "any", "several", "a lot of")
                else det
            )
        elif det == "a":
            plural = False
        elif det in ("bare", "some", "any", "several", "a lot of"):
            plural = True
        elif plural is None:
            plural = self.chance(0.35)
        noted = len(self.keys)
        adjective = self.adjective(noun, det == "the", p)
        if ages and adjective and adjective.english not in ("old", "new", "young", "first", "last", "other"):
            adjective = None
            self.forget(noted)
        if adjective and adjective.english in ("best", "only", "first", "last", "second", "third", "next", "other"):
            plural = plural and adjective.english in ("first", "last", "other")
        second = None
        if adjective and adjective.english in _BEFORE_COLOURS and self.chance(0.15):
            colours = [a for a in self.words.attributes[noun] if a.english in COLOURS]
            if colours:
                second = self.choice(colours)
                self.qualify(noun, second)
        return noun_phrase(noun, det, adjective, second, plural)

    def subject(self, verb: Verb | None = None, pronouns: float = 0.5, asked: bool = False) -> Phrase:
        """Somebody, or an animal where the verb allows it: a pronoun, a name, a noun phrase; I asks few questions."""
        draw = self.random()
        if draw < pronouns:
            word = self.choice(tuple(syntax.SUBJECTS))
            return pronoun("you" if asked and word == "I" and self.chance(0.75) else word)
        if draw < pronouns + 0.12:
            return self.named()
        noun = self.choice(self.words.subjects[verb]) if verb and verb in self.words.subjects else self.noun("person")
        return self.somebody(noun)

    def named(self) -> Phrase:
        if self.chance(0.5):
            woman = self.choice(WOMEN)
            return syntax.name(woman, woman, "f")
        man = self.choice(MEN)
        return syntax.name(man, man, "m")

    def somebody(self, noun: Noun, p: float = 0.35) -> Phrase:
        dets: tuple[str, ...] = OWNERS if "kin" in noun.classes else ("the", "the", "the", "this")
        if "known" in noun.classes or "pet" in noun.classes:
            dets = ("the", "the", "my", "our", "her")
        return self.described(noun, dets, p)

    def object_of(self, verb: Verb, p: float = 0.45, negated: bool = False) -> Phrase:
        noun = self.choice(self.words.objects[verb])
        self.pair_up(verb, noun)
        classes = noun.classes
        if "kin" in classes:
            return self.described(noun, OWNERS, p)
        if "language" in classes or "truth" in classes or "sport" in classes:
            det = "bare" if "language" in classes or "sport" in classes else "the"
            if verb.french in ("apprendre", "enseigner", "étudier", "comprendre", "aimer", "préférer", "détester"):
                return syntax.generic(noun) if det == "bare" else noun_phrase(noun, det)
            return noun_phrase(noun, "the")
        if "generic" in verb.kinds:
            return self.described(noun, ("bare", "bare", "the", "this"), p)
        if negated and not verb.preposition:
            return self.described(noun, ("the", "a", "any", "this") if "person" in classes else
                                  ("the", "a", "any", "my", "this", "her"), p)  # fmt: skip
        if "person" in classes:
            return self.described(noun, ("my", "her", "our", "the") if "known" in classes else
                                  ("the", "the", "a", "this", "several"), p)  # fmt: skip
        if "nature" in classes or "way" in classes or "public" in classes or "town" in classes:
            return self.described(noun, ("the", "the", "the", "a", "this", "that", "several"), p)
        return self.described(
            noun, ("the", "the", "a", "a", "bare", "some", "several", *OWNERS[:4], "this", "that"), p
        )

    def tense(self, verb: Verb, simple: bool = False, used_to: bool = True) -> str:
        """A tense that the English form of the verb shows; `simple` leaves out the progressive ones."""
        draw = self.random()
        if verb.is_stative:
            if used_to and draw > 0.9:
                return "imperfect"
            return "present" if draw < 0.42 else "past" if draw < 0.7 else "future"
        if not verb.has_progressive:
            if used_to and draw > 0.85:
                return "imperfect"
            return "present" if draw < 0.35 else "past" if draw < 0.65 else "future"
        if simple:
            return "present" if draw < 0.35 else "past" if draw < 0.67 else "future"
        if draw < 0.42:
            # read and put on look alike in the present and the past
            return "progressive" if draw < 0.2 or verb.past == verb.english else "present"
        if draw < 0.64 and verb.past != verb.english:
            return "past"
        return "imperfect" if draw < 0.82 else "future"

    def day(self, tense: str) -> Phrase:
        """An adverb that names a day, for present, past or future."""
        return fixed(*self.choice(DAYS.get(tense) or WHEN[tense]))

    def when(self, verb: Verb, tense: str) -> Phrase:
        """An adverb of time for the tense."""
        if verb.is_reflexive and verb.english != "get married":
            return self.day(tense)
        if not verb.has_progressive and (tense == "imperfect" or (tense == "past" and verb.is_stative)):
            return fixed(*self.choice(WHEN["stative"]))
        if verb.is_stative and tense == "present":
            return fixed(*self.choice((("today", "aujourd'hui"), ("now", "maintenant"))))
        return fixed(*self.choice(WHEN[tense]))

    def place(self) -> Phrase:
        """Where something happens: in the old kitchen, near the station."""
        preposition = self.choice(("in", "in", "in", "near", "in front of", "behind"))
        noun = self.noun("inside") if preposition == "in" else self.noun("public", "town", "home")
        return prepositional(preposition, self.described(noun, ("the", "the", "the", "our"), 0.25, plural=False))

    def destination(self, preposition: str) -> Phrase:
        """A city or a country behind in, to or from."""
        if self.chance(0.5):
            return city(self.choice(tuple(CITIES)), preposition)
        return country(self.choice(tuple(COUNTRIES)), preposition)

    def number(self, smallest: int = 2, largest: int = 999_999) -> int:
        """Of all sizes alike: two digits up to six."""
        low, high = self.choice(((2, 99), (2, 99), (100, 999), (1000, 9999), (10_000, 99_999), (100_000, 999_999)))
        if high <= smallest or low >= largest:
            low, high = smallest, largest
        low, high = max(low, smallest), min(high, largest)
        n = self.between(low, high)
        if self.chance(0.25) and n >= 1000:
            n -= n % 100 if self.chance(0.5) else n % 1000
        if n >= 100:
            self.keys.append(("number", n))
        return n

    def clock(self) -> Phrase:
        """A time of day behind no preposition."""
        hour, draw = self.between(0, 23), self.random()
        minute = 0 if draw < 0.2 else 15 * self.between(1, 3) if draw < 0.5 else 5 * self.between(1, 11)
        if draw > 0.75 and hour % 12:
            hour, minute = hour % 12, self.between(2, 59)
            self.keys.append(("time", hour, minute))
            return rows(numerals.clock(hour, minute))
        part = self.chance(0.4)
        self.keys.append(("time", hour if part else hour % 12, minute))
        return rows(numerals.clock(hour, minute, part))

    def date(self) -> Phrase:
        """on the third of May, without a year; with a weekday at times."""
        month = self.between(0, 11)
        day = self.between(1, DAYS_IN_MONTH[month])
        weekday = self.choice(tuple(WEEKDAYS)) if self.chance(0.25) else None
        self.keys.append(("date", day, month))
        return date(day, tuple(MONTHS)[month], weekday)

    def year(self) -> tuple[int, Phrase]:
        n = self.between(1700, 2030)
        self.keys.append(("year", n))
        return n, rows(numerals.year(n))


_BEFORE_COLOURS = frozenset(_split("beautiful new old big small little pretty"))
COLOURS = frozenset(_split("red blue green white black yellow grey brown pink purple wooden"))


def date(day: int, month: str, weekday: str | None = None) -> Phrase:
    """on Monday the third of May: le lundi trois mai; the first alone is an ordinal in French."""
    mois = MONTHS[month]
    ordinal = numerals.ordinal(day)
    nombre = "premier" if day == 1 else " ".join(word for word, _ in numerals.cardinal(day)[1])
    source, target = fixed(ordinal, nombre), fixed(month, mois)
    on, le = [("on", 0)], [("le", 0)]
    if weekday:
        jour = fixed(weekday, WEEKDAYS[weekday])
        on += jour.english
        le += jour.french
    return Phrase(
        (*on, ("the", 0), *source.english, ("of", 0), *target.english), (*le, *source.french, *target.french)
    )
