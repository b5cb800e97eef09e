"""BPE dropout (Provilkov et al. 2020, section 4): in training, a word is cut another way each time that it is met."""

import hashlib
import json
import random
from itertools import pairwise

from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast

VARIANTS = 64  # of a word
REMEMBERED = 2**20  # variants of words: a frequent word is not cut anew each time


class Segmentation:
    """Words into token ids by the merges of a BPE tokenizer, of which any is left out with probability `dropout`.

    Which cut comes out depends on the word, its variant and the seed alone, not on what was cut before: a training
    that resumes meets the very same ones.

    Args:
        tokenizer: a fast one around a byte-level BPE, so that every symbol of a word is a token.
        dropout: 0 cuts as the tokenizer does, 1 into single bytes.

    Raises:
        ValueError: for a tokenizer of another kind.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, dropout: float, seed: int):
        backend = getattr(tokenizer, "backend_tokenizer", None)  # which slow ones have not
        model = json.loads(backend.to_str())["model"] if backend is not None else {"type": type(tokenizer).__name__}
        self.vocabulary = tokenizer.get_vocab()
        bytewise = all(byte in self.vocabulary for byte in "aĠ")
        if backend is None or model["type"] != "BPE" or not backend.pre_tokenizer or not bytewise:
            raise ValueError(
                f"BPE dropout cuts words by the merges of a byte-level BPE, and the tokenizer is a {model['type']}: "
                "set training.bpe_dropout=0"
            )
        self.pre_tokenizer = backend.pre_tokenizer
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(pairs)}
        self.dropout, self.seed = dropout, seed
        self.known: dict[tuple[str, int], list[int]] = {}

    def __call__(self, text: str, rng: random.Random) -> list[int]:
        """Token ids of a text, without special tokens; `rng` chooses a variant of each of its words."""
        ids: list[int] = []
        for word, _ in self.pre_tokenizer.pre_tokenize_str(text):
            ids += self.variant(word, rng.randrange(VARIANTS))
        return ids

    def variant(self, word: str, number: int) -> list[int]:
        key = word, number
        if key not in self.known:
            if len(self.known) >= REMEMBERED:
                self.known.clear()
            symbols = self.cut(word, random.Random(f"{self.seed} {number} {word}"))
            self.known[key] = [self.vocabulary[symbol] for symbol in symbols]
        return self.known[key]

    def cut(self, word: str, rng: random.Random) -> list[str]:
        """The merge of the best rank, again and again, among those that are possible and not left out this time."""
        symbols = list(word)
        while True:
            possible = [
                (self.ranks[pair], place)
                for place, pair in enumerate(pairwise(symbols))
                if pair in self.ranks and rng.random() >= self.dropout
            ]
            if not possible:
                return symbols
            place = min(possible)[1]
            symbols[place : place + 2] = ["".join(symbols[place : place + 2])]


class BpeDropoutCollator(DataCollatorForSeq2Seq):
    """Cuts both sides anew, in ways that depend on the seed and on which pairs stand together in a batch: that differs
    from epoch to epoch, and is the same when a training resumes."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, dropout: float, seed: int, longest: int):
        super().__init__(tokenizer)
        self.longest = longest  # tokens of a sentence; one that would be cut into more stays as it is
        self.segmentation = Segmentation(tokenizer, dropout, seed)

    def __call__(self, features, return_tensors=None):
        digest = hashlib.sha256(str([feature["labels"] for feature in features]).encode()).digest()
        rng = random.Random(digest)
        cut = [{side: self.anew(feature[side], rng) for side in ("input_ids", "labels")} for feature in features]
        return super().__call__(cut, return_tensors)

    def anew(self, ids: list[int], rng: random.Random) -> list[int]:
        cut = [*self.segmentation(self.tokenizer.decode(ids[:-1]), rng), self.tokenizer.eos_token_id]
        return cut if len(cut) <= self.longest else ids
