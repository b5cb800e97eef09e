"""Phrases in two languages at once: every word carries the tag of the meaning that it expresses.

A tag is a fresh number for each use of a word; the English and the French words with one tag are linked, 0 links
nothing. Elision and contraction come last, in `sentence`.

Conventions: I and we, you and they are masculine; you is the polite plural vous. Of the English tenses, the present
and the progressive make the présent, the simple past the passé composé, was/were -ing the imparfait and will the
futur. Verbs without an -ing form (see, understand ...) make the imparfait of "used to", and stative ones (know, have,
be ...) of their simple past too.
"""

from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from . import english as en
from . import french as fr
from .lexicon import Adjective, Noun, Verb
from .numerals import Row, cardinal

Token = tuple[str, int]
NBSP = "\u00a0"  # before ? and ! in French
_TAGS = count(1)

SUBJECTS = {"I": (0, "je"), "you": (4, "vous"), "he": (2, "il"), "she": (2, "elle"), "we": (3, "nous"),
            "they": (5, "ils")}  # fmt: skip
DIRECT = {"me": "me", "you": "vous", "him": "le", "her": "la", "us": "nous", "them": "les"}
INDIRECT = DIRECT | {"him": "lui", "her": "lui", "them": "leur"}
_REFLEXIVE = ("me", "te", "se", "nous", "vous", "se")
_POSSESSIVES = {"my": ("mon", "ma", "mes"), "your": ("votre", "votre", "vos"), "his": ("son", "sa", "ses"),
                "her": ("son", "sa", "ses"), "our": ("notre", "notre", "nos"),
                "their": ("leur", "leur", "leurs")}  # fmt: skip
NEGATIONS = {"not": "pas", "never": "jamais", "no longer": "plus"}
ADVERBS = NEGATIONS | {"always": "toujours", "often": "souvent", "sometimes": "parfois"}
PREPOSITIONS = {
    "in": "dans", "on": "sur", "under": "sous", "behind": "derrière", "in front of": "devant", "near": "près de",
    "next to": "à côté de", "with": "avec", "for": "pour", "without": "sans", "of": "de", "from": "de", "to": "à",
    "far from": "loin de", "after": "après", "before": "avant", "during": "pendant", "at": "à", "about": "sur",
}  # fmt: skip

BE = Verb("be", "was", "être", "", frozenset({"stative"}))
BE_STATE = Verb("be", "was", "avoir", "", frozenset({"stative"}))  # hungry, cold: avoir faim, avoir froid
BE_BORN = Verb("be born", "was born", "naître", "", frozenset({"être"}))  # in the past only
CAN = Verb("can", "was able to", "pouvoir", "", frozenset())
MUST = Verb("must", "had to", "devoir", "", frozenset())
WANT_TO = Verb("want to", "wanted to", "vouloir", "", frozenset({"stative"}))
KNOW_HOW_TO = Verb("know how to", "knew how to", "savoir", "", frozenset({"stative"}))
LIKE_TO = Verb("like to", "liked to", "aimer", "", frozenset({"stative"}))


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
    tag = next(_TAGS)
    return Phrase(tuple((w, tag) for w in source.split()), tuple((w, tag) for w in target.split()))


def pairwise(*pairs: tuple[str, str]) -> Phrase:
    """A phrase made of parts in the same order in both languages, each linked to its own translation."""
    return concat(*[fixed(source, target) for source, target in pairs])


def rows(pair: tuple[Row, Row]) -> Phrase:
    """A numeral, year or clock time as a phrase: its parts become fresh tags."""
    base = next(_TAGS)
    for _ in range(4):
        next(_TAGS)
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
    tag = next(_TAGS)
    gender = "f" if word == "she" else "m"
    return Phrase(((word, tag),), ((target, tag),), person, gender, is_plural=person > 2)


