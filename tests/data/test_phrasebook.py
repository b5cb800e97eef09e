"""The phrasebook corpus: sizes, shares, splits, determinism, links and the surface rules of French."""

import hashlib
import os
import random
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from vanilla_transformer.data.phrasebook import (
    FAMILIES,
    PhrasePair,
    corpus,
    french,
    numerals,
    phrasebook,
    syntax,
    words,
)
from vanilla_transformer.data.phrasebook import lexicon as package
from vanilla_transformer.data.phrasebook.clauses import clause
from vanilla_transformer.data.phrasebook.lexicon import lexicon
from vanilla_transformer.data.phrasebook.sampler import Sampler, is_held_out

# The package alone, without its parent: three processes that import torch would take the time of the whole file.
DIGEST = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from phrasebook import phrasebook
book = phrasebook(seed=3, train=400, validation=40, test=60)
print(hashlib.sha256(repr(book).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def book() -> dict[str, list[PhrasePair]]:
    return phrasebook()


@pytest.fixture(scope="module")
def pairs(book: dict[str, list[PhrasePair]]) -> list[PhrasePair]:
    return [pair for split in book.values() for pair in split]


def test_lexicon_is_large_enough() -> None:
    lex = lexicon()
    assert len(lex.nouns) >= 300
    assert len(lex.adjectives) >= 120
    assert sum(adjective.is_before for adjective in lex.adjectives.values()) >= 20
    assert sum(not verb.is_stative for verb in lex.verbs.values()) >= 120  # each in four tenses


def test_one_english_word_has_one_entry_in_each_table() -> None:
    lex = lexicon()
    rows = [len(list(rows)) for rows in (package._nouns(), package._adjectives(), package._verbs())]
    assert rows == [len(lex.nouns), len(lex.adjectives), len(lex.verbs)]


def test_sizes_and_distinct_pairs(book: dict[str, list[PhrasePair]], pairs: list[PhrasePair]) -> None:
    assert {split: len(rows) for split, rows in book.items()} == {"train": 120_000, "validation": 1_000, "test": 2_000}
    assert (
        len({pair.source for pair in pairs}) == len({pair.source.lower() for pair in pairs}) == len(pairs) >= 100_000
    )


def test_no_family_exceeds_fifteen_percent_of_a_split(book: dict[str, list[PhrasePair]]) -> None:
    assert len(FAMILIES) >= 10
    for rows in book.values():
        shares = Counter(pair.family for pair in rows)
        assert set(shares) == set(FAMILIES)
        assert max(shares.values()) <= 0.15 * len(rows)


def test_mean_length_of_sources(book: dict[str, list[PhrasePair]]) -> None:
    for rows in book.values():
        assert 6.5 <= sum(len(words(pair.source)) for pair in rows) / len(rows) <= 8


@pytest.mark.parametrize("family", FAMILIES)
def test_one_source_never_has_two_targets(family: str) -> None:
    sampler = Sampler(random.Random(11))
    targets: dict[str, str] = {}
    for _ in range(1_500):
        source, target, _ = corpus._SHARES[family][1](sampler)
        assert targets.setdefault(source, target) == target


def test_same_corpus_whatever_the_hash_seed() -> None:
    digests = set()
    for hash_seed in ("0", "1", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", DIGEST, str(Path(package.__file__).parents[1])]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        digests.add(run.stdout)
    assert len(digests) == 1


def test_another_seed_gives_another_corpus() -> None:
    first, second = (phrasebook(seed, train=200, validation=10, test=10) for seed in (0, 1))
    assert hashlib.sha256(repr(first).encode()).digest() != hashlib.sha256(repr(second).encode()).digest()


@pytest.mark.parametrize("family", FAMILIES)
def test_training_lacks_what_the_other_splits_hold(family: str) -> None:
    sampler_keys = []

    def spy(sampler: Sampler):
        sentence = make(sampler)
        sampler_keys.append((sentence.source, tuple(sampler.keys)))
        return sentence

    share, make = corpus._SHARES[family]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(corpus._SHARES, family, (share, spy))
        shown, held = corpus._draw(family, random.Random(2), 150, 20, set())
    first_keys: dict[str, tuple] = {}
    for source, keys in sampler_keys:
        first_keys.setdefault(source, keys)
    held_out = {key for pair in held for key in first_keys[pair.source] if is_held_out(key)}
    assert all(any(is_held_out(key) for key in first_keys[pair.source]) for pair in held)
    assert not any(key in held_out for pair in shown for key in first_keys[pair.source])


def test_held_out_noun_adjective_pairs_never_stand_in_training(book: dict[str, list[PhrasePair]]) -> None:
    lex = lexicon()
    attributes = {
        (adjective.english, form): noun
        for noun in lex.nouns.values()
        if len(lex.attributes[noun]) > 4
        for adjective in lex.attributes[noun]
        for form in (noun.english, noun.english_plural)
        if is_held_out(("noun adjective", noun.english, adjective.english))
    }
    assert len(attributes) > 100

    def bigrams(rows: list[PhrasePair]) -> set[tuple[str, str]]:
        return {two for pair in rows for two in _bigrams(pair.source)}

    assert not attributes.keys() & bigrams(book["train"])
    assert attributes.keys() & bigrams(book["test"])


def _bigrams(text: str) -> list[tuple[str, str]]:
    row = re.sub(r"'s\b", "", text.rstrip(".?!")).split(" ")
    return list(pairwise(row))


def test_new_numbers_in_the_test_set(book: dict[str, list[PhrasePair]]) -> None:
    pattern = re.compile(r"\b(?:costs?|ha[sd]|have) ([a-z -]*thousand[a-z -]*) (?:euros|inhabitants)\.")
    numbers = {split: {m[1] for pair in rows if (m := pattern.search(pair.source))} for split, rows in book.items()}
    assert len(numbers["test"] - numbers["train"]) > 0.9 * len(numbers["test"]) > 0


def test_every_word_of_the_held_out_splits_occurs_in_training(book: dict[str, list[PhrasePair]]) -> None:
    known = corpus._vocabulary(book["train"])
    assert corpus._vocabulary(book["test"]) | corpus._vocabulary(book["validation"]) <= known


def test_links_are_sorted_in_range_and_cover_the_content(pairs: list[PhrasePair]) -> None:
    unlinked: Counter[str] = Counter()
    for pair in pairs[:20_000]:
        source, target = words(pair.source), words(pair.target)
        assert list(pair.links) == sorted(set(pair.links))
        assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in pair.links)
        unlinked.update(source[i].lower() for i in set(range(len(source))) - {i for i, _ in pair.links})
        unlinked.update(target[j].lower() for j in set(range(len(target))) - {j for _, j in pair.links})
    function_words = "and,the,on,of,a,an,in,past,oh,some,est-ce,que,le,la,les,des,de,du,à,au,aux,dans,sur"
    assert not unlinked.keys() - set(function_words.split(","))


def test_elided_word_is_one_word_with_both_links() -> None:
    lex = lexicon()
    built = syntax.sentence(clause(syntax.noun_phrase(lex.nouns["man"]), lex.verbs["sleep"], "progressive"), end="?")
    assert (built.source, built.target) == ("The man is sleeping?", "L'homme dort\u00a0?")
    assert built.links == ((0, 0), (1, 0), (2, 1), (3, 1))
    assert words(built.target) == ["L'homme", "dort\u00a0?"]


def test_punctuation_and_spaces(pairs: list[PhrasePair]) -> None:
    for pair in pairs:
        assert pair.source[-1] == pair.target[-1] and pair.source[-1] in ".?!"
        assert pair.source[0].isupper() and (pair.target[0].isupper())
        assert pair.source.isascii()
        assert pair.target.count("\u00a0") == (pair.target[-1] in "?!")
        assert pair.target[-1] == "." or pair.target[-2] == "\u00a0"
        for text in (pair.source, pair.target):
            assert "  " not in text and " ," not in text and text == text.strip()


FORBIDDEN = re.compile(
    r"\b(?:[Ll][ea]|[Jj]e|[Nn]e|[Dd]e|[Qq]ue|[Ss]e|[Mm]e) (?!onze|onzi)(?:[aeiouéèêâîôœ]|homme|horloge)"
    r"|\b[LlDd][ea] h(?:ôpital|ôtel|istoire)"
    r"|\b(?:de les?|à les?) (?!$)|\bsi ils?\b|\b[Cc]e (?:homme|hôtel|[aeiouéêœ](?!st))"
    r"|\b[Ll]'(?:héros|haricot|hache|harpe|homard|hibou|hérisson|onze|huit)|\b[Dd]'(?:haricot|Hollande|hache)"
    r"|\b(?:beau|nouveau|vieux) (?:homme|ami|arbre|hôtel|oiseau|acteur|écrivain|hôpital|appartement)\b"
    r"|\b[mts]a (?:école|amie|idée|orange|assiette|horloge|histoire|usine)\b|\bpas d(?:u|es) (?!tou)"
    r"|\bun(?:e)? (?:des|de la)\b|\bdes (?:beaux|belles|nouveaux|bons|bonnes|petits|petites|vieux|vieilles|jolis) "
)


def test_no_forbidden_sequences(pairs: list[PhrasePair]) -> None:
    wrong = [pair.target for pair in pairs if (m := FORBIDDEN.search(pair.target)) and not _is_contracted(pair, m)]
    assert not wrong[:10]


def _is_contracted(pair: PhrasePair, match: re.Match[str]) -> bool:
    """des of de + les is right before an adjective (the keys of the old men), and so is pas d- of pas du tout."""
    return match.group().startswith(("des ", "pas d")) and pair.family != "existence"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: phrasebook(train=-1), "got train=-1, expected 0 or more"),
        (lambda: phrasebook(test=-5), "got test=-5"),
        (lambda: phrasebook(train=10**9), "expected at most"),
        (lambda: numerals.cardinal(1_000_000), "expected a number from 0 to 999999"),
        (lambda: numerals.cardinal(-1), "got -1"),
        (lambda: numerals.clock(24), "expected hour 0 to 23"),
        (lambda: numerals.clock(12, 7), "noon and midnight"),
        (lambda: numerals.year(900), "expected 1100 to 2099"),
        (lambda: french.conjugate("xyz", "présent", 0), "expected an infinitive"),
        (lambda: french.conjugate("manger", "subjonctif", 0), "got tense"),
    ],
)
def test_errors_say_what_was_expected(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_small_and_empty_corpora() -> None:
    assert phrasebook(train=0, validation=0, test=0) == {"train": [], "validation": [], "test": []}
    small = phrasebook(train=5, validation=1, test=2)
    assert [len(small[split]) for split in ("train", "validation", "test")] == [5, 1, 2]


@pytest.mark.parametrize(
    ("infinitive", "tense", "forms"),
    [
        ("manger", "présent", "mange manges mange mangeons mangez mangent"),
        ("manger", "imparfait", "mangeais mangeais mangeait mangions mangiez mangeaient"),
        ("commencer", "imparfait", "commençais commençais commençait commencions commenciez commençaient"),
        ("acheter", "présent", "achète achètes achète achetons achetez achètent"),
        ("acheter", "futur", "achèterai achèteras achètera achèterons achèterez achèteront"),
        ("appeler", "présent", "appelle appelles appelle appelons appelez appellent"),
        ("préférer", "futur", "préférerai préféreras préférera préférerons préférerez préféreront"),
        ("protéger", "présent", "protège protèges protège protégeons protégez protègent"),
        ("essayer", "futur", "essaierai essaieras essaiera essaierons essaierez essaieront"),
        ("envoyer", "futur", "enverrai enverras enverra enverrons enverrez enverront"),
        ("étudier", "imparfait", "étudiais étudiais étudiait étudiions étudiiez étudiaient"),
        ("finir", "présent", "finis finis finit finissons finissez finissent"),
        ("attendre", "présent", "attends attends attend attendons attendez attendent"),
        ("être", "présent", "suis es est sommes êtes sont"),
        ("aller", "futur", "irai iras ira irons irez iront"),
        ("venir", "présent", "viens viens vient venons venez viennent"),
        ("faire", "présent", "fais fais fait faisons faites font"),
        ("dire", "présent", "dis dis dit disons dites disent"),
        ("croire", "imparfait", "croyais croyais croyait croyions croyiez croyaient"),
        ("asseoir", "futur", "assiérai assiéras assiéra assiérons assiérez assiéront"),
        ("détruire", "présent", "détruis détruis détruit détruisons détruisez détruisent"),
        ("endormir", "présent", "endors endors endort endormons endormez endorment"),
    ],
)
def test_conjugation(infinitive: str, tense: str, forms: str) -> None:
    assert [french.conjugate(infinitive, tense, person) for person in range(6)] == forms.split()
