"""Phrasebook: an English-French corpus with real orthography and agreement, made by a small grammar.

The English sentence determines the French one: a source never has two targets. Words, for links and for Pharaoh
files, are what stands between plain spaces (`words`): "l'homme" is one word, and so is "livre\u00a0?", since French
sets a no-break space (U+00A0) before ? and !.
"""

from .corpus import FAMILIES, PhrasePair, phrasebook, words

__all__ = ["FAMILIES", "PhrasePair", "phrasebook", "words"]