def name(source: str, target: str, gender: str) -> Phrase:
    """The name of a person."""
    tag = next(_TAGS)
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
    noun_tag, det_tag = next(_TAGS), next(_TAGS)

    source: list[Token] = []
    target: list[Token] = []
    if number is not None:
        counted = rows(cardinal(number, gender))
        source += counted.english
        target += counted.french
    after: list[Token] = []
    for quality in (adjective, second):
        if quality is not None:
            tag = next(_TAGS)
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
    tag = next(_TAGS)
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
        return [(("toutes" if is_plural else "toute") if gender == "f" else "tous" if is_plural else "tout"), definite], 0
    if det == "which":
        return [("quels" if gender == "m" else "quelles") if is_plural else "quel" if gender == "m" else "quelle"], 0
    raise ValueError(f"got determiner {det!r}, expected one that noun_phrase lists; remedy: use one of those")


def predicate(adjective: Adjective, subject: Phrase) -> Phrase:
    """An adjective after be, in agreement with the subject."""
    tag = next(_TAGS)
    form = adjective.form(subject.gender, subject.person > 2)
    return Phrase(((adjective.english, tag),), tuple((word, tag) for word in form.split()))


def comparison(adjective: Adjective, subject: Phrase, than: Phrase, degree: str = "more") -> Phrase:
    """more, less or as: older than, less old than, as old as; agrees with the subject."""
    tag, degree_tag, than_tag = next(_TAGS), next(_TAGS), next(_TAGS)
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
    tag = next(_TAGS)
    words = PREPOSITIONS[preposition].split()
    return Phrase(
        (*[(word, tag) for word in preposition.split()], *phrase.english),
        (*[(word, tag) for word in words], *_after_preposition(words[-1], phrase)),
    )


def _after_preposition(last: str, phrase: Phrase) -> tuple[Token, ...]:
    """de swallows the articles des, du and de la: près de maisons, rêver de vacances."""
    if last == "de" and phrase.article and phrase.french[0][0] in ("de", "des"):
        return phrase.french[phrase.article :]
    return phrase.french


def complement(verb: Verb, obj: Phrase | None, negated: bool = False) -> tuple[Token, ...]:
    """The French object: behind its preposition, with de for an indefinite article after a negation."""
    if obj is None:
        return ()
    if verb.preposition:
        return ((verb.preposition, 0), *_after_preposition(verb.preposition, obj))
    if "generic" in verb.kinds and obj.is_bare:
        definite = "les" if obj.person == 5 else "la" if obj.gender == "f" else "le"
        return ((definite, 0), *obj.french[obj.article :])
    if negated and obj.article and verb.french != "être":
        return (("de", obj.french[0][1]), *obj.french[obj.article :])
    return obj.french


def _english_verb(
    verb: Verb, tense: str, person: int, adverb: str | None, question: bool
) -> tuple[list[str], list[str], list[str]]:
    """Auxiliary (before the subject in a question), adverb, and the words that follow."""
    third = person == 2
    adverbs = adverb.split() if adverb else []
    if tense == "future":
        base = {"can": "be able to", "must": "have to"}.get(verb.english, verb.english)
        return ["will"], adverbs, base.split()
    if tense in ("progressive", "imperfect") and verb.has_progressive:
        if tense == "progressive":
            auxiliary = "am" if person == 0 else "is" if third else "are"
        else:
            auxiliary = "was" if person in (0, 2) else "were"
        return [auxiliary], adverbs, en.ing(verb.english).split()
    if verb.english == "be":
        if tense == "present":
            return ["am" if person == 0 else "is" if third else "are"], adverbs, []
        return ["was" if person in (0, 2) else "were"], adverbs, []
    if verb is BE_BORN:
        return ["was" if person in (0, 2) else "were"], adverbs, ["born"]
    if verb is CAN or verb is MUST:
        if tense == "present":
            return [verb.english], adverbs, []
        if verb is CAN:
            return ["was" if person in (0, 2) else "were"], adverbs, ["able", "to"]
    if tense == "imperfect":
        if question or adverb == "not":
            raise ValueError(f"got {verb.english!r} with used to in a question or negation, expected a statement; "
                             "remedy: use another tense")  # fmt: skip
        return [], adverbs, ["used", "to", *verb.english.split()]
    if question or adverb == "not":
        base = {"must": "have to"}.get(verb.english, verb.english)
        auxiliary = "did" if tense == "past" else "does" if third else "do"
        return [auxiliary], adverbs, base.split()
    if tense == "past":
        return [], adverbs, verb.past.split()
    return [], adverbs, (en.third_person(verb.english) if third else verb.english).split()


