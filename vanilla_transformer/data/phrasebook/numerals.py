"""Cardinal numbers, ordinals, years and clock times, each as two rows of (word, part).

A part is a small number that says which words of the two languages express the same thing; 0 expresses nothing of
its own. French follows the traditional orthography: hyphens only below one hundred and never around "et", mille
invariable, cent and vingt plural only when multiplied and last. English writes "two hundred and one".
"""

_split = str.split
Row = list[tuple[str, int]]

_EN_UNITS = _split(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_EN_TENS = _split("_ _ twenty thirty forty fifty sixty seventy eighty ninety")
_FR_UNITS = _split(
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit "
    "dix-neuf"
)
_FR_TENS = _split("_ _ vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt")
_EN_ORDINALS = {1: "first", 2: "second", 3: "third", 5: "fifth", 8: "eighth", 9: "ninth", 12: "twelfth"}
LARGEST = 999_999


def _english_below_hundred(n: int) -> str:
    if n < 20:
        return _EN_UNITS[n]
    tens, unit = divmod(n, 10)
    return _EN_TENS[tens] + ("-" + _EN_UNITS[unit] if unit else "")


def _french_below_hundred(n: int, is_last: bool = True, gender: str = "m") -> list[str]:
    """81 is quatre-vingt-un, 71 soixante et onze; quatre-vingts loses its s before another numeral."""
    if n < 20:
        words = [_FR_UNITS[n]]
    else:
        tens, unit = divmod(n, 10)
        if tens in (7, 9):
            unit += 10
        if n == 80:
            words = ["quatre-vingts" if is_last else "quatre-vingt"]
        elif unit == 0:
            words = [_FR_TENS[tens]]
        elif unit in (1, 11) and tens < 8:
            words = [_FR_TENS[tens], "et", _FR_UNITS[unit]]
        else:
            words = [_FR_TENS[tens] + "-" + _FR_UNITS[unit]]
    if gender == "f" and (words[-1] == "un" or words[-1].endswith("-un")):
        words[-1] += "e"
    return words


def _below_thousand(n: int, part: int, is_last: bool, gender: str) -> tuple[Row, Row]:
    """Hundreds take the number `part`, the rest the next one."""
    hundreds, rest = divmod(n, 100)
    english: Row = []
    french: Row = []
    if hundreds:
        english += [(_EN_UNITS[hundreds], part), ("hundred", part)]
        if hundreds > 1:
            french.append((_FR_UNITS[hundreds], part))
        french.append(("cents" if hundreds > 1 and not rest and is_last else "cent", part))
        if rest:
            english.append(("and", 0))
    if rest or not hundreds:
        english.append((_english_below_hundred(rest), part + 1))
        french += [(word, part + 1) for word in _french_below_hundred(rest, is_last, gender)]
    return english, french


def cardinal(n: int, gender: str = "m") -> tuple[Row, Row]:
    """The number in English and in French; gender "f" makes the une of vingt et une pommes."""
    if not 0 <= n <= LARGEST:
        raise ValueError(f"got {n}, expected a number from 0 to {LARGEST}; remedy: choose a number in this range")
    thousands, rest = divmod(n, 1000)
    english: Row = []
    french: Row = []
    if thousands:
        count, nombre = _below_thousand(thousands, 1, False, "m")
        english += [*count, ("thousand", 3)]
        # one thousand is mille alone
        french += ([*nombre, ("mille", 3)]) if thousands > 1 else [("mille", 3)]
        if thousands == 1:
            english[0] = (english[0][0], 3)
        if 0 < rest < 100:
            english.append(("and", 0))
    if rest or not thousands:
        count, nombre = _below_thousand(rest, 4, True, gender)
        english += count
        french += nombre
    return english, french


def ordinal(n: int) -> str:
    """first, twentieth, thirty-first."""
    tens, unit = divmod(n, 10)
    if n > 20 and unit:
        return _EN_TENS[tens] + "-" + ordinal(unit)
    if n in _EN_ORDINALS:
        return _EN_ORDINALS[n]
    word = _english_below_hundred(n)
    return word[:-1] + "ieth" if word.endswith("y") else word + "th"


def year(n: int) -> tuple[Row, Row]:
    """nineteen eighty-four, nineteen oh five, nineteen hundred; from 2000 on as a number: two thousand and five."""
    if not 1100 <= n <= 2099:
        raise ValueError(f"got year {n}, expected 1100 to 2099; remedy: choose a year in this range")
    if n >= 2000:
        source, target = cardinal(n)
        return source, [(word.replace("vingts", "vingt"), part) for word, part in target]
    century, rest = divmod(n, 100)
    tail = "hundred" if not rest else _english_below_hundred(rest)
    english = [(_english_below_hundred(century), 1), *([("oh", 0)] if 0 < rest < 10 else []), (tail, 2 if rest else 1)]
    # The number of a year has the sense of an ordinal: cent and quatre-vingt stay without s, en mille neuf cent.
    french = [("mille", 1), *([(_FR_UNITS[century - 10], 1)] if century > 11 else []), ("cent", 1)]
    if rest:
        french += [(word, 2) for word in _french_below_hundred(rest, is_last=False)]
    return english, french


def clock(hour: int, minute: int = 0, day_part: bool = False) -> tuple[Row, Row]:
    """A time of day, hour 0 to 23: multiples of five as "a quarter past three", other minutes as "three oh seven".

    With `day_part`, in the morning, in the afternoon, in the evening; noon and midnight have none.
    """
    if not (0 <= hour <= 23 and 0 <= minute <= 59):
        raise ValueError(f"got {hour}:{minute:02}, expected hour 0 to 23 and minute 0 to 59; remedy: give such a time")
    before = minute > 30 and minute % 5 == 0
    named = (hour + before) % 24
    special = {0: ("midnight", "minuit"), 12: ("noon", "midi")}.get(named)
    english: Row = []
    if special:
        name, nom = [(special[0], 1)], [(special[1], 1)]
    else:
        name = [(_EN_UNITS[named % 12], 1)]
        nom = [(_french_below_hundred(named % 12, gender="f")[0], 1), ("heure" if named % 12 == 1 else "heures", 1)]
    french: Row = list(nom)
    if minute == 0:
        english = name if special else [*name, ("o'clock", 1)]
    elif minute % 5:
        if special:
            raise ValueError(
                f"got {hour}:{minute:02}, expected minutes by five after noon and midnight; remedy: round"
            )
        english = [*name, *([("oh", 0)] if minute < 10 else []), (_english_below_hundred(minute), 2)]
        # minutes are feminine: trois heures vingt et une
        french += [(word, 2) for word in _french_below_hundred(minute, gender="f")]
    elif minute == 30:
        english = [("half", 2), ("past", 2), *name]
        french += [("et", 2), ("demi" if special else "demie", 2)]
    else:
        minutes = 60 - minute if before else minute
        if minutes == 15:
            english = [("a", 0), ("quarter", 2)]
            french += [("moins", 3), ("le", 0), ("quart", 2)] if before else [("et", 3), ("quart", 2)]
        else:
            english = [(_english_below_hundred(minutes), 2)]
            if before:
                french.append(("moins", 3))
            french += [(word, 2) for word in _french_below_hundred(minutes)]
        english += [("to" if before else "past", 3), *name]
    if day_part and not special:
        if named < 12:
            english += [("in", 0), ("the", 0), ("morning", 4)]
            french += [("de", 4), ("le", 4), ("matin", 4)]
        elif named < 18:
            english += [("in", 0), ("the", 0), ("afternoon", 4)]
            french += [("de", 4), ("le", 4), ("après-midi", 4)]
        else:
            english += [("in", 0), ("the", 0), ("evening", 4)]
            french += [("de", 4), ("le", 4), ("soir", 4)]
    return english, french
