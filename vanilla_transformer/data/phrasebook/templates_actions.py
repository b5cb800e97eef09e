"""Sentences about what somebody does: statements, negations, questions, orders, wishes, journeys, two clauses."""

from .clauses import BE, CAN, KNOW_HOW_TO, LIKE_TO, MUST, WANT_TO, clause, command, infinitive
from .lexicon import Verb
from .sampler import CITIES, COUNTRIES, Sampler, city, country
from .syntax import (
    COMMA,
    Phrase,
    Sentence,
    concat,
    fixed,
    noun_phrase,
    pairwise,
    predicate,
    prepositional,
    pronoun,
    sentence,
)

PLAY_SPORT = Verb("play", "played", "jouer", "à", frozenset())
PLAY_MUSIC = Verb("play", "played", "jouer", "de", frozenset())
RAIN = Verb("rain", "rained", "pleuvoir", "", frozenset())
SNOW = Verb("snow", "snowed", "neiger", "", frozenset())
THINK = Verb("think", "thought", "penser", "", frozenset({"stative"}))
BELIEVE = Verb("believe", "believed", "croire", "", frozenset({"stative"}))
KNOW = Verb("know", "knew", "savoir", "", frozenset({"stative"}))
SAY = Verb("say", "said", "dire", "", frozenset({"stative"}))
HOPE = Verb("hope", "hoped", "espérer", "", frozenset({"stative"}))
FEELINGS = ("happy", "sad", "furious", "tired", "worried", "proud", "nervous")
MEASURES = (("a glass of", "un verre de"), ("a bottle of", "une bouteille de"), ("a cup of", "une tasse de"))
WEIGHTS = (("a kilo of", "un kilo de"), ("a slice of", "une tranche de"), ("a piece of", "un morceau de"))
MANNERS = (("slowly", "lentement"), ("quickly", "rapidement"), ("early", "tôt"), ("late", "tard"))
SUBJECT_OF = {0: "I", 3: "we", 4: "you", 5: "they"}


def statement(s: Sampler) -> Sentence:
    """The old man is reading a new book."""
    verb = s.choice(s.transitive)
    tense = s.tense(verb)
    subject = s.subject(verb)
    adverb = s.choice(("always", "often", "sometimes")) if tense == "present" and s.chance(0.25) else None
    main = clause(subject, verb, tense, s.object_of(verb, 0.6), adverb=adverb)
    draw = s.random()
    if draw < 0.2 and not adverb:
        return sentence(main, s.when(verb, tense))
    if draw < 0.3 and not adverb:
        return sentence(s.when(verb, tense), COMMA, main)
    if draw < 0.45 and not verb.is_stative:
        return sentence(main, s.place())
    return sentence(main)


def negation(s: Sampler) -> Sentence:
    """My sister did not buy any apples."""
    verb = s.choice(s.transitive)
    tense = s.tense(verb, used_to=False)
    adverb = "not"
    if tense in ("past", "future") and s.chance(0.3):
        adverb = "never"
    elif tense == "present" and s.chance(0.5):
        adverb = s.choice(("never", "no longer"))
    main = clause(s.subject(verb), verb, tense, s.object_of(verb, 0.5, negated=True), adverb=adverb)
    if adverb == "not" and s.chance(0.3):
        return sentence(main, s.when(verb, tense))
    return sentence(main)


def question(s: Sampler) -> Sentence:
    """Will your brother sell the house?"""
    verb = s.choice(s.transitive)
    tense = s.tense(verb, used_to=False)
    main = clause(s.subject(verb, asked=True), verb, tense, s.object_of(verb), question=True)
    if s.chance(0.35):
        return sentence(main, s.when(verb, tense), end="?")
    return sentence(main, end="?")


