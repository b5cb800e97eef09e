"""Sentences that say how things are: numbers, times, dates, qualities, comparisons, existence, weather."""

from . import syntax
from .clauses import BE, BE_BORN, BE_STATE, NEGATIONS, WANT_TO, clause, infinitive, there_is
from .lexicon import Adjective, Noun, Verb
from .numerals import cardinal
from .sampler import CITIES, MEN, MONTHS, OWNERS, Sampler, city
from .syntax import (
    COMMA,
    Phrase,
    Sentence,
    comparison,
    concat,
    fixed,
    name,
    noun_phrase,
    pairwise,
    predicate,
    prepositional,
    pronoun,
    rows,
    sentence,
)

COST = Verb("cost", "cost", "coûter", "", frozenset())
EARN = Verb("earn", "earned", "gagner", "", frozenset())
TAKE = Verb("take", "took", "avoir", "", frozenset())  # take place, avoir lieu
RAIN = Verb("rain", "rained", "pleuvoir", "", frozenset())
SNOW = Verb("snow", "snowed", "neiger", "", frozenset())
MAKE_WEATHER = Verb("be", "was", "faire", "", frozenset({"stative"}))  # it is cold, il fait froid
STATES = (("hungry", "faim"), ("thirsty", "soif"), ("sleepy", "sommeil"), ("cold", "froid"), ("hot", "chaud"),
          ("afraid", "peur"), ("right", "raison"), ("wrong", "tort"))  # fmt: skip
SKIES = (("cold", "froid"), ("hot", "chaud"), ("cool", "frais"), ("mild", "doux"),
         ("windy", "du vent"))  # fmt: skip
OPENING = (
    "shop",
    "museum",
    "bank",
    "library",
    "restaurant",
    "market",
    "pharmacy",
    "bakery",
    "school",
    "cinema",
    "castle",
)
SEASONS = (("in winter", "en hiver"), ("in spring", "au printemps"), ("in summer", "en été"),
           ("in autumn", "en automne"))  # fmt: skip


