"""The grammar of the phrasebook against pairs written by hand in phrasebook_gold.tsv.

Each structure below builds one sentence; the file says, in English and French, what it has to be.
"""

from pathlib import Path

import pytest

from vanilla_transformer.data.phrasebook import syntax
from vanilla_transformer.data.phrasebook.clauses import (
    BE,
    BE_BORN,
    BE_STATE,
    CAN,
    KNOW_HOW_TO,
    LIKE_TO,
    MUST,
    WANT_TO,
    clause,
    command,
    infinitive,
    there_is,
)
from vanilla_transformer.data.phrasebook.lexicon import lexicon
from vanilla_transformer.data.phrasebook.numerals import cardinal, clock, year
from vanilla_transformer.data.phrasebook.sampler import city, country, date
from vanilla_transformer.data.phrasebook.syntax import (
    COMMA,
    Phrase,
    Sentence,
    comparison,
    fixed,
    name,
    noun_phrase,
    pronoun,
    rows,
    sentence,
)
from vanilla_transformer.data.phrasebook.templates_actions import PLAY_MUSIC, RAIN
from vanilla_transformer.data.phrasebook.templates_facts import possessed

NOUNS, A, V = lexicon().nouns, lexicon().adjectives, lexicon().verbs
WOMEN = ("Alice", "Anne", "Marie")
S, F = sentence, fixed
WHAT = Phrase((("what", 0),), (("qu'est-ce", 0), ("que", 0)))


def np(noun: str, det: str, **options: object) -> Phrase:
    return noun_phrase(NOUNS[noun], det, **options)


def N(text: str) -> Phrase:
    """ "the old man", "a_lot_of tourist*": determiner (- for none), adjectives, noun with a star in the plural."""
    det, *adjectives, noun = text.split()
    det = {"an": "a", "-": "bare"}.get(det, det.replace("_", " "))
    plural = noun.endswith("*")
    return noun_phrase(NOUNS[noun.rstrip("*")], det, *[A[word] for word in adjectives], plural=plural)


def X(text: str) -> Phrase:
    """A pronoun, a name or a noun phrase."""
    if text in syntax.SUBJECTS:
        return pronoun(text)
    return N(text) if " " in text else name(text, text, "f" if text in WOMEN else "m")


def C(subject: str, verb, tense: str, obj=None, *after: Phrase, **options) -> Sentence:
    obj = N(obj) if isinstance(obj, str) else obj
    return sentence(clause(X(subject), V[verb] if isinstance(verb, str) else verb, tense, obj, *after, **options))


def Q(subject: str, verb: str, tense: str, obj: str | None = None, *after: Phrase, **options) -> Sentence:
    main = clause(X(subject), V[verb], tense, N(obj) if obj else None, *after, question=True, **options)
    return sentence(main, end="?")


def B(subject: str, what, tense: str = "present") -> Sentence:
    """be with an adjective, or with a phrase ready made."""
    first = X(subject)
    what = syntax.predicate(A[what], first) if isinstance(what, str) else what
    return sentence(clause(first, BE, tense, what))


def M(subject: str, modal, tense: str, verb: str, obj: str | None = None, adverb: str | None = None) -> Sentence:
    first = X(subject)
    action = infinitive(first, V[verb], N(obj) if obj else None, negated=bool(adverb))
    return sentence(clause(first, modal, tense, None, action, adverb=adverb))


def O(verb: str, obj: str | None = None, **options) -> Sentence:  # noqa: E743
    return sentence(command(V[verb], N(obj) if obj else None, **options), end="!")


def P(preposition: str, what: str) -> Phrase:
    return syntax.prepositional(preposition, N(what))


def CMP(adjective: str, subject: str, than: str, degree: str) -> Phrase:
    return comparison(A[adjective], X(subject), X(than), degree)


def OWN(owner: str, noun: str, adjective: str | None = None) -> Phrase:
    return possessed(X(owner), NOUNS[noun], A[adjective] if adjective else None)