def open_question(s: Sampler) -> Sentence:
    """Where, when, why, how many, which, what, who."""
    draw = s.random()
    if draw < 0.25:
        verb = s.choice([*s.activities, s.words.verbs["live"], s.words.verbs["eat lunch"], s.words.verbs["travel"]])
        asked = fixed(*s.choice((("where", "où"), ("when", "quand"), ("why", "pourquoi"), ("with whom", "avec qui"))))
        return sentence(
            clause(s.subject(verb, 0.35, True), verb, s.tense(verb, used_to=False), question=True, asked=asked),
            end="?",
        )
    if draw < 0.45:
        verb = s.choice(s.dynamic)
        asked = fixed(*s.choice((("where", "où"), ("when", "quand"), ("why", "pourquoi"))))
        obj = s.object_of(verb)
        return sentence(
            clause(s.subject(verb, asked=True), verb, s.tense(verb, used_to=False), obj, question=True, asked=asked),
            end="?",
        )
    verb = s.choice(s.direct)
    while "generic" in verb.kinds or verb.english in ("teach", "put on"):
        verb = s.choice(s.direct)
    tense = s.tense(verb, used_to=False)
    noun = s.choice(s.words.objects[verb])
    if draw < 0.7 and "person" not in noun.classes and not noun.is_mass:
        s.pair_up(verb, noun)
        det = s.choice(("how many", "which"))
        plural = det == "how many" or s.chance(0.3)
        asked = noun_phrase(noun, det, s.adjective(noun, False, 0.3), plural=plural)
        main = clause(s.subject(verb, 0.5, True), verb, tense, question=True, asked=asked, asks_object=True)
        return sentence(main, end="?")
    if draw < 0.85:
        verb = s.choice([verb for verb in s.ongoing if not verb.preposition])
        tense = s.tense(verb, used_to=False)
        asked = fixed("what", "que")
        asked = Phrase(asked.english, (("qu'est-ce", asked.french[0][1]), ("que", 0)))
        main = clause(s.subject(verb, 0.35, True), verb, tense, question=True, asked=asked)
        return sentence(main, s.when(verb, tense) if s.chance(0.5) else s.place(), end="?")
    who = fixed("who", "qui")
    verb = s.choice(s.dynamic)
    return sentence(clause(who, verb, s.tense(verb, used_to=False), s.object_of(verb, 0.8)), end="?")


def motion(s: Sampler) -> Sentence:
    """The tourists came back from the old castle yesterday; the cat sleeps."""
    verb = s.verb("go", "come", "come back", "arrive", "leave", "enter", "stay", "live", "walk", "travel", "run",
                  "fall", "go out", "swim", "go for a walk", "sleep")  # fmt: skip
    verb_name = verb.english
    subject = s.subject(verb)
    tense = s.tense(verb, simple=verb_name in ("arrive", "enter", "fall"))
    if verb_name in ("sleep", "swim", "run", "walk", "travel", "leave", "fall", "arrive", "go out") and s.chance(0.4):
        s.keys.append(("motion alone", verb_name, subject.english[-1][0], tense))
        main = clause(subject, verb, tense, adverb="not" if s.chance(0.15) else None)
        return sentence(main, s.when(verb, tense)) if s.chance(0.3) else sentence(main)
    if verb_name in ("come", "come back", "go out", "arrive", "go") and s.chance(0.6 if verb_name != "go out" else 1):
        place = s.noun("public", "public", "farm", "park", "village", "castle", "beach")
        preposition = {"go": "to", "arrive": "at", "come": "from", "come back": "from", "go out": "of"}[verb_name]
        where = prepositional(preposition, s.described(place, ("the", "the", "this"), 0.35, plural=False))
    elif verb_name in ("go", "come", "come back", "arrive", "leave", "live", "stay", "travel"):
        if verb_name == "leave":
            where = (
                country(s.choice(tuple(COUNTRIES)), "for") if s.chance(0.5) else city(s.choice(tuple(CITIES)), "for")
            )
        else:
            where = s.destination({"go": "to", "come": "from", "come back": "from"}.get(verb_name, "in"))
        place = None
    elif verb_name == "enter":
        place = s.noun("home", "public", "forest")
        where = s.described(place, ("the", "the", "my", "this"), 0.35, plural=False)
        main = clause(subject, verb, tense, where)
        s.keys.append(("motion", verb_name, place.english))
        return sentence(main, s.when(verb, tense)) if s.chance(0.4) else sentence(main)
    else:
        places = {
            "swim": ("lake", "sea", "river"),
            "sleep": ("home", "park", "hotel", "forest"),
            "fall": ("garden", "street", "river"),
        }
        place = s.noun(
            *places.get(verb_name, ("street", "park", "forest", "garden", "village", "field", "castle", "city"))
        )
        where = prepositional("in", s.described(place, ("the", "the", "this"), 0.35, plural=False))
    s.keys.append(("motion", verb_name, where.english[-1][0]))
    with_when = s.chance(0.5)
    if with_when and s.chance(0.3):
        return sentence(s.when(verb, tense), COMMA, clause(subject, verb, tense), where)
    adverb = "not" if s.chance(0.12) else None
    main = clause(subject, verb, tense, adverb=adverb)
    return sentence(main, where, s.when(verb, tense)) if with_when else sentence(main, where)