def _french_tense(verb: Verb, tense: str) -> str:
    if tense in ("present", "progressive"):
        return "présent"
    if tense == "future":
        return "futur"
    if tense == "imperfect" or verb.is_stative:
        return "imparfait"
    return "passé composé"


def _french_verb(
    verb: Verb,
    tense: str,
    subject: Phrase,
    adverb: str | None,
    tags: tuple[int, int, int],
    clitic: str | None = None,
    preceding: tuple[str, bool] | None = None,
) -> list[Token]:
    """ne, clitic, verb or auxiliary, adverb, participle. `preceding`: gender and number of a direct object before avoir."""
    verb_tag, adverb_tag, clitic_tag = tags
    person = subject.person
    tokens: list[Token] = []
    if adverb in NEGATIONS:
        tokens.append(("ne", adverb_tag))
    if verb.is_reflexive:
        tokens.append((_REFLEXIVE[person], verb_tag))
    if clitic:
        tokens.append((clitic, clitic_tag))
    form = _french_tense(verb, tense)
    is_compound = form == "passé composé"
    if is_compound:
        tokens.append((fr.conjugate("être" if verb.takes_etre else "avoir", "présent", person), verb_tag))
    else:
        tokens.append((fr.conjugate(verb.french, form, person), verb_tag))
    if adverb:
        tokens.append((ADVERBS[adverb], adverb_tag))
    if is_compound:
        word = fr.participle(verb.french)
        if verb.takes_etre:
            word = fr.agree(word, subject.gender, person > 2)
        elif preceding:
            word = fr.agree(word, *preceding)
        tokens.append((word, verb_tag))
    return tokens


def _clitic(verb: Verb, word: str | None) -> tuple[str | None, tuple[str, bool] | None]:
    """The French object pronoun, and what a participle agrees with if it is a direct object."""
    if word is None:
        return None, None
    if verb.preposition:
        return INDIRECT[word], None
    return DIRECT[word], ("f" if word == "her" else "m", word in ("us", "you", "them"))


def clause(
    subject: Phrase,
    verb: Verb,
    tense: str = "present",
    obj: Phrase | None = None,
    *after: Phrase,
    pronoun: str | None = None,
    adverb: str | None = None,
    question: bool = False,
    asked: Phrase | None = None,
    asks_object: bool = False,
) -> Phrase:
    """Subject, verb, object and what follows; tense is present, progressive, past, imperfect or future.

    `pronoun` is an object pronoun in English, `adverb` one of ADVERBS, negations among them. A question is
    asked with est-ce que, behind the words `asked` if given (where, how many apples ...). With `asks_object` they are the direct object,
    with which the participle agrees.
    """
    verb_tag, adverb_tag, clitic_tag = next(_TAGS), next(_TAGS), next(_TAGS)
    auxiliary, adverbs, words = _english_verb(verb, tense, subject.person, adverb, question)
    source: list[Token] = []
    if asked:
        source += asked.english
    auxiliaries = [(word, verb_tag) for word in auxiliary]
    source += [*auxiliaries, *subject.english] if question else [*subject.english, *auxiliaries]
    source += [(word, adverb_tag) for word in adverbs]
    source += [(word, verb_tag) for word in words]
    if pronoun:
        source.append((pronoun, clitic_tag))
    if obj:
        source += obj.english

    clitic, preceding = _clitic(verb, pronoun)
    if asked and asks_object:
        preceding = (asked.gender, asked.person > 2)
    target: list[Token] = []
    if question:
        target += asked.french if asked else ()
        if not (asked and asked.french[-1][0] == "que"):
            target += [("est-ce", 0), ("que", 0)]
    target += subject.french
    target += _french_verb(verb, tense, subject, adverb, (verb_tag, adverb_tag, clitic_tag), clitic, preceding)
    target += complement(verb, obj, adverb in NEGATIONS)
    for phrase in after:
        source += phrase.english
        target += phrase.french
    return Phrase(tuple(source), tuple(target), subject.person, subject.gender)


