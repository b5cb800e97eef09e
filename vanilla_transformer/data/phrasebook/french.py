"""French morphology: plural and feminine forms, conjugation, elision and contraction."""

from functools import cache

VOWELS = "aàâeéèêëiîïoôuùûyœæ"
# h keeps its article whole in these words (h aspiré), and so do the numerals huit and onze.
ASPIRATED = ("hach", "harp", "haricot", "haut", "hibou", "héris", "héros", "holland", "homard", "huit", "onz")
ELIDED = frozenset({"le", "la", "je", "me", "te", "se", "ne", "de", "que", "ce", "jusque"})
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}

PLURALS = {
    "œil": "yeux", "travail": "travaux", "vitrail": "vitraux", "bijou": "bijoux", "caillou": "cailloux",
    "chou": "choux", "genou": "genoux", "hibou": "hiboux", "joujou": "joujoux", "pou": "poux", "pneu": "pneus",
    "bleu": "bleus", "landau": "landaus", "bal": "bals", "carnaval": "carnavals", "festival": "festivals",
    "récital": "récitals", "final": "finals", "naval": "navals", "fatal": "fatals",
}  # fmt: skip
FEMININES = {
    "beau": "belle", "nouveau": "nouvelle", "vieux": "vieille", "fou": "folle", "mou": "molle", "faux": "fausse",
    "roux": "rousse", "doux": "douce", "blanc": "blanche", "franc": "franche", "sec": "sèche", "frais": "fraîche",
    "public": "publique", "turc": "turque", "grec": "grecque", "long": "longue", "favori": "favorite",
    "gros": "grosse", "gras": "grasse", "bas": "basse", "épais": "épaisse", "gentil": "gentille", "bref": "brève",
    "sot": "sotte", "nul": "nulle", "complet": "complète", "inquiet": "inquiète", "discret": "discrète",
    "secret": "secrète", "concret": "concrète", "meilleur": "meilleure", "intérieur": "intérieure",
    "extérieur": "extérieure", "supérieur": "supérieure", "majeur": "majeure", "mineur": "mineure",
    "voleur": "voleuse", "dû": "due",
}  # fmt: skip
BEFORE_VOWEL = {"beau": "bel", "nouveau": "nouvel", "vieux": "vieil", "fou": "fol", "mou": "mol", "ce": "cet"}
INVARIABLE = frozenset({"marron", "en bois"})


def starts_with_vowel(word: str) -> bool:
    """Whether a word asks for elision and liaison: a vowel or a mute h, never an aspirated h; no numeral onze."""
    word = word.lower()
    if word.startswith(ASPIRATED):
        return False
    return word[0] == "h" or (word[0] in VOWELS and not word.startswith("yaourt"))


def plural(word: str) -> str:
    """The plural of a noun or of a masculine or feminine adjective in one word."""
    if word in INVARIABLE or word[-1] in "sxz":
        return word
    if word in PLURALS:
        return PLURALS[word]
    if word.endswith(("au", "eu")):
        return word + "x"
    if word.endswith("al"):
        return word[:-2] + "aux"
    return word + "s"


def feminine(word: str) -> str:
    """The feminine singular of an adjective given in the masculine singular."""
    if word in INVARIABLE or word.endswith("e"):
        return word
    if word in FEMININES:
        return FEMININES[word]
    if word.endswith("er"):
        return word[:-2] + "ère"
    if word.endswith("eur"):
        return word[:-1] + "se"
    if word.endswith("x"):
        return word[:-1] + "se"
    if word.endswith("f"):
        return word[:-1] + "ve"
    if word.endswith(("en", "on", "el", "eil", "et")):
        return word + word[-1] + "e"
    return word + "e"


def agree(word: str, gender: str, is_plural: bool) -> str:
    """An adjective or past participle, given in the masculine singular, in gender ("m" or "f") and number."""
    if gender == "f":
        word = feminine(word)
    return plural(word) if is_plural else word