def personal(s: Sampler) -> Sentence:
    """He saw her yesterday: the pronoun stands before the French verb, and a participle agrees with it."""
    verb = s.choice(s.towards_people)
    subject = s.subject(verb, 0.4)
    mine = {0: ("me", "us"), 3: ("us", "me"), 4: ("you",)}.get(subject.person, ())
    word = s.choice([w for w in ("me", "you", "him", "her", "us", "them", "her") if w not in mine])
    tense = s.tense(verb, used_to=False)
    adverb = s.choice(("not", "not", "never")) if s.chance(0.25) else None
    if adverb == "never" and tense in ("progressive", "imperfect"):
        adverb = "not"
    ask = s.chance(0.15) and adverb is None
    main = clause(subject, verb, tense, pronoun=word, adverb=adverb, question=ask)
    s.keys.append(("pronoun", verb.english, word, subject.english[-1][0]))
    draw = s.random()
    if draw < 0.45:
        return sentence(main, s.when(verb, tense), end="?" if ask else ".")
    if draw < 0.75 and not verb.is_stative:
        return sentence(main, s.place(), end="?" if ask else ".")
    return sentence(main, end="?" if ask else ".")


def modal(s: Sampler) -> Sentence:
    """We had to repair the old boat."""
    auxiliary = s.choice((CAN, CAN, MUST, MUST, WANT_TO, WANT_TO, KNOW_HOW_TO, LIKE_TO))
    subject = s.subject()
    adverb = "not" if s.chance(0.2) else None
    tense = s.choice(("present", "present", "past", "future"))
    if auxiliary in (KNOW_HOW_TO, LIKE_TO):
        tense = "present"
    verb = s.verb(
        "repair", "cook", "draw", "paint", "sing", "teach", "drive", "build", "write", "read", "prepare", "serve"
    )
    if auxiliary not in (KNOW_HOW_TO, LIKE_TO):
        verb = s.choice(s.dynamic) if s.chance(0.8) else s.choice([*s.reflexive[:7], *s.activities])
    if auxiliary is WANT_TO and tense == "past" and adverb:
        adverb = None
    strict = bool(adverb) and auxiliary not in (KNOW_HOW_TO, LIKE_TO)  # ne sait pas peindre une porte
    obj = s.object_of(verb, 0.45, negated=strict) if verb.objects else None
    ask = s.chance(0.15) and adverb is None and not (auxiliary is MUST and tense == "present")
    action = infinitive(subject, verb, obj, negated=strict)
    main = clause(subject, auxiliary, tense, None, action, adverb=adverb, question=ask)
    s.keys.append(("modal", auxiliary.english, verb.english))
    if not verb.objects or (s.chance(0.25) and auxiliary not in (KNOW_HOW_TO, LIKE_TO)):
        when = {"present": ("now", "maintenant"), "past": ("yesterday", "hier"), "future": ("tomorrow", "demain")}
        return sentence(main, fixed(*when[tense]), end="?" if ask else ".")
    return sentence(main, end="?" if ask else ".")


def order(s: Sampler) -> Sentence:
    """Do not open this window! Let us wash the shirts!"""
    person, negated = 3 if s.chance(0.3) else 4, s.chance(0.3)
    draw = s.random()
    if draw < 0.15:
        verb = s.choice([verb for verb in s.towards_people if verb.has_progressive])
        word = s.choice(("me", "him", "her", "us", "them") if person == 4 else ("him", "her", "them"))
        s.keys.append(("order", verb.english, word, str(person), str(negated)))
        return sentence(command(verb, None, s.place(), person=person, negated=negated, pronoun=word), end="!")
    if draw < 0.25:
        verb = s.verb(
            "get up", "wake up", "go to bed", "get dressed", "rest", "hurry", "have fun", "sit down", "go for a walk"
        )
        after = s.place() if s.chance(0.6) else fixed(*s.choice(MANNERS[2:]))
        s.keys.append(("order", verb.english, after.english[-1][0]))
        return sentence(command(verb, None, after, person=person, negated=negated), end="!")
    verb = s.choice(s.dynamic)
    while verb.english in ("receive", "lose", "meet", "steal", "discover") or not verb.has_progressive:
        verb = s.choice(s.dynamic)
    obj = s.object_of(verb, 0.5, negated)
    extra = s.random()
    after = s.place() if extra < 0.3 else pairwise(("before", "avant"), ("noon", "midi")) if extra < 0.4 else concat()
    return sentence(command(verb, obj, after, person=person, negated=negated), end="!")


