"""Phrases in two languages at once: every word carries the tag of the meaning that it expresses.

A tag is a fresh number for each use of a word; the English and the French words with one tag are linked, 0 links
nothing. Elision and contraction come last, in `sentence`. I and we, you and they are masculine; you is the polite
plural vous.
"""

from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from . import english as en
from . import french as fr
from .lexicon import Adjective, Noun
from .numerals import Row, cardinal

Token = tuple[str, int]
NBSP = "\u00a0"  # before ? and ! in French
TAGS = count(1)

SUBJECTS = {"I": (0, "je"), "you": (4, "vous"), "he": (2, "il"), "she": (2, "elle"), "we": (3, "nous"),
            "they": (5, "ils")}  # fmt: skip
_POSSESSIVES = {"my": ("mon", "ma", "mes"), "your": ("votre", "votre", "vos"), "his": ("son", "sa", "ses"),
                "her": ("son", "sa", "ses"), "our": ("notre", "notre", "nos"),
                "their": ("leur", "leur", "leurs")}  # fmt: skip
PREPOSITIONS = {
    "in": "dans", "on": "sur", "under": "sous", "behind": "derrière", "in front of": "devant", "near": "près de",
    "next to": "à côté de", "with": "avec", "for": "pour", "without": "sans", "of": "de", "from": "de", "to": "à",
    "far from": "loin de", "after": "après", "before": "avant", "during": "pendant", "at": "à", "about": "sur",
}  # fmt: skip


class Phrase(NamedTuple):
    """A row of tagged words in each language, with what its verb must agree with."""

    english: tuple[Token, ...]
    french: tuple[Token, ...]
    person: int = 2  # 0 to 5: je, tu, il, nous, vous, ils
    gender: str = "m"
    article: int = 0  # how many French words make an indefinite article, which negation turns into de
    is_bare: bool = False  # no determiner in English: generic after love and hate
    is_plural: bool = False


class Sentence(NamedTuple):
    source: str
    target: str
    links: tuple[tuple[int, int], ...]


def fixed(source: str, target: str) -> Phrase:
    """A phrase whose words all express one thing together."""
    tag = next(TAGS)
    return Phrase(tuple((w, tag) for w in source.split()), tuple((w, tag) for w in target.split()))


def pairwise(*pairs: tuple[str, str]) -> Phrase:
    """A phrase made of parts in the same order in both languages, each linked to its own translation."""
    return concat(*[fixed(source, target) for source, target in pairs])


def rows(pair: tuple[Row, Row]) -> Phrase:
    """A numeral, year or clock time as a phrase: its parts become fresh tags."""
    base = next(TAGS)
    for _ in range(4):
        next(TAGS)
    source, target = pair
    return Phrase(
        tuple([(word, base + part - 1 if part else 0) for word, part in source]),
        tuple([(word, base + part - 1 if part else 0) for word, part in target]),
    )


def concat(*phrases: Phrase) -> Phrase:
    source: list[Token] = []
    target: list[Token] = []
    for phrase in phrases:
        source += phrase.english
        target += phrase.french
    return Phrase(tuple(source), tuple(target))


COMMA = Phrase(((",", 0),), ((",", 0),))


def pronoun(word: str) -> Phrase:
    """A subject pronoun."""
    person, target = SUBJECTS[word]
    tag = next(TAGS)
    gender = "f" if word == "she" else "m"
    return Phrase(((word, tag),), ((target, tag),), person, gender, is_plural=person > 2)


def name(source: str, target: str, gender: str) -> Phrase:
    """The name of a person."""
    tag = next(TAGS)
    return Phrase(((source, tag),), ((target, tag),), 2, gender)


def noun_phrase(
    noun: Noun,
    det: str = "the",
    adjective: Adjective | None = None,
    second: Adjective | None = None,
    plural: bool = False,
    number: int | None = None,
) -> Phrase:
    """A determiner, a number, up to two adjectives (the second after the French noun) and a noun, all in agreement.

    Determiners: the, a, bare (none), some, any (after a negation), this, that (plural these, those), every, several,
    a lot of, all the, which, how many, the possessives, and "" for a number alone.
    """
    if noun.is_mass and (plural or number is not None or det in ("a", "every", "several")):
        raise ValueError(f"got {det!r} {noun.english!r} in the plural or counted, expected a countable noun; "
                         "remedy: use the, some or bare with a mass noun")  # fmt: skip
    if number is not None:
        plural = number > 1
    is_plural = plural or noun.is_plural_only
    gender = noun.gender
    noun_tag, det_tag = next(TAGS), next(TAGS)

    source: list[Token] = []
    target: list[Token] = []
    if number is not None:
        counted = rows(cardinal(number, gender))
        source += counted.english
        target += counted.french
    after: list[Token] = []
    for quality in (adjective, second):
        if quality is not None:
            tag = next(TAGS)
            source.append((quality.english, tag))
            form = quality.form(gender, is_plural)
            if quality.is_before:
                following = noun.french
                if gender == "m" and not is_plural and form in fr.BEFORE_VOWEL and fr.starts_with_vowel(following):
                    form = fr.BEFORE_VOWEL[form]
                target.append((form, tag))
            else:
                after += [(word, tag) for word in form.split()]
    source.append((noun.english_plural if plural else noun.english, noun_tag))
    target += [(word, noun_tag) for word in (noun.french_plural if plural else noun.french).split()]
    target += after

    words = determiner_words(det, source[0][0], plural)
    articles, indefinite = _french_determiner(det, gender, is_plural, target[0][0], noun, adjective)
    linked = det_tag if words else 0
    return Phrase(
        tuple([(word, linked) for word in words] + source),
        tuple([(word, linked) for word in articles] + target),
        5 if is_plural else 2,
        gender,
        article=indefinite,
        is_bare=det == "bare",
        is_plural=plural,
    )