# infinitive: present of je, tu, il, nous, vous, ils | stem of the imparfait | stem of the futur | past participle
_IRREGULAR = """
être: suis es est sommes êtes sont | ét | ser | été
avoir: ai as a avons avez ont | av | aur | eu
aller: vais vas va allons allez vont | all | ir | allé
faire: fais fais fait faisons faites font | fais | fer | fait
prendre: prends prends prend prenons prenez prennent | pren | prendr | pris
venir: viens viens vient venons venez viennent | ven | viendr | venu
voir: vois vois voit voyons voyez voient | voy | verr | vu
boire: bois bois boit buvons buvez boivent | buv | boir | bu
lire: lis lis lit lisons lisez lisent | lis | lir | lu
écrire: écris écris écrit écrivons écrivez écrivent | écriv | écrir | écrit
mettre: mets mets met mettons mettez mettent | mett | mettr | mis
pouvoir: peux peux peut pouvons pouvez peuvent | pouv | pourr | pu
vouloir: veux veux veut voulons voulez veulent | voul | voudr | voulu
devoir: dois dois doit devons devez doivent | dev | devr | dû
savoir: sais sais sait savons savez savent | sav | saur | su
dire: dis dis dit disons dites disent | dis | dir | dit
partir: pars pars part partons partez partent | part | partir | parti
sortir: sors sors sort sortons sortez sortent | sort | sortir | sorti
dormir: dors dors dort dormons dormez dorment | dorm | dormir | dormi
servir: sers sers sert servons servez servent | serv | servir | servi
ouvrir: ouvre ouvres ouvre ouvrons ouvrez ouvrent | ouvr | ouvrir | ouvert
offrir: offre offres offre offrons offrez offrent | offr | offrir | offert
cueillir: cueille cueilles cueille cueillons cueillez cueillent | cueill | cueiller | cueilli
recevoir: reçois reçois reçoit recevons recevez reçoivent | recev | recevr | reçu
connaître: connais connais connaît connaissons connaissez connaissent | connaiss | connaîtr | connu
naître: nais nais naît naissons naissez naissent | naiss | naîtr | né
croire: crois crois croit croyons croyez croient | croy | croir | cru
conduire: conduis conduis conduit conduisons conduisez conduisent | conduis | conduir | conduit
suivre: suis suis suit suivons suivez suivent | suiv | suivr | suivi
courir: cours cours court courons courez courent | cour | courr | couru
mourir: meurs meurs meurt mourons mourez meurent | mour | mourr | mort
rire: ris ris rit rions riez rient | ri | rir | ri
pleuvoir: pleus pleus pleut pleuvons pleuvez pleuvent | pleuv | pleuvr | plu
peindre: peins peins peint peignons peignez peignent | peign | peindr | peint
asseoir: assieds assieds assied asseyons asseyez asseyent | assey | assiér | assis
"""
# Verbs that follow an irregular one behind a prefix, or share its pattern under another first syllable.
_PATTERNS = {
    "apprendre": ("ap", "prendre"), "comprendre": ("com", "prendre"), "revenir": ("re", "venir"),
    "devenir": ("de", "venir"), "décrire": ("d", "écrire"), "découvrir": ("déc", "ouvrir"),
    "couvrir": ("c", "ouvrir"), "sourire": ("sou", "rire"), "endormir": ("en", "dormir"),
}  # fmt: skip
_LIKE_CONDUIRE = ("construire", "détruire", "traduire")
_DOUBLING = ("appeler", "jeter")
_IMPARFAIT = ("ais", "ais", "ait", "ions", "iez", "aient")
_FUTUR = ("ai", "as", "a", "ons", "ez", "ont")


def _table() -> dict[str, tuple[list[str], str, str, str]]:
    table = {}
    for line in _IRREGULAR.strip().splitlines():
        infinitive, rest = line.split(": ")
        present, imparfait, futur, participle = rest.split(" | ")
        table[infinitive] = (present.split(), imparfait, futur, participle)
    for verb, (prefix, base) in _PATTERNS.items():
        forms, *stems = table[base]
        imparfait, futur, participle = (prefix + stem for stem in stems)
        table[verb] = ([prefix + form for form in forms], imparfait, futur, participle)
    for verb in _LIKE_CONDUIRE:
        stem = verb.removesuffix("re")
        forms = [stem + ending for ending in ("s", "s", "t", "sons", "sez", "sent")]
        table[verb] = (forms, stem + "s", stem + "r", stem + "t")
    return table


_VERBS = _table()