def number(s: Sampler) -> Sentence:
    """The city has forty-two thousand three hundred and seven inhabitants."""
    draw = s.random()
    if draw < 0.2:
        subject = s.described(s.noun("town"), ("the", "this", "our"), 0.5, plural=False)
        what = counted(s.number(100), "inhabitants", "habitants")
        return sentence(clause(subject, s.verb("have"), s.choice(("present", "present", "past", "future")), what))
    if draw < 0.38:
        if s.chance(0.6):
            n, thing = s.number(1000), s.noun("vehicle", "home", "treasure", "piano", "castle", "hotel", "restaurant")
        else:
            n, thing = s.number(2, 999), s.noun("furniture", "clothes", "device", "instrument", "tool", "linen", "toy")
        subject = s.described(thing, ("the", "this", "that"), 0.5, plural=False)
        return sentence(
            clause(subject, COST, s.choice(("present", "present", "future")), counted(n, "euros", "euros"))
        )
    if draw < 0.5:
        n, noun = (
            s.number(),
            s.noun("animal", "tree", "house", "flower", "vehicle", "role", "tourist", "shop", "bench"),
        )
        s.keys.append(("number of", n, noun.english))
        place = s.noun("town", "valley", "forest", "field", "park", "desert", "harbour")
        where = prepositional(s.choice(("in", "near")), s.described(place, ("the", "this", "our"), 0.3, plural=False))
        tense = s.choice(("present", "present", "past", "future"))
        return sentence(there_is(noun_phrase(noun, "", plural=True, number=n), tense, where))
    if draw < 0.6:
        noun = s.noun("book", "novel", "dictionary", "report", "magazine")
        subject = s.described(noun, ("the", "this", "my", "your"), 0.6, plural=False)
        return sentence(clause(subject, s.verb("have"), "present", counted(s.number(12, 999), "pages", "pages", "f")))
    if draw < 0.75:
        verb = s.verb(
            "buy", "sell", "count", "find", "see", "have", "borrow", "repair", "wash", "steal", "draw", "order"
        )
        noun = s.choice(
            [noun for noun in s.words.objects[verb] if not (noun.is_mass or noun.classes & {"kin", "truth"})]
        )
        n = s.number(2, 9999 if verb.english in ("count", "sell", "buy") else 99)
        s.pair_up(verb, noun)
        s.keys.append(("number of", n, noun.english))
        what = noun_phrase(noun, "", s.adjective(noun, False, 0.3), plural=True, number=n)
        return sentence(clause(s.subject(verb), verb, s.tense(verb, used_to=False), what))
    if draw < 0.83:
        noun = s.noun("town", "castle", "island", "beach", "airport", "farm", "lake", "forest", "factory")
        subject = s.described(noun, ("the", "our", "this"), 0.4, plural=False)
        distance = concat(Phrase((), (("à", 0),)), counted(s.number(2, 9999), "kilometres", "kilomètres"))
        return sentence(clause(subject, BE, "present", None, distance, city(s.choice(tuple(CITIES)), "from")))
    if draw < 0.91:
        subject = s.subject(pronouns=0.3)
        n = s.between(2, 99)
        s.keys.append(("age", n, subject.english[-1][0]))
        age = counted(n, "years", "ans")
        age = Phrase((*age.english, ("old", age.english[-1][1])), age.french)
        return sentence(clause(subject, BE_STATE, s.choice(("present", "present", "past")), age))
    if draw < 0.96:
        salary = counted(s.number(100, 99_999), "euros", "euros")
        return sentence(
            clause(s.subject(), EARN, s.tense(EARN, simple=True), salary, pairwise(("a", "par"), ("month", "mois")))
        )
    a, b = s.between(2, 80), s.between(2, 80)
    s.keys.append(("sum", a, b))
    return sentence(
        rows(cardinal(a)), fixed("and", "et"), rows(cardinal(b)), fixed("make", "font"), rows(cardinal(a + b))
    )


def counted(n: int, source: str, target: str, gender: str = "m") -> Phrase:
    return concat(rows(cardinal(n, gender)), fixed(source, target))


def time(s: Sampler) -> Sentence:
    """The train leaves at a quarter past three in the afternoon."""
    draw = s.random()
    clock = s.clock()
    if draw < 0.1:
        it = fixed("it", "il")
        return sentence(clause(it, BE, "present", clock))
    at = concat(fixed("at", "à"), clock)
    if draw < 0.35:
        verb = s.verb("leave", "arrive")
        subject = s.described(s.noun("scheduled"), ("the", "our"), 0.4, plural=False)
    elif draw < 0.5:
        verb = s.verb("open", "close")
        subject = s.described(s.noun(*OPENING), ("the", "this"), 0.35, plural=False)
    elif draw < 0.58:
        verb = s.verb("begin", "finish")
        subject = s.described(s.noun("event", "exam", "lesson", "film"), ("the", "this"), 0.4, plural=False)
    else:
        verb = s.choice(
            [*s.reflexive[:4], *(s.words.verbs[v] for v in ("eat lunch", "eat dinner", "leave", "go out", "go home"))]
        )
        subject = s.subject()
    tense = s.tense(verb, simple=True)
    main = clause(subject, verb, tense, adverb="always" if tense == "present" and s.chance(0.2) else None)
    if s.chance(0.25) and len(clock.english) < 5:
        return sentence(s.day(tense), COMMA, main, at)
    return sentence(main, at)