def infinitive(
    subject: Phrase, verb: Verb, obj: Phrase | None = None, *, pronoun: str | None = None, negated: bool = False
) -> Phrase:
    """A verb behind can, must, want to; its se agrees with the subject."""
    verb_tag, clitic_tag = next(_TAGS), next(_TAGS)
    source = [(word, verb_tag) for word in verb.english.split()]
    target: list[Token] = []
    if verb.is_reflexive:
        target.append((_REFLEXIVE[subject.person], verb_tag))
    if pronoun:
        source.append((pronoun, clitic_tag))
        target.append((_clitic(verb, pronoun)[0] or "", clitic_tag))
    target.append((verb.french, verb_tag))
    if obj:
        source += obj.english
        target += complement(verb, obj, negated)
    return Phrase(tuple(source), tuple(target))


def command(
    verb: Verb,
    obj: Phrase | None = None,
    *after: Phrase,
    person: int = 4,
    negated: bool = False,
    pronoun: str | None = None,
) -> Phrase:
    """An order to vous, or with person 3 to nous: let us; a pronoun follows the verb unless the order is negated."""
    verb_tag, negation_tag, clitic_tag = next(_TAGS), next(_TAGS), next(_TAGS)
    source: list[Token] = []
    if person == 3:
        source += [("let", verb_tag), ("us", verb_tag)]
    if negated:
        source += [("not", negation_tag)] if person == 3 else [("do", verb_tag), ("not", negation_tag)]
    source += [(word, verb_tag) for word in verb.english.split()]
    clitics: list[Token] = []
    if verb.is_reflexive:
        clitics.append((_REFLEXIVE[person], verb_tag))
    if pronoun:
        source.append((pronoun, clitic_tag))
        word = _clitic(verb, pronoun)[0] or ""
        clitics.append(("moi" if word == "me" and not negated else word, clitic_tag))
    form = (fr.conjugate(verb.french, "impératif", person), verb_tag)
    if negated:
        target = [("ne", negation_tag), *clitics, form, ("pas", negation_tag)]
    else:
        target = [form, *[("-" + word, tag) for word, tag in clitics]]
    if obj:
        source += obj.english
        target += complement(verb, obj, negated)
    return concat(Phrase(tuple(source), tuple(target)), *after)


_THERE = {
    "present": ("is", "are", "a"), "past": ("was", "were", "avait"), "future": ("will be", "will be", "aura"),
}  # fmt: skip


def there_is(what: Phrase, tense: str = "present", *after: Phrase, negated: bool = False, question: bool = False) -> Phrase:
    """There is / il y a; after "not", an indefinite article becomes de."""
    be_tag, negation_tag = next(_TAGS), next(_TAGS)
    singular, plural, form = _THERE[tense]
    first, *rest = (plural if what.is_plural else singular).split()
    source: list[Token] = [(first, be_tag), ("there", be_tag)] if question else [("there", be_tag), (first, be_tag)]
    if negated:
        source.append(("not", negation_tag))
    source += [(word, be_tag) for word in rest]
    target: list[Token] = [("est-ce", 0), ("que", 0)] if question else []
    target += [("il", be_tag), *([("ne", negation_tag)] if negated else []), ("y", be_tag), (form, be_tag)]
    if negated:
        target.append(("pas", negation_tag))
    complement_ = what.french
    if negated and what.article:
        complement_ = (("de", what.french[0][1]), *what.french[what.article :])
    return concat(Phrase((*source, *what.english), (*target, *complement_)), *after)


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
