"""Clauses: subject, verb and object in two languages at once, with negation, questions, orders and object pronouns.

Of the English tenses, the present and the progressive make the présent, the simple past the passé composé, was/were
-ing the imparfait and will the futur. Verbs without an -ing form (see, understand ...) make the imparfait of
"used to", and stative ones (know, have, be ...) of their simple past too.
"""

from . import english as en
from . import french as fr
from .lexicon import Verb
from .syntax import TAGS, Phrase, Token, after_preposition, concat

DIRECT = {"me": "me", "you": "vous", "him": "le", "her": "la", "us": "nous", "them": "les"}
INDIRECT = DIRECT | {"him": "lui", "her": "lui", "them": "leur"}
_REFLEXIVE = ("me", "te", "se", "nous", "vous", "se")
NEGATIONS = {"not": "pas", "never": "jamais", "no longer": "plus"}
ADVERBS = NEGATIONS | {"always": "toujours", "often": "souvent", "sometimes": "parfois"}

BE = Verb("be", "was", "être", "", frozenset({"stative"}))
BE_STATE = Verb("be", "was", "avoir", "", frozenset({"stative"}))  # hungry, cold: avoir faim, avoir froid
BE_BORN = Verb("be born", "was born", "naître", "", frozenset({"être"}))  # in the past only
CAN = Verb("can", "was able to", "pouvoir", "", frozenset())
MUST = Verb("must", "had to", "devoir", "", frozenset())
WANT_TO = Verb("want to", "wanted to", "vouloir", "", frozenset({"stative"}))
KNOW_HOW_TO = Verb("know how to", "knew how to", "savoir", "", frozenset({"stative"}))
LIKE_TO = Verb("like to", "liked to", "aimer", "", frozenset({"stative"}))


def complement(verb: Verb, obj: Phrase | None, negated: bool = False) -> tuple[Token, ...]:
    """The French object: behind its preposition, with de for an indefinite article after a negation."""
    if obj is None:
        return ()
    if verb.preposition:
        return ((verb.preposition, 0), *after_preposition(verb.preposition, obj))
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
    """ne, clitic, verb or auxiliary, adverb, participle; `preceding`: what a direct object before avoir agrees in."""
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
    asked with est-ce que, behind the words `asked` if given (where, how many apples ...). With `asks_object` they are
    the direct object, with which the participle agrees.
    """
    verb_tag, adverb_tag, clitic_tag = next(TAGS), next(TAGS), next(TAGS)
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
    verb_tag, clitic_tag = next(TAGS), next(TAGS)
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
    verb_tag, negation_tag, clitic_tag = next(TAGS), next(TAGS), next(TAGS)
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


def there_is(
    what: Phrase, tense: str = "present", *after: Phrase, negated: bool = False, question: bool = False
) -> Phrase:
    """There is / il y a; after "not", an indefinite article becomes de."""
    be_tag, negation_tag = next(TAGS), next(TAGS)
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