def dated(s: Sampler) -> Sentence:
    """The poet was born on the third of May eighteen hundred and two."""
    draw = s.random()
    if draw < 0.35:
        verb = s.choice((BE_BORN, BE_BORN, s.words.verbs["die"]))
        subject = s.subject(pronouns=0.25) if verb is BE_BORN else s.somebody(s.noun("person"))
        if s.chance(0.35):
            return sentence(clause(subject, verb, "past"), s.date())
        year = s.year()[1]
        if s.chance(0.4):
            return sentence(clause(subject, verb, "past"), s.date(), year)
        where = s.destination("in") if s.chance(0.5) else concat()
        return sentence(clause(subject, verb, "past"), where, fixed("in", "en"), year)
    if draw < 0.55:
        subject = s.described(s.noun("planned", "exam"), ("the", "our", "this"), 0.5, plural=False)
        tense = "past" if s.chance(0.4) else "future"
        return sentence(clause(subject, TAKE, tense, fixed("place", "lieu")), s.date())
    if draw < 0.75:
        verb = s.verb("leave", "arrive", "come back", "get married", "come")
        subject = s.subject()
        if verb.is_reflexive and subject.person < 3 and subject.english[0][0] == "I":
            subject = pronoun("they")
        return sentence(clause(subject, verb, "past" if s.chance(0.5) else "future"), s.date())
    if draw < 0.9:
        verb = s.verb("build", "destroy", "write", "paint", "discover", "visit", "buy", "sell", "sign")
        n, year = s.year()
        return sentence(clause(s.subject(pronouns=0.25), verb, "future" if n > 2025 else "past", s.object_of(verb)),
                        fixed("in", "en"), year)  # fmt: skip
    verb = s.verb("write", "send", "receive", "sign", "buy", "finish", "begin")
    return sentence(clause(s.subject(), verb, "past" if s.chance(0.6) else "future", s.object_of(verb, 0.2)), s.date())


def description(s: Sampler) -> Sentence:
    """The houses of this street were white."""
    draw = s.random()
    tense = s.choice(("present", "present", "past", "future"))
    adverb = s.choice(("not", "not", "always", "often", "never", "no longer")) if s.chance(0.3) else None
    if draw < 0.2:
        subject = pronoun(s.choice(tuple(syntax.SUBJECTS)))
        adjective = s.choice([a for a in s.words.predicates[s.words.nouns["man"]] if a.english != "blond"])
        s.keys.append(("pronoun adjective", subject.english[0][0], adjective.english, tense))
        main = clause(subject, BE, tense, predicate(adjective, subject), adverb=adverb)
        return sentence(main, s.when(BE, tense) if not adverb or adverb == "not" else concat())
    if draw < 0.35:
        subject = s.somebody(s.noun("role", "kin"))
        state = fixed(*s.choice(STATES))
        s.keys.append(("state", subject.english[-1][0], state.english[0][0]))
        return sentence(clause(subject, BE_STATE, tense if tense != "future" else "past", state, adverb=adverb))
    adjective = s.choice(s.qualities)
    noun = s.choice(s.select(adjective.classes))
    dets = OWNERS if "kin" in noun.classes else ("the", "the", "the", "this", "all the")
    noted = len(s.keys)
    subject = s.described(noun, dets, 0.6, ages=True)
    if adjective.english in ("old", "new", "young", subject.english[-2][0] if subject.english[1:] else ""):
        subject = noun_phrase(noun)
        s.forget(noted)
    if subject.english[0][0] == "all" and not subject.is_plural:
        subject = noun_phrase(noun)
        s.forget(noted)
    s.qualify(noun, adjective)
    quality = predicate(adjective, subject)
    if s.chance(0.12):
        return sentence(clause(subject, BE, tense, quality, question=True), end="?")
    main = clause(subject, BE, tense, quality, adverb=adverb)
    if adverb in (None, "not") and s.chance(0.45):
        return sentence(main, s.when(BE, tense))
    return sentence(main)