def determiner_words(det: str, following: str, plural: bool) -> list[str]:
    if det in ("", "bare"):
        return []
    if det == "a":
        return [en.article(following)]
    if plural and det in ("this", "that"):
        return ["these" if det == "this" else "those"]
    return det.split()


def generic(noun: Noun) -> Phrase:
    """No article in English, the definite one in French: learn French, apprendre le français."""
    tag = next(TAGS)
    definite = "les" if noun.is_plural_only else "la" if noun.gender == "f" else "le"
    return Phrase(((noun.english, tag),), ((definite, 0), (noun.french, tag)), 2, noun.gender)


def _french_determiner(
    det: str, gender: str, is_plural: bool, following: str, noun: Noun, adjective: Adjective | None
) -> tuple[list[str], int]:
    """The words of the determiner, and how many of them are an indefinite article."""
    if det == "":
        return [], 0
    definite = "les" if is_plural else "la" if gender == "f" else "le"
    if det == "the":
        return [definite], 0
    if det == "a":
        return ["une" if gender == "f" else "un"], 1
    if det in ("bare", "some"):
        if is_plural:
            # des becomes de before an adjective that precedes its noun: de beaux livres
            return ["de" if adjective is not None and adjective.is_before else "des"], 1
        return ["de", definite], 2
    if det == "any":
        return ["de"], 1
    if det in _POSSESSIVES:
        masculine, feminine, plural = _POSSESSIVES[det]
        if is_plural:
            return [plural], 0
        return [feminine if gender == "f" and not fr.starts_with_vowel(following) else masculine], 0
    if det in ("this", "that"):
        if is_plural:
            return ["ces"], 0
        return ["cette" if gender == "f" else "cet" if fr.starts_with_vowel(following) else "ce"], 0
    if det == "every":
        return ["chaque"], 0
    if det == "several":
        return ["plusieurs"], 0
    if det in ("a lot of", "how many"):
        return ["beaucoup" if det == "a lot of" else "combien", "de"], 0
    if det == "all the":
        return [
            (("toutes" if is_plural else "toute") if gender == "f" else "tous" if is_plural else "tout"),
            definite,
        ], 0
    if det == "which":
        return [("quels" if gender == "m" else "quelles") if is_plural else "quel" if gender == "m" else "quelle"], 0
    raise ValueError(f"got determiner {det!r}, expected one that noun_phrase lists; remedy: use one of those")


def predicate(adjective: Adjective, subject: Phrase) -> Phrase:
    """An adjective after be, in agreement with the subject."""
    tag = next(TAGS)
    form = adjective.form(subject.gender, subject.person > 2)
    return Phrase(((adjective.english, tag),), tuple((word, tag) for word in form.split()))


def comparison(adjective: Adjective, subject: Phrase, than: Phrase, degree: str = "more") -> Phrase:
    """more, less or as: older than, less old than, as old as; agrees with the subject."""
    tag, degree_tag, than_tag = next(TAGS), next(TAGS), next(TAGS)
    form = adjective.form(subject.gender, subject.person > 2)
    if degree == "more" and adjective.comparison == "er":
        degree_tag = tag
        source = [(en.comparative(adjective.english), tag)]
    else:
        source = [(degree, degree_tag), (adjective.english, tag)]
    source.append(("as" if degree == "as" else "than", than_tag))
    adverb = {"more": "plus", "less": "moins", "as": "aussi"}[degree]
    target = [(adverb, degree_tag), (form, tag), ("que", than_tag)]
    return Phrase((*source, *than.english), (*target, *than.french))


def prepositional(preposition: str, phrase: Phrase) -> Phrase:
    tag = next(TAGS)
    words = PREPOSITIONS[preposition].split()
    return Phrase(
        (*[(word, tag) for word in preposition.split()], *phrase.english),
        (*[(word, tag) for word in words], *after_preposition(words[-1], phrase)),
    )


def after_preposition(last: str, phrase: Phrase) -> tuple[Token, ...]:
    """de swallows the articles des, du and de la: près de maisons, rêver de vacances."""
    if last == "de" and phrase.article and phrase.french[0][0] in ("de", "des"):
        return phrase.french[phrase.article :]
    return phrase.french


def _english_words(tokens: Iterable[Token]) -> tuple[list[str], list[int]]:
    words: list[str] = []
    tags: list[int] = []
    for word, tag in tokens:
        if word == ",":
            words[-1] += ","
        else:
            words.append(word)
            tags.append(tag)
    return words, tags


def sentence(*phrases: Phrase, end: str = ".") -> Sentence:
    """Join, elide, contract, capitalise and punctuate; words of the links are what stands between plain spaces."""
    source: list[Token] = []
    target: list[Token] = []
    for phrase in phrases:
        source += phrase.english
        target += phrase.french
    words, tags = _english_words(source)
    mots, marks = fr.join(target)
    positions: dict[int, list[int]] = {}
    for i, tag in enumerate(tags):
        if tag:
            positions.setdefault(tag, []).append(i)
    links = {(i, j) for j, row in enumerate(marks) for tag in row if tag for i in positions.get(tag, ())}
    left, right = " ".join(words), " ".join(mots)
    return Sentence(
        left[0].upper() + left[1:] + end,
        right[0].upper() + right[1:] + (end if end == "." else NBSP + end),
        tuple(sorted(links)),
    )