def echo(subject: Phrase) -> Phrase:
    """The pronoun that takes up a subject."""
    if subject.person == 2:
        return pronoun("she" if subject.gender == "f" else "he")
    return pronoun(SUBJECT_OF[subject.person])


def person(s: Sampler, pronouns: float = 0.3) -> Phrase:
    """A subject that a pronoun can take up: of several women the French one would be elles, which is left out."""
    while True:
        subject = s.subject(pronouns=pronouns)
        if subject.person != 5 or subject.gender == "m":
            return subject


def joined(s: Sampler) -> Sentence:
    """Two clauses: because, when, while, but, if."""
    draw = s.random()
    verb, other = s.choice(s.ongoing), s.choice(s.activities)
    if draw < 0.35:
        subject = person(s)
        feeling = s.words.adjectives[s.choice(FEELINGS)]
        tense, cause = s.choice((("present", "past"), ("past", "imperfect"), ("present", "future")))
        if cause == "past" and verb.past == verb.english:
            verb = s.words.verbs["buy"]
        first = clause(subject, BE, tense, predicate(feeling, subject))
        second = clause(echo(subject), verb, cause, s.object_of(verb, 0.25))
        return sentence(first, fixed("because", "parce que"), second)
    if draw < 0.6:
        arrival = s.verb("arrive", "come back", "go out", "enter", "get up", "wake up", "go home", "leave")
        subject, second = s.subject(pronouns=0.2), s.subject(pronouns=0.4)
        if arrival.english == "enter":
            arrival = s.words.verbs["arrive"]
        when = concat(fixed("when", "quand"), clause(subject, arrival, "past"), COMMA)
        if s.chance(0.6):
            other = s.choice((other, *s.ongoing))
        obj = s.object_of(other, 0.2) if other.objects else None
        s.keys.append(("joined", arrival.english, other.english, subject.english[-1][0]))
        return sentence(when, clause(second, other, "imperfect", obj))
    if draw < 0.75:
        subject, second = s.subject(pronouns=0.2), s.subject(pronouns=0.2)
        tense = s.choice(("progressive", "imperfect"))
        obj = s.object_of(verb, 0.2)
        s.keys.append(("joined", verb.english, other.english))
        return sentence(clause(subject, verb, tense, obj), fixed("while", "pendant que"), clause(second, other, tense))
    if draw < 0.88:
        it = fixed("it", "il")
        sky = s.choice((RAIN, SNOW))
        condition = concat(fixed("if", "si"), clause(it, sky, "present", None, fixed("tomorrow", "demain")), COMMA)
        subject = s.subject(pronouns=0.5)
        return sentence(condition, clause(subject, verb, "future", s.object_of(verb, 0.2)))
    subject, second = s.named(), s.named()
    likes = s.words.verbs["love"], s.words.verbs["hate"]
    sign = s.chance(0.5)
    first = clause(subject, likes[sign], "present", s.object_of(likes[sign], 0.1))
    return sentence(
        first,
        COMMA,
        fixed("but", "mais"),
        clause(second, likes[not sign], "present", s.object_of(likes[not sign], 0.1)),
    )