def profession(s: Sampler) -> Sentence:
    """My brother will become an excellent doctor: without an adjective, French has no article."""
    men = [noun for noun in s.select(("kin",)) if noun.gender == "m"]
    roles = [noun for noun in s.select(("role",)) if noun.gender == "m" and noun.english not in ("king", "thief")]
    role, draw = s.choice(roles), s.random()
    if draw < 0.35:
        subject = pronoun(s.choice(("I", "he")))
    elif draw < 0.5:
        man = s.choice(MEN)
        subject = name(man, man, "m")
    else:
        subject = s.described(s.choice(men), OWNERS, 0.3, plural=False)
    adjective = s.adjective(role, False, 0.6)
    s.keys.append(("profession", role.english, subject.english[-1][0]))
    what = noun_phrase(role, "a", adjective)
    if adjective is None:
        what = what._replace(french=what.french[1:], article=0)
    if s.chance(0.5):
        verb, tense = s.verb("become"), s.choice(("past", "future", "future"))
    else:
        verb, tense = BE, s.choice(("present", "past"))
    if s.chance(0.2):
        return sentence(
            clause(subject, WANT_TO, s.choice(("present", "past")), infinitive(subject, s.verb("become"), what))
        )
    adverb = "not" if s.chance(0.15) and verb is BE else None
    if s.chance(0.3) and not adverb:
        last, coming = ("last year", "l'année dernière"), ("next year", "l'année prochaine")
        extra = s.destination("in") if verb is BE else fixed(*(last if tense == "past" else coming))
        return sentence(clause(subject, verb, tense, what, adverb=adverb), extra)
    return sentence(clause(subject, verb, tense, what, adverb=adverb))


def compared(s: Sampler) -> Sentence:
    """Her new car is faster than our train."""
    tense = s.choice(("present", "present", "present", "past", "future"))
    adjective = s.choice(s.comparable)
    noun = s.choice(s.select(adjective.classes))
    others = [n for n in s.select(adjective.classes) if n.classes & noun.classes and not n.is_mass and n is not noun]
    if "person" in noun.classes:
        subject = s.subject(pronouns=0.15)
        if subject.english[-1][0] == "I":
            subject = s.somebody(noun, 0.15)
        noted = len(s.keys)
        than = s.named() if s.chance(0.4) else s.somebody(s.choice(others))
        while subject.english[-1][0] == than.english[-1][0]:
            s.forget(noted)
            than = s.named()
        s.keys.append(("comparison", subject.english[-1][0], adjective.english, than.english[-1][0]))
    else:
        subject = s.described(noun, ("the", "this", "my", "your"), 0.25, ages=True)
        dets = ("the", "my", "your", "our") if others else ("that",)
        than = s.described(s.choice(others or [noun]), dets, 0.25, ages=True)
        s.qualify(noun, adjective)
    degree = s.choice(("more", "more", "less", "as"))
    return sentence(clause(subject, BE, tense, comparison(adjective, subject, than, degree)))


def existence(s: Sampler) -> Sentence:
    """There is a black cat under the table."""
    tense = s.choice(("present", "present", "past", "future"))
    negated, asking = s.chance(0.2), s.chance(0.12)
    draw = s.random()
    if draw < 0.55:
        noun = s.noun("animal", "small", "container", "clothes", "fruit", "crockery", "toy", "text", "pastry")
        preposition = s.choice(("on", "under", "behind", "near", "next to", "in front of"))
        place = s.noun("surface") if preposition in ("on", "under") else s.noun("surface", "fixture")
    else:
        noun = s.noun("person", "animal", "plant", "furniture", "vehicle", "tree", "device")
        preposition = s.choice(("in", "in", "near", "in front of", "behind", "far from"))
        extra = {"in": ("inside", "forest", "valley"), "near": ("place", "nature"), "far from": ("place", "nature")}
        place = s.noun(*extra.get(preposition, ("place",)))
    if "kin" in noun.classes:
        noun = s.noun("role")
    s.keys.append(("existence", noun.english, preposition, place.english))
    dets = ("any", "any", "a") if negated else ("a", "bare", "several", "some", "a lot of")
    what = s.described(noun, dets, 0.5)
    where = prepositional(preposition, s.described(place, ("the", "the", "the", "my", "this"), 0.3, plural=False))
    question_ = asking and not negated
    return sentence(there_is(what, tense, where, negated=negated, question=question_), end="?" if question_ else ".")