def NUM(n: int, noun: str) -> Sentence:
    return sentence(clause(pronoun("we"), V["count"], "past", np(noun, "", number=n)))


def AGE(n: int) -> Phrase:
    return syntax.concat(rows(cardinal(n)), fixed("years old", "ans"))


def T(hour: int, minute: int = 0, day_part: bool = False) -> Sentence:
    return sentence(clause(fixed("it", "il"), BE, "present", rows(clock(hour, minute, day_part))))


def Y(n: int) -> Sentence:
    return sentence(clause(pronoun("he"), V["die"], "past"), fixed("in", "en"), rows(year(n)))


# fmt: off
BUILT = [
    C("the old man", "read", "progressive", "a new book"),
    C("the man", "eat", "present", "an apple"),
    C("the hero", "save", "past", "the child"),
    B("the hero*", "tired"),
    C("my aunt", "buy", "past", "an axe"),
    C("he", "repair", "progressive", "the axe"),
    C("we", "eat", "present", "- bean*"),
    C("I", "love", "present", "- bean*"),
    C("she", "refuse", "past", "the lobster"),
    C("you", PLAY_MUSIC, "progressive", "the harp"),
    B("the owl", "intelligent"),
    B("the hedgehog*", "shy"),
    C("the horse", "drink", "progressive", "- water"),
    C("the horse*", "drink", "imperfect", "the water"),
    B("the story", "long"),
    C("I", "admire", "present", "this actor"),
    C("I", "admire", "present", "this hero"),
    B("that school", "modern"),
    B("this hospital*", "new"),
    B("my school", P("near", "the church")),
    B("your idea", "excellent"),
    C("her aunt", "lose", "past", "his umbrella"),
    C("their uncle", "sell", "present", "- car*"),
    B("my old school", "beautiful"),
    C("he", "forget", "past", "his other key"),
    C("they", "sell", "past", "a beautiful tree"),
    S(fixed("it is", "ce est"), N("a beautiful castle")),
    B("the new hotel", "full"),
    B("the new hero", "brave"),
    C("we", "prefer", "present", "the old tree*"),
    C("an old woman", "cross", "progressive", "the street"),
    C("a new pupil", "arrive", "past", None, F("yesterday", "hier")),
    B("she", "happy"),
    B("the queen", "jealous", "past"),
    B("the princess", "active"),
    B("the actress*", "naive", "past"),
    B("the Italian shoe*", "expensive"),
    B("the first lesson", "easy"),
    C("she", "buy", "past", "a light dress"),
    B("the nurse", "Canadian"),
    C("he", "have", "present", "a good idea"),
    B("the fat cow", "slow"),
    B("my sister", "kind"),
    B("the water", "cold"),
    B("the blanket", "soft"),
    B("the shirt", "dry"),
    B("the skirt*", "white"),
    B("the strawberry*", "fresh"),
    B("the translation", "complete"),
    B("the lady", "discreet"),
    B("my mother", "worried", "past"),
    B("the Greek island*", "magnificent"),
    C("they", "have", "present", "a false idea"),
    C("she", "write", "past", "a brief letter"),
    C("the mad woman", "laugh", "imperfect"),
    B("the boot*", "brown"),
    C("he", "paint", "progressive", "the wooden door*"),
    C("we", "read", "progressive", "the international newspaper*"),
    B("the medieval castle*", "vast"),
    C("the bird*", "sing", "progressive"),
    C("the thief", "hide", "progressive", "the jewel*"),
    C("the child*", "throw", "present", "- pebble*"),
    C("her nephew*", "love", "present", "- game*"),
    B("the gift*", P("in", "the cupboard")),
    B("his son*", "polite"),
    C("the mouse*", "eat", "progressive", "the cheese"),
    C("the woman*", "wear", "progressive", "- hat*"),
    M("my grandfather*", LIKE_TO, "present", "travel"),
    S(clause(X("she"), V["send"], "past", np("postcard", "", plural=True, number=3))),
    C("we", "buy", "past", "- potato*"),
    C("I", "buy", "past", "- beautiful book*"),
    C("he", "write", "progressive", "- long letter*"),
    C("they", "sell", "present", "- red apple*"),
    C("I", "have", "present", "- other plan*"),
    C("the little black cat", "sleep", "progressive"),
    C("he", "want", "present", "some bread"),
    C("she", "eat", "present", "- soup"),
    C("we", "order", "past", "some good wine"),
    C("you", "eat", "present", "- meat", adverb="not"),
    C("I", "buy", "past", "any orange*", adverb="not"),
    C("she", "have", "present", "a car", adverb="not"),
    C("he", "drink", "present", "- coffee", adverb="never"),
    M("I", LIKE_TO, "present", "swim", adverb="not"),
    C("I", "hate", "present", "- coffee"),
    C("he", "love", "present", "- tea", adverb="not"),
    C("they", "work", "present", adverb="no longer"),
    C("the butcher", "open", "past", "the shop", adverb="not"),
    C("we", "sell", "future", "the farm", adverb="never"),
    S(fixed("it is not", "ce ne est pas"), N("a hotel")),
    C("I", "drink", "present", "- tea", adverb="always"),
    C("she", "forget", "present", "her key*", adverb="often"),
    Q("you", "know", "present", "this restaurant"),
    Q("he", "receive", "past", "the letter"),
    Q("Alice", "come", "future", None, F("tomorrow", "demain")),
    Q("the farmer", "live", "present", asked=F("where", "où")),
    Q("they", "eat", "progressive", asked=WHAT),
    Q("the woman", "read", "progressive", asked=WHAT),
    Q("you", "buy", "past", asked=np("apple", "how many", plural=True), asks_object=True),
    Q("she", "break", "past", asked=np("egg", "how many", plural=True), asks_object=True),
    Q("Marie", "choose", "past", asked=np("dress", "which"), asks_object=True),
    Q("you", "read", "progressive", asked=np("book", "which", plural=True), asks_object=True),
    S(clause(F("who", "qui"), V["open"], "past", N("the door")), end="?"),
    C("I", "go", "present", None, P("to", "the market")),
    C("we", "go", "past", None, P("to", "the museum")),
    C("she", "go", "past", None, P("to", "the station")),
    C("he", "go", "future", None, P("to", "the hotel")),
    C("he", "talk to", "progressive", "the tourist*"),
    C("the doctor*", "come back", "progressive", None, P("from", "the hospital")),
    C("they", "come", "past", None, P("from", "the harbour")),
    B("the cat*", P("next to", "the curtain*")),
    C("she", "live", "present", None, country("France", "in")),
    C("I", "live", "present", None, country("Japan", "in")),
    C("they", "travel", "future", None, country("the United States", "in")),
    C("he", "come", "past", None, country("Italy", "from")),
    C("she", "come", "past", None, country("Holland", "from")),
    C("we", "come", "past", None, country("Canada", "from")),
    C("I", "leave", "future", None, country("Germany", "for")),
    C("Anne", "stay", "progressive", None, city("Athens", "in")),
    C("I", "eat", "past", "the cake"),
    C("we", "eat", "present", "- cherry*"),
    C("you", "eat", "imperfect", "- bread"),
    C("I", "eat", "imperfect", "- bread"),
    C("we", "begin", "present", "the lesson"),
    C("they", "buy", "future", "the apartment"),
    C("she", "call", "present", "the policeman"),
    C("you", "call", "present", "the waiter"),
    C("he", "prefer", "present", "- tea"),
    C("you", "prefer", "future", "the beach"),
    C("she", "clean", "present", "the kitchen"),
    C("we", "clean", "present", "the window*"),
    C("I", "send", "future", "a message"),
    C("she", "try on", "progressive", "a coat"),
    C("he", "finish", "past", "the exercise"),
    C("they", "choose", "present", "the blue glass*"),
    C("we", "wait for", "imperfect", "the bus"),
    C("you", "answer", "past", "the question"),
    C("they", "take", "present", "the train"),
    C("I", "learn", "past", "the rule*"),
    C("you", "understand", "future", "the problem"),
    C("they", "learn", "progressive", syntax.generic(NOUNS["Spanish"])),
    C("I", "see", "past", "the island"),
    C("they", "see", "future", "the sea"),
    C("you", "drink", "present", "- lemonade"),
    C("they", "drink", "past", "- beer"),
    C("she", "read", "past", "the report"),
    C("I", "put on", "past", "my glove*"),
    C("you", "say", "present", "the truth"),
    C("you", "make", "present", "- pancake*"),
    C("they", "make", "imperfect", "a cake"),
    C("she", "have", "future", "a horse"),
    C("we", "have", "past", "a garden"),
    C("they", "know", "present", "the captain"),
    C("I", "know", "imperfect", "this poem"),
    C("he", "drive", "past", "the lorry"),
    C("they", "build", "progressive", "a bridge"),
    C("I", "follow", "progressive", "the wolf"),
    C("we", "pick", "present", "- flower*"),
    C("she", "pick", "future", "an orange"),
    C("they", "discover", "past", "a secret"),
    C("he", "offer", "past", "- flower*"),
    C("she", "run", "future", None, P("in", "the park")),
    C("the poet", "die", "past"),
    C("the girl*", "fall", "past", None, P("in", "the street")),
    S(clause(X("she"), V["become"], "past"), syntax.predicate(A["famous"], X("she"))),
    C("you", "leave", "past"),
    C("Marie", "go out", "past"),
    C("the queen", "enter", "past", "the palace"),
    C("my brother", "get up", "present", None, F("early", "tôt")),
    C("she", "wake up", "past", None, F("late", "tard")),
    C("we", "hurry", "past", adverb="not"),
    C("I", "sit down", "past"),
    C("they", "get dressed", "progressive"),
    C("the girl*", "get bored", "progressive"),
    S(clause(X("he"), V["see"], "past", pronoun="her")),
    S(clause(X("I"), V["wait for"], "progressive", pronoun="him")),
    S(clause(X("she"), V["help"], "present", pronoun="them")),
    S(clause(X("we"), V["invite"], "past", pronoun="them", adverb="not")),
    S(clause(X("he"), V["phone"], "past", pronoun="me")),
    S(clause(X("they"), V["answer"], "future", pronoun="her")),
    S(clause(X("I"), V["talk to"], "progressive", pronoun="them")),
    M("Paul", CAN, "present", "swim"),
    M("you", MUST, "present", "touch", "the wall*", adverb="not"),
    M("we", MUST, "past", "repair", "the roof"),
    M("I", WANT_TO, "present", "sleep"),
    M("she", CAN, "future", "rest"),
    M("we", KNOW_HOW_TO, "present", "dance"),
    O("open", "the window"),
    O("close", "the door", negated=True),
    O("eat", "the salad", person=3),
    O("help", pronoun="me"),
    O("help", pronoun="me", negated=True),
    O("hurry"),
    O("follow", pronoun="them"),
    S(there_is(N("a cat"), "present", P("under", "the table"))),
    S(there_is(N("any chair*"), "present", P("in", "the kitchen"), negated=True)),
    S(there_is(N("- old boat*"), "past", P("near", "the beach"))),
    B("the lion", CMP("strong", "the lion", "the wolf", "more")),
    B("Anne", CMP("happy", "Anne", "Alice", "as")),
    B("the skirt*", CMP("expensive", "the skirt*", "the dress", "less")),
    S(clause(OWN("the teacher", "car"), BE, "present"), F("red", "rouge")),
    S(clause(X("I"), V["find"], "past", OWN("Henri", "wallet"))),
    S(clause(X("she"), V["break"], "past", OWN("the lady", "lamp", "old"))),
    S(clause(N("the pupil"), BE_STATE, "present"), F("hungry", "faim")),
    S(clause(X("you"), BE_STATE, "past"), F("cold", "froid")),
    S(clause(N("her husband"), BE_BORN, "past"), country("Spain", "in")),
    B("all_the pear*", "ripe"),
    C("every pupil", "read", "progressive"),
    C("a_lot_of tourist*", "visit", "present", "the palace"),
    S(F("if", "si"), clause(X("he"), V["come"], "present"), COMMA, clause(X("I"), V["leave"], "future")),
    S(F("when", "quand"), clause(X("he"), V["arrive"], "past"), COMMA, clause(X("we"), V["sleep"], "imperfect")),
    S(clause(X("she"), BE), syntax.predicate(A["sad"], X("she")), F("because", "parce que"),
      clause(F("it", "il"), RAIN, "progressive")),
    NUM(2, "key"),
    NUM(17, "coin"),
    NUM(21, "book"),
    NUM(21, "cow"),
    NUM(22, "bird"),
    NUM(69, "egg"),
    NUM(70, "tree"),
    NUM(71, "tree"),
    NUM(72, "hen"),
    NUM(79, "hen"),
    NUM(80, "horse"),
    NUM(81, "dog"),
    NUM(81, "apple"),
    NUM(90, "apple"),
    NUM(91, "apple"),
    NUM(99, "chair"),
    NUM(100, "soldier"),
    NUM(101, "soldier"),
    NUM(101, "key"),
    NUM(180, "duck"),
    NUM(200, "duck"),
    NUM(201, "duck"),
    NUM(371, "pen"),
    NUM(999, "pen"),
    NUM(1000, "worker"),
    NUM(1001, "worker"),
    NUM(1100, "worker"),
    NUM(2000, "tourist"),
    NUM(4080, "tourist"),
    NUM(4500, "tourist"),
    NUM(21000, "tourist"),
    NUM(42307, "tree"),
    NUM(80000, "tree"),
    NUM(80080, "tree"),
    NUM(100000, "bird"),
    NUM(200000, "bird"),
    NUM(200200, "bird"),
    NUM(999999, "egg"),
    S(clause(N("my son"), BE_STATE, "present", AGE(11))),
    T(1),
    T(3),
    T(12),
    T(0),
    T(3, 15),
    T(1, 30),
    T(12, 30),
    T(0, 45),
    T(11, 45),
    T(23, 50),
    T(9, 20),
    T(5, 35),
    T(11, 5),
    T(9, 21),
    T(7, 8),
    T(4, 52),
    T(8, 0, True),
    T(14, 30, True),
    T(20, 10, True),
    T(12, 45, True),
    C("she", "leave", "past", None, date(1, "May")),
    C("she", "leave", "past", None, date(2, "May")),
    C("I", "leave", "future", None, date(8, "August")),
    C("I", "leave", "future", None, date(11, "March")),
    C("they", "arrive", "past", None, date(21, "December")),
    C("they", "arrive", "past", None, date(31, "January", "Monday")),
    Y(1984),
    Y(1900),
    Y(1905),
    Y(1880),
    Y(1789),
    Y(2000),
    Y(2021),
    Y(1100),
]
# fmt: on
GOLD = [
    tuple(line.split("\t"))
    for line in Path(__file__).with_name("phrasebook_gold.tsv").read_text(encoding="utf-8").splitlines()
]  # fmt: skip


def test_gold_has_two_hundred_distinct_pairs_and_one_structure_for_each() -> None:
    assert len({source for source, _ in GOLD}) == len(GOLD) == len(BUILT) >= 200


@pytest.mark.parametrize(("pair", "built"), list(zip(GOLD, BUILT, strict=True)), ids=[source for source, _ in GOLD])
def test_grammar_makes_the_pair_written_by_hand(pair: tuple[str, str], built: Sentence) -> None:
    assert (built.source, built.target) == pair