def meal(s: Sampler) -> Sentence:
    """The waiter will bring a bottle of water: partitives and measures."""
    verb = s.verb("eat", "drink", "buy", "want", "order", "bring", "serve", "sell", "refuse", "prepare")
    tense = s.tense(verb, used_to=False)
    subject = s.subject(verb)
    foods = [n for n in s.words.objects[verb] if n.classes & {"food", "drink"}]
    noun = s.choice(foods)
    s.pair_up(verb, noun)
    draw = s.random()
    if draw < 0.5 and verb.english != "refuse":
        plural = not noun.is_mass
        if "drink" in noun.classes:
            hot = noun.english in ("coffee", "tea")
            measure, mesure = s.choice(MEASURES[2:] if hot else MEASURES[:2])
        elif noun.is_mass:
            measure, mesure = s.choice(WEIGHTS if noun.english in ("bread", "meat", "ham", "salmon", "cheese") else
                                       (("a lot of", "beaucoup de"), ("a kilo of", "un kilo de")))  # fmt: skip
        else:
            measure, mesure = s.choice((("a box of", "une boîte de"), ("a basket of", "un panier de"),
                                        ("too many", "trop de"), ("a lot of", "beaucoup de")))  # fmt: skip
        bare = noun_phrase(noun, "", s.adjective(noun, False, 0.25), plural=plural)
        s.keys.append(("measure", measure, noun.english))
        what = concat(fixed(measure, mesure), bare)
        negated = False
    else:
        negated = s.chance(0.35) and verb.english != "refuse"
        what = s.described(noun, ("any", "any", "the") if negated else ("some", "bare", "some", "the"), 0.35)
    adverb = "not" if negated else None
    main = clause(subject, verb, tense, what, adverb=adverb)
    return sentence(main, s.when(verb, tense)) if s.chance(0.4) else sentence(main)


def reported(s: Sampler) -> Sentence:
    """My uncle thinks that the train will leave tomorrow."""
    verb = s.choice((THINK, BELIEVE, KNOW, SAY, HOPE))
    subject = s.subject(pronouns=0.6)
    main = concat(clause(subject, verb, "present"), fixed("that", "que"))
    other = s.choice(s.ongoing)
    tense = "future" if verb is HOPE else s.choice(("future", "past", "progressive", "future"))
    if tense == "past" and other.past == other.english:
        tense = "future"
    if s.chance(0.3):
        noun = s.choice(s.common)
        if len(s.words.predicates[noun]) > 1 and "kin" not in noun.classes:
            subject = s.described(noun, ("the", "this", "my"), 0.0)
            adjective = s.choice(s.words.predicates[noun])
            s.qualify(noun, adjective)
            tense = "future" if verb is HOPE else s.choice(("present", "past", "future"))
            return sentence(main, clause(subject, BE, tense, predicate(adjective, subject)))
    return sentence(main, clause(s.subject(other, 0.5), other, tense, s.object_of(other, 0.15)))


def daily(s: Sampler) -> Sentence:
    """The children woke up early this morning; Paul plays football, Marie plays the piano."""
    subject, draw = s.subject(), s.random()
    if draw < 0.35:
        music = s.chance(0.5)
        verb = PLAY_MUSIC if music else PLAY_SPORT
        noun = s.noun("instrument" if music else "sport")
        obj = noun_phrase(noun, "the")
        if not music:
            obj = obj._replace(english=obj.english[1:])
        tense = s.tense(verb)
        s.keys.append(("verb object", subject.english[-1][0], noun.english, tense))
        adverb = s.choice(("not", "never", "often")) if tense == "present" and s.chance(0.5) else None
        main = clause(subject, verb, tense, obj, adverb=adverb)
        places = ("theatre", "house", "garden", "school") if music else ("park", "garden", "stadium", "village")
        where = prepositional("in", noun_phrase(s.noun(*places)))
        return sentence(main, s.when(verb, tense) if not adverb and s.chance(0.5) else where)
    verb = s.choice(s.reflexive)
    tense = s.tense(verb)
    if verb.english == "get married" and subject.english[0][0] == "I":
        subject = pronoun("they")
    adverb = s.choice(("not", "never", "often")) if tense == "present" and s.chance(0.4) else None
    if s.chance(0.15):
        adverb = "not"
    s.keys.append(("reflexive", verb.english, subject.english[-1][0], tense))
    main = clause(subject, verb, tense, adverb=adverb)
    if verb.english in ("get up", "wake up", "go to bed", "go home", "fall asleep") and s.chance(0.5):
        return sentence(
            main, fixed(*s.choice(MANNERS[2:])), s.when(verb, tense) if adverb in (None, "not") else s.place()
        )
    if verb.english in ("hurry", "get married", "shave", "get angry") or s.chance(0.4):
        if adverb in (None, "not") and s.chance(0.4):
            return sentence(s.when(verb, tense), COMMA, main)
        return sentence(main, s.when(verb, tense))
    return sentence(main, s.place())