def possessed(owner: Phrase, noun: Noun, adjective: Adjective | None = None, plural: bool = False) -> Phrase:
    """The teacher's red car, la voiture rouge du professeur: English puts the owner in the place of the article."""
    what = noun_phrase(noun, "the", adjective, plural=plural)
    last, tag = owner.english[-1]
    return what._replace(
        english=(*owner.english[:-1], (last + "'s", tag), *what.english[1:]),
        french=(*what.french, ("de", 0), *owner.french),
    )


def owner_of(s: Sampler) -> Phrase:
    noun = s.noun("person")
    return s.described(noun, OWNERS if "kin" in noun.classes else ("the",), 0.2, plural=False)


def possession(s: Sampler) -> Sentence:
    """The teacher's old car is green."""
    owner = s.named() if s.chance(0.35) else owner_of(s)
    noun = s.noun("small", "clothes", "vehicle", "house", "garden", "pet", "office", "bedroom", "device",
                  "furniture", "text", "toy", "tool")  # fmt: skip
    s.keys.append(("possession", owner.english[-1][0], noun.english))
    plural, draw = s.chance(0.3), s.random()
    thing = possessed(owner, noun, s.adjective(noun, False, 0.25), plural)
    if draw < 0.3:
        det = s.choice(("these", "those") if plural else ("this", "that"))
        it = fixed(det, "ce")
        be = fixed("are" if plural else "is", "sont" if plural else "est")
        return sentence(it, be, thing)
    if draw < 0.6:
        options = [a for a in s.words.predicates[noun] if a.english not in {word for word, _ in thing.english}]
        if options:
            adjective = s.choice(options)
            s.qualify(noun, adjective)
            tense = s.choice(("present", "past", "future"))
            adverb = "not" if s.chance(0.15) else None
            return sentence(clause(thing, BE, tense, predicate(adjective, thing), adverb=adverb))
    verbs = [verb for verb in s.dynamic if noun in s.words.objects[verb] and not verb.preposition]
    verb = s.choice(verbs or [s.words.verbs["find"]])
    s.pair_up(verb, noun)
    subject = s.subject(verb)
    if subject.english[-1][0] == owner.english[-1][0]:
        subject = pronoun("they")
    return sentence(clause(subject, verb, s.tense(verb), thing))


def weather(s: Sampler) -> Sentence:
    """It is often cold in Berlin in January."""
    it = fixed("it", "il")
    adverb = s.choice(("often", "sometimes", "never", "not", "always")) if s.chance(0.4) else None
    draw = s.random()
    if draw < 0.6:
        tense = s.choice(("present", "present", "past", "future"))
        sky, ciel = s.choice(SKIES)
        if adverb in NEGATIONS and sky == "windy":
            ciel = "de vent"
        main = clause(it, MAKE_WEATHER, tense, fixed(sky, ciel), adverb=adverb)
    else:
        verb = s.choice((RAIN, SNOW))
        tense = s.choice(("present", "present", "past", "imperfect", "future"))
        sky = verb.english
        main = clause(it, verb, tense, adverb=None if tense == "imperfect" else adverb)
    where, draw = s.destination("in"), s.random()
    month = s.choice(tuple(MONTHS))
    season = s.choice(SEASONS)
    s.keys.append(("weather", sky, where.english[-1][0]))
    if draw < 0.6:
        return sentence(main, where, pairwise(("in", "en"), (month, MONTHS[month])))
    if draw < 0.85:
        return sentence(main, where, fixed(*season))
    return sentence(fixed(*season), COMMA, main, where)
