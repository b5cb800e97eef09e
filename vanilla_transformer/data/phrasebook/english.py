"""English morphology: plural nouns, verb forms, comparatives, a and an."""

from functools import cache

VOWELS = "aeiou"
# These double their last consonant before -ing: the last syllable is short and stressed.
_DOUBLING = frozenset({"begin", "cut", "forget", "get", "put", "run", "sit", "swim", "travel"})
_AN_EXCEPTIONS = ("hono", "hour")  # a silent h
_A_EXCEPTIONS = ("uni", "use", "euro", "one")  # sounded with a consonant


def plural(noun: str) -> str:
    """The regular plural of a noun."""
    if noun.endswith(("s", "x", "ch", "sh", "z")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def _first(verb: str) -> tuple[str, str]:
    """A phrasal verb in two: the word that is inflected, the rest with its space."""
    head, space, rest = verb.partition(" ")
    return head, space + rest


@cache
def third_person(verb: str) -> str:
    """goes up, studies, watches."""
    head, rest = _first(verb)
    if head == "have":
        return "has" + rest
    if head.endswith("o"):
        return head + "es" + rest
    return plural(head) + rest


@cache
def ing(verb: str) -> str:
    """going up, dying, writing, running."""
    head, rest = _first(verb)
    if head.endswith("ie"):
        head = head[:-2] + "y"
    elif head.endswith("e") and not head.endswith(("ee", "ye")):
        head = head[:-1]
    elif head in _DOUBLING:
        head += head[-1]
    return head + "ing" + rest


@cache
def past(verb: str) -> str:
    """The regular simple past."""
    head, rest = _first(verb)
    if head.endswith("e"):
        head += "d"
    elif head.endswith("y") and head[-2] not in VOWELS:
        head = head[:-1] + "ied"
    else:
        head += "ed"
    return head + rest


@cache
def comparative(adjective: str) -> str:
    """The comparative in -er: older, bigger, happier, larger."""
    if adjective.endswith("e"):
        return adjective + "r"
    if adjective.endswith("y") and adjective[-2] not in VOWELS:
        return adjective[:-1] + "ier"
    if adjective in ("big", "fat", "sad", "hot", "wet"):
        return adjective + adjective[-1] + "er"
    return adjective + "er"


@cache
def article(following: str) -> str:
    """a or an before a word, by its sound."""
    if following.lower().startswith(_AN_EXCEPTIONS):
        return "an"
    if following.lower().startswith(_A_EXCEPTIONS):
        return "a"
    return "an" if following[0].lower() in VOWELS else "a"