def _silent_stem(infinitive: str) -> tuple[str, str]:
    """The stem of an -er verb before a silent e, and the stem of its futur (traditional orthography: préférer-)."""
    stem = infinitive[:-2]
    if infinitive.endswith(("oyer", "uyer", "ayer")):
        silent = stem[:-1] + "i"  # nettoie; of paie and paye the first is taken
        return silent, "enverr" if infinitive == "envoyer" else silent + "er"
    if infinitive in _DOUBLING:
        return stem + stem[-1], stem + stem[-1] + "er"
    if len(stem) > 2 and stem[-1] not in VOWELS:
        if stem[-2] == "e" and stem[-1] in "clmnprstv":
            silent = stem[:-2] + "è" + stem[-1]  # achète, achètera
            return silent, silent + "er"
        if stem[-2] == "é":
            return stem[:-2] + "è" + stem[-1], infinitive  # préfère, but préférera
    return stem, infinitive


def _regular(infinitive: str) -> tuple[list[str], str, str, str]:
    stem = infinitive[:-2]
    if infinitive.endswith("er"):
        silent, futur = _silent_stem(infinitive)
        # g and c keep their soft sound before a and o: mangeons, commençons
        soft = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
        present = [silent + "e", silent + "es", silent + "e", soft + "ons", stem + "ez", silent + "ent"]
        return present, soft, futur, stem + "é"
    if infinitive.endswith("ir"):
        present = [stem + ending for ending in ("is", "is", "it", "issons", "issez", "issent")]
        return present, stem + "iss", infinitive, stem + "i"
    if infinitive.endswith("re"):
        present = [stem + ending for ending in ("s", "s", "" if stem.endswith("d") else "t", "ons", "ez", "ent")]
        return present, stem, infinitive[:-1], stem + "u"
    raise ValueError(
        f"got {infinitive!r}, expected an infinitive in -er, -ir or -re; remedy: give the bare infinitive"
    )


@cache
def _paradigm(infinitive: str) -> tuple[list[str], str, str, str]:
    return _VERBS.get(infinitive) or _regular(infinitive)


@cache
def conjugate(infinitive: str, tense: str, person: int) -> str:
    """The form for person 0 to 5 (je, tu, il, nous, vous, ils) in the tense présent, imparfait, futur or impératif."""
    present, imparfait, futur, _ = _paradigm(infinitive)
    if tense == "présent":
        return present[person]
    if tense == "imparfait":
        stem = imparfait
        if person in (3, 4) and infinitive.endswith(("ger", "cer")):
            stem = infinitive[:-2]  # mangions and commencions: soft before i as they are
        return stem + _IMPARFAIT[person]
    if tense == "futur":
        return futur + _FUTUR[person]
    if tense == "impératif":
        irregular = {"être": "soy", "avoir": "ay", "savoir": "sach"}.get(infinitive)
        return irregular + ("ons" if person == 3 else "ez") if irregular else present[person]
    raise ValueError(f"got tense {tense!r}, expected présent, imparfait, futur or impératif; remedy: name one of them")


def participle(infinitive: str) -> str:
    """The past participle, masculine singular."""
    return _paradigm(infinitive)[3]


def join(tokens: list[tuple[str, int]]) -> tuple[list[str], list[tuple[int, ...]]]:
    """Elide and contract a row of (word, tag); returns the words between spaces and the tags that each expresses.

    A pronoun le or les is never contracted: the grammar puts none behind de or à.
    """
    words: list[str] = []
    tags: list[tuple[int, ...]] = []
    held = ""
    held_tags: tuple[int, ...] = ()
    i, last = 0, len(tokens) - 1
    while i <= last:
        word, tag = tokens[i]
        if word == "," or word[0] == "-":  # a comma, a pronoun behind an order: part of the word before
            words[-1] += word
            tags[-1] = (*tags[-1], tag)
            i += 1
            continue
        tag_row = (*held_tags, tag)
        if i < last:
            following = tokens[i + 1][0]
            if (word in ELIDED and starts_with_vowel(following)) or (word == "si" and following in ("il", "ils")):
                held += word[:-1] + "'"
                held_tags = tag_row
                i += 1
                continue
            # de + le + homme stays de l'homme
            is_elided = following == "le" and i + 1 < last and starts_with_vowel(tokens[i + 2][0])
            if (word, following) in CONTRACTED and not is_elided:
                word = CONTRACTED[word, following]
                tag_row = (*tag_row, tokens[i + 1][1])
                i += 1
        words.append(held + word)
        tags.append(tag_row)
        held, held_tags = "", ()
        i += 1
    return words, tags
